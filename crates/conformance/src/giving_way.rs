//! What follows an iteration that did not pass, and the limits of upstreams that every grant keeps.

use rota_core::obstacle::Wait;
use rota_core::transition::Command;
use rota_core::{Caller, LeaseId, Refusal, Status, Task, UnixMillis};

use crate::Subject;
use crate::lab::{Lab, at, claim_of, id, ids, of_kind};
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::blocks::{Blocks, EndLimited, NoteLimit, NoteSuccess, NotedLimit, QUOTA};
use rota_store::intents::claim::ArtifactCheck;
use rota_store::intents::iterate::Begin;
use rota_store::intents::not_passed::{AfterIteration, GaveWay, NotPassed};
use rota_store::intents::policy::PauseQueue;
use rota_store::intents::read::{Journal, Runners, Why};
use rota_store::intents::sync_leases::{Awaiting, SyncLoops};
use rota_store::intents::upstreams::{Upstreams, block_of};
use rota_store::{BlockRow, EventFilter};

const KINDS: [&str; 3] = ["ralph", "spec", "plain"];

fn begin(now: UnixMillis, limit: usize) -> Begin {
    let mut claim = claim_of("loops", now, limit);
    claim.host = Some("one".into());
    let of_kind = [("ralph".to_owned(), Some("api".to_owned())), ("spec".to_owned(), Some("api".to_owned()))];
    let upstreams = Upstreams { of_kind: of_kind.into(), bounds_loops: false };
    Begin { upstreams, ..Begin::new(claim, KINDS.map(str::to_owned).to_vec(), true) }
}

fn ralph(name: &str) -> NewTask {
    NewTask { priority: NewPriority::Unset, ..of_kind(name, "loops", "ralph") }
}

fn fails<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, lease: &LeaseId) -> AfterIteration {
    lab.ok(&not_passed(lab, now, lease))
}

fn not_passed<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, lease: &LeaseId) -> NotPassed {
    NotPassed {
        call: lab.call(now),
        lease: lease.clone(),
        reason: "exit code 1".into(),
        begin: begin(now, 1),
    }
}

fn granted<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, limit: usize) -> Vec<Task> {
    lab.ok(&begin(now, limit)).granted.into_iter().map(|grant| grant.task).collect()
}

fn lease(task: &Task) -> LeaseId {
    task.lease().unwrap()
}

/// 000, scenario 3: with one slot a failing loop gives way to a fresh one in the transaction that ends its iteration.
pub fn a_failing_loop_gives_way_to_a_fresh_one<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"loops":{"maxConcurrent":1}}}"#);
    lab.add(at(0), &[ralph("x")]);
    let x = granted(&lab, at(1), 1).remove(0);
    // Nobody waits: it goes on under the same lease.
    let second = fails(&lab, at(20), &lease(&x));
    assert_eq!((second.gave_way, second.granted), (None, vec![]));
    assert_eq!((second.task.iteration, second.task.tries, second.task.fence), (2, 2, x.fence));
    assert_eq!(second.task.started_at, Some(at(20)), "the iteration's own start");
    lab.add(at(30), &[ralph("y")]);
    let given = fails(&lab, at(40), &lease(&x));
    assert_eq!(given.gave_way, Some(GaveWay::Outranked { by: id("y") }));
    assert_eq!(ids(&given.granted), ["y"]);
    let task = given.task;
    assert_eq!((task.status, task.tries, task.iteration, task.attempts), (Status::Open, 2, 2, 0));
    assert_eq!((task.next_eligible_at, task.lease()), (None, None));
    let late = lab.refused(&not_passed(&lab, at(41), &lease(&x)));
    assert!(matches!(late, Refusal::NotActive { .. }), "{late}");
    // The fresh one fails too: with one failure against two it still goes first, with two against two the older does.
    let y = given.granted[0].task.clone();
    assert_eq!(fails(&lab, at(60), &lease(&y)).gave_way, None);
    let given = fails(&lab, at(80), &lease(&y));
    assert_eq!(given.gave_way, Some(GaveWay::Outranked { by: id("x") }));
    assert_eq!((given.granted[0].task.iteration, given.granted[0].task.tries), (3, 3));
    lab.check();
}

/// Giving up a lease must be what lets the other start: a free slot or a full kind changes nothing.
pub fn a_loop_keeps_its_lease_where_giving_way_helps_nobody<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"loops":{"maxConcurrent":3,"perKind":{"spec":1}}}}"#);
    lab.add(at(0), &[of_kind("s1", "loops", "spec")]);
    let s1 = granted(&lab, at(1), 1).remove(0);
    lab.add(at(0), &[of_kind("p", "loops", "plain")]);
    let p = granted(&lab, at(1), 1).remove(0);
    // A slot is free: the urgent one gets it, and both go on.
    lab.add(at(2), &[NewTask { priority: NewPriority::Given(0), ..of_kind("urgent", "loops", "plain") }]);
    let after = lab.ok(&NotPassed { begin: begin(at(3), 2), ..not_passed(&lab, at(3), &lease(&p)) });
    assert_eq!((after.gave_way, ids(&after.granted)), (None, vec!["urgent"]));
    // The kind is full whatever the plain one does.
    lab.add(at(4), &[NewTask { priority: NewPriority::Given(0), ..of_kind("s2", "loops", "spec") }]);
    assert_eq!(fails(&lab, at(5), &lease(&p)).gave_way, None);
    let after = fails(&lab, at(6), &lease(&s1));
    assert_eq!(after.gave_way, Some(GaveWay::Outranked { by: id("s2") }));
    lab.check();
}

/// A paused queue and a blocked upstream are looked at before every iteration.
pub fn the_next_iteration_looks_at_pause_and_block<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[ralph("a"), of_kind("b", "loops", "plain"), ralph("limited")]);
    let tasks = granted(&lab, at(1), 9);
    let of = |name: &str| lease(tasks.iter().find(|task| task.id == id(name)).unwrap());
    let end = |now, name| EndLimited {
        call: lab.call(now),
        lease: of(name),
        upstream: block_of("ralph", Some("api")),
        retry_after_ms: None,
    };
    let (task, noted) = lab.ok(&end(at(2), "limited"));
    assert!(noted.is_hit);
    assert_eq!((task.status, task.next_eligible_at), (Status::Open, Some(at(7))));
    let held = Wait::RateLimited { upstream: "api".into(), until: Some(at(7)) };
    let given = fails(&lab, at(3), &of("a"));
    assert_eq!(given.gave_way, Some(GaveWay::HeldBack(held.clone())));
    assert_eq!((given.task.status, given.task.tries), (Status::Open, 1));
    assert_eq!(lab.ok(&begin(at(4), 9)).held_back, [("api".to_owned(), held)]);
    assert_eq!(fails(&lab, at(4), &of("b")).gave_way, None, "it does not use the upstream");
    lab.ok(&PauseQueue { call: lab.call(at(5)), queue: "loops".into(), paused: true });
    assert_eq!(fails(&lab, at(6), &of("b")).gave_way, Some(GaveWay::QueuePaused));
    lab.check();
}

/// After a block at t seconds at most 1 + ⌊max_api_calls × t ÷ recovery period⌋ loops of the upstream run.
pub fn loops_return_by_a_ramp_after_a_block<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(
        at(0),
        r#"{"gate":{"maxConcurrent":6,"recoveryPeriodSecs":12,"initialBackoffSecs":4,"maxBackoffSecs":60}}"#,
    );
    let names: Vec<String> = (0..13).map(|number| format!("r{number:02}")).collect();
    let tasks: Vec<NewTask> = names.iter().map(|name| ralph(name)).collect();
    lab.add(at(0), &tasks);
    lab.add(at(0), &[of_kind("other", "loops", "plain")]);
    let note =
        |now| NoteLimit { call: lab.call(now), upstream: "api".into(), began_at: None, retry_after_ms: None };
    assert_eq!(lab.ok(&note(at(1))).block.blocked_until, Some(at(5)));
    assert_eq!(granted(&lab, at(4), 50).len(), 1, "only the one that does not use it");
    let mut running = 0;
    for (now, most) in [(5, 1), (6, 1), (7, 2), (9, 3), (16, 6), (17, 13)] {
        running += granted(&lab, at(now), 50).len();
        assert_eq!(running, most, "{} s after the block", now - 5);
        if now == 9 {
            let why = lab.ok(&Why {
                call: lab.call(at(9)),
                id: id("r12"),
                host: None,
                runners: Runners { kinds: Some(begin(at(9), 1).upstreams.of_kind), ..Runners::default() },
            });
            let full = Wait::UpstreamFull { upstream: "api".into(), ceiling: 3, active: 3 };
            assert!(why.waits.contains(&full), "{:?}", why.waits);
        }
    }
    lab.check();
}

/// Where no gateway counts calls, `max_api_calls` bounds the loops of an upstream, over all kinds that use it; `why` names
/// every ceiling that holds.
pub fn upstreams_bound_their_loops_where_no_gateway_does<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(
        at(0),
        r#"{"gate":{"maxConcurrent":2},"queues":{"loops":{"maxConcurrent":3,"perKind":{"ralph":2}}}}"#,
    );
    lab.add(at(0), &[ralph("r1"), ralph("r2"), ralph("r3"), of_kind("s1", "loops", "spec")]);
    lab.add(at(0), &[of_kind("p1", "loops", "plain"), of_kind("p2", "loops", "plain")]);
    let mut bounded = begin(at(1), 9);
    bounded.upstreams.bounds_loops = true;
    let kinds = Some(bounded.upstreams.of_kind.clone());
    assert_eq!(ids(&lab.ok(&bounded).granted), ["r1", "r2", "p1"]);
    let why = |name: &str| {
        let runners = Runners { kinds: kinds.clone(), bounds_loops: true, ..Runners::default() };
        lab.ok(&Why { call: lab.call(at(1)), id: id(name), host: None, runners }).waits
    };
    let queue_full = Wait::QueueFull { ceiling: 3, active: 3 };
    let kind_full = Wait::KindFull { kind: "ralph".into(), ceiling: 2, active: 2 };
    let api_full = Wait::UpstreamFull { upstream: "api".into(), ceiling: 2, active: 2 };
    assert_eq!(why("r3"), [queue_full.clone(), kind_full, api_full.clone()]);
    assert_eq!(why("s1")[..2], [queue_full, api_full]);
    lab.check();
}

/// A burst counts once, from the start of each iteration; what does not count still extends the block.
pub fn a_limit_counts_from_the_iterations_start<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"gate":{"initialBackoffSecs":4,"maxBackoffSecs":60}}"#);
    lab.add(at(0), &[ralph("old"), ralph("new")]);
    let old = lease(&granted(&lab, at(1), 1)[0]);
    let end = |now, lease: &LeaseId, secs: Option<i64>| -> NotedLimit {
        let retry_after_ms = secs.map(|secs| secs * 1_000);
        let end =
            EndLimited { call: lab.call(now), lease: lease.clone(), upstream: "api".into(), retry_after_ms };
        lab.ok(&end).1
    };
    let new = lease(&granted(&lab, at(2), 1)[0]);
    let first = end(at(3), &new, None);
    assert_eq!((first.is_hit, first.block.hits, first.block.blocked_until), (true, 1, Some(at(7))));
    // Its iteration of after the block meets a limit: that is a hit, however old its lease.
    let caller = Caller::lease(old.clone());
    lab.must(at(8), "old", Command::Iterate { caller, reason: "exit code 1".into() });
    let second = end(at(9), &old, None);
    assert_eq!((second.is_hit, second.block.hits, second.block.blocked_until), (true, 2, Some(at(17))));
    // Both run again and meet the same burst; the second one asks for more.
    let tasks = granted(&lab, at(50), 9);
    let third = end(at(51), &lease(&tasks[0]), None);
    assert_eq!((third.is_hit, third.block.hits, third.block.blocked_until), (true, 3, Some(at(67))));
    let same = end(at(52), &lease(&tasks[1]), Some(40));
    assert_eq!((same.is_hit, same.block.hits, same.block.blocked_until), (false, 3, Some(at(92))));
    // Above 300 s it is a quota.
    let last = lease(&granted(&lab, at(200), 1)[0]);
    let quota = end(at(201), &last, Some(301));
    assert_eq!(quota.block.blocked_until, Some(at(502)));
    assert_eq!(quota.block.reason.as_deref(), Some(QUOTA));
    // A success that started after the block ends the row, and the shared state says when.
    let success =
        |began| NoteSuccess { call: lab.call(at(520)), upstream: "api".into(), began_at: Some(began) };
    lab.ok(&success(at(501)));
    assert_eq!(block(&lab).last_success(), None, "it started before the block's end");
    lab.ok(&success(at(503)));
    assert_eq!((block(&lab).hits, block(&lab).last_success()), (0, Some(at(520))));
    lab.check();
}

fn block<S: Subject>(lab: &Lab<'_, S>) -> BlockRow {
    let read = Blocks { call: lab.call(at(0)), upstreams: vec!["api".into()] };
    lab.ok(&read).1.remove(0)
}

/// The limited loop waits by what is configured; twenty limits in a row park it only while others succeed.
pub fn a_limited_loop_waits_as_configured<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"gate":{"initialBackoffSecs":1,"maxBackoffSecs":2,"recoveryPeriodSecs":1}}"#);
    lab.add(at(0), &[of_kind("p", "loops", "plain")]);
    let upstream = block_of("plain", None);
    assert_eq!(upstream, "kind:plain");
    let limit = |now: i64| {
        let task = granted(&lab, at(now), 1).remove(0);
        let upstream = upstream.clone();
        let end = EndLimited { call: lab.call(at(now)), lease: lease(&task), upstream, retry_after_ms: None };
        lab.ok(&end).0
    };
    let mut now = 0;
    for number in 1..=25 {
        let wait = if number == 1 { 1 } else { 2 };
        let task = limit(now);
        assert_eq!((task.status, task.limited_in_row), (Status::Open, number));
        assert_eq!(task.next_eligible_at, Some(at(now + wait)), "number {number}");
        now += wait + 5;
    }
    let began_at = Some(at(now));
    lab.ok(&NoteSuccess { call: lab.call(at(now)), upstream: upstream.clone(), began_at });
    assert_eq!(limit(now).status, Status::Parked);
    lab.check();
}

/// A grant looks for the artifact; one that is gone is journalled, waited for again, and hides nothing behind it.
pub fn a_grant_checks_the_artifact<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let triggered = |name: &str| NewTask {
        triggered_by: Some(format!("{name}.md")),
        artifact_present: true,
        ..of_kind(name, "loops", "plain")
    };
    lab.add(at(0), &[triggered("gone"), triggered("there")]);
    let check = ArtifactCheck::by(|task, _| task.id.as_str() == "there");
    let checked = |now| Begin { artifacts: Some(check.clone()), ..begin(now, 1) };
    assert_eq!(ids(&lab.ok(&checked(at(1))).granted), ["there"]);
    assert!(!lab.task("gone").artifact_present);
    let events = |name: &str| {
        let filter = EventFilter { task: Some(id(name)), ..EventFilter::default() };
        lab.ok(&Journal { call: lab.call(at(1)), filter })
    };
    let last = events("gone").pop().unwrap();
    assert_eq!(last.kind.word(), "artifact_missing");
    assert_eq!(last.data.facts["artifactPresent"].as_str(), "false");
    assert_eq!(events("there").pop().unwrap().data.facts["artifactPresent"].as_str(), "true");
    let awaiting = Some(Awaiting { after_seq: 0, limit: 9 });
    let look = SyncLoops { awaiting, ..SyncLoops::looking(begin(at(2), 0)) };
    let awaiting = lab.sync(at(2), look).1.awaiting;
    assert_eq!(awaiting.iter().map(|(task, _)| task.id.as_str()).collect::<Vec<_>>(), ["gone"]);
    assert_eq!(ids(&lab.ok(&checked(at(3))).granted), Vec::<&str>::new());
    lab.check();
}

/// From the tenth fast failure in a row a loop gives its lease back and cools down, doubling; a slower run ends the row.
pub fn a_loop_that_fails_fast_cools_down<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"loops":{"fastFailures":{"after":3,"baseMs":1000,"capMs":3000}}}}"#);
    lab.add(at(0), &[ralph("r")]);
    let first = lease(&granted(&lab, at(1), 1)[0]);
    for now in [2, 4] {
        assert_eq!(fails(&lab, at(now), &first).gave_way, None);
    }
    let mut now = 6;
    let mut held = first;
    for (in_row, wait) in [(3, 1), (4, 2), (5, 3), (6, 3)] {
        let after = fails(&lab, at(now), &held);
        assert_eq!(after.gave_way, Some(GaveWay::CoolsDown { until: at(now + wait) }), "number {in_row}");
        assert_eq!((after.task.fast_failures, after.task.status), (in_row, Status::Open));
        assert_eq!(after.task.tries, in_row, "it is a failed iteration like any other");
        let why =
            lab.ok(&Why { call: lab.call(at(now)), id: id("r"), host: None, runners: Runners::default() });
        let cooldown = why.checks.iter().find(|check| check.check == "cooldown").unwrap();
        let detail = cooldown.detail.clone().unwrap();
        assert!(detail.ends_with(&format!("it failed within 10 s {in_row} times in a row")), "{detail}");
        now += wait;
        held = lease(&granted(&lab, at(now), 1)[0]);
        now += 1;
    }
    // One that takes ten seconds is not fast.
    let slow = fails(&lab, at(now + 9), &held);
    assert_eq!((slow.gave_way, slow.task.fast_failures), (None, 0));
    lab.check();
}
