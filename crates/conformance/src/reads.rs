//! Reading: what is shown agrees with what would happen (P5).

use rota_core::obstacle::{Obstacle, Reason, Wait};
use rota_core::transition::Command;
use rota_core::{Refusal, Status, TaskId, UnixMillis};

use crate::claim::Amend;
use crate::lab::{
    after, at, claim, claim_by_id, claim_of, done, fail, holder, id, new, of_kind, specs, urgent,
};
use crate::{Lab, Subject};
use rota_store::intents::add::NewTask;
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::overview::{Glance, Overview, Page};
use rota_store::intents::read::{Blockers, List, Peek, PlanStatus, Runners, Show, TaskView, Why};

fn peek<S: Subject>(lab: &Lab<'_, S>, queue: &str, now: UnixMillis, limit: usize) -> Peek {
    Peek { call: lab.call(now), queue: queue.into(), limit, wanted: Wanted::default(), host: None }
}

fn names(views: &[TaskView]) -> Vec<&str> {
    views.iter().map(|view| view.task.id.as_str()).collect()
}

/// The claimable ones are what claims would grant, in order, for every limit, also cooled down and overdue ones.
pub fn peek_shows_what_claims_would_grant<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let kinds = ["plan", "spec", "ralph", "other"];
    for number in 0..12_u32 {
        let name = format!("t{number:02}");
        let not_before = (number % 3 == 1).then(|| at(i64::from(number) * 400));
        let kind = kinds[number as usize % 4];
        let priority = rota_store::intents::add::NewPriority::Given(number % 2);
        lab.add(
            at(i64::from(number) * 600),
            &[NewTask { not_before, priority, ..of_kind(&name, "loops", kind) }],
        );
    }
    lab.add(at(0), &[NewTask { deps: vec![id("t00")], ..of_kind("blocked", "loops", "plan") }]);
    for now in [at(0), at(700), at(3_700), at(4_400), at(9_000)] {
        let order = crate::oracle::order(&lab.picture(now), &claim_of("loops", now, 99));
        for limit in [0, 1, 2, 3, 5, 8, 20] {
            let seen = lab.ok(&peek(&lab, "loops", now, limit));
            assert_eq!(names(&seen.claimable), order[..limit.min(order.len())], "at {now}, {limit}");
        }
    }
    lab.claimed(&claim_of("loops", at(4_400), 2));
    let seen = lab.ok(&peek(&lab, "loops", at(4_400), 99));
    assert_eq!(seen.active.len(), 2);
    let order = crate::oracle::order(&lab.picture(at(4_400)), &claim_of("loops", at(4_400), 99));
    assert_eq!(names(&seen.claimable), order);
    lab.check();
}

/// An expired lease that the next claim takes back is shown once, as open, at its place; elsewhere it stays active.
pub fn peek_shows_a_lost_lease_once<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[urgent("a", 0), new("b"), new("c")]);
    lab.take(at(0), "a");
    lab.ok(&Claim { ttl_ms: Some(9_000_000), ..claim(at(0), 1) });
    let seen = lab.ok(&peek(&lab, "tasks", at(599), 5));
    assert_eq!((names(&seen.claimable), names(&seen.active)), (vec!["c"], vec!["a", "b"]));
    let before = lab.picture(at(600)).normal();
    let seen = lab.ok(&peek(&lab, "tasks", at(600), 5));
    assert_eq!((names(&seen.claimable), names(&seen.active)), (vec!["a", "c"], vec!["b"]));
    let first = &seen.claimable[0].task;
    assert_eq!((first.status, first.assignee.clone()), (Status::Open, None));
    assert_eq!(lab.picture(at(600)).normal(), before, "looking changes nothing");
    lab.publish(at(600), r#"{"queues":{"tasks":{"maxAttempts":1}}}"#);
    let seen = lab.ok(&peek(&lab, "tasks", at(600), 5));
    assert_eq!((names(&seen.claimable), names(&seen.active)), (vec!["c"], vec!["a", "b"]));
}

/// What has cooled down, or whose lease ran out, is shown only where a claim of this host would have it.
pub fn peek_leaves_out_what_a_claim_would_not_have<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let cooling = |name: &str| NewTask { not_before: Some(at(10)), ..new(name) };
    lab.add(at(0), &[cooling("one"), cooling("two"), cooling("any"), new("lost"), new("root")]);
    lab.add(at(0), &[NewTask { parent: Some(id("root")), ..new("child") }]);
    for (name, host) in [("one", "one"), ("two", "two"), ("lost", "one")] {
        lab.ok(&Amend { id: id(name), host: Some(host.into()), tries: 0, artifact: None });
    }
    lab.finish(at(0), "root");
    lab.take(at(0), "lost");
    lab.take(at(0), "child");
    lab.must(at(1), "root", rota_core::transition::Command::Reiterate);
    let on = |host: &str, limit| {
        let seen = lab.ok(&Peek { host: Some(host.into()), ..peek(&lab, "tasks", at(600), limit) });
        let own = |views: &[TaskView]| names(views).join(" ");
        (own(&seen.claimable), own(&seen.active))
    };
    assert_eq!(on("two", 9), ("two any root".into(), "lost child".into()));
    assert_eq!(on("two", 1), ("two".into(), "lost child".into()));
    assert_eq!(on("one", 9), ("one any lost root".into(), "child".into()));
    let all = Claim { host: Some("one".into()), ..claim(at(600), 9) };
    assert_eq!(lab.claimed(&all), ["one", "any", "lost", "root"]);
    lab.check();
}

/// DESIGN 3: what `why` says of a task is what a claim by its id is refused with, or it is granted.
pub fn why_and_the_claim_agree<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":2,"perKind":{"x":1}}}}"#);
    lab.add(at(0), &[new("a"), after("b", &["a"]), of_kind("x1", "tasks", "x"), of_kind("x2", "tasks", "x")]);
    lab.add(at(0), &[NewTask { not_before: Some(at(50)), ..new("later") }, urgent("first", 0)]);
    lab.add(at(0), &[NewTask { parent: Some(id("a")), ..new("child") }, new("gone")]);
    lab.must(at(0), "gone", rota_core::transition::Command::Delete);
    lab.take(at(0), "x1");
    let why = |name: &str| {
        lab.ok(&Why { call: lab.call(at(1)), id: id(name), host: None, runners: Runners::default() })
    };
    for name in ["b", "x1", "x2", "later", "child", "gone"] {
        let explained = why(name);
        let mut said: Vec<Reason> = explained.obstacles.iter().cloned().map(Reason::Obstacle).collect();
        let ceilings = explained.waits.iter().filter(|wait| !matches!(wait, Wait::Outranked { .. }));
        said.extend(ceilings.cloned().map(Reason::Wait));
        let Refusal::NotEligible { reasons, .. } = lab.refused(&claim_by_id(at(1), name)) else {
            panic!("{name} is not eligible")
        };
        assert_eq!(said, reasons, "{name}");
    }
    assert_eq!(why("b").obstacles, [Obstacle::BlockedBy { ids: vec![id("a")] }]);
    assert_eq!(why("later").earliest, Some(at(50)));
    let a = why("a");
    assert_eq!((a.runnable, a.position, a.ahead), (true, Some(2), Some(vec![id("first")])));
    lab.take(at(1), "a");
    assert_eq!(
        lab.refused(&Why { call: lab.call(at(1)), id: id("?"), host: None, runners: Runners::default() })
            .exit_code(),
        2
    );
}

/// Lists are in the one order and filtered; counts tell blocked from free.
pub fn lists_and_counts<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let of = |name: &str, spec: &str| NewTask { spec_ref: Some(spec.into()), ..new(name) };
    lab.add(
        at(0),
        &[of("a", "s"), NewTask { spec_ref: Some("s".into()), ..after("b", &["a"]) }, of("c", "t")],
    );
    lab.add(at(1), &[urgent("z", 0)]);
    lab.finish(at(1), "c");
    lab.take(at(2), "z");
    let list = |statuses: &[Status], assignee: Option<&str>| {
        let views = lab.ok(&List {
            call: lab.call(at(3)),
            queue: "tasks".into(),
            statuses: statuses.to_vec(),
            assignee: assignee.map(str::to_owned),
        });
        names(&views).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list(&[], None), ["z", "a", "b", "c"]);
    assert_eq!(list(&[Status::Open, Status::Done], None), ["a", "b", "c"]);
    assert_eq!(list(&[Status::Active], None), ["z"]);
    assert_eq!(list(&[], Some("a")), ["z", "c"], "who did it stays with what is done");
    assert_eq!(list(&[Status::Active], Some("nobody")), Vec::<String>::new());
    let count = |wanted| {
        let counts = lab.ok(&PlanStatus { call: lab.call(at(3)), queue: "tasks".into(), wanted });
        let mut counts: Vec<_> =
            counts.into_iter().map(|count| (count.status, count.blocked, count.count)).collect();
        counts.sort();
        counts
    };
    let (open, active, finished) = (Status::Open, Status::Active, Status::Done);
    let all = [(open, false, 1), (open, true, 1), (active, false, 1), (finished, false, 1)];
    assert_eq!(count(Wanted::default()), all);
    assert_eq!(count(specs("s")), [(open, false, 1), (open, true, 1)]);
    let (view, blockers) = lab.ok(&Show { call: lab.call(at(3)), id: id("b") });
    assert_eq!((view.deps, view.ready_at, blockers.len()), (vec![id("a")], None, 1));
    let (view, _) = lab.ok(&Show { call: lab.call(at(3)), id: id("a") });
    assert_eq!(view.ready_at, Some(at(0)));
}

/// The tree of blockers, depth first, each level by id.
pub fn the_tree_of_blockers<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(
        at(0),
        &[new("a"), after("b", &["a"]), after("c", &["a"]), after("d", &["c", "b"]), new("alone")],
    );
    lab.finish(at(1), "a");
    let task = lab.take(at(1), "b");
    lab.must(at(1), "b", fail(holder(&task)));
    let tree = |name: &str| -> Vec<(usize, TaskId, Status)> {
        let lines = lab.ok(&Blockers { call: lab.call(at(2)), id: id(name) });
        lines.into_iter().map(|line| (line.level, line.blocker.id, line.blocker.status)).collect()
    };
    let (open, finished) = (Status::Open, Status::Done);
    let wanted = [(0, id("b"), open), (1, id("a"), finished), (0, id("c"), open), (1, id("a"), finished)];
    assert_eq!(tree("d"), wanted);
    assert_eq!(tree("alone"), []);
    let task = lab.take(at(2), "c");
    lab.must(at(2), "c", done(holder(&task)));
    assert_eq!(tree("d")[2], (0, id("c"), finished));
    let refused = lab.refused(&Blockers { call: lab.call(at(2)), id: id("x") });
    assert_eq!(refused, Refusal::TaskNotFound { id: id("x") });
}

/// Busy is what is active, or open and not blocked, however it is found out.
pub fn a_glance_agrees_with_the_counts<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let look = |seconds: i64| {
        let glanced = lab.ok(&Glance { call: lab.call(at(seconds)) });
        let seen = lab.ok(&Overview { call: lab.call(at(seconds)) });
        let is_busy = seen
            .queues
            .iter()
            .flat_map(|(_, counts)| counts)
            .any(|count| !count.blocked && matches!(count.status, Status::Open | Status::Active));
        assert_eq!(glanced.is_busy, is_busy, "after {seconds} s");
        is_busy
    };
    assert!(!look(0));
    lab.add(at(1), &[new("a"), after("b", &["a"])]);
    assert!(look(1), "one is ready");
    let granted = lab.ok(&claim(at(2), 1)).remove(0).task;
    assert!(look(2), "one is active");
    lab.must(at(3), "a", fail(holder(&granted)));
    assert!(look(3), "one cools down");
    lab.must(at(4), "a", Command::Pause);
    assert!(!look(4), "one is paused, one is blocked");
    lab.add(at(5), &[of_kind("loop", "loops", "plan")]);
    assert!(look(5), "one of a queue with scores");
    lab.must(at(6), "loop", Command::Pause);
    assert!(!look(6));
    lab.add(at(7), &[NewTask { parent: Some(id("loop")), ..of_kind("child", "loops", "spec") }]);
    assert!(look(7), "one waits for its parent, in no index");
}

/// Every task is on one page, in the order of insertion, and looks as it does by itself.
pub fn pages_show_each_task_as_it_is<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(
        at(1),
        &[new("a"), after("b", &["a"]), after("c", &["b", "a"]), of_kind("loop", "loops", "plan")],
    );
    let below = |name: &str, parent: &str| NewTask { parent: Some(id(parent)), ..new(name) };
    let cooling = NewTask { not_before: Some(at(50)), ..new("cooling") };
    lab.add(at(1), &[cooling, new("d"), below("child", "d"), below("waits", "loop"), after("e", &["d"])]);
    lab.finish(at(1), "d");
    let (mut paged, mut place) = (Vec::new(), 0);
    loop {
        let page = lab.ok(&Page { call: lab.call(at(2)), after: place, limit: 3 });
        let Some(last) = page.last() else { break };
        place = last.task.seq;
        paged.extend(page);
    }
    let alone = |name: &str| lab.ok(&Show { call: lab.call(at(2)), id: id(name) }).0;
    let names = ["a", "b", "c", "loop", "cooling", "d", "child", "waits", "e"];
    assert_eq!(paged, names.map(alone));
    assert_eq!(paged[2].deps, [id("a"), id("b")]);
    let ready: Vec<&str> = names
        .into_iter()
        .zip(&paged)
        .filter(|(_, view)| view.ready_at.is_some())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(ready, ["a", "loop", "cooling", "child", "e"], "nothing but time stands in their way");
}
