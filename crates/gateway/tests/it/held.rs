//! What is held and sent again, and what is not.

use std::time::Duration;

use rota_gateway::Notice;
use rota_testbed::provider::{Step, answer};

use crate::lab::{Lab, Plan, REPLY, until, wide};
use rota_store::Store;

const LIMITED: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
const SPENT: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"spend limit","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"req_9"}"#;

/// What alone would have ended Claude Code (three 529s), Codex (a 429 without `retry-after`, five 503s) or an SDK: the
/// client sees one answer, a little later.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_never_sees_what_passes_by_itself() {
    let lab = Lab::start(|seen| match seen.number {
        0 => answer(429, &[], LIMITED),
        1 => answer(429, &[("retry-after", "1")], LIMITED),
        2 | 3 => answer(529, &[], OVERLOADED),
        4 => answer(503, &[], "<html>down for a moment</html>"),
        _ => answer(200, &[], REPLY),
    })
    .await;
    let got = lab.message().answer().await;
    assert_eq!((got.status, got.text().as_str(), got.header("x-rota-attempts")), (200, REPLY, Some("6")));
    assert!(got.header("x-rota-wait-ms").unwrap().parse::<u64>().unwrap() >= 1_000, "the wait is told");
    let seen = lab.provider.seen();
    assert!(seen[2].at - seen[1].at >= Duration::from_secs(1), "a retry-after is kept");
    assert!(seen.iter().all(|call| call.body == seen[0].body && call.headers == seen[0].headers));
    assert_eq!(lab.view().rate_limited_calls, 2);
    assert_eq!(lab.view().hits, 0, "forgotten after a success");
}

/// One 429 stops everybody until it is over, and nobody is told.
#[tokio::test(flavor = "multi_thread")]
async fn one_limit_holds_for_all() {
    let lab = Lab::start(|seen| match seen.number {
        0 => answer(429, &[("retry-after", "2")], LIMITED),
        _ => answer(200, &[], REPLY),
    })
    .await;
    let first = tokio::spawn({
        let ask = lab.message();
        async move { ask.answer().await.status }
    });
    until("the block is there", || lab.view().block.is_some()).await;
    let others: Vec<_> = (0..5)
        .map(|_| {
            let ask = lab.message();
            tokio::spawn(async move { ask.answer().await.status })
        })
        .collect();
    until("all wait", || lab.view().queued == 6).await;
    for client in others.into_iter().chain([first]) {
        assert_eq!(client.await.unwrap(), 200);
    }
    let seen = lab.provider.seen();
    assert_eq!(seen.len(), 7);
    assert!(seen[1..].iter().all(|call| call.at - seen[0].at >= Duration::from_secs(2)));
    let blocked = |notice: &Notice| matches!(notice, Notice::Blocked { is_quota: false, hits: 1, .. });
    until("the operator is told", || lab.notices.lock().unwrap().iter().any(blocked)).await;
}

/// Past what a client bears it gets the one answer that all of them obey.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_has_an_end() {
    for (status, body) in [(429, LIMITED), (529, OVERLOADED)] {
        let mut plan = Plan::new(move |_| answer(status, &[], body));
        plan.config.hold = Duration::from_millis(400);
        plan.gate = rota_gate::GateConfig {
            max_backoff: Duration::from_secs(60),
            initial_backoff: Duration::from_secs(60),
            ..wide()
        };
        let lab = plan.start().await;
        let got = lab.message().answer().await;
        assert_eq!((got.status, got.header("retry-after")), (429, Some("30")));
        assert!(got.text().contains("rate_limit_error"), "{}", got.text());
        let ask = lab.ask("POST", "/v1/responses").header("authorization", &format!("Bearer {}", lab.token));
        let got = ask.body(r#"{"model":"gpt"}"#).answer().await;
        assert_eq!((got.status, got.header("retry-after")), (429, Some("30")));
        assert!(got.text().contains("rate_limit_exceeded"), "{}", got.text());
    }
}

/// A spend cap is told at once, to everybody, in the provider's own words, until the operator says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_told_and_not_waited_for() {
    let lab = Lab::start(|seen| match seen.number {
        0 => answer(429, &[("request-id", "req_9"), ("x-should-retry", "false")], SPENT),
        _ => answer(200, &[], REPLY),
    })
    .await;
    for _ in 0..3 {
        let got = lab.message().answer().await;
        assert_eq!((got.status, got.text().as_str()), (429, SPENT));
        assert_eq!((got.header("request-id"), got.header("x-should-retry")), (Some("req_9"), Some("false")));
    }
    assert_eq!(lab.provider.seen().len(), 1, "asked once");
    let ask =
        lab.ask("POST", "/v1/chat/completions").header("authorization", &format!("Bearer {}", lab.token));
    assert_eq!(ask.body("{}").answer().await.status, 200, "the other provider is not blocked");
    let quota = |notice: &Notice| matches!(notice, Notice::Blocked { is_quota: true, secs: None, .. });
    until("the operator is told", || lab.notices.lock().unwrap().iter().any(quota)).await;
    let call = rota_store::intents::Call::in_scope("default");
    let unblock = rota_store::intents::blocks::Unblock { call, upstream: "anthropic".into() };
    lab.store.perform(&unblock).await.unwrap();
    until("it is open again", || lab.view().block.is_none()).await;
    assert_eq!(lab.message().answer().await.status, 200);
}

/// A `retry-after` beyond five minutes is a quota too.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_wait_is_a_quota() {
    let lab = Lab::start(|_| answer(429, &[("retry-after", "7200")], LIMITED)).await;
    for _ in 0..2 {
        let got = lab.message().answer().await;
        assert_eq!((got.status, got.header("retry-after")), (429, Some("7200")));
    }
    assert_eq!(lab.provider.seen().len(), 1);
}

/// What may have been worked on is not sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_charged_twice_is_not_sent_twice() {
    let lab = Lab::start(|_| vec![Step::Cut]).await;
    let got = lab.message().answer().await;
    assert_eq!((got.status, lab.provider.seen().len()), (502, 1));
    assert!(got.text().contains("api_error"), "{}", got.text());
    until("the slot is free", || lab.view().running == 0).await;
}

/// Nor is it on a connection that was used before: that it breaks does not say that nothing was worked on.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_breaks_is_no_reason_to_send_again() {
    let lab =
        Lab::start(|seen| if seen.number == 1 { vec![Step::Cut] } else { answer(200, &[], REPLY) }).await;
    assert_eq!(lab.message().answer().await.status, 200);
    until("the connection is kept", || lab.view().idle_connections == 1).await;
    assert_eq!((lab.message().answer().await.status, lab.provider.seen().len()), (502, 2));
    assert_eq!((lab.message().answer().await.status, lab.provider.seen().len()), (200, 3));
}

/// A provider that cannot be reached is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn failed_connects_are_held() {
    let mut plan = Plan::new(|_| answer(200, &[], REPLY));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let target = rota_gateway::Target::parse(&format!("http://{address}")).unwrap();
    plan.config.upstreams.get_mut("anthropic").unwrap().url = target;
    let lab = plan.start().await;
    let client = tokio::spawn({
        let ask = lab.message();
        async move { ask.answer().await }
    });
    until("it was tried", || lab.view().completed >= 1).await;
    let listener = std::net::TcpListener::bind(address).unwrap();
    let serving = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let count = stream.read(&mut [0; 4_096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        count
    });
    let got = client.await.unwrap();
    assert_eq!((got.status, got.text().as_str()), (200, "{}"));
    assert!(serving.join().unwrap() > 0);
}

/// What an answer says of the provider's own budget slows its group down before the wall.
#[tokio::test(flavor = "multi_thread")]
async fn little_left_slows_down() {
    let lab = Lab::start(|seen| {
        let left = if seen.number == 0 { "0" } else { "50" };
        let headers = [
            ("x-ratelimit-limit-requests", "50"),
            ("x-ratelimit-remaining-requests", left),
            ("x-ratelimit-reset-requests", "10s"),
        ];
        answer(200, &headers, REPLY)
    })
    .await;
    assert_eq!(lab.message().answer().await.status, 200);
    assert_eq!(lab.message().answer().await.status, 200);
    let seen = lab.provider.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_millis(950), "{:?}", seen[1].at - seen[0].at);
}

/// Codex opens a WebSocket first and falls back when it is told so.
#[tokio::test(flavor = "multi_thread")]
async fn upgrades_are_declined() {
    let lab = Lab::start(|_| answer(200, &[], REPLY)).await;
    let ask = lab.ask("GET", "/v1/responses").header("authorization", &format!("Bearer {}", lab.token));
    let got = ask.header("connection", "Upgrade").header("upgrade", "websocket").answer().await;
    assert_eq!((got.status, got.header("connection")), (426, Some("close")));
    assert!(lab.provider.seen().is_empty());
}
