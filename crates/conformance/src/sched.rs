//! Leases by policy: the plan before anything happens, leases up to the ceiling, reset, draining.

use rota_core::transition::Command;
use rota_core::{Status, Task, UnixMillis};

use crate::check::ceilings_hold;
use crate::lab::{after, at, claim_by_id, claim_of, done, fail, held, holder, id, in_queue, new, of_kind};
use crate::program::{Dice, policy};
use crate::{Lab, Subject};
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::lease_plan::{LISTED, LeasePlan, PlanLeases, Skip};
use rota_store::intents::policy::{PauseQueue, PublishPolicy};
use rota_store::intents::sched::{Drain, Drained, Lease, Leased, ResetParked};

fn plan<S: Subject>(lab: &Lab<'_, S>, queue: &str, seconds: i64, limit: Option<usize>) -> LeasePlan {
    lab.ok(&PlanLeases { call: lab.call(at(seconds)), queue: queue.into(), limit, host: None })
}

fn lease<S: Subject>(lab: &Lab<'_, S>, queue: &str, seconds: i64, limit: Option<usize>) -> Leased {
    let call = lab.call(at(seconds));
    lab.ok(&Lease { call, queue: queue.into(), limit, agent: None, host: None })
}

fn names(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

fn skipped(plan: &LeasePlan) -> Vec<String> {
    plan.skipped.iter().map(|(id, skip)| format!("{id} {}", skip.word())).collect()
}

/// Plans, leases, and checks that the two agree; returns the ids.
#[track_caller]
fn leased<S: Subject>(lab: &Lab<'_, S>, queue: &str, seconds: i64, limit: Option<usize>) -> Vec<String> {
    let planned = plan(lab, queue, seconds, limit);
    assert_eq!(planned, plan(lab, queue, seconds, limit), "the same plan twice");
    let leased = lease(lab, queue, seconds, limit);
    let granted: Vec<Task> = leased.granted.into_iter().map(|grant| grant.task).collect();
    assert_eq!(names(&granted), names(&planned.leases));
    for (granted, planned) in granted.iter().zip(&planned.leases) {
        assert_eq!((granted.lease(), granted.lease_expires_at), (planned.lease(), planned.lease_expires_at));
        assert_eq!(granted.attempts, planned.attempts);
    }
    assert_eq!(leased.now, planned.now);
    names(&granted).into_iter().map(str::to_owned).collect()
}

/// What a plan shows is what a lease at the same now grants: in order, by ceiling, with waits that are over, expired
/// leases that a claim takes back, and one word for each entry that is left out.
pub fn a_plan_is_what_a_lease_grants<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let urgent = NewTask { priority: NewPriority::Given(1), ..in_queue("urgent", "runs") };
    let blocked = NewTask { queue: "runs".into(), ..after("blocked", &["first"]) };
    lab.add(at(0), &[in_queue("first", "runs"), in_queue("second", "runs"), urgent, blocked]);
    assert_eq!(leased(&lab, "runs", 1, None), ["urgent"]);
    let full = plan(&lab, "runs", 2, Some(5));
    assert_eq!((full.in_flight, full.ceiling, names(&full.leases)), (1, Some(1), vec![]));
    let ceiling = ["first concurrency-ceiling", "second concurrency-ceiling", "blocked blocked"];
    assert_eq!(skipped(&full), ceiling, "what is held is in neither list");
    lab.must(at(3), "urgent", fail(held("urgent", 1)));
    assert_eq!(skipped(&plan(&lab, "runs", 3, Some(0)))[0], "urgent backoff");
    // No claim has let it in yet: the wait is over, and it goes first.
    assert_eq!(leased(&lab, "runs", 4, Some(1)), ["urgent"]);
    // Expired and not reclaimed: skipped as leased, and its place is taken.
    let expired = plan(&lab, "runs", 400, None);
    assert_eq!((expired.in_flight, names(&expired.leases)), (1, vec![]));
    assert_eq!(skipped(&expired)[0], "urgent leased");
    lab.reclaim(at(400), "runs");
    assert_eq!(leased(&lab, "runs", 401, None), ["first"]);
    lab.must(at(401), "first", done(held("first", 1)));
    assert!(skipped(&plan(&lab, "runs", 401, Some(0))).contains(&"first terminal".to_owned()));
    lab.ok(&PauseQueue { call: lab.call(at(402)), queue: "runs".into(), paused: true });
    let paused = plan(&lab, "runs", 402, None);
    assert_eq!(paused.leases, []);
    let paused = skipped(&paused);
    assert!(paused.contains(&"second paused".to_owned()) && paused.contains(&"first terminal".to_owned()));
    // Where claims reclaim, a plan shows what they would find.
    lab.add(at(0), &[new("a"), new("b")]);
    let a = lab.take(at(0), "a");
    assert_eq!(a.lease_expires_at, Some(at(600)));
    assert_eq!(leased(&lab, "tasks", 599, Some(2)), ["b"]);
    assert_eq!(leased(&lab, "tasks", 600, Some(2)), ["a"]);
    lab.check();
    // Kinds with ceilings of their own, and a `now` before everything stored.
    lab.publish(at(0), r#"{"queues":{"loops":{"maxConcurrent":3,"perKind":{"plan":1}}}}"#);
    let kinds = [("p1", "plan"), ("p2", "plan"), ("s1", "spec"), ("s2", "spec"), ("r1", "ralph")];
    lab.add(at(500), &kinds.map(|(name, kind)| of_kind(name, "loops", kind)));
    assert_eq!(leased(&lab, "loops", -500, None), ["r1", "s1", "s2"]);
    lab.check();
}

/// At most 1,000 entries are listed; the total is told.
pub fn a_plan_counts_what_it_does_not_list<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"runs":{"maxConcurrent":3}}}"#);
    let count = LISTED + 7;
    let entries: Vec<NewTask> = (0..count).map(|number| in_queue(&format!("e{number:04}"), "runs")).collect();
    lab.add(at(0), &entries);
    lab.claimed(&claim_of("runs", at(0), 1));
    let planned = plan(&lab, "runs", 1, None);
    assert_eq!(names(&planned.leases), ["e0001", "e0002"]);
    assert_eq!((planned.skipped.len(), planned.skipped_total), (LISTED, count - 3));
    assert_eq!(planned.skipped[0], (id("e0003"), Skip::Ceiling));
    lab.must(at(1), "e1006", Command::Delete);
    assert_eq!(plan(&lab, "runs", 1, Some(0)).skipped_total, count - 2, "deleted ones are no entries");
}

/// Reading leaves no trace.
pub fn a_plan_changes_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[in_queue("a", "runs"), in_queue("b", "runs"), new("c")]);
    lab.take(at(0), "c");
    lab.take(at(0), "a");
    lab.must(at(1), "a", fail(held("a", 1)));
    let before = format!("{:?}", lab.picture(at(9_999)));
    for queue in ["runs", "tasks", "loops"] {
        plan(&lab, queue, 9_999, None);
        plan(&lab, queue, -9_999, Some(3));
    }
    assert_eq!(format!("{:?}", lab.picture(at(9_999))), before);
}

/// Without a limit a lease goes up to the ceiling, where there is none it is one; a limit of 0 grants none.
pub fn leases_without_a_limit_go_up_to_the_ceiling<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"runs":{"maxConcurrent":3}}}"#);
    for queue in ["runs", "tasks"] {
        let entries = (0..5).map(|number| in_queue(&format!("{queue}{number}"), queue));
        lab.add(at(0), &entries.collect::<Vec<_>>());
    }
    assert_eq!(leased(&lab, "runs", 1, Some(0)), Vec::<String>::new());
    assert_eq!(leased(&lab, "runs", 1, Some(1)), ["runs0"]);
    assert_eq!(leased(&lab, "runs", 1, None), ["runs1", "runs2"]);
    assert_eq!(leased(&lab, "runs", 1, Some(9)), Vec::<String>::new());
    assert_eq!(leased(&lab, "tasks", 1, None), ["tasks0"]);
    assert_eq!(leased(&lab, "tasks", 1, Some(9)).len(), 4);
    assert_eq!(leased(&lab, "issues", 1, None), Vec::<String>::new(), "known to the policy, and empty");
    // A lower ceiling ends no lease and grants nothing until there is room; a higher one is there at once.
    lab.publish(at(2), r#"{"queues":{"runs":{"maxConcurrent":2}}}"#);
    assert_eq!(leased(&lab, "runs", 2, None), Vec::<String>::new());
    lab.must(at(2), "runs0", done(held("runs0", 1)));
    assert_eq!(leased(&lab, "runs", 2, None), Vec::<String>::new());
    lab.publish(at(3), r#"{"queues":{"runs":{"maxConcurrent":3}}}"#);
    assert_eq!(leased(&lab, "runs", 3, None), ["runs3"]);
    lab.check();
}

/// `sched reset` opens parked entries and nothing else.
pub fn only_parked_entries_are_reset<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"runs":{"maxAttempts":1}}}"#);
    lab.add(at(0), &[in_queue("a", "runs"), in_queue("b", "runs")]);
    let reset = |name: &str| lab.ok(&ResetParked { call: lab.call(at(5)), id: id(name) });
    let a = lab.take(at(1), "a");
    lab.must(at(1), "a", fail(holder(&a)));
    assert_eq!(lab.task("a").status, Status::Parked);
    let opened = reset("a").unwrap();
    assert_eq!((opened.status, opened.attempts, opened.parked_reason), (Status::Open, 0, None));
    assert_eq!(opened.fence.get(), 1, "the fence is kept");
    let events = lab.picture(at(9)).events.len();
    for name in ["a", "b", "nobody"] {
        assert_eq!(reset(name), None, "{name}");
    }
    assert_eq!(lab.picture(at(9)).events.len(), events);
    lab.check();
}

/// DESIGN 13.21: only what has no obstacle, in order, with one time; ceilings do not apply.
pub fn draining_goes_around_the_policy<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let of_repo = |name: &str, repo: &str| NewTask {
        payload: Some(rota_core::Json::of(&std::collections::BTreeMap::from([("repo", repo)]))),
        ..in_queue(name, "runs")
    };
    let later = NewTask { not_before: Some(at(50)), ..of_repo("later", "x") };
    let blocked = NewTask { deps: vec![id("a")], ..of_repo("blocked", "x") };
    lab.add(at(0), &[of_repo("a", "x"), of_repo("b", "y"), of_repo("c", "x"), later, blocked]);
    lab.ok(&claim_by_id(at(1), "b"));
    let drain = |seconds, limit, repo: Option<&str>| {
        let (call, repo) = (lab.call(at(seconds)), repo.map(str::to_owned));
        let Drained { drained, remaining } = lab.ok(&Drain { call, queue: "runs".into(), limit, repo });
        assert!(
            drained.iter().all(|task| task.finished_at == Some(at(seconds)) && task.status == Status::Done)
        );
        (names(&drained).join(" "), remaining)
    };
    assert_eq!(drain(2, 0, None), (String::new(), 4));
    assert_eq!(drain(2, 1, None), ("a".to_owned(), 3), "blocked is free now");
    assert_eq!(drain(3, 9, Some("y")), (String::new(), 0), "leased");
    assert_eq!(drain(3, 1, Some("x")), ("c".to_owned(), 2));
    assert_eq!(drain(49, 9, None), ("blocked".to_owned(), 1), "later cools down");
    assert_eq!(drain(50, 9, None), ("later".to_owned(), 0));
    lab.check();
}

/// P3: whatever policies are published and whatever happens under them, no grant goes above its ceiling.
pub fn ceilings_hold_for_random_policies_and_histories<S: Subject>(subject: &S) {
    let mut granted = 0;
    for seed in 0..4 {
        let lab = Lab::new(subject);
        let mut dice = Dice::new(seed);
        let entries =
            (0..30).map(|number| of_kind(&format!("e{number}"), "mine", dice.of(&["plan", "ralph", "x"])));
        lab.add(at(0), &entries.collect::<Vec<_>>());
        let mut now = at(0);
        for _ in 0..60 {
            now = now.plus_ms(dice.of(&[0, 1_000, 30_000, 90_000, -20_000]));
            live(&lab, &mut dice, now);
        }
        let picture = lab.picture(now);
        granted += picture.rows.values().map(|row| row.task.fence.get()).sum::<u64>();
        assert_eq!(ceilings_hold(&picture), Ok(()), "seed {seed}");
    }
    assert!(granted > 60, "{granted} leases were granted");
}

/// One step of a life: a new policy, leases, an end, expired leases taken back.
fn live<S: Subject>(lab: &Lab<'_, S>, dice: &mut Dice, now: UnixMillis) {
    let call = lab.call(now);
    match dice.below(8) {
        0 => drop(lab.ok(&PublishPolicy { call, policy: policy(dice), based_on: None })),
        1 => drop(lab.reclaim(now, "mine")),
        2..5 => {
            let limit = dice.of(&[None, Some(1), Some(3), Some(9)]);
            drop(lab.ok(&Lease { call, queue: "mine".into(), limit, agent: None, host: None }));
        }
        _ => {
            let picture = lab.picture(now);
            let active =
                picture.rows.values().map(|row| &row.task).filter(|task| task.status == Status::Active);
            for task in active.filter(|_| dice.once_in(2)).collect::<Vec<_>>() {
                let caller = holder(task);
                let command = match dice.below(4) {
                    0 => done(caller),
                    1 => fail(caller),
                    _ => Command::Release { caller },
                };
                lab.must(now, task.id.as_str(), command);
            }
        }
    }
}
