//! No one waits more than three spreads behind later arrivals (G5).

use std::collections::BTreeMap;

use proptest::prelude::*;
use rota_gate::{Admission, Effect, GateConfig, Moment, Priority, PureGate, Request, Ticket};

use crate::support::{SUCCESS, secs, slots_only};

const SPREAD_SECS: u64 = 60;

/// One slot, one-second calls: the queue decides everything.
fn one_slot() -> PureGate {
    PureGate::new(&GateConfig { priority_spread: secs(SPREAD_SECS), ..slots_only(1) }).unwrap()
}

/// Serves arrivals one per second of run time; returns (arrival, priority, start) in seconds, by order of start.
fn simulate(arrivals: &[(u64, Priority)]) -> Vec<(u64, Priority, u64)> {
    let mut gate = one_slot();
    let mut known: BTreeMap<Ticket, (u64, Priority)> = BTreeMap::new();
    let mut arrivals = arrivals.iter().enumerate().peekable();
    let (mut running, mut log): (Option<Ticket>, _) = (None, Vec::new());
    for second in 0.. {
        let now = Moment::from_secs(second);
        if let Some(ticket) = running.take() {
            gate.finish(now, ticket, SUCCESS).unwrap();
        }
        while let Some((number, (arrived, priority))) =
            arrivals.next_if(|(_, (arrived, _))| *arrived <= second)
        {
            match gate.request(now, Request::new(format!("{number}")).priority(*priority)).unwrap() {
                Admission::Started(ticket) => {
                    log.push((*arrived, *priority, second));
                    running = Some(ticket);
                }
                Admission::Queued(ticket) => {
                    known.insert(ticket, (*arrived, *priority));
                }
            }
        }
        while let Some(Effect::Started(ticket, ())) = gate.next_effect() {
            let (arrived, priority) = known.remove(&ticket).unwrap();
            log.push((arrived, priority, second));
            gate.collect(ticket).unwrap();
            running = Some(ticket);
        }
        if running.is_none() && arrivals.peek().is_none() {
            return log;
        }
    }
    unreachable!("the loop ends when all are served")
}

/// G5: under a constant load of urgent calls a low one still gets its turn, when the written rule says.
#[test]
fn low_priority_under_constant_high_load_waits_as_long_as_the_rule_says() {
    for (urgent, levels_between) in [(Priority::Critical, 3), (Priority::High, 2), (Priority::Normal, 1)] {
        let mut arrivals: Vec<_> = (0..1_000).map(|second| (second, urgent)).collect();
        // One urgent call is always waiting when the low one comes.
        arrivals.splice(0..0, [(0, urgent), (0, Priority::Low)]);
        let log = simulate(&arrivals);
        let low = log.iter().find(|(_, priority, _)| *priority == Priority::Low).unwrap();
        let wait = low.2 - low.0;
        assert_eq!(
            wait,
            levels_between * SPREAD_SECS + 1,
            "behind {urgent}: those who came before its place did go first"
        );
    }
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, Priority)>> {
    let arrival = (0u64..400, prop::sample::select(Priority::ALL.to_vec()));
    prop::collection::vec(arrival, 1..300).prop_map(|mut arrivals| {
        arrivals.sort_by_key(|(arrived, _)| *arrived);
        arrivals
    })
}

proptest! {
    /// G5: whoever came more than three spreads later never goes first.
    #[test]
    fn no_one_waits_more_than_three_spreads_behind_later_arrivals(arrivals in arrivals()) {
        let log = simulate(&arrivals);
        prop_assert_eq!(log.len(), arrivals.len());
        for (index, (arrived, _, _)) in log.iter().enumerate() {
            let overtaken = log[index..].iter().map(|(later, _, _)| *later).min().unwrap_or(u64::MAX);
            prop_assert!(*arrived <= overtaken + 3 * SPREAD_SECS, "one of {arrived} s went before one of {overtaken} s");
        }
    }

    /// The order is that of the written key: arrival plus level times spread, ties by arrival.
    #[test]
    fn those_who_wait_are_served_by_their_keys(arrivals in arrivals()) {
        let log = simulate(&arrivals);
        for pair in log.windows(2) {
            let key = |(arrived, priority, _): (u64, Priority, u64)| arrived + u64::from(priority.level()) * SPREAD_SECS;
            let (first, second) = (pair[0], pair[1]);
            // The second may have come when the first had already started.
            prop_assert!(key(first) <= key(second) || second.0 >= first.2, "{first:?} went before {second:?}");
        }
    }
}
