//! 429, overload and quota (P8, G3).

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rota_gate::{Advice, Gate, GateConfig, Outcome, Permit, Priority, Refusal, parse_retry_after};
use tokio::time::Instant;

use crate::support::{SUCCESS, gate, in_time, limited, millis, queued, ready, secs, slots_only};

fn rate_limited(retry_after: Option<u64>) -> Outcome {
    Outcome::RateLimited { retry_after: retry_after.map(secs) }
}

async fn fifty_in_flight(gate: &Gate) -> Vec<Permit> {
    let mut permits = Vec::new();
    for number in 0..50 {
        permits.push(in_time(gate.acquire(format!("storm-{number}"), Priority::Normal)).await.unwrap());
    }
    permits
}

fn block_left(gate: &Gate) -> Option<Duration> {
    gate.state().block.map(|block| block.ends_in.expect("a block with an end"))
}

/// How many starts the ramp allows up to `after` the end of the block: the pace grows evenly to its full
/// rate, so their number grows with the square of the time.
fn ramp_allows(config: &GateConfig, after: Duration) -> u128 {
    let (recovery, window) = (config.recovery_period.as_micros(), config.rate_window.as_micros());
    1 + u128::from(config.max_requests_per_window) * after.as_micros().pow(2) / (2 * recovery * window)
}

/// G3: a storm of fifty 429s, by what `Retry-After` said. Counts once, blocks long enough, lets no herd
/// out.
#[tokio::test(start_paused = true)]
async fn a_storm_counts_once_and_ends_in_a_ramp() {
    // Sun, 06 Nov 1994 08:49:37 GMT.
    let wall = UNIX_EPOCH + secs(784_111_777);
    let cases = [
        (Some("60"), 60),
        (Some("Sun, 06 Nov 1994 08:50:37 GMT"), 60),
        (Some("Sun, 06 Nov 1994 08:00:00 GMT"), 5),
        (Some("0"), 5),
        (Some("3"), 5),
        (Some("300"), 300),
        (Some("garbage"), 5),
        (None, 5),
    ];
    for (header, blocked_secs) in cases {
        storm(header, wall, secs(blocked_secs)).await;
    }
}

async fn storm(header: Option<&str>, wall: SystemTime, blocked: Duration) {
    let config =
        GateConfig { max_concurrent: 50, max_requests_per_window: 600, burst: 600, ..GateConfig::default() };
    let gate = gate(config.clone());
    let permits = fifty_in_flight(&gate).await;
    tokio::time::sleep(millis(200)).await;
    let retry_after = header.and_then(|value| parse_retry_after(value, wall));

    let starts = Arc::new(Mutex::new(Vec::new()));
    let waiting: Vec<_> = (0..40)
        .map(|number| {
            let (gate, starts) = (gate.clone(), Arc::clone(&starts));
            tokio::spawn(async move {
                let permit =
                    in_time(gate.acquire(format!("later-{number}"), Priority::Normal)).await.unwrap();
                let state = gate.state();
                starts.lock().unwrap().push((Instant::now(), state.running, state.slots_now));
                tokio::time::sleep(secs(7)).await;
                permit.report(SUCCESS).unwrap();
            })
        })
        .collect();
    for permit in permits {
        let advice = permit.report(Outcome::RateLimited { retry_after }).unwrap();
        assert_eq!(advice, Advice::AskAgain { blocked_for: blocked }, "{header:?}");
    }
    let opens = Instant::now() + blocked;
    let state = gate.state();
    assert_eq!((state.hits, state.running), (1, 0), "{header:?}: one hit, every slot free at once");
    assert_eq!(state.stats.rate_limited, 50);
    assert_eq!(block_left(&gate), Some(blocked), "{header:?}");

    for task in waiting {
        in_time(task).await.unwrap();
    }
    let starts = starts.lock().unwrap();
    assert_eq!(starts.len(), 40);
    assert_eq!(starts[0].0, opens, "{header:?}: the first one goes when the block ends, nobody earlier");
    for (count, (start, running, slots_now)) in (1u128..).zip(starts.iter()) {
        let after = *start - opens;
        // The timer rounds up to the next millisecond.
        let allowed = ramp_allows(&config, after.min(config.recovery_period));
        assert!(
            count <= allowed || after > config.recovery_period,
            "{header:?}: {count} starts after {after:?}"
        );
        assert!(running <= slots_now, "{header:?}: {running} running, {slots_now} slots after {after:?}");
    }
    assert_eq!(gate.state().hits, 0, "{header:?}: forgotten after a success");
}

/// G3: 86400 is a quota, honoured as it is; nobody is held for it.
#[tokio::test(start_paused = true)]
async fn a_day_is_a_quota_and_everyone_hears_of_it_at_once() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "a");
    let waiting = tokio::spawn(gate.acquire("b", Priority::Normal));
    tokio::task::yield_now().await;
    let day = Some(secs(86_400));
    assert_eq!(permit.report(rate_limited(Some(86_400))), Ok(Advice::Stop { resets_in: day }));
    assert_eq!(in_time(waiting).await.unwrap().unwrap_err(), Refusal::Quota { resets_in: day });
    assert_eq!(gate.acquire("c", Priority::Critical).await.unwrap_err(), Refusal::Quota { resets_in: day });
    assert_eq!(limited(&gate, "d"), day);
    let block = gate.state().block.unwrap();
    assert!(block.quota);
    tokio::time::advance(secs(86_400)).await;
    drop(in_time(gate.acquire("e", Priority::Normal)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_spend_cap_without_reset_lasts_until_it_is_unblocked() {
    let gate = gate(slots_only(10));
    let permit = ready(&gate, "a");
    let quota = Outcome::Quota { resets_in: None };
    assert_eq!(permit.report(quota), Ok(Advice::Stop { resets_in: None }));
    tokio::time::advance(secs(40 * 86_400)).await;
    assert_eq!(limited(&gate, "b"), None);
    gate.unblock();
    let _first = ready(&gate, "b");
    let state = gate.state();
    assert_eq!((state.hits, state.block, state.slots_now), (0, None, 1), "it ramps from here");
    assert!(state.ramping);
}

/// G3: neither an old success nor a shorter 429 lifts or shortens the block.
#[tokio::test(start_paused = true)]
async fn only_time_ends_a_block() {
    let gate = gate(slots_only(10));
    let (old, first, second) = (ready(&gate, "old"), ready(&gate, "first"), ready(&gate, "second"));
    tokio::time::advance(secs(1)).await;
    first.report(rate_limited(Some(60))).unwrap();
    assert_eq!(block_left(&gate), Some(secs(60)));
    second.report(rate_limited(Some(5))).unwrap();
    assert_eq!(block_left(&gate), Some(secs(60)), "a shorter 429 does not shorten it");
    tokio::time::advance(secs(1)).await;
    old.report(SUCCESS).unwrap();
    assert_eq!((block_left(&gate), gate.state().hits), (Some(secs(59)), 1), "an old success changes nothing");
    let waiting = in_time(gate.acquire("next", Priority::Critical)).await.unwrap();
    assert_eq!(waiting.waited(), secs(59), "no start before it ends");
    assert_eq!(gate.state().hits, 1);
    waiting.report(SUCCESS).unwrap();
    assert_eq!(gate.state().hits, 0, "a success that started after it forgets the hits");
}

/// G3: one that does not count still moves the end by its own retry-after.
#[tokio::test(start_paused = true)]
async fn a_429_of_the_same_burst_extends_by_its_own_retry_after() {
    let gate = gate(slots_only(10));
    let permits = ["a", "b", "c"].map(|id| ready(&gate, id));
    tokio::time::advance(secs(1)).await;
    let [a, b, c] = permits;
    a.report(rate_limited(Some(10))).unwrap();
    b.report(rate_limited(Some(90))).unwrap();
    c.report(rate_limited(None)).unwrap();
    assert_eq!((block_left(&gate), gate.state().hits), (Some(secs(90)), 1));
}

/// Backoff 5, 10, 20 … 120 s while every attempt meets another 429; back to 5 after a success.
#[tokio::test(start_paused = true)]
async fn hits_in_a_row_double_the_backoff() {
    let gate = gate(slots_only(10));
    let mut waits = Vec::new();
    for attempt in 0..7 {
        let permit = in_time(gate.acquire(format!("{attempt}"), Priority::Normal)).await.unwrap();
        tokio::time::advance(millis(100)).await;
        permit.report(rate_limited(None)).unwrap();
        waits.push(block_left(&gate).unwrap().as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 120, 120]);
    in_time(gate.acquire("good", Priority::Normal)).await.unwrap().report(SUCCESS).unwrap();
    in_time(gate.acquire("bad", Priority::Normal)).await.unwrap().report(rate_limited(None)).unwrap();
    assert_eq!(block_left(&gate), Some(secs(5)));
}

/// A waiter keeps its place through rate limits.
#[tokio::test(start_paused = true)]
async fn waiters_keep_their_places_through_a_block() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "a");
    let (normal, _, _) = queued(&gate, "normal", Priority::Normal);
    let (high, _, _) = queued(&gate, "high", Priority::High);
    permit.report(rate_limited(Some(30))).unwrap();
    let later = tokio::spawn(gate.acquire("later", Priority::Normal));
    tokio::task::yield_now().await;
    assert_eq!((high.position(), normal.position()), (Some(1), Some(2)));
    drop(in_time(high).await.unwrap());
    drop(in_time(normal).await.unwrap());
    drop(in_time(later).await.unwrap().unwrap());
}

/// Overload concerns that call alone, and slows the gate down.
#[tokio::test(start_paused = true)]
async fn an_overload_does_not_block_but_shrinks_the_ramp() {
    let gate = gate(slots_only(8));
    let permits = ["a", "b", "c"].map(|id| ready(&gate, id));
    tokio::time::advance(millis(1)).await;
    let [a, b, c] = permits;
    let overloaded = |earlier| Outcome::Overloaded { earlier };
    assert_eq!(a.report(overloaded(0)), Ok(Advice::RetryIn(millis(500))));
    assert_eq!(gate.state().slots_now, 4);
    assert_eq!(b.report(overloaded(1)), Ok(Advice::RetryIn(secs(1))));
    assert_eq!(c.report(overloaded(9)), Ok(Advice::RetryIn(secs(16))));
    let state = gate.state();
    assert_eq!((state.slots_now, state.block, state.hits), (4, None, 0), "one burst shrinks it once");
    tokio::time::advance(millis(1)).await;
    ready(&gate, "d").report(overloaded(0)).unwrap();
    assert_eq!(gate.state().slots_now, 2, "a call that started after it shrinks it again");
    tokio::time::advance(secs(30)).await;
    assert_eq!(gate.state().slots_now, 8, "and it grows back");
}

/// However empty the bucket was, one call goes as soon as the block ends: someone must try.
#[tokio::test(start_paused = true)]
async fn the_first_start_comes_with_the_end_of_the_block() {
    let gate = gate(GateConfig { burst: 2, ..GateConfig::default() });
    let permits = [ready(&gate, "a"), ready(&gate, "b")];
    assert_eq!(limited(&gate, "c"), Some(millis(1_200)), "the bucket is empty");
    for permit in permits {
        permit.report(rate_limited(None)).unwrap();
    }
    let first = in_time(gate.acquire("c", Priority::Normal)).await.unwrap();
    assert_eq!(first.waited(), secs(5));
    let second = in_time(gate.acquire("d", Priority::Normal)).await.unwrap();
    // Paced time of 1.2 s passes in sqrt(2 x 30 s x 1.2 s), about 8.5 s of the ramp.
    assert_eq!(second.waited().as_millis(), 8_486);
}

/// Unblocking brings the next opening forward; whoever keeps the time must hear of it.
#[tokio::test(start_paused = true)]
async fn unblocking_lets_the_rest_follow_in_the_ramp() {
    let gate = gate(GateConfig { max_concurrent: 10, ..GateConfig::default() });
    ready(&gate, "a").report(rate_limited(Some(300))).unwrap();
    let low = tokio::spawn(gate.acquire("low", Priority::Low));
    tokio::task::yield_now().await;
    let high = tokio::spawn(gate.acquire("high", Priority::High));
    tokio::time::sleep(secs(10)).await;
    gate.unblock();
    let high = in_time(high).await.unwrap().unwrap();
    let low = in_time(low).await.unwrap().unwrap();
    assert_eq!((high.waited(), low.waited().as_millis()), (secs(10), 18_486));
}

/// The slot is free while the block lasts: nobody sleeps with a slot in hand.
#[tokio::test(start_paused = true)]
async fn the_ramp_uses_few_slots_at_first_and_all_in_the_end() {
    let gate = gate(slots_only(10));
    ready(&gate, "a").report(rate_limited(Some(10))).unwrap();
    let tasks: Vec<_> =
        (0..10).map(|number| tokio::spawn(gate.acquire(format!("{number}"), Priority::Normal))).collect();
    let mut permits = Vec::new();
    for task in tasks {
        let permit = in_time(task).await.unwrap().unwrap();
        permits.push((permit.waited(), permit));
    }
    let waits: Vec<_> = permits.iter().map(|(waited, _)| waited.as_secs()).collect();
    assert_eq!(
        waits,
        [10, 16, 19, 22, 25, 28, 31, 34, 37, 40],
        "one slot at once, one more every three seconds"
    );
}
