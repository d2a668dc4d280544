//! The gateway ends and begins again: blocks stay, queued clients are told, streams may finish.

use std::time::Duration;

use rota_testbed::provider::{Step, answer, stream};
use tokio::io::AsyncReadExt;

use crate::lab::{Lab, Plan, REPLY, read_answer, until, wide};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_knows_the_block() {
    let mut lab = Lab::start(|seen| match seen.number {
        0 => answer(429, &[("retry-after", "5")], "{}"),
        _ => answer(200, &[], REPLY),
    })
    .await;
    let client = tokio::spawn({
        let ask = lab.message();
        async move { ask.answer().await }
    });
    until("the block is there", || lab.view().block.is_some()).await;
    let began = std::time::Instant::now();
    lab.stop().await.unwrap();
    let got = client.await.unwrap();
    assert_eq!((got.status, got.header("retry-after")), (503, Some("1")));
    let again = lab.again(Plan::new(|_| Vec::new()).config, wide());
    let mut plan = again;
    let target = rota_gateway::Target::parse(&lab.provider.url()).unwrap();
    plan.config.upstreams.get_mut("anthropic").unwrap().url = target;
    let second = plan.start().await;
    assert!(second.view().block.is_some(), "still blocked");
    assert_eq!(second.message().answer().await.status, 200);
    assert!(lab.provider.seen()[1].at - began >= Duration::from_millis(4_000));
}

/// Ten first calls at once start at once: there was no block, so there is no ramp.
#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_start_does_not_ramp() {
    let mut plan =
        Plan::new(|_| vec![Step::WaitForOpen].into_iter().chain(answer(200, &[], REPLY)).collect());
    plan.gate = rota_gate::GateConfig::default();
    let lab = plan.start().await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(lab.message().send().await);
    }
    until("ten run", || lab.view().running == 10).await;
    let view = lab.view();
    assert_eq!((view.peak_queued, view.ramping, view.scheduled), (0, false, 10));
    assert!(view.total_wait_ms < 1_000, "{} ms", view.total_wait_ms);
    clients.push(lab.message().send().await);
    until("the eleventh waits", || lab.view().queued == 1).await;
    let waiting = lab.view().calls.pop().unwrap();
    // Thirty seconds are taken for a run before anything has ended.
    assert_eq!((waiting.position, waiting.estimated_wait_ms), (Some(1), Some(3_000)));
    lab.provider.open();
    for client in clients.iter_mut().take(10) {
        assert_eq!(read_answer(client).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_finish_and_queued_clients_are_told() {
    let mut plan = Plan::new(|_| {
        let mut steps = stream(&["data: first\n\n", "data: last\n\n"]);
        steps.insert(2, Step::WaitForOpen);
        steps
    });
    plan.gate.max_concurrent = 1;
    let mut lab = plan.start().await;
    let mut streaming = lab.message().send().await;
    lab.provider.wait_until("the stream began", |provider| provider.running() == 1);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(lab.message().send().await);
    }
    until("three wait", || lab.view().queued == 3).await;
    let ended = lab.stop();
    for client in &mut waiting {
        let got = read_answer(client).await;
        assert_eq!((got.status, got.header("retry-after")), (503, Some("1")));
        assert!(got.text().contains("overloaded_error"), "{}", got.text());
    }
    lab.provider.open();
    let got = read_answer(&mut streaming).await;
    assert!(got.is_whole && got.text().ends_with("data: last\n\n"), "{}", got.text());
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(lab.address).await.is_err(), "nobody listens any more");
}

/// By a clock that the test moves: whoever just keeps a connection open does not hold up the end until the grace is over.
#[tokio::test(start_paused = true)]
async fn a_kept_connection_ends_at_once() {
    let mut lab = Lab::start(|_| Vec::new()).await;
    let mut client = lab.ask("GET", "/").send().await;
    assert_eq!(read_answer(&mut client).await.status, 200);
    let start = tokio::time::Instant::now();
    let ended = lab.stop();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    ended.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
