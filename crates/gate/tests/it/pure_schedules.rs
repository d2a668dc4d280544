//! Random schedules of the pure gate against the written rules (P8, G4).
//!
//! The checker keeps its own books: the log of starts, who is in flight, and when the block ends,
//! reckoned by the formula of the design and not by the gate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use rota_gate::{
    Admission, Answer, Effect, GateConfig, GroupConfig, Moment, Outcome, Priority, PureGate, Request, Ticket,
    Usage,
};

use crate::support::{SUCCESS, cases, millis, most_in_any_window};

const GROUPS: [&str; 2] = ["big", "rest"];

#[derive(Debug, Clone)]
enum Step {
    Pass(u32),
    /// Goes to the next opening, if time alone brings one.
    PassToOpening,
    Request {
        level: u8,
        group: u8,
    },
    Try {
        level: u8,
        group: u8,
    },
    Finish {
        nth: u8,
        outcome: Outcome,
    },
    Leave(u8),
    Cancel(u8),
    Unblock,
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => (0u64..40, 0u64..40)
            .prop_map(|(input_tokens, output_tokens)| Outcome::Success(Usage { input_tokens, output_tokens })),
        2 => Just(Outcome::Failed),
        1 => (0u32..9).prop_map(|earlier| Outcome::Overloaded { earlier }),
        2 => prop::option::of(0u64..20_000).prop_map(|wait| Outcome::RateLimited { retry_after: wait.map(millis) }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u32..3_000_000).prop_map(Step::Pass),
        2 => Just(Step::PassToOpening),
        8 => (0u8..4, 0u8..2).prop_map(|(level, group)| Step::Request { level, group }),
        2 => (0u8..4, 0u8..2).prop_map(|(level, group)| Step::Try { level, group }),
        6 => (any::<u8>(), outcomes()).prop_map(|(nth, outcome)| Step::Finish { nth, outcome }),
        2 => any::<u8>().prop_map(Step::Leave),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => Just(Step::Unblock),
    ];
    prop::collection::vec(step, 1..150)
}

fn configs() -> impl Strategy<Value = GateConfig> {
    let limits = (1usize..5, 1u32..8, 1u64..12, 1u32..8, 0u64..2);
    (limits, prop::option::of(1u64..60), 0u64..10, 1u32..4).prop_map(|(limits, tokens, recovery, big)| {
        let (max_concurrent, max_requests_per_window, window, burst, margin) = limits;
        GateConfig {
            max_concurrent,
            max_requests_per_window,
            rate_window: Duration::from_secs(window),
            burst,
            window_margin: millis(margin * 100),
            recovery_period: Duration::from_secs(recovery),
            input_tokens_per_minute: tokens,
            groups: vec![GroupConfig {
                name: "big".to_owned(),
                models: vec!["big".to_owned()],
                max_requests_per_window: Some(big),
                ..GroupConfig::default()
            }],
            ..GateConfig::default()
        }
    })
}

/// The gate under test, with the checker's books.
struct World {
    config: GateConfig,
    gate: PureGate,
    now: u64,
    waiting: BTreeMap<Ticket, (String, usize)>,
    running: BTreeMap<Ticket, (u64, usize)>,
    /// Starts per group.
    starts: [Vec<u64>; 2],
    blocked_until: u64,
    block_began: Option<u64>,
    hits: u32,
    requests: usize,
    ended: BTreeSet<Ticket>,
    cancelled: u64,
}

impl World {
    fn new(config: GateConfig) -> Self {
        let gate = PureGate::new(&config).unwrap();
        Self {
            config,
            gate,
            now: 0,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            starts: [Vec::new(), Vec::new()],
            blocked_until: 0,
            block_began: None,
            hits: 0,
            requests: 0,
            ended: BTreeSet::new(),
            cancelled: 0,
        }
    }

    fn moment(&self) -> Moment {
        Moment::from_micros(self.now)
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Pass(micros) => {
                self.now += u64::from(*micros);
                self.gate.advance(self.moment());
            }
            Step::PassToOpening => self.pass_to_opening(),
            Step::Request { level, group } => {
                let (request, id, group) = self.request(*level, *group);
                match self.gate.request(self.moment(), request).expect("a fresh name and no quota") {
                    Admission::Started(ticket) => self.started(ticket, group),
                    Admission::Queued(ticket) => drop(self.waiting.insert(ticket, (id, group))),
                }
            }
            Step::Try { level, group } => {
                let (request, id, group) = self.request(*level, *group);
                match self.gate.try_request(self.moment(), request) {
                    Answer::Ready(ticket) => self.started(ticket, group),
                    Answer::Queued { ticket, .. } => drop(self.waiting.insert(ticket, (id, group))),
                    Answer::RateLimited { retry_after } => {
                        assert!(retry_after.is_some_and(|wait| !wait.is_zero()), "limited, but for no time");
                    }
                    Answer::Rejected(reason) => panic!("a fresh name was rejected: {reason}"),
                }
            }
            Step::Finish { nth, outcome } => self.finish(*nth, *outcome),
            Step::Leave(nth) => {
                let Some(ticket) = nth_key(&self.waiting, *nth) else { return };
                self.waiting.remove(&ticket);
                self.cancelled += 1;
                assert!(self.gate.leave(self.moment(), ticket).is_some());
                assert!(self.gate.leave(self.moment(), ticket).is_none(), "left twice");
            }
            Step::Cancel(nth) => {
                let Some(ticket) = nth_key(&self.waiting, *nth) else { return };
                let (id, _) = self.waiting.remove(&ticket).unwrap();
                self.cancelled += 1;
                self.ended.insert(ticket);
                self.gate.cancel(self.moment(), &id.into()).unwrap();
            }
            Step::Unblock => {
                self.gate.unblock(self.moment());
                self.blocked_until = self.blocked_until.min(self.now);
                self.hits = 0;
            }
        }
    }

    fn request(&mut self, level: u8, group: u8) -> (Request, String, usize) {
        self.requests += 1;
        let (id, group) = (format!("{}", self.requests), usize::from(group));
        let priority = Priority::ALL[usize::from(level)];
        (Request::new(id.clone()).priority(priority).model(GROUPS[group]), id, group)
    }

    /// Time alone lets someone in exactly at the opening, and no earlier.
    fn pass_to_opening(&mut self) {
        let Some(opening) = self.gate.next_opening() else { return };
        let opening = opening.as_micros();
        assert!(opening > self.now, "whoever may start has started");
        self.gate.advance(Moment::from_micros(opening - 1));
        assert_eq!(self.gate.next_effect(), None, "nobody starts before the opening");
        self.now = opening;
        self.gate.advance(self.moment());
        let Some(Effect::Started(ticket, ())) = self.gate.next_effect() else {
            panic!("someone starts at the opening")
        };
        self.promoted(ticket);
    }

    fn finish(&mut self, nth: u8, outcome: Outcome) {
        let Some(ticket) = nth_key(&self.running, nth) else { return };
        let (started, _) = self.running.remove(&ticket).unwrap();
        match outcome {
            Outcome::RateLimited { retry_after } => self.book_429(started, retry_after),
            Outcome::Success(_) if started >= self.blocked_until => self.hits = 0,
            _ => {}
        }
        self.gate.finish(self.moment(), ticket, outcome).unwrap();
        assert!(self.gate.finish(self.moment(), ticket, outcome).is_err(), "a slot is freed once");
    }

    /// `blocked_until = max(blocked_until, now + max(retry_after, backoff))`, backoff 5 s doubling to 120 s.
    fn book_429(&mut self, started: u64, retry_after: Option<Duration>) {
        let asked = retry_after.map_or(0, |wait| wait.as_micros() as u64);
        let mut wait = asked;
        if self.block_began.is_none_or(|began| started > began) {
            self.hits += 1;
            self.block_began = Some(self.now);
            wait = wait.max((5_000_000 << (self.hits - 1).min(10)).min(120_000_000));
        }
        if wait > 0 {
            self.blocked_until = self.blocked_until.max(self.now + wait);
        }
    }

    fn started(&mut self, ticket: Ticket, group: usize) {
        assert!(self.now >= self.blocked_until, "a start inside the block");
        self.starts[group].push(self.now);
        assert!(self.running.insert(ticket, (self.now, group)).is_none());
    }

    fn promoted(&mut self, ticket: Ticket) {
        let (_, group) = self.waiting.remove(&ticket).expect("a waiter is promoted once");
        assert!(self.gate.collect(ticket).is_some());
        self.started(ticket, group);
    }

    fn drain(&mut self) {
        while let Some(effect) = self.gate.next_effect() {
            match effect {
                Effect::Started(ticket, ()) => self.promoted(ticket),
                Effect::Refused(ticket, ..) => assert!(self.ended.remove(&ticket), "refused out of the blue"),
            }
        }
    }

    fn check(&self) {
        let state = self.gate.state();
        assert!(state.running <= self.config.max_concurrent);
        assert_eq!((state.running, state.queued), (self.running.len(), self.waiting.len()));
        assert_eq!(state.hits, self.hits);
        assert_eq!(state.block.is_some(), self.now < self.blocked_until);
        let stats = state.stats;
        assert_eq!(stats.scheduled, stats.completed + self.running.len() as u64);
        assert_eq!(stats.cancelled, self.cancelled);
        assert!(
            self.gate.next_opening().is_none_or(|opening| opening > self.moment()),
            "whoever may start has started"
        );
    }

    /// P8: the sliding check over the whole log of starts.
    fn check_windows(&self) {
        let window = self.config.rate_window + self.config.window_margin;
        let big = self.config.groups[0].max_requests_per_window.unwrap();
        let limits = [big, self.config.max_requests_per_window];
        for (starts, limit) in self.starts.iter().zip(limits) {
            assert!(most_in_any_window(starts, window.as_micros() as u64) <= limit as usize);
            self.check_pace(starts, limit, window.as_micros());
        }
    }

    /// In any stretch of time at most a burst, and what the pace brings meanwhile.
    fn check_pace(&self, starts: &[u64], limit: u32, window: u128) {
        let burst = u128::from(self.config.burst.min(limit));
        for (index, first) in starts.iter().enumerate() {
            for (count, last) in (1u128..).zip(&starts[index..]) {
                let brought = u128::from(limit) * u128::from(last - first);
                assert!(count * window <= burst * window + brought, "{count} starts in {} us", last - first);
            }
        }
    }

    /// Whatever happened, everyone who still waits is served in the end.
    fn run_dry(&mut self) {
        for _ in 0..10_000 {
            while let Some(ticket) = nth_key(&self.running, 0) {
                self.running.remove(&ticket);
                self.gate.finish(self.moment(), ticket, SUCCESS).unwrap();
                self.drain();
            }
            if self.waiting.is_empty() {
                return;
            }
            let opening = self.gate.next_opening().expect("with free slots only time is in the way");
            self.now = opening.as_micros();
            self.gate.advance(self.moment());
            self.drain();
        }
        panic!("{} wait for ever", self.waiting.len());
    }
}

fn nth_key<V>(map: &BTreeMap<Ticket, V>, nth: u8) -> Option<Ticket> {
    let index = usize::from(nth) % map.len().max(1);
    map.keys().nth(index).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(500)))]

    /// P8, G4: in flight never above the slots, never N + 1 starts in any window, none inside a block, no slot
    /// or waiter lost, for random arrivals, ends, cancellations and 429s.
    #[test]
    fn the_rules_hold_over_random_schedules(config in configs(), steps in steps()) {
        let mut world = World::new(config);
        for step in &steps {
            world.apply(step);
            world.drain();
            world.check();
        }
        world.run_dry();
        world.check_windows();
    }
}
