//! What providers say that is not the usual: odd framings, too much, too little, too early.

use rota_testbed::provider::{Step, answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::lab::{Lab, Plan, REPLY, SOON, read_answer, until};

/// What a client saw: the status, the body, whether it came to its end.
type Seen = (u16, &'static str, bool);

const BROKEN: u16 = 502;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";

/// The answers of a provider, what a client sees of them, and whether the connection serves the next call, too.
fn odd_answers() -> Vec<(Vec<Step>, Seen, bool)> {
    let send = |text: &str| Step::Send(text.replace("OK\r\n", &OK[13..]).into());
    vec![
        (vec![send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")], (200, "{}", true), true),
        (
            vec![
                send("HTTP/1.1 100 Continue\r\n\r\n"),
                send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
            ],
            (200, "{}", true),
            true,
        ),
        (vec![send("HTTP/1.1 204 No Content\r\n\r\n")], (204, "", true), true),
        (
            vec![send(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nsum: 1\r\n\r\n",
            )],
            (200, "{}", true),
            true,
        ),
        (
            vec![send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")],
            (200, "{}", true),
            false,
        ),
        (vec![send("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}")], (200, "{}", true), false),
        (
            vec![send("HTTP/1.1 200 OK\r\n\r\n{\"a\":"), send("1}"), Step::Cut],
            (200, "{\"a\":1}", true),
            false,
        ),
        // Nobody can tell what is behind it.
        (
            vec![send(
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            )],
            (200, "{}", true),
            false,
        ),
        // What nobody asked for is not the answer to the next call.
        (
            vec![send(
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
            )],
            (200, "{}", true),
            false,
        ),
        (vec![send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"), Step::Cut], (200, "{}", false), false),
        (
            vec![send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\nnonsense\r\n\r\n")],
            (200, "{}", false),
            false,
        ),
        (vec![send("HTTP/1.1 101 Switching Protocols\r\n\r\n")], (BROKEN, "", true), false),
        (
            vec![send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}")],
            (BROKEN, "", true),
            false,
        ),
        (
            vec![send("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n")],
            (BROKEN, "", true),
            false,
        ),
        (vec![send("220 mail.example ESMTP\r\n")], (BROKEN, "", true), false),
        (vec![send("HTTP/1.1 200 OK\r\n"), Step::Cut], (BROKEN, "", true), false),
        (vec![Step::Cut], (BROKEN, "", true), false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_answers_are_read_as_they_are_meant_or_refused() {
    let count = odd_answers().len();
    for index in 0..count {
        let lab = Lab::start(move |seen| match seen.number {
            0 => odd_answers().swap_remove(index).0,
            _ => answer(200, &[], REPLY),
        })
        .await;
        let (steps, (status, body, is_whole), is_kept) = odd_answers().swap_remove(index);
        let got = lab.message().answer().await;
        assert_eq!((got.status, got.is_whole), (status, is_whole), "{steps:?}: {got:?}");
        if status != BROKEN {
            assert_eq!(got.text(), body, "{steps:?}");
        }
        until("the slot is free", || lab.view().running == 0).await;
        let next = lab.message().answer().await;
        assert_eq!((next.status, next.text().as_str()), (200, REPLY), "after {steps:?}");
        assert_eq!(lab.provider.connections().0, if is_kept { 1 } else { 2 }, "after {steps:?}");
        assert_eq!(lab.provider.seen().len(), 2, "nothing is sent twice after {steps:?}");
    }
}

/// An answer to HEAD says a length that nothing follows.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_head_has_no_body() {
    let lab = Lab::start(|seen| match seen.method.as_str() {
        "HEAD" => vec![Step::Send(format!("{OK}content-length: 99\r\n\r\n").into())],
        _ => answer(200, &[], REPLY),
    })
    .await;
    for _ in 0..3 {
        let head = lab.ask("HEAD", "/anthropic/v1/models").header("x-api-key", &lab.token);
        assert_eq!(head.answer_head().await, 200);
        assert_eq!(lab.message().answer().await.text(), REPLY);
    }
    assert_eq!(lab.provider.connections().0, 1);
}

/// Longer than what the system keeps of a connection that is not read.
fn long_body() -> String {
    format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "y".repeat(20_000_000))
}

/// A refusal may come before all was sent, and it counts; what is half sent is no connection for another call.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_come_before_all_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let lab = Plan::before(listener.local_addr().unwrap()).start().await;
    let provider = tokio::spawn(async move {
        let mut connections = Vec::new();
        for _ in 0..5 {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 1_000]).await.unwrap();
            let says = format!("{OK}content-length: 2\r\n\r\n{{}}").replace("200 OK", "413 Too Large");
            stream.write_all(says.as_bytes()).await.unwrap();
            // It is not closed, and not read either.
            connections.push(stream);
        }
        connections
    });
    for _ in 0..5 {
        let got = lab.message().body(&long_body()).answer().await;
        assert_eq!((got.status, got.text().as_str(), got.is_whole), (413, "{}", true));
    }
    until("the slot is free", || lab.view().running == 0).await;
    assert_eq!(provider.await.unwrap().len(), 5);
}

/// A provider that refuses early and hangs up: what it has said counts, but only to where it is known to end.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_counts_though_the_provider_hangs_up() {
    for (framing, is_whole) in [
        ("content-length: 2\r\n\r\n{}", true),
        ("transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true),
        ("\r\n{}", false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let lab = Plan::before(listener.local_addr().unwrap()).start().await;
        let provider = tokio::spawn(async move {
            for _ in 0..10 {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_exact(&mut [0; 1_000]).await.unwrap();
                let says = format!("{OK}{framing}").replace("200 OK", "413 Too Large");
                stream.write_all(says.as_bytes()).await.unwrap();
                // With much unread, so that the system says that it is broken, and not that it ended.
                drop(stream);
            }
        });
        for _ in 0..10 {
            let got = lab.message().body(&long_body()).answer().await;
            assert_eq!((got.status, got.text().as_str(), got.is_whole), (413, "{}", is_whole), "{framing:?}");
        }
        provider.await.unwrap();
        until("the slot is free", || lab.view().running == 0).await;
    }
}

/// What a provider says on a connection that nobody uses is nobody's answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_between_two_calls_is_no_answer() {
    let lab = Lab::start(|seen| {
        let mut steps = answer(200, &[], REPLY);
        if seen.number == 0 {
            steps.push(Step::WaitForOpen);
            steps.extend(answer(200, &[], "{\"evil\":true}"));
        }
        steps
    })
    .await;
    assert_eq!(lab.message().answer().await.text(), REPLY);
    until("the connection is idle", || lab.view().idle_connections == 1).await;
    lab.provider.open();
    lab.provider.wait_until("it was said", |provider| provider.running() == 0);
    assert_eq!(lab.message().answer().await.text(), REPLY);
    assert_eq!(lab.provider.connections().0, 2);
}

/// Trailers pass to those who can take them, without what is of the hop.
#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_over_http_2() {
    use http_body_util::{BodyExt, Full};
    let lab = Lab::start(|_| {
        let text = format!(
            "{OK}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nsum: 1\r\nx-rota-a: 2\r\nhost: b\r\n\r\n"
        );
        vec![Step::Send(text.into())]
    })
    .await;
    let tcp = tokio::net::TcpStream::connect(lab.address).await.unwrap();
    let (io, executor) = (hyper_util::rt::TokioIo::new(tcp), hyper_util::rt::TokioExecutor::new());
    let (mut sender, driver) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let driver = tokio::spawn(driver);
    let request = http::Request::post(format!("http://{}/v1/messages", lab.address))
        .header("x-api-key", &lab.token)
        .body(Full::new(bytes::Bytes::from("{}")))
        .unwrap();
    let collected = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    let trailers = format!("{:?}", collected.trailers().unwrap());
    assert_eq!((trailers.as_str(), collected.to_bytes().as_ref()), ("{\"sum\": \"1\"}", &b"{}"[..]));
    driver.abort();
}

/// A client that goes away while its long request is on its way leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_is_given_up_with_its_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let lab = Plan::before(listener.local_addr().unwrap()).start().await;
    let ask = lab.message().body(&long_body());
    let client = tokio::spawn(async move {
        let mut stream = ask.send().await;
        read_answer(&mut stream).await
    });
    let (mut provider, _) = listener.accept().await.unwrap();
    let mut seen = [0; 1_000];
    provider.read_exact(&mut seen).await.unwrap();
    until("the slot is taken", || lab.view().running == 1).await;
    client.abort();
    until("the slot is free", || lab.view().running == 0).await;
    let mut rest = Vec::new();
    // All that the system had taken, then the end, or a reset.
    let _ended = tokio::time::timeout(SOON, provider.read_to_end(&mut rest)).await.expect("it ends");
    assert!(rest.len() < long_body().len());
}
