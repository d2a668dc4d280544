//! A gate that runs takes over other limits at once, and forgets nothing.

use rota_gate::{ConfigError, GateConfig, GroupConfig, Outcome, Priority, Request};

use crate::support::{gate, in_time, limited, queued, ready, secs, slots_only};

#[tokio::test(start_paused = true)]
async fn more_slots_let_waiters_through_and_fewer_end_nobody() {
    let gate = gate(slots_only(1));
    let running = ready(&gate, "a");
    let (second, _, _) = queued(&gate, "b", Priority::Normal);
    let (third, _, _) = queued(&gate, "c", Priority::Normal);
    gate.reconfigure(&slots_only(2)).unwrap();
    let second = in_time(second).await.unwrap();
    assert_eq!((gate.state().running, gate.state().queued, gate.state().slots), (2, 1, 2));
    gate.reconfigure(&slots_only(1)).unwrap();
    assert_eq!((gate.state().running, gate.state().slots), (2, 1), "whoever runs goes on");
    drop(running);
    assert_eq!(gate.state().queued, 1, "one still runs");
    drop(second);
    drop(in_time(third).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn starts_count_under_the_new_window() {
    let window = |limit| GateConfig { max_requests_per_window: limit, burst: limit, ..slots_only(10) };
    let gate = gate(window(3));
    for id in ["a", "b"] {
        drop(ready(&gate, id));
    }
    gate.reconfigure(&window(2)).unwrap();
    assert_eq!(limited(&gate, "c"), Some(secs(60)), "two of two are used");
    assert!(gate.state().window_full);
    gate.reconfigure(&window(3)).unwrap();
    drop(ready(&gate, "c"));
    assert_eq!(limited(&gate, "d"), Some(secs(60)));
}

/// Waiters and runners move to the group that takes their model now.
#[tokio::test(start_paused = true)]
async fn requests_find_their_group_anew() {
    let group = |name: &str, limit| GroupConfig {
        name: name.to_owned(),
        models: vec!["opus*".to_owned()],
        max_requests_per_window: Some(limit),
        burst: Some(limit),
        ..GroupConfig::default()
    };
    let with = |groups| GateConfig { groups, ..slots_only(1) };
    let gate = gate(with(Vec::new()));
    let first = in_time(gate.acquire_request(Request::new("a").model("opus-4"))).await.unwrap();
    let waiting = gate.acquire_request(Request::new("b").model("opus-4"));
    let waiting = tokio::spawn(waiting);
    tokio::task::yield_now().await;
    assert_eq!(&*gate.details().queued[0].group, "*");
    gate.reconfigure(&with(vec![group("big", 7)])).unwrap();
    let details = gate.details();
    assert_eq!((&*details.queued[0].group, &*details.running[0].group), ("big", "big"));
    assert_eq!((details.groups[0].max_starts, details.groups[1].starts), (7, 1));
    drop(first);
    drop(in_time(waiting).await.unwrap().unwrap());
    assert_eq!(gate.details().groups[0].starts, 1);
    gate.reconfigure(&with(vec![group("big", 9)])).unwrap();
    assert_eq!((gate.details().groups[0].starts, gate.details().groups[0].max_starts), (1, 9));
}

#[tokio::test(start_paused = true)]
async fn order_block_and_default_priority_follow() {
    let gate = gate(slots_only(1));
    let running = ready(&gate, "a");
    let (low, _, _) = queued(&gate, "low", Priority::Low);
    tokio::time::advance(secs(10)).await;
    let (high, _, _) = queued(&gate, "high", Priority::High);
    assert_eq!(gate.details().queued[0].id.as_str(), "high");
    // Without a spread everybody waits in the order of arrival.
    let config =
        GateConfig { priority_spread: secs(0), default_priority: Priority::Critical, ..slots_only(1) };
    gate.reconfigure(&config).unwrap();
    assert_eq!(gate.details().queued[0].id.as_str(), "low");
    assert_eq!(gate.default_priority(), Priority::Critical);
    gate.reconfigure(&GateConfig { initial_backoff: secs(7), ..config }).unwrap();
    running.report(Outcome::RateLimited { retry_after: None }).unwrap();
    assert_eq!(gate.state().block.unwrap().ends_in, Some(secs(7)));
    drop((low, high));
}

#[tokio::test(start_paused = true)]
async fn a_bad_configuration_changes_nothing() {
    let gate = gate(slots_only(3));
    let refused = gate.reconfigure(&GateConfig { max_concurrent: 0, ..slots_only(1) });
    assert_eq!(refused, Err(ConfigError::ZeroLimit { key: "max_concurrent".to_owned() }));
    assert_eq!(gate.state().slots, 3);
}

/// Every cause that holds a start up shows.
#[tokio::test(start_paused = true)]
async fn pacing_shows() {
    let gate = gate(GateConfig { max_requests_per_window: 3, burst: 1, ..GateConfig::default() });
    assert!(!gate.state().pacing);
    let _permit = ready(&gate, "a");
    let state = gate.state();
    assert!(state.pacing && !state.window_full && !state.rate_limited);
    tokio::time::advance(secs(20)).await;
    assert!(!gate.state().pacing);
}
