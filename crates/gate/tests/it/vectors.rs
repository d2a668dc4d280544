//! The worked examples of the source that describes the gate.

use rota_gate::{GateConfig, Priority, RejectReason, TryAcquire};

use crate::support::{SUCCESS, gate, in_time, limited, millis, queued, ready, secs};

#[tokio::test(start_paused = true)]
async fn limit_two_ready_ready_queued_then_promoted() {
    let gate = gate(GateConfig { max_concurrent: 2, ..GateConfig::default() });
    let a = ready(&gate, "a");
    let _b = ready(&gate, "b");
    let (c, position, estimated_wait) = queued(&gate, "c", Priority::Normal);
    assert_eq!((position, estimated_wait), (1, secs(15)), "1 x 30 s / 2 slots before anything completed");

    a.report(SUCCESS).unwrap();

    let state = gate.state();
    assert_eq!((state.running, state.queued), (2, 0));
    let _c = in_time(c).await.unwrap();
    assert_eq!(gate.state().running, 2, "collecting a grant takes no second slot");
}

#[tokio::test(start_paused = true)]
async fn completing_by_name_promotes_too() {
    let gate = gate(GateConfig { max_concurrent: 2, ..GateConfig::default() });
    let _permits = [ready(&gate, "a"), ready(&gate, "b")];
    let (_c, _, _) = queued(&gate, "c", Priority::Normal);
    gate.report("a", SUCCESS).unwrap();
    assert_eq!((gate.state().running, gate.state().queued), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn order_is_high_normal_low() {
    let gate = gate(GateConfig { max_concurrent: 1, ..GateConfig::default() });
    let running = ready(&gate, "running");
    let (low, at_low, _) = queued(&gate, "low", Priority::Low);
    let (normal, at_normal, _) = queued(&gate, "normal", Priority::Normal);
    let (high, at_high, _) = queued(&gate, "high", Priority::High);
    assert_eq!((at_low, at_normal, at_high), (1, 1, 1), "each overtakes those before it");
    assert_eq!((high.position(), normal.position(), low.position()), (Some(1), Some(2), Some(3)));

    drop(running);
    assert_eq!(gate.details().running[0].id.as_str(), "high");
    drop(in_time(high).await.unwrap());
    assert_eq!(gate.details().running[0].id.as_str(), "normal");
    drop(in_time(normal).await.unwrap());
    assert_eq!(gate.details().running[0].id.as_str(), "low");
    drop(in_time(low).await.unwrap());
    assert_eq!(gate.state().running, 0);
}

/// G4: N at once, one more at the window's very end.
#[tokio::test(start_paused = true)]
async fn window_three_the_fourth_is_limited() {
    let gate = gate(GateConfig { max_requests_per_window: 3, ..GateConfig::default() });
    let _three = [ready(&gate, "a"), ready(&gate, "b"), ready(&gate, "c")];
    assert_eq!(limited(&gate, "d"), Some(secs(60)));
    assert!(gate.state().rate_limited);
    tokio::time::advance(secs(60) - millis(1)).await;
    assert_eq!(limited(&gate, "d"), Some(millis(1)));
    tokio::time::advance(millis(1)).await;
    drop(ready(&gate, "d"));
    assert_eq!(gate.stats().rate_limited, 2);
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_rejected_with_its_reason() {
    let gate = gate(GateConfig { max_concurrent: 1, ..GateConfig::default() });
    let running = ready(&gate, "a");
    let (_ticket, _, _) = queued(&gate, "b", Priority::Normal);
    let reason = |id: &str| match gate.try_acquire(id, Priority::Normal) {
        TryAcquire::Rejected { reason } => reason,
        other => panic!("expected Rejected, got {other:?}"),
    };
    assert_eq!(reason("a"), RejectReason::AlreadyRunning);
    assert_eq!(reason("a").to_string(), "Already running");
    assert_eq!(reason("b"), RejectReason::AlreadyQueued);
    assert_eq!(reason("b").to_string(), "Already queued");
    drop(running);
    assert_eq!(reason("b"), RejectReason::AlreadyRunning, "promoted meanwhile");
    drop(_ticket);
    drop(ready(&gate, "a"));
}

#[tokio::test(start_paused = true)]
async fn position_and_estimated_wait_follow_the_average_run() {
    let gate = gate(GateConfig { max_concurrent: 2, ..GateConfig::default() });
    let (a, b) = (ready(&gate, "a"), ready(&gate, "b"));
    tokio::time::advance(secs(4)).await;
    drop(a);
    tokio::time::advance(secs(2)).await;
    drop(b);
    // Two runs of 4 s and 6 s: 5 s on average.
    let _running = [ready(&gate, "c"), ready(&gate, "d")];
    let (_first, position, estimated_wait) = queued(&gate, "e", Priority::Normal);
    assert_eq!((position, estimated_wait), (1, millis(2_500)));
    let (_second, position, estimated_wait) = queued(&gate, "f", Priority::Low);
    assert_eq!((position, estimated_wait), (2, secs(5)));
    let (_third, position, estimated_wait) = queued(&gate, "g", Priority::High);
    assert_eq!((position, estimated_wait), (1, millis(2_500)));
    let shown: Vec<_> = gate.details().queued.iter().map(|row| (row.id.to_string(), row.position)).collect();
    assert_eq!(shown, [("g".to_owned(), 1), ("e".to_owned(), 2), ("f".to_owned(), 3)]);
}
