//! What people see: details in order, the watch channel.

use rota_gate::{GateConfig, Priority};

use crate::support::{gate, limited, millis, queued, ready, secs, slots_only};

/// Permits and tickets may travel between threads and live in any task.
#[test]
fn everything_can_be_sent_and_shared() {
    fn check<T: Send + Sync + Unpin + 'static>() {}
    check::<rota_gate::Gate>();
    check::<rota_gate::Acquire>();
    check::<rota_gate::Permit>();
    check::<rota_gate::QueuedTicket>();
}

#[tokio::test(start_paused = true)]
async fn details_show_runners_by_urgency_and_waiters_in_their_order() {
    let gate = gate(slots_only(3));
    let _a = gate.acquire("a", Priority::Normal).await.unwrap();
    tokio::time::advance(secs(1)).await;
    let _b = gate.acquire("b", Priority::Normal).await.unwrap();
    let _c = gate.acquire("c", Priority::High).await.unwrap();
    let (_d, _, _) = queued(&gate, "d", Priority::Low);
    tokio::time::advance(secs(1)).await;
    let (_e, _, _) = queued(&gate, "e", Priority::Critical);
    tokio::time::advance(millis(500)).await;

    let details = gate.details();
    let running: Vec<_> = details.running.iter().map(|row| (row.id.as_str(), row.running_for)).collect();
    assert_eq!(running, [("c", millis(1_500)), ("a", millis(2_500)), ("b", millis(1_500))]);
    let queued: Vec<_> = details.queued.iter().map(|row| (row.id.as_str(), row.waiting_for)).collect();
    assert_eq!(queued, [("e", millis(500)), ("d", millis(1_500))]);
    assert_eq!((&*details.groups[0].name, details.groups[0].starts), ("*", 3));
    assert_eq!((details.state.slots, details.state.slots_now), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn the_watch_channel_shows_every_change_and_always_the_latest() {
    let gate = gate(slots_only(1));
    let before = ready(&gate, "before");
    let mut views = gate.watch();
    assert_eq!(views.borrow_and_update().state.running, 1, "a new receiver starts with what is");

    drop(before);
    views.changed().await.unwrap();
    assert_eq!(views.borrow_and_update().state.running, 0);

    let permit = ready(&gate, "a");
    let (_ticket, _, _) = queued(&gate, "b", Priority::Normal);
    views.changed().await.unwrap();
    let view = *views.borrow_and_update();
    assert_eq!((view.state.running, view.state.queued), (1, 1));

    drop(permit);
    let later = *views.borrow_and_update();
    assert!(later.version > view.version);
    assert_eq!(later.state.queued, 0);
    drop(gate);
}

#[tokio::test(start_paused = true)]
async fn a_full_window_shows_as_rate_limited_and_pacing_does_not() {
    let gate = gate(GateConfig { max_requests_per_window: 3, burst: 1, ..GateConfig::default() });
    let mut permits = vec![ready(&gate, "a")];
    assert_eq!(limited(&gate, "b"), Some(secs(20)), "paced");
    assert!(!gate.state().rate_limited);
    for id in ["b", "c"] {
        tokio::time::advance(secs(20)).await;
        permits.push(ready(&gate, id));
    }
    assert!(gate.state().rate_limited);
    tokio::time::advance(secs(20)).await;
    assert!(!gate.state().rate_limited);
}
