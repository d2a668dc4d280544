//! What passes, and how: bytes, headers, streams, cuts.

use std::time::Duration;

use rota_testbed::provider::{Step, answer, chunk, stream};
use tokio::io::AsyncReadExt;

use crate::lab::{KEY, Lab, MESSAGE, REPLY, SOON, read_answer, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_passes_and_comes_back_as_it_is() {
    let odd = [
        ("x-odd", "a;b=\"c\""),
        ("request-id", "req_1"),
        ("x-rota-secret", "1"),
        ("anthropic-ratelimit-requests-remaining", "49"),
    ];
    let lab = Lab::start(move |_| answer(200, &odd, REPLY)).await;
    let ask = lab.ask("POST", "/v1/messages?beta=true").header("x-api-key", &lab.token);
    let ask = ask.header("anthropic-version", "2023-06-01").header("anthropic-beta", "one,two");
    let ask = ask.header("X-Stainless-Timeout", "NOT_GIVEN").header("x-rota-priority", "low").body(MESSAGE);
    let got = ask.answer().await;
    assert_eq!((got.status, got.text().as_str(), got.is_whole), (200, REPLY, true));
    assert_eq!((got.header("x-odd"), got.header("request-id")), (Some("a;b=\"c\""), Some("req_1")));
    assert_eq!((got.header("x-rota-attempts"), got.header("x-rota-secret")), (Some("1"), None));
    assert!(got.header("x-rota-wait-ms").is_some_and(|wait| wait.parse::<u64>().is_ok()));
    let seen = &lab.provider.seen()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/v1/messages?beta=true"));
    assert_eq!(String::from_utf8_lossy(&seen.body), MESSAGE);
    let host = lab.provider.url().replace("http://", "");
    let expected = [
        ("anthropic-beta", "one,two"),
        ("anthropic-version", "2023-06-01"),
        ("content-length", &MESSAGE.len().to_string()),
        ("host", &host),
        ("x-api-key", KEY),
        ("x-stainless-timeout", "NOT_GIVEN"),
    ];
    let mut headers: Vec<(&str, &str)> =
        seen.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    headers.sort_unstable();
    assert_eq!(headers, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_the_provider_are_used_again() {
    let lab =
        Lab::start(
            |seen| if seen.number % 2 == 0 { answer(200, &[], REPLY) } else { stream(&["data: 1\n\n"]) },
        )
        .await;
    for _ in 0..20 {
        assert!(lab.message().answer().await.is_whole);
    }
    assert_eq!(lab.provider.connections().0, 1);
    assert_eq!((lab.view().completed, lab.view().running, lab.view().idle_connections), (20, 0, 1));
}

/// A provider that closes an idle connection is asked on a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_replaced() {
    let lab = Lab::start(|seen| {
        let mut steps = answer(200, &[], REPLY);
        if seen.number % 3 == 0 {
            steps.push(Step::Cut);
        }
        steps
    })
    .await;
    for number in 0..30 {
        assert_eq!(lab.message().answer().await.status, 200);
        if number % 3 == 0 {
            lab.provider.wait_until("it closed the connection", |provider| provider.connections().1 == 0);
        }
    }
    assert_eq!(lab.provider.seen().len(), 30, "nothing was sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_arrives_as_it_is_sent() {
    let lab = Lab::start(|_| {
        let mut steps = stream(&[": hello\n\n", "event: ping\ndata: {}\n\n", "event: unknown\ndata: x\n\n"]);
        // Before its last two steps, so that the first must arrive while the rest is not there yet.
        steps.insert(2, Step::WaitForOpen);
        steps
    })
    .await;
    let mut client = lab.message().send().await;
    let mut first = vec![0; 1_024];
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(": hello") {
        let count = tokio::time::timeout(SOON, client.read(&mut first)).await.unwrap().unwrap();
        assert!(count > 0);
        bytes.extend_from_slice(&first[..count]);
    }
    assert!(!String::from_utf8_lossy(&bytes).contains("ping"));
    assert_eq!(lab.view().running, 1, "the slot is held while the stream lasts");
    lab.provider.open();
    let mut rest = Vec::new();
    while !String::from_utf8_lossy(&rest).contains("0\r\n\r\n") {
        let count = tokio::time::timeout(SOON, client.read(&mut first)).await.unwrap().unwrap();
        rest.extend_from_slice(&first[..count]);
    }
    let text = String::from_utf8_lossy(&rest).into_owned();
    assert!(
        text.contains("event: ping\ndata: {}\n\n") && text.contains("event: unknown\ndata: x\n\n"),
        "{text}"
    );
    until("the slot is free", || lab.view().running == 0).await;
}

/// A cut reaches the client as a cut, with every byte that came before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_is_a_cut_with_all_that_came_before() {
    let lab = Lab::start(|seen| {
        let mut steps = stream(&[&"data: piece\n\n".repeat(50 + seen.number)]);
        steps.pop();
        steps.push(Step::Send(chunk(b"data: the last one\n\n")));
        steps.push(Step::Cut);
        steps
    })
    .await;
    for number in 0..60 {
        let got = lab.message().answer().await;
        assert_eq!((got.status, got.is_whole), (200, false));
        let text = got.text();
        assert_eq!(text.matches("data: piece\n\n").count(), 50 + number);
        assert!(text.ends_with("data: the last one\n\n"));
    }
    until("every slot is free", || lab.view().running == 0).await;
    let lab = Lab::start(|_| {
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{REPLY}"
        );
        vec![Step::Send(text.into_bytes()), Step::Cut]
    })
    .await;
    let got = lab.message().answer().await;
    assert_eq!((got.is_whole, got.text().as_str()), (false, REPLY));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_calls_take_no_slot() {
    let lab =
        Lab::start(|_| vec![Step::WaitForOpen].into_iter().chain(answer(200, &[], "{}")).collect()).await;
    let paths = [
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/anthropic/v1/messages/batches"),
        ("GET", "/v1/models"),
        ("POST", "/openai/v1/files"),
        ("DELETE", "/openai/v1/responses/resp_1"),
    ];
    let mut clients = Vec::new();
    for (method, path) in paths {
        clients.push(
            lab.ask(method, path).header("authorization", &format!("Bearer {}", lab.token)).send().await,
        );
    }
    lab.provider.wait_until("all are there", |provider| provider.running() == paths.len());
    assert_eq!(lab.view().running, 0);
    lab.provider.open();
    for client in &mut clients {
        assert_eq!(read_answer(client).await.status, 200);
    }
    let mut targets: Vec<String> = lab.provider.seen().into_iter().map(|seen| seen.target).collect();
    targets.sort();
    assert_eq!(
        targets,
        [
            "/v1/files",
            "/v1/messages/batches",
            "/v1/messages/count_tokens",
            "/v1/models",
            "/v1/responses/resp_1"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_says_passes_whatever_it_is() {
    let statuses = [400, 401, 404, 413, 500, 504, 302];
    let lab = Lab::start(move |seen| {
        let location = [("location", "http://127.0.0.1:1/elsewhere")];
        answer(
            statuses[seen.number],
            &location,
            r#"{"type":"error","error":{"type":"odd","message":"as it is"}}"#,
        )
    })
    .await;
    for status in statuses {
        let got = lab.message().answer().await;
        assert_eq!((got.status, got.text().contains("as it is")), (status, true));
    }
    assert_eq!(lab.provider.seen().len(), statuses.len(), "nothing was sent twice, no redirect followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_pass_and_larger_ones_do_not() {
    let lab = Lab::start(|seen| answer(200, &[], &format!("{{\"length\":{}}}", seen.body.len()))).await;
    let body = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "y".repeat(33_000_000));
    let got = lab.message().body(&body).answer().await;
    assert_eq!((got.status, got.text()), (200, format!("{{\"length\":{}}}", body.len())));
    let head = lab.ask("POST", "/v1/messages").header("x-api-key", &lab.token);
    let mut client = head.clone().header("content-length", "67108865").body("").send().await;
    // Two lengths are no request; one that says too much is refused before it is sent.
    assert_eq!(read_answer(&mut client).await.status, 400);
    let text = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\ncontent-length: 67108865\r\n\r\n",
        lab.token
    );
    let mut client = tokio::net::TcpStream::connect(lab.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut client, text.as_bytes()).await.unwrap();
    let got = read_answer(&mut client).await;
    assert_eq!((got.status, got.text().contains("request_too_large")), (413, true));
    // One that says nothing of its length is refused where it becomes too much.
    let text = text.replace("content-length: 67108865", "transfer-encoding: chunked");
    let (mut reading, mut writing) = tokio::net::TcpStream::connect(lab.address).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        let piece = chunk(&[b'y'; 1_024 * 1_024]);
        tokio::io::AsyncWriteExt::write_all(&mut writing, text.as_bytes()).await.unwrap();
        // Nobody takes all of it.
        for _ in 0..70 {
            if tokio::io::AsyncWriteExt::write_all(&mut writing, &piece).await.is_err() {
                return;
            }
        }
    });
    let mut status = [0; 12];
    tokio::time::timeout(SOON, reading.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 413");
    sending.abort();
    assert_eq!(lab.provider.seen().len(), 1);
}

/// HTTP/2 without TLS, as some clients speak it to a local address.
#[tokio::test(flavor = "multi_thread")]
async fn http_2_comes_in_too() {
    use http_body_util::{BodyExt, Full};
    let lab = Lab::start(|_| stream(&["data: a\n\n", "data: b\n\n"])).await;
    let tcp = tokio::net::TcpStream::connect(lab.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(tcp);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, driver) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let driver = tokio::spawn(driver);
    for _ in 0..3 {
        let request = http::Request::post(format!("http://{}/v1/messages", lab.address))
            .header("x-api-key", &lab.token)
            .body(Full::new(bytes::Bytes::from(MESSAGE)))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "data: a\n\ndata: b\n\n");
    }
    driver.abort();
    assert!(
        lab.provider
            .seen()
            .iter()
            .all(|seen| seen.header("host") == Some(lab.provider.url().trim_start_matches("http://")))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_says_nothing_is_left_when_the_client_leaves() {
    let lab = Lab::start(|_| vec![Step::Wait(Duration::from_secs(3_600))]).await;
    let client = lab.message().send().await;
    lab.provider.wait_until("the call is there", |provider| provider.running() == 1);
    drop(client);
    lab.provider.wait_until("the call is gone", |provider| provider.running() == 0);
    until("the slot is free", || lab.view().running == 0).await;
}
