//! Many callers on few slots: everyone is served, nothing leaks (P8, G1, G2).

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use rota_gate::{
    CancelError, ConfigError, Gate, GateConfig, NotRunning, Outcome, Priority, Refusal, RejectReason, Request,
};
use tokio::time::Instant;

use crate::support::{SUCCESS, gate, in_time, millis, most_in_any_window, queued, ready, secs, slots_only};

/// Runs `callers` tasks that each hold a slot for a while; returns their numbers in the order of their starts.
async fn serve(gate: &Gate, callers: usize, priority: impl Fn(usize) -> Priority) -> Vec<usize> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let (acquire, order) =
                (gate.acquire(format!("caller-{number}"), priority(number)), Arc::clone(&order));
            tokio::spawn(async move {
                let permit = acquire.await.unwrap();
                order.lock().unwrap().push(number);
                tokio::time::sleep(millis(10)).await;
                permit.report(SUCCESS).unwrap();
            })
        })
        .collect();
    for task in tasks {
        in_time(task).await.unwrap();
    }
    Arc::into_inner(order).unwrap().into_inner().unwrap()
}

/// G1: where the source's listing serves 2 of 100 and holds 2 slots for ever.
#[tokio::test(start_paused = true)]
async fn a_hundred_callers_on_two_slots_and_a_thousand_on_ten_are_all_served() {
    for (callers, slots) in [(100, 2), (1_000, 10)] {
        let gate = gate(slots_only(slots));
        let order = serve(&gate, callers, |_| Priority::Normal).await;
        assert_eq!(order, (0..callers).collect::<Vec<_>>(), "first come, first served");
        let state = gate.state();
        assert_eq!((state.running, state.queued), (0, 0), "no slot leaks");
        assert_eq!(state.stats.completed, callers as u64);
        assert_eq!((state.stats.peak_concurrent, state.stats.peak_queue_depth), (slots, callers - slots));
    }
}

/// G1: first come, first served inside each priority, and the more urgent first.
#[tokio::test(start_paused = true)]
async fn inside_a_priority_the_order_is_that_of_arrival() {
    let gate = gate(slots_only(10));
    let level = |number: usize| Priority::ALL[number % 4];
    let order = serve(&gate, 1_000, level).await;
    assert_eq!(order.len(), 1_000);
    for priority in Priority::ALL {
        let of_level: Vec<_> = order.iter().filter(|number| level(**number) == priority).collect();
        assert!(of_level.is_sorted(), "{priority}");
    }
    // The first ten found free slots; after them everyone came at the same moment.
    let waited: Vec<_> = order[10..].iter().map(|number| level(*number)).collect();
    assert!(waited.is_sorted(), "critical, high, normal, low");
}

/// P8: the listing promotes past the window; here a promoted start passes it like any other.
#[tokio::test(start_paused = true)]
async fn promotion_obeys_the_window() {
    let config = GateConfig { max_concurrent: 2, ..GateConfig::default() };
    let gate = gate(config.clone());
    let began = Instant::now();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (acquire, starts) =
                (gate.acquire(format!("{number}"), Priority::Normal), Arc::clone(&starts));
            tokio::spawn(async move {
                let permit = acquire.await.unwrap();
                starts.lock().unwrap().push(began.elapsed().as_micros() as u64);
                tokio::time::sleep(millis(5)).await;
                drop(permit);
            })
        })
        .collect();
    for task in tasks {
        in_time(task).await.unwrap();
    }
    let starts = starts.lock().unwrap();
    assert_eq!(starts.len(), 100);
    assert_eq!(most_in_any_window(&starts, 60_000_000), 50, "never more, and the budget is used");
    assert!(starts.is_sorted());
    let tenth_gap = starts[10] - starts[9];
    assert!(tenth_gap >= 1_000_000, "after a burst of ten starts are paced, not {tenth_gap} us apart");
}

/// G2: a panic while holding frees the slot.
#[tokio::test(start_paused = true)]
async fn a_panic_while_holding_frees_the_slot() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "first");
    let (next, _, _) = queued(&gate, "next", Priority::Normal);
    let task = tokio::spawn(async move {
        let _permit = permit;
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    drop(in_time(next).await.unwrap());
    assert_eq!(gate.state().running, 0);
}

/// An id names one request, not one agent.
#[tokio::test(start_paused = true)]
async fn two_requests_of_one_agent_run_at_once_under_two_names() {
    let gate = gate(slots_only(2));
    let _first = gate.acquire("agent-1/a", Priority::Normal).await.unwrap();
    let _second = gate.acquire("agent-1/b", Priority::Normal).await.unwrap();
    assert_eq!(gate.state().running, 2);
    let again = gate.acquire("agent-1/a", Priority::Normal).await.unwrap_err();
    assert_eq!(again, Refusal::Rejected(RejectReason::AlreadyRunning));
    assert_eq!(gate.state().running, 2, "a refusal costs nothing");
}

#[test]
fn zero_limits_are_refused_when_the_gate_is_built() {
    let error = Gate::new(GateConfig { max_concurrent: 0, ..GateConfig::default() }).unwrap_err();
    assert_eq!(error, ConfigError::ZeroLimit { key: "max_concurrent".to_owned() });
    assert!(Gate::new(GateConfig { max_requests_per_window: 0, ..GateConfig::default() }).is_err());
    assert!(Gate::new(GateConfig { rate_window: secs(0), ..GateConfig::default() }).is_err());
}

/// P8: completing an unknown id is an error that frees nothing.
#[tokio::test(start_paused = true)]
async fn completing_an_unknown_id_frees_nothing() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "a");
    let (waiting, _, _) = queued(&gate, "b", Priority::Normal);
    assert_eq!(gate.report("nobody", SUCCESS), Err(NotRunning));
    assert_eq!(gate.report("b", SUCCESS), Err(NotRunning), "one that waits has nothing to free");
    assert_eq!((gate.state().running, gate.state().queued, gate.stats().completed), (1, 1, 0));
    drop(permit);
    drop(in_time(waiting).await.unwrap());
}

/// G2: a permit whose request was ended by its name frees nothing a second time, even if the name is in
/// use again.
#[tokio::test(start_paused = true)]
async fn a_slot_is_freed_once() {
    let gate = gate(slots_only(1));
    let old = ready(&gate, "a");
    gate.report("a", SUCCESS).unwrap();
    let new = ready(&gate, "a");
    drop(old);
    assert_eq!(gate.state().running, 1, "the new request keeps its slot");
    let older = new;
    gate.report("a", SUCCESS).unwrap();
    assert_eq!(older.report(SUCCESS), Err(NotRunning));
    assert_eq!((gate.state().running, gate.stats().completed), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn cancel_takes_a_waiter_out_and_tells_it() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "a");
    let waiting = tokio::spawn(gate.acquire("b", Priority::Normal));
    tokio::task::yield_now().await;
    assert_eq!(gate.cancel("a"), Err(CancelError::Running));
    assert_eq!(gate.cancel("nobody"), Err(CancelError::Unknown));
    assert_eq!(gate.cancel("b"), Ok(()));
    assert_eq!(in_time(waiting).await.unwrap().unwrap_err(), Refusal::Cancelled);
    assert_eq!((gate.state().queued, gate.stats().cancelled), (0, 1));

    let (granted, _, _) = queued(&gate, "c", Priority::Normal);
    drop(permit);
    assert_eq!(gate.state().running, 1, "granted, not collected");
    assert_eq!(gate.cancel("c"), Ok(()));
    assert_eq!(gate.state().running, 0);
    assert_eq!(in_time(granted).await.unwrap_err(), Refusal::Cancelled);
}

/// G2: dropping leaves the queue, before the grant and between the grant and the next poll.
#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_nothing_behind() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "a");
    let (first, _, _) = queued(&gate, "b", Priority::Normal);
    let (second, _, _) = queued(&gate, "c", Priority::Normal);
    let (third, position, _) = queued(&gate, "d", Priority::Normal);
    assert_eq!(position, 3);
    drop(first);
    assert_eq!(third.position(), Some(2));
    drop(permit);
    assert_eq!(gate.state().running, 1, "c was granted the slot");
    drop(second);
    drop(in_time(third).await.unwrap());
    let stats = gate.stats();
    assert_eq!((gate.state().running, stats.cancelled, stats.completed), (0, 2, 2));
}

/// A future that was never polled is not in the queue.
#[tokio::test(start_paused = true)]
async fn an_unpolled_future_holds_no_place() {
    let gate = gate(slots_only(1));
    let idle = gate.acquire("a", Priority::Critical);
    assert_eq!((gate.state().running, gate.state().queued), (0, 0));
    drop(ready(&gate, "a"));
    drop(idle);
    assert_eq!(gate.stats().cancelled, 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_and_running_are_measured_apart() {
    let gate = gate(slots_only(1));
    let first = gate.acquire("a", Priority::Normal).await.unwrap();
    let waiting = tokio::spawn(gate.acquire("b", Priority::Normal));
    tokio::time::sleep(secs(2)).await;
    drop(first);
    let second = in_time(waiting).await.unwrap().unwrap();
    assert_eq!(second.waited(), secs(2));
    tokio::time::sleep(secs(3)).await;
    drop(second);
    let stats = gate.stats();
    assert_eq!((stats.total_wait_ms, stats.total_run_ms), (2_000, 5_000));
    assert_eq!((stats.scheduled, stats.completed), (2, 2));
    assert_eq!((stats.average_wait(), stats.average_run()), (Some(secs(1)), Some(millis(2_500))));
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_refuses_waiters_and_newcomers_and_lets_runners_end() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "a");
    let waiting = tokio::spawn(gate.acquire("b", Priority::Normal));
    tokio::task::yield_now().await;
    gate.close();
    let closed = Refusal::Rejected(RejectReason::Closed);
    assert_eq!(in_time(waiting).await.unwrap().unwrap_err(), closed);
    assert_eq!(gate.acquire("c", Priority::Normal).await.unwrap_err(), closed);
    assert_eq!(permit.report(Outcome::Failed), Ok(rota_gate::Advice::Done));
    assert!(gate.state().closed);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_names_no_priority_gets_the_default_one() {
    let gate = gate(GateConfig { default_priority: Priority::Low, ..slots_only(1) });
    let _permit = gate.acquire_request(Request::new("a")).await.unwrap();
    assert_eq!(gate.details().running[0].priority, Priority::Low);
}

/// Progress needs no background task: the waiters that keep the time may leave, others take over.
#[tokio::test(start_paused = true)]
async fn the_time_is_kept_when_the_timekeepers_leave() {
    let config = GateConfig { max_requests_per_window: 1, rate_window: secs(10), ..slots_only(5) };
    let gate = gate(config);
    let began = Instant::now();
    drop(ready(&gate, "a"));
    // More than keep the time at once.
    let keepers: Vec<_> =
        (0..8).map(|number| tokio::spawn(gate.acquire(format!("{number}"), Priority::High))).collect();
    tokio::task::yield_now().await;
    let next = tokio::spawn(gate.acquire("next", Priority::Normal));
    tokio::time::sleep(secs(3)).await;
    for keeper in keepers {
        keeper.abort();
        assert!(keeper.await.unwrap_err().is_cancelled());
    }
    drop(in_time(next).await.unwrap().unwrap());
    assert_eq!(began.elapsed(), secs(10));
}

/// A task that is stuck elsewhere with its waiter in hand does not stop the clock for the others.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_does_not_hold_the_others_up() {
    let gate = gate(GateConfig { max_requests_per_window: 1, rate_window: secs(10), ..slots_only(5) });
    drop(ready(&gate, "a"));
    let mut stuck = gate.acquire("stuck", Priority::Low);
    assert!(poll_once(&mut stuck).await.is_pending());
    let others = ["b", "c", "d"].map(|id| tokio::spawn(gate.acquire(id, Priority::Normal)));
    for (other, expected) in others.into_iter().zip([10, 20, 30]) {
        assert_eq!(in_time(other).await.unwrap().unwrap().waited(), secs(expected));
    }
    assert_eq!(in_time(stuck).await.unwrap().waited(), secs(40));
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

/// Futures that are never polled again do not hold up tickets nobody awaits: any operation lets them in.
#[tokio::test(start_paused = true)]
async fn any_operation_lets_in_whom_time_has_let_through() {
    let gate = gate(GateConfig { max_requests_per_window: 2, rate_window: secs(10), ..slots_only(1) });
    let first = ready(&gate, "a");
    let (_ticket, _, _) = queued(&gate, "b", Priority::Normal);
    let (_other, _, _) = queued(&gate, "c", Priority::Normal);
    drop(first);
    gate.report("b", SUCCESS).unwrap();
    assert_eq!((gate.state().running, gate.state().queued), (0, 1), "the window is full");
    tokio::time::advance(secs(10)).await;
    assert_eq!((gate.state().running, gate.state().queued), (1, 0));
}
