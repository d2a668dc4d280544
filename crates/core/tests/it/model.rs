//! C3: random sequences of commands, under random rules and clocks (backwards too), against a small reference model
//! that knows nothing of the table. Guards P2 and P4, and that the journal folds to the task.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use rota_core::backoff::Backoff;
use rota_core::event::{Event, EventKind, Folded, fold};
use rota_core::policy::Counts;
use rota_core::transition::{Applied, Command, FAILED_REASON, RateLimit, TABLE, Verb, apply};
use rota_core::{Caller, Fence, Json, LeaseId, QueuePolicy, Refusal, Status, Task, UnixMillis};

use crate::support::{config, id};

/// The reference: DESIGN 4 in as few words as possible.
#[derive(Clone, Debug)]
struct Model {
    status: Status,
    attempts: u32,
    in_row: u32,
    fence: u64,
    due: Option<i64>,
    agent: Option<String>,
}

impl Model {
    fn step(&mut self, command: &Command, rules: &QueuePolicy, now: i64) -> Result<(), &'static str> {
        use Status::{Active, Deleted, Done, Failed, Invalidated, Open, Parked, Paused};
        let from = self.status;
        let is = |list: &[Status]| list.contains(&from);
        let allowed = match command {
            Command::Claim { .. } | Command::Begin { .. } => is(&[Open]),
            Command::Park { .. } => is(&[Open, Active, Paused, Failed]),
            Command::Pause | Command::Override { .. } => is(&[Open, Active]),
            Command::Resume => is(&[Paused]),
            Command::Reset => is(&[Parked, Failed, Invalidated]),
            Command::Reiterate => is(&[Parked, Failed, Invalidated, Done]),
            Command::Delete => !is(&[Deleted]),
            Command::Undelete => is(&[Deleted]),
            Command::Cancel | Command::Invalidate { .. } | Command::Orphan { .. } => {
                is(&[Open, Active, Paused, Parked])
            }
            _ if from != Active => return Err("not_active"),
            _ => true,
        };
        if !allowed {
            return Err("wrong_status");
        }
        if let Some(caller) = command.caller().filter(|_| from == Active) {
            self.may_speak(caller, rules, matches!(command, Command::Park { .. }))?;
        }
        match command {
            Command::Claim { agent, .. } | Command::Begin { agent, .. } => {
                (self.status, self.fence, self.agent) = (Active, self.fence + 1, agent.clone());
            }
            Command::Renew { .. } | Command::Iterate { .. } => {}
            Command::Done { .. } | Command::Override { .. } => self.status = Done,
            Command::Fail { .. } => self.ends_badly(rules.counts.failed, rules, now),
            Command::Lose => self.ends_badly(rules.counts.lost, rules, now),
            Command::RateLimit { limit, .. } => {
                self.in_row += 1;
                let wait = (5_000 << (self.in_row - 1).min(10)).min(120_000);
                let due = limit.blocked_until.map_or(i64::MIN, UnixMillis::get).max(last(now + wait));
                let parks = self.in_row >= 20 && limit.others_succeed;
                (self.status, self.due) = if parks { (Parked, None) } else { (Open, Some(due)) };
            }
            Command::Interrupt { .. } | Command::Release { .. } | Command::Yield { .. } => {
                (self.status, self.due) = (Open, None);
            }
            Command::Exhaust { .. } | Command::Orphan { .. } => self.status = Failed,
            Command::Park { .. } => (self.status, self.due) = (Parked, None),
            Command::Pause => self.status = Paused,
            Command::Resume | Command::Undelete => self.status = Open,
            Command::Reset | Command::Reiterate => (self.status, self.due, self.attempts) = (Open, None, 0),
            Command::Delete => self.status = Deleted,
            Command::Cancel | Command::Invalidate { .. } => self.status = Invalidated,
        }
        let keeps_the_row = [Verb::Claim, Verb::Renew, Verb::RateLimit, Verb::Interrupt];
        if !keeps_the_row.contains(&command.verb()) {
            self.in_row = 0;
        }
        Ok(())
    }

    fn may_speak(&self, caller: &Caller, rules: &QueuePolicy, parks: bool) -> Result<(), &'static str> {
        match (&caller.lease, &caller.agent, &self.agent) {
            (Some(lease), _, _) if lease.fence.get() != self.fence => Err("stale_lease"),
            (_, Some(named), Some(holder)) if named != holder => Err("not_holder"),
            _ if parks => Ok(()),
            (None, _, _) if rules.require_lease => Err("lease_required"),
            (None, None, Some(_)) if rules.require_holder => Err("holder_required"),
            _ => Ok(()),
        }
    }

    fn ends_badly(&mut self, counted: bool, rules: &QueuePolicy, now: i64) {
        self.attempts += u32::from(counted);
        (self.status, self.due) = (Status::Open, None);
        if counted && rules.max_attempts.is_some_and(|limit| self.attempts >= limit) {
            self.status = Status::Parked;
        } else if let Some(backoff) = rules.backoff.filter(|_| counted) {
            // Exact for the factors of `rules`: halves and whole numbers.
            let growth = (backoff.factor_thousandths as f64 / 1_000.0).powi(self.attempts as i32 - 1);
            let wait = (backoff.base_ms as f64 * growth).min(backoff.cap_ms as f64) as i64;
            self.due = (wait > 0).then_some(last(now + wait));
        }
    }
}

/// No instant lies after the last.
fn last(millis: i64) -> i64 {
    millis.min(UnixMillis::MAX.get())
}

/// Which lease a caller names.
#[derive(Clone, Copy, Debug)]
enum Named {
    Nothing,
    Current,
    Previous,
}

/// One command before it is known which lease is current, and how far the clock moves before it.
#[derive(Clone, Debug)]
struct Step {
    verb: Verb,
    agent: Option<String>,
    named: Named,
    ttl_ms: Option<i64>,
    block_ms: Option<i64>,
    text: Option<String>,
    clock_ms: i64,
}

impl Step {
    fn command(&self, fence: u64, now: UnixMillis) -> Command {
        let fence = match self.named {
            Named::Nothing => None,
            Named::Current => Some(fence),
            Named::Previous => Some(fence.saturating_sub(1)),
        };
        let lease = fence.map(|fence| LeaseId { task: id("t"), fence: Fence::new(fence) });
        let caller = Caller { agent: self.agent.clone(), lease };
        let reason = || self.text.clone().unwrap_or_default();
        let result = self.text.as_ref().map(|text| Json::parse(text).unwrap_or_else(|_| Json::of(text)));
        match self.verb {
            Verb::Claim => Command::Claim { agent: self.agent.clone(), ttl_ms: self.ttl_ms },
            Verb::Renew => Command::Renew { caller, ttl_ms: self.ttl_ms },
            Verb::Done => Command::Done { caller, result },
            Verb::Fail => Command::Fail { caller, reason: self.text.clone(), default_reason: FAILED_REASON },
            Verb::RateLimit => {
                let blocked_until = self.block_ms.map(|millis| now.plus_ms(millis));
                let others_succeed = self.text.is_none();
                let limit = RateLimit { blocked_until, backoff: None, others_succeed };
                Command::RateLimit { caller, limit }
            }
            Verb::Exhaust => Command::Exhaust { caller, reason: reason() },
            Verb::Park => Command::Park { caller, reason: reason() },
            Verb::Invalidate => Command::Invalidate { reason: reason() },
            Verb::Orphan => Command::Orphan { parent: reason() },
            Verb::Override => Command::Override { result },
            other => crate::support::command(other, caller),
        }
    }
}

fn step(verb: impl Strategy<Value = Verb>) -> impl Strategy<Value = Step> {
    let agent =
        prop_oneof![3 => Just(None), 3 => Just(Some("a".to_owned())), 1 => Just(Some("b".to_owned()))];
    let named = prop_oneof![2 => Just(Named::Nothing), 5 => Just(Named::Current), 1 => Just(Named::Previous)];
    let text = prop_oneof![
        Just(None),
        Just(Some("null".to_owned())),
        Just(Some("{\"commit\": 1}".to_owned())),
        any::<String>().prop_map(Some),
    ];
    let clock = prop_oneof![
        6 => -30_000_i64..60_000,
        1 => Just(i64::MIN / 4),
        1 => Just(i64::MAX / 4),
    ];
    let block = proptest::option::of(-10_000_i64..1_000_000);
    (verb, agent, named, proptest::option::of(0_i64..100_000), block, text, clock).prop_map(
        |(verb, agent, named, ttl_ms, block_ms, text, clock_ms)| Step {
            verb,
            agent,
            named,
            ttl_ms,
            block_ms,
            text,
            clock_ms,
        },
    )
}

/// Mostly single verbs, now and then twenty-odd rate limits in a row or a row of failures: the limits lie that deep.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verbs: Vec<Verb> = TABLE.iter().map(|rule| rule.verb).collect();
    let any_verb = proptest::sample::select(verbs);
    let row = |end: Verb, times: std::ops::Range<usize>| {
        vec((step(Just(Verb::Claim)), step(Just(end))), times)
            .prop_map(|pairs| pairs.into_iter().flat_map(|(claim, end)| [claim, end]).collect::<Vec<Step>>())
    };
    let part = prop_oneof![
        30 => vec(step(any_verb), 1..4),
        4 => row(Verb::Fail, 1..6),
        4 => row(Verb::Lose, 1..6),
        1 => row(Verb::RateLimit, 30..60),
    ];
    vec(part, 1..30).prop_map(|parts| parts.concat())
}

fn rules() -> impl Strategy<Value = QueuePolicy> {
    let backoffs =
        [(1_000, 2_000, 60_000), (4_096, 1_500, 50_000), (7, 1_000, 7), (0, 2_000, 10), (1, 3_000, 1 << 40)];
    let backoff = proptest::sample::select(backoffs.to_vec())
        .prop_map(|(base_ms, factor_thousandths, cap_ms)| Backoff { base_ms, factor_thousandths, cap_ms });
    let counts = prop_oneof![4 => Just((true, true)), 1 => any::<(bool, bool)>()];
    (proptest::option::of(1_u32..5), proptest::option::of(backoff), counts, any::<(bool, bool)>()).prop_map(
        |(max_attempts, backoff, (failed, lost), (require_lease, require_holder))| QueuePolicy {
            max_attempts,
            backoff,
            counts: Counts { failed, lost },
            require_lease,
            require_holder,
            ..QueuePolicy::built_in("tasks")
        },
    )
}

/// What a run has seen, over all cases.
#[derive(Default)]
struct Seen {
    pairs: BTreeSet<(Status, Verb)>,
    refusals: BTreeSet<&'static str>,
    parked: BTreeSet<&'static str>,
}

fn run(rules: &QueuePolicy, steps: &[Step], seen: &RefCell<Seen>) -> Result<(), TestCaseError> {
    let mut now = UnixMillis::new(1_000_000);
    let mut task = Task { seq: 3, events: 1, ..Task::new("s", id("t"), "tasks", "T", now) };
    let mut model = Model { status: Status::Open, attempts: 0, in_row: 0, fence: 0, due: None, agent: None };
    let mut folded = fold(None, &Event::of_change(EventKind::Created, None, &task)).unwrap();
    for step in steps {
        now = now.plus_ms(step.clock_ms);
        let command = step.command(task.fence.get(), now);
        seen.borrow_mut().pairs.insert((task.status, step.verb));
        let wanted = model.step(&command, rules, now.get());
        match (apply(&task, &command, rules, now), wanted) {
            (Ok(applied), Ok(())) => {
                invariants(&task, &applied, rules)?;
                note_parking(&task, &applied, seen);
                folded = journalled(folded, &task, &applied)?;
                task = folded.task.clone();
            }
            (Err(refusal), Err(code)) => {
                prop_assert_eq!(refusal.code(), code, "{:?}", &command);
                seen.borrow_mut().refusals.insert(code);
            }
            (answer, wanted) => {
                let answer =
                    answer.map(|applied| applied.task.status).map_err(|refusal: Refusal| refusal.code());
                return Err(TestCaseError::fail(format!(
                    "{command:?}: {answer:?}, the model says {wanted:?}"
                )));
            }
        }
        prop_assert_eq!(task.status, model.status, "{:?}", &command);
        prop_assert_eq!(task.attempts, model.attempts, "{:?}", &command);
        prop_assert_eq!(task.limited_in_row, model.in_row, "{:?}", &command);
        prop_assert_eq!(task.fence.get(), model.fence, "{:?}", &command);
        prop_assert_eq!(task.next_eligible_at.map(UnixMillis::get), model.due, "{:?}", &command);
    }
    Ok(())
}

/// What must hold after every step, whatever it was.
fn invariants(before: &Task, applied: &Applied, rules: &QueuePolicy) -> Result<(), TestCaseError> {
    let (task, verb) = (&applied.task, applied.verb);
    let granted = u64::from(verb == Verb::Claim);
    prop_assert_eq!(task.fence.get(), before.fence.get() + granted, "P2: {:?}", verb);
    let active = task.status == Status::Active;
    prop_assert_eq!(task.lease_expires_at.is_some(), active, "a lease on what is not active: {:?}", verb);
    prop_assert!(active || task.status == Status::Done || task.assignee.is_none(), "{:?}", verb);
    prop_assert_eq!(task.finished_at.is_some(), task.status.is_finished(), "{:?}", verb);
    let held_back = matches!(task.status, Status::Open | Status::Active | Status::Paused);
    prop_assert!(
        !held_back || task.parked_reason.is_none(),
        "parked reason on a {}: {:?}",
        task.status,
        verb
    );
    prop_assert!(task.status != Status::Parked || task.parked_reason.is_some(), "{:?}", verb);
    prop_assert!(task.ready_at() >= task.created_at, "{:?}", verb);
    let counts = match verb {
        Verb::Fail => rules.counts.failed,
        Verb::Lose => rules.counts.lost,
        _ => false,
    };
    let starts_over = matches!(verb, Verb::Reset | Verb::Reiterate);
    let attempts = if starts_over { 0 } else { before.attempts + u32::from(counts) };
    prop_assert_eq!(task.attempts, attempts, "P4: {:?}", verb);
    if let Some(limit) = rules.max_attempts.filter(|_| counts) {
        let parked = task.status == Status::Parked;
        prop_assert_eq!(parked, task.attempts >= limit, "P4: {:?} at {}/{}", verb, task.attempts, limit);
    }
    if before.status == Status::Parked && task.status == Status::Open {
        prop_assert!(starts_over, "P4: only reset brings it back, not {:?}", verb);
    }
    prop_assert_eq!(&task.scope, &before.scope);
    prop_assert_eq!((&task.id, task.seq, task.created_at), (&before.id, before.seq, before.created_at));
    Ok(())
}

fn note_parking(before: &Task, applied: &Applied, seen: &RefCell<Seen>) {
    if before.status == Status::Active && applied.task.status == Status::Parked {
        seen.borrow_mut().parked.insert(applied.verb.past());
    }
}

/// Writes the step's event and folds it; the fold must be the task.
fn journalled(before: Folded, task: &Task, applied: &Applied) -> Result<Folded, TestCaseError> {
    let next = Task { events: task.events + 1, ..applied.task.clone() };
    let event = Event::of_change(EventKind::Step(applied.verb), Some(task), &next);
    let folded = fold(Some(before), &event).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&folded.task, &next, "the journal folds to the task");
    Ok(folded)
}

#[test]
fn random_sequences_agree_with_the_reference_model() {
    let seen = RefCell::new(Seen::default());
    let config = ProptestConfig { source_file: Some(file!()), ..config(1_500) };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&(rules(), steps()), |(rules, steps)| run(&rules, &steps, &seen));
    if let Err(error) = result {
        panic!("{error}\n{runner}");
    }
    let seen = seen.into_inner();
    for status in Status::ALL {
        for rule in TABLE {
            assert!(seen.pairs.contains(&(status, rule.verb)), "never tried {:?} on {status}", rule.verb);
        }
    }
    let refusals =
        ["holder_required", "lease_required", "not_active", "not_holder", "stale_lease", "wrong_status"];
    assert_eq!(seen.refusals.into_iter().collect::<Vec<_>>(), refusals);
    assert_eq!(seen.parked.into_iter().collect::<Vec<_>>(), ["failed", "lost", "parked", "rate_limited"]);
}
