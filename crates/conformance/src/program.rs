//! Random programs: the same verbs on two stores, step by step, with the same answers (C2, C3 on stores).
//!
//! A program is a list of numbers; each decides one verb with its arguments, so a failing list can be shortened by
//! leaving numbers out. Ids, kinds and agents come from small sets so that verbs meet each other; clocks go both ways.

use rota_core::glob::Globs;
use rota_core::lease::{Caller, LeaseId};
use rota_core::plan_sync::PlanLine;
use rota_core::policy::{Counts, FastFailures, Reclaim, ScorePolicy};
use rota_core::transition::{Command, RateLimit};
use rota_core::{
    Fence, Json, Policy, QueuePolicy, Refusal, Status, Task, TaskId, UnixMillis, backoff::Backoff,
};

use crate::claim::Amend;
use crate::lab::{SCOPE, at, claim_of, id};
use crate::{Lab, Picture, Subject};
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::claim::{Claim, ClaimById, ReclaimExpired, Wanted};
use rota_store::intents::edges::{Block, Unblock};
use rota_store::intents::edit::Edit;
use rota_store::intents::iterate::Begin;
use rota_store::intents::lease_plan::PlanLeases;
use rota_store::intents::loops::{AddLoop, Cancel, Move, Reiterate, Tree};
use rota_store::intents::not_passed::NotPassed;
use rota_store::intents::plan_sync::PlanSync;
use rota_store::intents::policy::{PauseQueue, PublishPolicy};
use rota_store::intents::read::{Blockers, List, Peek, PlanStatus, Runners, Show, Why};
use rota_store::intents::sched::{Drain, Lease, ResetParked};
use rota_store::intents::settle::{DeleteMany, Settle, Step};
use rota_store::{Error, Outcome};

const QUEUES: [&str; 3] = ["tasks", "loops", "mine"];
const KINDS: [Option<&str>; 4] = [None, Some("plan"), Some("ralph"), Some("x")];
const SPECS: [Option<&str>; 3] = [None, Some("s/one"), Some("s/two")];
const CATEGORIES: [Option<&str>; 2] = [None, Some("c")];
const AGENTS: [Option<&str>; 3] = [None, Some("a"), Some("b")];
const HOSTS: [Option<&str>; 3] = [None, Some("here"), Some("there")];
const IDS: u64 = 14;
/// The sides of the die that decides the verb.
const VERBS: u64 = 29;
/// How far the clock goes from verb to verb.
const STEPS_MS: [i64; 12] =
    [0, 0, 1, 1_000, 1_000, 1_000, 10_000, 61_000, 610_000, 4_000_000, -1_000, -700_000];

/// Numbers out of a number: the same seed, the same throws.
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of a list.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }

    fn name(&mut self, list: &[Option<&str>]) -> Option<String> {
        self.of(list).map(str::to_owned)
    }

    fn id(&mut self) -> TaskId {
        id(&format!("t{}", self.below(IDS)))
    }

    fn ids(&mut self, most: u64) -> Vec<TaskId> {
        (0..self.below(most + 1)).map(|_| self.id()).collect()
    }
}

/// A random policy for the three queues, as its document reads back.
pub fn policy(dice: &mut Dice) -> Policy {
    let mut policy = Policy::default();
    for name in QUEUES {
        policy.queues.insert(name.to_owned(), queue_policy(dice));
    }
    let read = Policy::parse(policy.to_json().as_str()).unwrap();
    assert_eq!(Policy::parse(read.to_json().as_str()).as_ref(), Ok(&read), "a policy reads back");
    read
}

fn queue_policy(dice: &mut Dice) -> QueuePolicy {
    let counts = Counts { failed: !dice.once_in(4), lost: !dice.once_in(3) };
    let counted = counts.failed || counts.lost;
    let backoffs = [
        None,
        Some(Backoff { base_ms: 1_000, factor_thousandths: 2_000, cap_ms: 60_000 }),
        Some(Backoff { base_ms: 30_000, factor_thousandths: 1_500, cap_ms: 3_600_000 }),
    ];
    let mut score = dice
        .of(&[None, Some(Some(60)), Some(Some(1)), Some(None)])
        .map(|guard| ScorePolicy { starvation_guard_minutes: guard, ..ScorePolicy::default() });
    if let Some(score) = score.as_mut().filter(|_| dice.once_in(2)) {
        score.base.insert("x".into(), 95);
        (score.age_boost_per_minute, score.retry_penalty_max) = (3, 100);
    }
    let mut per_kind = std::collections::BTreeMap::new();
    for kind in KINDS.into_iter().flatten() {
        if dice.once_in(4) {
            per_kind.insert(kind.to_owned(), u32::try_from(1 + dice.below(2)).unwrap());
        }
    }
    QueuePolicy {
        max_concurrent: dice.of(&[None, None, Some(2), Some(4)]),
        per_kind,
        max_attempts: dice.of(&[None, None, Some(1), Some(2)]).filter(|_| counted),
        lease_ttl_ms: dice.of(&[1_000, 60_000, 600_000]),
        reclaim: dice.of(&[Reclaim::Auto, Reclaim::Auto, Reclaim::Explicit]),
        require_lease: dice.once_in(4),
        require_holder: !dice.once_in(3),
        require_commit: dice.once_in(2),
        agents_may_create: !dice.once_in(4),
        backoff: dice.of(&backoffs).filter(|_| counted),
        counts,
        default_priority: dice.of(&[0, 2, 100]),
        score,
        fast_failures: dice.of(&[None, Some(FastFailures { after: 2, base_ms: 1_000, cap_ms: 8_000 })]),
    }
}

fn wanted(dice: &mut Dice) -> Wanted {
    if !dice.once_in(5) {
        return Wanted::default();
    }
    let specs = dice.of(&[None, Some("s/*"), Some("*two"), Some("none")]);
    Wanted { category: dice.name(&CATEGORIES), specs: specs.map(Globs::parse) }
}

/// Mostly an id that is free.
fn new_id(dice: &mut Dice, picture: &Picture) -> TaskId {
    let start = dice.below(IDS);
    let is_free = |id: &TaskId| !picture.rows.contains_key(id);
    let free = (start..start + IDS).map(|number| id(&format!("t{}", number % IDS))).find(is_free);
    free.filter(|_| !dice.once_in(8)).unwrap_or_else(|| dice.id())
}

fn new_task(dice: &mut Dice, now: UnixMillis) -> NewTask {
    let queue = dice.of(&QUEUES);
    let priority = match dice.below(4) {
        0 => NewPriority::Unset,
        1 => NewPriority::QueueDefault,
        _ => NewPriority::Given(u32::try_from(dice.below(3)).unwrap()),
    };
    NewTask {
        kind: dice.name(&KINDS),
        priority,
        parent: dice.once_in(5).then(|| dice.id()),
        category: dice.name(&CATEGORIES),
        spec_ref: dice.name(&SPECS),
        payload: dice.once_in(4).then(|| Json::of(&"payload")),
        deps: dice.ids(2),
        not_before: dice.once_in(4).then(|| now.plus_ms(dice.of(&[-1_000, 500, 60_000]))),
        ..NewTask::new(dice.id(), queue, "title")
    }
}

fn plan_line(dice: &mut Dice, line: usize) -> PlanLine {
    PlanLine {
        line,
        id: id(&format!("t{}", (dice.below(IDS) + line as u64) % IDS)),
        title: dice.of(&["title", "other"]).to_owned(),
        description: None,
        priority: dice.of(&[None, Some(0), Some(2)]),
        category: dice.name(&CATEGORIES),
        spec: dice.name(&SPECS),
        reference: None,
        deps: dice.once_in(2).then(|| {
            let mut deps = dice.ids(2);
            deps.dedup();
            deps
        }),
        steps: Vec::new(),
    }
}

/// Somebody who may or may not be the holder.
fn caller(dice: &mut Dice, task: &TaskId, picture: &Picture) -> Caller {
    let fence = picture.rows.get(task).map_or(0, |row| row.task.fence.get());
    let lease = |fence: u64| Some(LeaseId { task: task.clone(), fence: Fence::new(fence) });
    let agent = dice.name(&AGENTS);
    match dice.below(6) {
        0 => Caller { agent, lease: lease(fence.saturating_sub(1)) },
        1 => Caller { agent, lease: None },
        2 => Caller { agent, lease: lease(fence) },
        _ => Caller { agent: None, lease: lease(fence) },
    }
}

fn command(dice: &mut Dice, task: &TaskId, picture: &Picture, now: UnixMillis) -> Command {
    let caller = caller(dice, task, picture);
    let reason = "because".to_owned();
    let ttl_ms = dice.of(&[None, Some(0), Some(30_000)]);
    match dice.below(28) {
        0..6 => Command::Done { caller, result: dice.once_in(2).then(|| Json::of(&1)) },
        6..9 => Command::Fail { caller, reason: Some(reason), default_reason: "-" },
        9 => Command::Renew { caller, ttl_ms },
        10 => Command::Lose,
        11 => {
            let blocked_until = dice.once_in(2).then(|| now.plus_ms(90_000));
            let others_succeed = dice.once_in(2);
            Command::RateLimit { caller, limit: RateLimit { blocked_until, backoff: None, others_succeed } }
        }
        12 => Command::Interrupt { caller },
        13 => Command::Release { caller },
        14 => Command::Exhaust { caller, reason },
        15 => Command::Park { caller, reason },
        16 => Command::Pause,
        17 => Command::Resume,
        18 => Command::Reset,
        19 => Command::Reiterate,
        20 => Command::Delete,
        21 => Command::Undelete,
        22 => Command::Cancel,
        23 => Command::Invalidate { reason },
        24 => Command::Reset,
        25 => Command::Iterate { caller, reason: "exit code 1".into() },
        26 => Command::Yield { caller, reason: "exit code 1".into() },
        _ => Command::Override { result: None },
    }
}

fn any_claim(dice: &mut Dice, now: UnixMillis) -> Claim {
    Claim {
        agent: dice.name(&AGENTS),
        ttl_ms: dice.of(&[None, None, Some(0), Some(30_000)]),
        wanted: wanted(dice),
        host: dice.name(&HOSTS),
        limit: usize::try_from(dice.below(5)).unwrap(),
        ..claim_of(dice.of(&QUEUES), now, 1)
    }
}

/// What a verb answered, in words that two stores can be compared by.
fn said<T: std::fmt::Debug>(outcome: Outcome<T>) -> String {
    let text = match outcome {
        Ok(output) => format!("{output:?}"),
        Err(Error::Refused(refusal)) => format!("refused: {refusal:?}"),
        Err(Error::Fault(fault)) => panic!("{fault}"),
    };
    // Insertion numbers and the keys of queues are the store's own affair.
    ["seq: ", "key: "].iter().fold(text, |text, name| {
        let mut parts = text.split(name);
        let first = parts.next().unwrap_or_default().to_owned();
        let without_number = |part: &str| part.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
        parts.fold(first, |text, part| text + name + "_" + &without_number(part))
    })
}

/// Carries out the verb that a number decides on one store.
fn verb<S: Subject>(lab: &Lab<'_, S>, word: u64, now: UnixMillis, picture: &Picture) -> String {
    let mut dice = Dice::new(word);
    let call = lab.call(now);
    match dice.below(VERBS) {
        0..4 => {
            let first = NewTask { id: new_id(&mut dice, picture), ..new_task(&mut dice, now) };
            let more = (0..dice.below(3)).map(|_| new_task(&mut dice, now));
            let tasks = [first].into_iter().chain(more.collect::<Vec<_>>()).collect();
            said(lab.run(&Add { call, tasks }))
        }
        4..8 => said(lab.run(&any_claim(&mut dice, now))),
        8 => {
            let (id, agent, wanted) = (dice.id(), dice.name(&AGENTS), wanted(&mut dice));
            said(lab.run(&ClaimById { call, id, agent, ttl_ms: None, wanted, host: dice.name(&HOSTS) }))
        }
        9..14 => {
            let step = |dice: &mut Dice| {
                let id = dice.id();
                Step { command: command(dice, &id, picture, now), id }
            };
            let steps = (0..=dice.below(3)).map(|_| step(&mut dice)).collect();
            let then = dice.once_in(3).then(|| any_claim(&mut dice, now));
            said(lab.run(&Settle { call, steps, then }))
        }
        14 => said(lab.run(&ReclaimExpired { call, queue: dice.of(&QUEUES).into() })),
        15 => said(lab.run(&Block { call, task: dice.id(), by: dice.id() })),
        16 => said(lab.run(&Unblock { call, task: dice.id(), by: dice.id() })),
        17 => {
            let lines = (1..=usize::try_from(dice.below(5)).unwrap()).map(|line| plan_line(&mut dice, line));
            let mut lines: Vec<PlanLine> = lines.collect();
            lines.sort_by(|left, right| left.id.cmp(&right.id));
            lines.dedup_by(|left, right| left.id == right.id);
            let specs = dice.once_in(3).then(|| Globs::parse("*one"));
            said(lab.run(&PlanSync {
                call,
                queue: dice.of(&QUEUES).into(),
                lines,
                specs,
                dry_run: dice.once_in(4),
            }))
        }
        18 => said(lab.run(&edit(&mut dice, call))),
        19 => {
            let statuses = vec![dice.of(&Status::ALL)];
            let (spec, category) = (dice.name(&SPECS), dice.name(&CATEGORIES));
            said(lab.run(&DeleteMany { call, queue: dice.of(&QUEUES).into(), statuses, spec, category }))
        }
        20 => said(lab.run(&PauseQueue { call, queue: dice.of(&QUEUES).into(), paused: dice.once_in(5) })),
        21 => said(lab.run(&PublishPolicy { call, policy: policy(&mut dice), based_on: None })),
        22 if dice.once_in(3) => {
            let limit = usize::try_from(dice.below(3)).unwrap();
            said(lab.run(&Drain { call, queue: dice.of(&QUEUES).into(), limit, repo: None }))
        }
        22 => said(lab.run(&ResetParked { call, id: dice.id() })),
        23 | 24 => lease(lab, &mut dice, now),
        25 | 26 => tree(lab, &mut dice, now, picture),
        _ => look(lab, &mut dice, now),
    }
}

/// A lease is what the plan before it said, and a plan is the same twice.
fn lease<S: Subject>(lab: &Lab<'_, S>, dice: &mut Dice, now: UnixMillis) -> String {
    let (call, queue) = (lab.call(now), dice.of(&QUEUES).to_owned());
    let limit = dice.of(&[None, None, Some(0), Some(1), Some(3)]);
    let (agent, host) = (dice.name(&AGENTS), dice.name(&HOSTS));
    let plan = PlanLeases { call: call.clone(), queue: queue.clone(), limit, host: host.clone() };
    let planned = lab.run(&plan);
    let leased = lab.run(&Lease { call, queue, limit, agent, host });
    if let (Ok(planned), Ok(leased)) = (&planned, &leased) {
        let leases = |tasks: Vec<&Task>| -> Vec<String> {
            let lease =
                |task: &&Task| format!("{:?} {:?} {}", task.lease(), task.lease_expires_at, task.attempts);
            tasks.iter().map(lease).collect()
        };
        let granted = leases(leased.granted.iter().map(|grant| &grant.task).collect());
        assert_eq!(granted, leases(planned.leases.iter().collect()), "a lease is what was planned");
    }
    said(planned) + &said(leased)
}

/// One of the verbs on a tree.
fn tree<S: Subject>(lab: &Lab<'_, S>, dice: &mut Dice, now: UnixMillis, picture: &Picture) -> String {
    let (call, id) = (lab.call(now), dice.id());
    match dice.below(7) {
        0 => said(lab.run(&Reiterate { call, id, reason: dice.once_in(2).then(|| "again".into()) })),
        1 => said(lab.run(&Cancel { call, id })),
        2 => said(lab.run(&Move { call, id, host: dice.of(&["here", "there"]).into() })),
        3 => {
            let claim = any_claim(dice, now);
            let kinds = KINDS.into_iter().flatten().map(str::to_owned).collect();
            said(lab.run(&Begin::new(claim, kinds, dice.once_in(2))))
        }
        4 => {
            let kinds = KINDS.into_iter().flatten().map(str::to_owned).collect();
            let claim = Claim { queue: "loops".into(), ..any_claim(dice, now) };
            let fence = picture.rows.get(&id).map_or(0, |row| row.task.fence.get());
            let lease = LeaseId { task: id, fence: Fence::new(fence) };
            let begin = Begin::new(claim, kinds, dice.once_in(2));
            said(lab.run(&NotPassed { call, lease, reason: "exit code 1".into(), begin }))
        }
        _ => {
            let parent = picture.rows.get(&id).and_then(|row| row.task.lease());
            let lease = parent
                .or_else(|| dice.once_in(2).then(|| LeaseId { task: id.clone(), fence: Fence::new(1) }));
            let task =
                NewTask { id: new_id(dice, picture), parent: Some(id), deps: vec![], ..new_task(dice, now) };
            said(lab.run(&AddLoop { call, task, lease, by_token: false }))
        }
    }
}

fn edit(dice: &mut Dice, call: rota_store::intents::Call) -> Edit {
    Edit {
        call,
        id: dice.id(),
        title: dice.once_in(2).then(|| "edited".into()),
        priority: dice.once_in(2).then(|| u32::try_from(dice.below(3)).unwrap()),
        description: dice.once_in(3).then(String::new),
        steps: None,
        status: dice.once_in(2).then(|| dice.of(&Status::ALL)),
        caller: Caller::default(),
        force: dice.once_in(2),
    }
}

/// One of the verbs that change nothing.
fn look<S: Subject>(lab: &Lab<'_, S>, dice: &mut Dice, now: UnixMillis) -> String {
    let (call, queue) = (lab.call(now), dice.of(&QUEUES).to_owned());
    match dice.below(8) {
        0 => {
            let (limit, host) = (usize::try_from(dice.below(6)).unwrap(), dice.name(&HOSTS));
            said(lab.run(&Peek { call, queue, limit, wanted: wanted(dice), host }))
        }
        1 => {
            let statuses = if dice.once_in(2) { vec![] } else { vec![dice.of(&Status::ALL)] };
            said(lab.run(&List { call, queue, statuses, assignee: dice.name(&AGENTS) }))
        }
        2 => said(lab.run(&Show { call, id: dice.id() })),
        3 => said(lab.run(&Blockers { call, id: dice.id() })),
        4 => {
            let limit = dice.of(&[None, Some(2)]);
            said(lab.run(&PlanLeases { call, queue, limit, host: dice.name(&HOSTS) }))
        }
        5 => said(lab.run(&PlanStatus { call, queue, wanted: wanted(dice) }).map(|mut counts| {
            counts.sort_by_key(|count| (count.status, count.blocked));
            counts
        })),
        6 => said(lab.run(&Tree { call, queue, id: dice.once_in(2).then(|| dice.id()) })),
        _ => {
            let kinds = dice.once_in(2).then(|| [("plan".to_owned(), None)].into());
            let (id, host) = (dice.id(), dice.name(&HOSTS));
            said(lab.run(&Why { call, id, host, runners: Runners { kinds, ..Runners::default() } }))
        }
    }
}

/// The ids that a claim decided by this number must grant, if it decides a claim.
fn foreseen(word: u64, now: UnixMillis, picture: &Picture) -> Option<Vec<String>> {
    let mut dice = Dice::new(word);
    (4..8).contains(&dice.below(VERBS)).then(|| crate::oracle::choice(picture, &any_claim(&mut dice, now)))
}

/// What a program came to: how often verbs were accepted and refused, and how many leases claims granted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Verbs that were accepted.
    pub accepted: usize,
    /// Verbs that were refused.
    pub refused: usize,
    /// Leases that were granted.
    pub granted: usize,
}

/// Runs a program on two stores and compares every answer, every choice with core's, and everything at the end.
pub fn compare<A: Subject, B: Subject>(left: &Lab<'_, A>, right: &Lab<'_, B>, program: &[u64]) -> Tally {
    let mut tally = Tally::default();
    let mut now = at(0);
    for (step, word) in program.iter().enumerate() {
        let mut dice = Dice::new(word.rotate_left(17));
        now = now.plus_ms(dice.of(&STEPS_MS));
        let before = left.picture(now);
        let (one, other) = (verb(left, *word, now, &before), verb(right, *word, now, &before));
        assert_eq!(one, other, "step {step} ({word}) at {now}");
        tally.refused += usize::from(one.starts_with("refused: "));
        tally.accepted += usize::from(!one.starts_with("refused: "));
        tally.granted += one.matches("Grant {").count();
        if let Some(wanted) = foreseen(*word, now, &before).filter(|_| !one.starts_with("refused: ")) {
            let after = left.picture(now);
            let was = |id: &str| before.rows.get(&crate::lab::id(id)).map(|row| row.task.fence);
            let mut granted: Vec<String> = after
                .rows
                .values()
                .map(|row| &row.task)
                .filter(|task| was(task.id.as_str()) != Some(task.fence))
                .map(|task| task.id.to_string())
                .collect();
            let mut sorted = wanted.clone();
            granted.sort();
            sorted.sort();
            assert_eq!(granted, sorted, "step {step} ({word}): core would choose otherwise");
            let places: Vec<usize> =
                wanted.iter().map(|id| one.find(&format!("TaskId(\"{id}\")")).unwrap()).collect();
            assert!(places.is_sorted() || wanted.len() < 2, "step {step} ({word}): granted in another order");
        }
        if step % 16 == 15 {
            crate::check_everything(&right.picture(now));
        }
    }
    assert_eq!(left.picture(now).normal(), right.picture(now).normal());
    left.check();
    right.check();
    for now in [now, now.plus_ms(-3_600_000), now.plus_ms(3_600_000)] {
        crate::check_everything(&left.picture(now));
        crate::check_everything(&right.picture(now));
    }
    tally
}

/// Runs a program on one store; returns everything that it answered, and the journal.
pub fn told<S: Subject>(lab: &Lab<'_, S>, program: &[u64]) -> String {
    let mut now = at(0);
    let mut answers = String::new();
    for word in program {
        now = now.plus_ms(Dice::new(word.rotate_left(17)).of(&STEPS_MS));
        answers.push_str(&verb(lab, *word, now, &lab.picture(now)));
        answers.push('\n');
    }
    for event in lab.picture(now).events {
        answers.push_str(&format!("{event:?}\n"));
    }
    answers
}

/// What is shown before a claim is what claims would grant, ceilings apart.
fn look_first<S: Subject>(lab: &Lab<'_, S>, claim: &Claim, now: UnixMillis) {
    let Claim { call, queue, limit, wanted, host, .. } = claim.clone();
    let order = crate::oracle::order(&lab.picture(now), claim);
    let seen = lab.ok(&Peek { call, queue, limit, wanted, host });
    let seen: Vec<&str> = seen.claimable.iter().map(|view| view.task.id.as_str()).collect();
    assert_eq!(seen, order[..limit.min(order.len())], "peek at {now} with {claim:?}");
}

/// Claims a random backlog until nothing is left, comparing every choice with core's.
pub fn drain<S: Subject>(subject: &S, seed: u64) {
    let mut dice = Dice::new(seed);
    let lab = Lab::new(subject);
    let mut rules = policy(&mut dice);
    for queue in rules.queues.values_mut() {
        queue.lease_ttl_ms = 600_000;
    }
    lab.ok(&PublishPolicy { call: lab.call(at(0)), policy: rules, based_on: None });
    let mut tasks = Vec::new();
    for number in 0..60 {
        let deps =
            (number > 0 && dice.once_in(4)).then(|| id(&format!("n{}", dice.below(number)))).into_iter();
        let task = NewTask {
            id: id(&format!("n{number}")),
            parent: None,
            deps: deps.collect(),
            ..new_task(&mut dice, at(0))
        };
        tasks.push(task);
    }
    for (chunk, now) in tasks.chunks(7).zip((0..).step_by(200)) {
        lab.add(at(now), chunk);
    }
    for task in tasks.iter().filter(|task| task.deps.is_empty()) {
        if dice.once_in(3) {
            let (host, tries) = (dice.name(&HOSTS), u32::try_from(dice.below(9)).unwrap());
            lab.ok(&Amend { id: task.id.clone(), host, tries, artifact: None });
        }
    }
    lab.check();
    for round in 0..12 {
        let now = at(1_000 + round * i64::try_from(dice.below(400)).unwrap());
        for queue in QUEUES {
            let claim = Claim { queue: queue.into(), ..any_claim(&mut dice, now) };
            look_first(&lab, &claim, now);
            lab.claimed(&claim);
        }
        let picture = lab.picture(now);
        let active = picture.rows.values().filter(|row| row.task.status == Status::Active);
        for row in active {
            if dice.once_in(2) {
                continue;
            }
            let caller = Caller { agent: None, lease: row.task.lease() };
            let command = if dice.once_in(3) {
                Command::Fail { caller, reason: None, default_reason: "-" }
            } else {
                Command::Done { caller, result: None }
            };
            let settled = lab.step(now, row.task.id.as_str(), command);
            assert!(!matches!(settled, Err(Refusal::StaleLease { .. })));
        }
    }
    assert!(lab.picture(at(0)).events.iter().all(|event| event.scope == SCOPE));
    lab.check();
}
