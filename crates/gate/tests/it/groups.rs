//! Model groups: budgets of their own under common slots; token windows.

use rota_gate::{Gate, GateConfig, GroupConfig, Permit, Priority, Request, TryAcquire, Usage};

use crate::support::{SUCCESS, gate, in_time, millis, secs, slots_only};

fn grouped(slots: usize) -> Gate {
    let big = GroupConfig {
        name: "big".to_owned(),
        models: vec!["opus-*".to_owned()],
        max_requests_per_window: Some(1),
        ..GroupConfig::default()
    };
    gate(GateConfig { groups: vec![big], ..slots_only(slots) })
}

fn ask(gate: &Gate, id: &str, model: &str) -> TryAcquire {
    gate.try_acquire_request(Request::new(id).model(model))
}

#[track_caller]
fn ready(answer: TryAcquire) -> Permit {
    match answer {
        TryAcquire::Ready(permit) => permit,
        other => panic!("expected Ready, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_out_of_budget_holds_no_one_else_up() {
    let gate = grouped(10);
    let _first = ready(ask(&gate, "a", "opus-4"));
    let TryAcquire::RateLimited { retry_after } = ask(&gate, "b", "opus-5") else {
        panic!("one budget per group")
    };
    assert_eq!(retry_after, Some(secs(60)));
    let waiting =
        tokio::spawn(gate.acquire_request(Request::new("c").model("opus-4").priority(Priority::Critical)));
    tokio::task::yield_now().await;
    assert_eq!(gate.state().queued, 1);
    let _other = ready(ask(&gate, "d", "haiku"));
    let _unnamed = in_time(gate.acquire("e", Priority::Low)).await.unwrap();
    let waited = in_time(waiting).await.unwrap().unwrap().waited();
    assert_eq!(waited, secs(60));
}

#[tokio::test(start_paused = true)]
async fn slots_are_common_to_all_groups() {
    let gate = grouped(1);
    let permit = ready(ask(&gate, "a", "opus-4"));
    let TryAcquire::Queued { ticket, position: 1, .. } = ask(&gate, "b", "haiku") else {
        panic!("no slot left")
    };
    drop(permit);
    drop(in_time(ticket).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn position_counts_over_all_groups() {
    let gate = grouped(1);
    let _permit = in_time(gate.acquire("a", Priority::Normal)).await.unwrap();
    let TryAcquire::Queued { ticket: _first, position: 1, .. } = ask(&gate, "b", "opus-4") else { panic!() };
    let TryAcquire::Queued { ticket: _second, position: 2, .. } = ask(&gate, "c", "haiku") else { panic!() };
}

#[tokio::test(start_paused = true)]
async fn token_windows_count_what_responses_report() {
    let config = GateConfig {
        input_tokens_per_minute: Some(1_000),
        output_tokens_per_minute: Some(100),
        ..slots_only(10)
    };
    let gate = gate(config);
    let first = in_time(gate.acquire("a", Priority::Normal)).await.unwrap();
    let second = in_time(gate.acquire("b", Priority::Normal)).await.unwrap();
    first.report(rota_gate::Outcome::Success(Usage { input_tokens: 999, output_tokens: 0 })).unwrap();
    drop(in_time(gate.acquire("c", Priority::Normal)).await.unwrap());
    tokio::time::advance(secs(10)).await;
    second.count(Usage { input_tokens: 0, output_tokens: 60 }).unwrap();
    second.count(Usage { input_tokens: 1, output_tokens: 40 }).unwrap();
    let tokens = gate.details().groups[0].tokens;
    assert_eq!(tokens, Usage { input_tokens: 1_000, output_tokens: 100 });
    assert!(gate.state().rate_limited);
    let third = in_time(gate.acquire("d", Priority::Normal)).await.unwrap();
    assert_eq!(third.waited(), secs(60), "until the output tokens are a minute old; input frees up earlier");
    second.report(SUCCESS).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_margin_lengthens_every_window() {
    let gate = gate(GateConfig { max_requests_per_window: 1, window_margin: millis(100), ..slots_only(10) });
    drop(in_time(gate.acquire("a", Priority::Normal)).await.unwrap());
    let second = in_time(gate.acquire("b", Priority::Normal)).await.unwrap();
    assert_eq!(second.waited(), secs(60) + millis(100));
}

/// G4: what a response says of the provider's own budget holds its group back, and no other; at most a minute.
#[tokio::test(start_paused = true)]
async fn a_group_is_held_back_by_what_the_provider_says() {
    let opus =
        GroupConfig { name: "opus".to_owned(), models: vec!["opus*".to_owned()], ..GroupConfig::default() };
    let gate = gate(GateConfig { groups: vec![opus], ..GateConfig::default() });
    let request = |id: &str, model: &str| Request::new(id).model(model);
    let permit = gate.acquire_request(request("a", "opus-4")).await.unwrap();
    permit.hold_back(secs(7)).unwrap();
    permit.hold_back(secs(3)).unwrap();
    let start = tokio::time::Instant::now();
    let _other = gate.acquire_request(request("b", "haiku")).await.unwrap();
    assert_eq!(start.elapsed(), secs(0));
    let next = gate.acquire_request(request("c", "opus-4")).await.unwrap();
    assert_eq!(start.elapsed(), secs(7));
    next.hold_back(secs(3_600)).unwrap();
    drop(gate.acquire_request(request("d", "opus-4")).await.unwrap());
    assert_eq!(start.elapsed(), secs(67));
}
