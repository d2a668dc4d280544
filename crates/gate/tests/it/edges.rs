//! The ends of time, and very many waiters.

use proptest::prelude::*;
use rota_gate::{Admission, Answer, GateConfig, Moment, Outcome, Priority, PureGate, Request, TryAcquire};

use crate::support::{SUCCESS, gate, ready, secs, slots_only};

/// Moments at both ends of the clock, and some in between.
fn moments() -> impl Strategy<Value = Moment> {
    prop_oneof![
        (0u64..100).prop_map(Moment::from_micros),
        (0u64..100).prop_map(|back| Moment::from_micros(u64::MAX - back)),
        (0u64..200_000_000).prop_map(Moment::from_micros),
        (0u64..200_000_000).prop_map(|back| Moment::from_micros(u64::MAX - back)),
    ]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let waits = prop_oneof![Just(0u64), Just(1), Just(60), Just(301), Just(86_400), Just(u64::MAX)];
    prop_oneof![
        Just(SUCCESS),
        Just(Outcome::Failed),
        any::<u32>().prop_map(|earlier| Outcome::Overloaded { earlier }),
        prop::option::of(waits.clone()).prop_map(|wait| Outcome::RateLimited { retry_after: wait.map(secs) }),
        prop::option::of(waits).prop_map(|wait| Outcome::Quota { resets_in: wait.map(secs) }),
    ]
}

proptest! {
    /// Clock near zero, clock at its maximum, clock running backwards: no panic, and the books balance.
    #[test]
    fn the_ends_of_time_do_no_harm(
        steps in prop::collection::vec((moments(), outcomes(), 0u8..4, any::<bool>()), 1..60),
        forward: bool,
    ) {
        let config = GateConfig { max_concurrent: 3, max_requests_per_window: 5, ..GateConfig::default() };
        let mut gate = <PureGate>::new(&config).unwrap();
        let mut steps = steps;
        if forward {
            steps.sort_by_key(|(now, ..)| *now);
        }
        let mut running = Vec::new();
        for (number, (now, outcome, level, unblock)) in steps.into_iter().enumerate() {
            let request = Request::new(format!("{number}")).priority(Priority::ALL[usize::from(level)]);
            if number % 3 == 0 {
                if let Answer::Ready(ticket) = gate.try_request(now, request) {
                    running.push(ticket);
                }
            } else if let Ok(Admission::Started(ticket)) = gate.request(now, request) {
                running.push(ticket);
            }
            if unblock {
                gate.unblock(now);
            }
            if level == 0 && let Some(ticket) = running.pop() {
                gate.finish(now, ticket, outcome).unwrap();
            }
            let _ = (gate.details(), gate.next_opening(), gate.stored_block(now, u64::MAX));
            while gate.next_effect().is_some() {}
            let state = gate.state();
            prop_assert!(state.running <= 3);
        }
    }

    #[test]
    fn a_configuration_of_extremes_is_refused_or_works(
        slots in prop::sample::select(vec![1usize, usize::MAX]),
        limit in prop::sample::select(vec![1u32, u32::MAX]),
        burst in prop::sample::select(vec![1u32, u32::MAX]),
        seconds in prop::sample::select(vec![0u64, 1, u64::MAX]),
        now in moments(),
    ) {
        let config = GateConfig {
            max_concurrent: slots,
            max_requests_per_window: limit,
            burst,
            rate_window: secs(seconds),
            window_margin: secs(seconds),
            priority_spread: secs(seconds),
            recovery_period: secs(seconds),
            ..GateConfig::default()
        };
        let Ok(mut gate) = <PureGate>::new(&config) else {
            prop_assert_eq!(seconds, 0);
            return Ok(());
        };
        for number in 0..5 {
            if let Ok(Admission::Started(ticket)) = gate.request(now, Request::new(format!("{number}"))) {
                gate.finish(now, ticket, Outcome::RateLimited { retry_after: None }).unwrap();
            }
        }
        let _ = (gate.next_opening(), gate.details());
        gate.unblock(Moment::MAX);
    }
}

/// The handle at a scale no one should need: every ticket is dropped, in an order no one planned.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_tickets_dropped_in_random_order() {
    let gate = gate(slots_only(1));
    let permit = ready(&gate, "holder");
    let mut tickets = Vec::new();
    for number in 0..100_000usize {
        let priority = Priority::ALL[number % 4];
        match gate.try_acquire(format!("{number}"), priority) {
            TryAcquire::Queued { ticket, .. } => tickets.push(ticket),
            other => panic!("{other:?}"),
        }
    }
    // A stride that shares no factor with the count visits every ticket once.
    let mut tickets: Vec<_> = tickets.into_iter().map(Some).collect();
    for step in 0..tickets.len() {
        let index = step * 69_997 % tickets.len();
        assert!(tickets[index].take().is_some());
    }
    let state = gate.state();
    assert_eq!((state.queued, state.running, state.stats.cancelled), (0, 1, 100_000));
    drop(permit);
    assert_eq!(gate.state().running, 0);
}
