//! Many clients at once: bounds that hold, slots that come back, memory that stays flat.

use std::time::{Duration, Instant};

use rota_gate::GateConfig;
use rota_testbed::provider::{Step, answer, chunk, stream};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

use crate::lab::{Lab, Plan, REPLY, read_answer, until, wide};

/// 40 clients on 4 slots and 20 starts in 2 s: the provider never sees a fifth call at once nor a 21st in any window.
/// Some give up while they wait, and leave no trace.
#[tokio::test(flavor = "multi_thread")]
async fn the_provider_never_sees_too_much() {
    let mut plan =
        Plan::new(|_| [vec![Step::Wait(Duration::from_millis(20))], answer(200, &[], REPLY)].concat());
    let (slots, starts, window) = (4, 20, Duration::from_secs(2));
    plan.gate = GateConfig {
        max_concurrent: slots,
        max_requests_per_window: starts,
        rate_window: window,
        burst: 20,
        window_margin: Duration::from_millis(100),
        ..wide()
    };
    let lab = plan.start().await;
    let mut clients = JoinSet::new();
    for number in 0..40 {
        let ask = lab.message();
        clients.spawn(async move {
            if number % 4 == 0 {
                // Gone before it is its turn, or soon after.
                let stream = ask.send().await;
                tokio::time::sleep(Duration::from_millis(30)).await;
                drop(stream);
                return 0;
            }
            let mut good = 0;
            for _ in 0..2 {
                good += usize::from(ask.answer().await.status == 200);
            }
            good
        });
    }
    let good: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(good, 60, "whoever stayed was answered");
    let mut starts_at: Vec<Instant> = lab.provider.seen().iter().map(|seen| seen.at).collect();
    starts_at.sort();
    assert!(starts_at.len() >= 60 && lab.provider.peak() <= slots, "{} at once", lab.provider.peak());
    let limit = usize::try_from(starts).unwrap();
    for pair in starts_at.windows(limit + 1) {
        assert!(pair[limit] - pair[0] >= window, "{} starts within {:?}", limit + 1, pair[limit] - pair[0]);
    }
    until("nothing is left", || (lab.view().running, lab.view().queued) == (0, 0)).await;
}

/// Six clients that hang up in each phase (queued, before the head, in the stream), again and again: no slot, connection
/// or task is left.
async fn hang_ups(rounds: usize) {
    let mut plan = Plan::new(|seen| match seen.header("x-phase") {
        Some("head") => vec![Step::Wait(Duration::from_secs(3_600))],
        Some("stream") => {
            let mut steps = stream(&["data: 1\n\n"]);
            steps.insert(2, Step::Wait(Duration::from_secs(3_600)));
            steps
        }
        _ => answer(200, &[], REPLY),
    });
    plan.gate = GateConfig { max_concurrent: 4, ..wide() };
    let lab = plan.start().await;
    for _ in 0..rounds {
        let mut clients = Vec::new();
        for (index, phase) in ["head", "head", "stream", "stream", "queued", "queued"].into_iter().enumerate()
        {
            clients.push((phase, lab.message().header("x-phase", phase).send().await));
            until("it is there", || lab.view().running + lab.view().queued == index + 1).await;
        }
        assert_eq!((lab.view().running, lab.view().queued), (4, 2));
        for (phase, client) in &mut clients {
            if *phase == "stream" {
                let mut bytes = [0; 1_024];
                assert!(client.read(&mut bytes).await.unwrap() > 0);
            }
        }
        drop(clients);
        until("nothing is left", || (lab.view().running, lab.view().queued) == (0, 0)).await;
    }
    lab.provider.wait_until("the provider noticed", |provider| provider.running() == 0);
    lab.provider.wait_until("no connection is left", |provider| provider.connections().1 == 0);
    assert_eq!(lab.message().answer().await.status, 200, "it still serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_in_any_phase_leaves_nothing() {
    hang_ups(25).await;
}

/// The long version: `cargo test -p rota-gateway --test it a_thousand -- --ignored`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; the rounds of the short one are the same"]
async fn a_thousand_hang_ups_leave_nothing() {
    hang_ups(1_000).await;
}

/// Large streams to readers that take their time: what is not taken stays with the provider. What the gateway keeps in
/// memory meanwhile is measured on a process of its own, by the tests of the command line.
#[tokio::test(flavor = "multi_thread")]
async fn large_streams_come_whole() {
    const PIECES: usize = 500;
    let piece = chunk(&[b'x'; 65_536]);
    let lab = Lab::start(move |_| {
        let mut steps = stream(&[]);
        steps.insert(1, Step::Flood(piece.clone(), PIECES));
        steps
    })
    .await;
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        let mut stream = lab.message().send().await;
        clients.spawn(async move { read_answer(&mut stream).await });
    }
    for got in clients.join_all().await {
        assert!(got.is_whole && got.body.len() == PIECES * 65_536, "{} bytes", got.body.len());
    }
}

/// A client that reads nothing holds nothing up but itself.
#[tokio::test(flavor = "multi_thread")]
async fn one_who_does_not_read_holds_nobody_up() {
    let piece = chunk(&[b'x'; 65_536]);
    let lab = Lab::start(move |seen| match seen.header("x-phase") {
        Some(_) => {
            let mut steps = stream(&[]);
            steps.insert(1, Step::Flood(piece.clone(), 1_000));
            steps
        }
        None => answer(200, &[], REPLY),
    })
    .await;
    let stuck = lab.message().header("x-phase", "stuck").send().await;
    lab.provider.wait_until("it began", |provider| provider.running() == 1);
    for _ in 0..20 {
        assert_eq!(lab.message().answer().await.status, 200);
    }
    drop(stuck);
    until("its slot is free", || lab.view().running == 0).await;
}

/// 100 streams at once, each to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_streams_at_once() {
    let lab = Lab::start(|_| {
        let mut steps = stream(&["data: first\n\n", "data: last\n\n"]);
        steps.insert(2, Step::WaitForOpen);
        steps
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(lab.message().send().await);
    }
    lab.provider.wait_until("all are under way", |provider| provider.running() == 100);
    assert_eq!(lab.view().running, 100);
    lab.provider.open();
    for client in &mut clients {
        let got = read_answer(client).await;
        assert!(got.is_whole && got.text() == "data: first\n\ndata: last\n\n");
    }
    until("nothing is left", || lab.view().running == 0).await;
}
