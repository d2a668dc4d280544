//! The list Z1 to Z7 and Z11 of the reliability page, as far as it concerns the gateway.

use std::time::Duration;

use rota_testbed::provider::{Step, answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{KEY, Lab, MESSAGE, REPLY, SOON, read_answer, until};

/// Writes bytes as they are and reads until the other side closes, or nothing comes for a moment.
async fn raw(lab: &Lab, text: &str) -> String {
    let mut stream = TcpStream::connect(lab.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_millis(700), stream.read(&mut piece)).await
    {
        if count == 0 {
            bytes.extend_from_slice(b"<closed>");
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn status(text: &str) -> u16 {
    text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Z1: another's name, another's page.
#[tokio::test(flavor = "multi_thread")]
async fn names_and_pages_of_others_are_refused() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let token = &lab.token;
    let host = |lines: &str| {
        format!("POST /v1/messages HTTP/1.1\r\n{lines}x-api-key: {token}\r\ncontent-length: 2\r\n\r\n{{}}")
    };
    let here = format!("host: {}\r\n", lab.address);
    for (lines, expected) in [
        (here.clone(), 200),
        ("host: localhost\r\n".to_owned(), 200),
        ("host: [::1]:80\r\n".to_owned(), 200),
        (String::new(), 403),
        ("host: evil.example\r\n".to_owned(), 403),
        ("host: localhost.evil.example\r\n".to_owned(), 403),
        ("host: 0.0.0.0\r\n".to_owned(), 403),
        ("host: 10.0.0.1\r\n".to_owned(), 403),
        ("host: localhost\r\nhost: localhost\r\n".to_owned(), 403),
        (format!("{here}origin: null\r\n"), 403),
        (format!("{here}origin: http://evil.example\r\n"), 403),
        (format!("{here}origin: http://localhost:3000\r\n"), 200),
    ] {
        let got = raw(&lab, &host(&lines)).await;
        assert!(
            [expected, 400].contains(&status(&got)) && (expected == 403 || status(&got) == 200),
            "{lines}: {got}"
        );
        assert!(!got.to_ascii_lowercase().contains("access-control"), "{got}");
    }
    assert_eq!(lab.provider.seen().len(), 4);
}

/// Z2: no token, a wrong one, one in the query, a form, a preflight.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_a_token() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let here = || lab.ask("POST", "/v1/messages").body(MESSAGE);
    let wrong = format!("{}x", lab.token);
    let asks = [
        here(),
        here().header("x-api-key", ""),
        here().header("x-api-key", &wrong),
        here().header("authorization", &format!("Basic {}", lab.token)),
        here().header("x-api-key", "lease.61.62.63.64"),
        here().header("x-api-key", "rota-unknown"),
        here().header("cookie", &format!("token={}", lab.token)),
        here().header("content-type", "application/x-www-form-urlencoded").header("x-csrf", "1"),
        lab.ask("POST", &format!("/v1/messages?token={0}&key={0}&x-api-key={0}", lab.token)).body(MESSAGE),
        lab.ask("OPTIONS", "/v1/messages").header("access-control-request-method", "POST"),
        lab.ask("GET", "/rota/status"),
        lab.ask("GET", "/nowhere"),
    ];
    for ask in asks {
        let got = ask.answer().await;
        assert_eq!(got.status, 401, "{got:?}");
        assert!(got.headers.iter().all(|(name, _)| !name.starts_with("access-control")));
        assert!(got.text().contains("authentication_error") || got.text().contains("invalid_api_key"));
    }
    assert!(lab.provider.seen().is_empty());
    assert_eq!(lab.ask("HEAD", "/").answer_head().await, 200);
    assert_eq!(lab.ask("GET", "/").answer().await.text(), "rota gateway\n");
    assert_eq!(lab.ask("GET", "/nowhere").header("x-api-key", &lab.token).answer().await.status, 404);
    let status = lab.ask("GET", "/rota/status").header("x-api-key", &lab.token).answer().await;
    assert!(
        status.status == 200 && status.text().contains("\"upstream\":\"anthropic\""),
        "{}",
        status.text()
    );
}

/// Z4: nothing that a caller says moves a call elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_configuration_says_where_calls_go() {
    let bait = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    bait.set_nonblocking(true).unwrap();
    let elsewhere = bait.local_addr().unwrap();
    let redirect = format!("http://{elsewhere}/");
    let lab = Lab::start(move |_| answer(307, &[("location", &redirect)], "{}")).await;
    let body = format!(r#"{{"model":"m","api_base":"http://{elsewhere}","base_url":"http://{elsewhere}"}}"#);
    let asks = [
        lab.message().body(&body),
        lab.message()
            .header("x-forwarded-host", &elsewhere.to_string())
            .header("forwarded", &format!("host={elsewhere}")),
        lab.message()
            .header("x-original-url", &format!("http://{elsewhere}/"))
            .header("x-upstream", &elsewhere.to_string()),
    ];
    for ask in asks {
        assert_eq!(ask.answer().await.status, 307);
    }
    let token = &lab.token;
    for (target, expected) in [
        ("http://evil.example/v1/messages".to_owned(), [403, 400]),
        (format!("http://{elsewhere}/v1/messages"), [307, 307]),
        (format!("//{elsewhere}/v1/messages"), [404, 400]),
        (format!("/anthropic/http://{elsewhere}/v1/messages"), [307, 307]),
        (format!("/anthropic@{elsewhere}/v1/messages"), [404, 404]),
        ("/anthropic/..%2f..%2fv1/messages".to_owned(), [404, 404]),
    ] {
        let text = format!(
            "POST {target} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {token}\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        let got = raw(&lab, &text).await;
        assert!(expected.contains(&status(&got)), "{target}: {got}");
    }
    assert!(bait.accept().is_err(), "somebody came to the wrong place");
}

/// Z5: whatever the framing, one request is at most one request at the provider.
#[tokio::test(flavor = "multi_thread")]
async fn no_body_becomes_a_second_request() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let token = &lab.token;
    let inner = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {token}\r\nx-smuggled: 1\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {token}\r\n");
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", inner.len(), inner);
    let cases = [
        format!("{head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("{head}transfer-encoding: chunked\r\ncontent-length: {}\r\n\r\n{chunked}", chunked.len()),
        format!("{head}content-length: 2\r\ncontent-length: {}\r\n\r\n{{}}{inner}", inner.len() + 2),
        format!("{head}content-length: 2, 2\r\n\r\n{{}}{inner}"),
        format!("{head}transfer-encoding: chunked\t\r\n\r\n0\r\n\r\n{inner}"),
        format!("{head}transfer-encoding : chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("{head}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("{head}transfer-encoding: identity\r\ncontent-length: 2\r\n\r\n{{}}{inner}"),
        format!("{head}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}"),
        format!("{head}content-length: +2\r\n\r\n{{}}{inner}"),
        format!("{head}content-length: -1\r\n\r\n{inner}"),
        format!("{head}x: 1\ncontent-length: {}\r\n\r\n{inner}", inner.len()).replacen("1.1\r\n", "1.1\n", 1),
        format!("{head}connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{{}}{inner}"),
        format!(
            "{head}connection: x-api-key, content-length\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n{{}}"
        ),
    ];
    for (number, case) in cases.iter().enumerate() {
        let got = raw(&lab, &case.replacen("/v1/messages", &format!("/v1/messages?case={number}"), 1)).await;
        assert!(!got.is_empty(), "{case}");
    }
    for seen in lab.provider.seen() {
        let lengths = seen.headers.iter().filter(|(name, _)| name == "content-length").count();
        let framings = seen.headers.iter().filter(|(name, _)| name == "transfer-encoding").count();
        assert_eq!((lengths, framings), (1, 0), "{seen:?}");
        assert!(seen.header("expect").is_none() && seen.header("connection").is_none(), "{seen:?}");
        let is_second = seen.header("x-smuggled").is_some();
        let text = String::from_utf8_lossy(&seen.body).into_owned();
        // A second request on a connection is only one where the first one's length left no doubt.
        assert!(!is_second, "a body became a request: {seen:?}");
        assert!(["{}", ""].contains(&text.as_str()) || text == inner, "{text}");
    }
}

/// Z6: keys and tokens are in nothing that is shown or kept.
#[tokio::test(flavor = "multi_thread")]
async fn canaries_are_nowhere() {
    let echo = |seen: &rota_testbed::provider::Seen| {
        // A provider that repeats what it was sent, in every way.
        let said = format!(
            r#"{{"error":{{"type":"x","message":"{} {}"}}}}"#,
            seen.header("x-api-key").unwrap_or(""),
            seen.target
        );
        match seen.number {
            0 => answer(
                429,
                &[("retry-after", "1"), ("x-echo", seen.header("x-api-key").unwrap_or(""))],
                &said,
            ),
            1 => answer(503, &[], &said),
            2 => vec![Step::Cut],
            _ => answer(200, &[], REPLY),
        }
    };
    let mut lab = Lab::start(echo).await;
    let query = lab.ask("POST", "/v1/messages?secret=canary-query").header("x-api-key", &lab.token);
    let bodies = [MESSAGE.replace("hi", "canary-body"), "canary-not-json".to_owned()];
    for body in &bodies {
        let got = query.clone().header("x-secret", "canary-header").body(body).answer().await;
        assert!(!format!("{got:?}").contains(KEY), "{got:?}");
    }
    let wrong = lab
        .ask("POST", "/v1/messages")
        .header("x-api-key", "canary-wrong-token")
        .body(MESSAGE)
        .answer()
        .await;
    assert!(!format!("{wrong:?}").contains("canary"), "{wrong:?}");
    let panel = lab.ask("GET", "/rota/status").header("x-api-key", &lab.token).answer().await.text();
    let notices = format!("{:?}", lab.notices.lock().unwrap());
    lab.stop().await.unwrap();
    let mut kept = vec![panel, notices];
    for entry in std::fs::read_dir(lab.folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "token") && path.is_file() {
            kept.push(String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned());
        }
    }
    for text in kept {
        assert!(
            !text.contains("canary") && !text.contains(&lab.token),
            "found in {}",
            &text[..text.len().min(200)]
        );
    }
}

/// Z11: what is too long or too slow is refused, and the rest goes on.
#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_and_the_rest_goes_on() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let token = &lab.token;
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {token}\r\n");
    let many: String = (0..300).map(|number| format!("x-{number}: 1\r\n")).collect();
    for (text, expected) in [
        (format!("{head}{many}content-length: 2\r\n\r\n{{}}"), 431),
        (format!("{head}x-long: {}\r\ncontent-length: 2\r\n\r\n{{}}", "y".repeat(300_000)), 431),
        (format!("POST /v1/messages?{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "y".repeat(300_000)), 431),
        ("nonsense\r\n\r\n".to_owned(), 400),
    ] {
        let got = raw(&lab, &text).await;
        let is_refused = [expected, 414, 400].contains(&status(&got)) || got == "<closed>";
        assert!(is_refused, "{}: {}", &text[100..120], &got[..got.len().min(200)]);
    }
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(lab.address).await.unwrap();
        // Some say nothing, some only the beginning.
        stream.write_all(b"POST /v1").await.unwrap();
        idle.push(stream);
        idle.push(TcpStream::connect(lab.address).await.unwrap());
    }
    assert_eq!(lab.message().answer().await.status, 200);
    drop(idle);
    assert_eq!(lab.message().answer().await.status, 200);
    until("nothing is held", || lab.view().running == 0).await;
}

/// The bounds on time, which are minutes: a head that never ends, a body that stops, a client that takes nothing.
/// `cargo test -p rota-gateway --test it slow_clients_are_dropped -- --ignored`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than two minutes"]
async fn slow_clients_are_dropped() {
    let piece = rota_testbed::provider::chunk(&[b'x'; 65_536]);
    let lab = Lab::start(move |_| {
        let mut steps = rota_testbed::provider::stream(&["data: first\n\n"]);
        steps.insert(2, Step::Flood(piece.clone(), 1_000));
        steps
    })
    .await;
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\n", lab.token);
    let slow_head = async {
        let mut stream = TcpStream::connect(lab.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // A byte now and then is not enough.
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let slow_body = async {
        let mut stream = TcpStream::connect(lab.address).await.unwrap();
        stream.write_all(format!("{head}content-length: 9\r\n\r\n{{").as_bytes()).await.unwrap();
        read_answer(&mut stream).await.status
    };
    let taking_nothing = async {
        let _stream = lab.message().send().await;
        until("it streams", || lab.view().running == 1).await;
        let start = std::time::Instant::now();
        while lab.view().running > 0 {
            assert!(start.elapsed() < Duration::from_secs(240), "its slot is still held");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let bounded = tokio::time::timeout(Duration::from_secs(300), async {
        tokio::join!(slow_head, slow_body, taking_nothing)
    });
    let ((), status, ()) = bounded.await.expect("all are dropped");
    assert_eq!(status, 408);
}

/// A body that stops coming is not waited for in a slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_takes_no_slot() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let mut stream = TcpStream::connect(lab.address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\ncontent-length: 2\r\n\r\n{{",
        lab.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(lab.message().answer().await.status, 200);
    assert_eq!((lab.view().running, lab.view().queued), (0, 0));
    stream.write_all(b"}").await.unwrap();
    let got = tokio::time::timeout(SOON, read_answer(&mut stream)).await.unwrap();
    assert_eq!(got.status, 200);
}
