//! Loops: the first iteration comes with the grant, the children with the completion.

use rota_core::transition::{Command, RateLimit};
use rota_core::{Refusal, Status};

use crate::Subject;
use crate::lab::{Lab, after, at, claim_of, held, holder, id, of_kind};
use rota_store::Error;
use rota_store::intents::add::NewTask;
use rota_store::intents::iterate::{Backlog, Begin, Complete};
use rota_store::intents::read::Show;
use rota_store::intents::sync_leases::{Awaiting, SyncLoops};

fn begin(now: rota_core::UnixMillis, kinds: &[&str], limit: usize) -> Begin {
    let mut claim = claim_of("loops", now, limit);
    claim.host = Some("one".into());
    Begin::new(claim, kinds.iter().map(|kind| (*kind).to_owned()).collect(), true)
}

fn child(name: &str, parent: &str, iteration: u32) -> NewTask {
    NewTask {
        parent: Some(id(parent)),
        parent_iteration: Some(iteration),
        triggered_by: Some("iterations/001/artifacts/children.jsonl".into()),
        artifact_present: true,
        ..of_kind(name, "loops", "spec")
    }
}

/// A grant counts the iteration and the try and binds the tree; kinds that cannot run are passed over.
pub fn a_grant_begins_an_iteration<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(
        at(0),
        &[of_kind("r", "loops", "ralph"), of_kind("p", "loops", "plan"), of_kind("x", "loops", "odd")],
    );
    assert_eq!(lab.ok(&begin(at(1), &[], 9)).granted, []);
    let granted = lab.ok(&begin(at(1), &["plan", "odd"], 1)).granted.remove(0).task;
    assert_eq!(granted.id, id("x"), "base 60 before 40");
    assert_eq!((granted.iteration, granted.tries, granted.host.as_deref()), (1, 1, Some("one")));
    let lease = holder(&granted);
    let again = lab
        .step(at(2), "x", Command::Iterate { caller: lease.clone(), reason: "exit code 1".into() })
        .unwrap();
    assert_eq!((again.iteration, again.tries), (2, 2));
    assert!(again.lease_expires_at > granted.lease_expires_at);
    // What ends without a verdict was no try, but its number is used up.
    let limited =
        lab.step(at(3), "x", Command::RateLimit { caller: lease, limit: RateLimit::default() }).unwrap();
    assert_eq!((limited.iteration, limited.tries, limited.attempts), (2, 1, 0));
    let third = lab.ok(&begin(at(60), &["odd"], 1)).granted.remove(0).task;
    assert_eq!((third.iteration, third.tries), (3, 2));
    let lost = lab.ok(&begin(at(6_000), &["nothing"], 1)).granted;
    assert_eq!(lost, []);
    let x = lab.task("x");
    assert_eq!((x.status, x.tries, x.attempts), (Status::Open, 1, 1));
    lab.check();
}

/// Done, children and the next grant are one transaction.
pub fn completing_brings_the_children<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("p", "loops", "plan")]);
    let plan = lab.ok(&begin(at(1), &["plan", "spec"], 9)).granted.remove(0).task;
    let second = NewTask { deps: vec![id("s1")], ..child("s2", "p", 1) };
    let complete = Complete {
        call: lab.call(at(2)),
        lease: plan.lease().unwrap(),
        result: None,
        upstream: None,
        children: vec![second, child("s1", "p", 1)],
        artifacts: None,
        then: Some(begin(at(2), &["plan", "spec"], 9)),
    };
    let completed = lab.ok(&complete);
    assert_eq!(completed.task.status, Status::Done);
    assert_eq!(completed.children.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ["s2", "s1"]);
    assert_eq!(completed.granted.iter().map(|grant| grant.task.id.as_str()).collect::<Vec<_>>(), ["s1"]);
    let granted = &completed.granted[0].task;
    assert_eq!((granted.depth, granted.host.as_deref()), (1, Some("one")));
    // A late worker completes nothing and adds nothing.
    let late = Complete { children: vec![child("s3", "p", 1)], ..complete.clone() };
    assert!(matches!(lab.refused(&late), Refusal::NotActive { .. }));
    assert_eq!(lab.task("p").status, Status::Done);
    assert!(matches!(lab.run(&Show { call: lab.call(at(3)), id: id("s3") }), Err(Error::Refused(_))));
    lab.check();
}

/// A child that cannot be added leaves the loop as it was.
pub fn a_bad_child_completes_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("p", "loops", "plan"), of_kind("taken", "loops", "spec")]);
    let plan = lab.ok(&begin(at(1), &["plan"], 9)).granted.remove(0).task;
    let complete = |children: Vec<NewTask>| Complete {
        call: lab.call(at(2)),
        lease: plan.lease().unwrap(),
        result: None,
        upstream: None,
        children,
        artifacts: None,
        then: None,
    };
    let taken = complete(vec![child("new", "p", 1), child("taken", "p", 1)]);
    assert!(matches!(lab.refused(&taken), Refusal::DuplicateId { .. }));
    let unknown = complete(vec![NewTask { deps: vec![id("nobody")], ..child("new", "p", 1) }]);
    assert!(matches!(lab.refused(&unknown), Refusal::UnknownDependency { .. }));
    assert_eq!(lab.task("p").status, Status::Active);
    assert!(matches!(lab.run(&Show { call: lab.call(at(3)), id: id("new") }), Err(Error::Refused(_))));
    lab.check();
}

/// A child that the next iteration has again comes back with what it says now.
pub fn an_invalidated_child_is_revived<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("p", "loops", "plan")]);
    let first = lab.ok(&begin(at(1), &["plan"], 1)).granted.remove(0).task;
    let complete = |now, task: &rota_core::Task, children| Complete {
        call: lab.call(now),
        lease: task.lease().unwrap(),
        result: None,
        upstream: None,
        children,
        artifacts: None,
        then: None,
    };
    lab.ok(&complete(
        at(2),
        &first,
        vec![child("a", "p", 1), NewTask { deps: vec![id("a")], ..child("b", "p", 1) }],
    ));
    lab.step(at(3), "p", Command::Reiterate).unwrap();
    for name in ["a", "b"] {
        lab.step(at(3), name, Command::Invalidate { reason: "parent moved on".into() }).unwrap();
    }
    let second = lab.ok(&begin(at(4), &["plan"], 1)).granted.remove(0).task;
    let renamed = NewTask { title: "B anew".into(), ..child("b", "p", 2) };
    lab.ok(&complete(at(5), &second, vec![renamed]));
    let b = lab.task("b");
    assert_eq!((b.status, b.title.as_str(), b.parent_iteration), (Status::Open, "B anew", Some(2)));
    assert_eq!(
        lab.ok(&begin(at(6), &["spec"], 9)).granted.remove(0).task.id,
        id("b"),
        "its old blocker is gone"
    );
    assert_eq!(lab.task("a").status, Status::Invalidated);
    lab.check();
}

/// What waits for an artifact is found in order, and runs once it is there.
pub fn artifacts_are_awaited<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let waiting =
        |name: &str| NewTask { triggered_by: Some("spec.md".into()), ..of_kind(name, "loops", "spec") };
    let under = NewTask { parent: Some(id("p")), ..waiting("c") };
    lab.add(
        at(0),
        &[of_kind("p", "loops", "plan"), waiting("a"), waiting("b"), under, of_kind("z", "loops", "odd")],
    );
    let awaiting = |after_seq, limit| {
        let look = SyncLoops {
            awaiting: Some(Awaiting { after_seq, limit }),
            ..SyncLoops::looking(begin(at(1), &[], 0))
        };
        let parent = |parent: &Option<rota_core::Task>| parent.as_ref().map(|task| task.id.to_string());
        let tasks = lab.sync(at(1), look).1.awaiting;
        assert!(
            tasks.iter().all(|(task, found)| parent(found) == task.parent.as_ref().map(ToString::to_string))
        );
        tasks.iter().map(|(task, _)| task.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(awaiting(0, 9), ["a", "b", "c"]);
    assert_eq!(awaiting(0, 1), ["a"]);
    assert_eq!(awaiting(lab.task("a").seq, 9), ["b", "c"]);
    assert_eq!(lab.ok(&begin(at(1), &["spec"], 9)).granted, []);
    let triggered = vec![id("b"), id("gone")];
    lab.sync(at(2), SyncLoops { triggered, ..SyncLoops::looking(begin(at(2), &[], 0)) });
    assert_eq!(lab.task("b").ready_at(), at(2));
    let granted = lab.ok(&begin(at(3), &["spec"], 9)).granted;
    assert_eq!(granted.iter().map(|grant| grant.task.id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(awaiting(0, 9), ["a", "c"]);
    lab.check();
}

/// Which leases are gone, and what is left to do.
pub fn lapsed_leases_and_the_backlog<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let later = NewTask { not_before: Some(at(50)), ..of_kind("later", "loops", "spec") };
    lab.add(at(0), &[of_kind("a", "loops", "spec"), of_kind("b", "loops", "spec"), later]);
    lab.add(at(0), &[after("other", &[])]);
    let granted = lab.ok(&begin(at(1), &["spec"], 1)).granted.remove(0).task;
    let lease = granted.lease().unwrap();
    let lapsed =
        |watched| lab.sync(at(2), SyncLoops { watched, ..SyncLoops::looking(begin(at(2), &[], 0)) }).1.lapsed;
    assert_eq!(lapsed(vec![lease.clone()]), []);
    let old = held("a", 7).lease.unwrap();
    assert_eq!(lapsed(vec![lease.clone(), old.clone()]), [(old, Some(Status::Active))]);
    let counts = lab.ok(&Backlog { call: lab.call(at(2)), queue: "loops".into(), whole: true });
    assert_eq!((counts.of(Status::Open), counts.of(Status::Active)), (2, 1));
    assert_eq!((counts.runnable, counts.cooling_until), (1, Some(at(50))));
    assert_eq!(counts.active, [("spec".to_owned(), 1)].into());
    lab.step(at(3), "a", Command::Pause).unwrap();
    assert_eq!(lapsed(vec![lease.clone()]), [(lease, Some(Status::Paused))]);
    lab.check();
}
