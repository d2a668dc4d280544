//! One request of a lease holder: renewals, ends, grants and news in one transaction.

use rota_core::select::WorktreeLimit;
use rota_core::transition::Command;
use rota_core::{LeaseId, Refusal, Status, Task, UnixMillis};

use crate::Subject;
use crate::lab::{Lab, at, claim_of, holder, id, ids, of_kind};
use rota_store::EventFilter;
use rota_store::intents::add::NewTask;
use rota_store::intents::blocks::{EndLimited, NoteBudget};
use rota_store::intents::claim::ArtifactCheck;
use rota_store::intents::iterate::{Begin, Complete};
use rota_store::intents::not_passed::GaveWay;
use rota_store::intents::read::Journal;
use rota_store::intents::settle::{Settle, Step};
use rota_store::intents::sync_leases::{
    Awaiting, EndOf, IterationEnd, IterationEnded, SyncLeases, SyncLoops,
};
use rota_store::{Access, Intent};

fn begin(now: UnixMillis, limit: usize) -> Begin {
    let mut claim = claim_of("loops", now, limit);
    claim.host = Some("one".into());
    Begin::new(claim, ["plan", "spec"].map(str::to_owned).to_vec(), true)
}

fn granted<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, limit: usize) -> Vec<Task> {
    lab.ok(&begin(now, limit)).granted.into_iter().map(|grant| grant.task).collect()
}

fn lease(tasks: &[Task], name: &str) -> LeaseId {
    tasks.iter().find(|task| task.id == id(name)).and_then(Task::lease).unwrap()
}

fn end(lease: LeaseId, how: EndOf) -> IterationEnd {
    IterationEnd { lease, how, excused_by_budget_of: None }
}

fn fails(lease: LeaseId) -> IterationEnd {
    end(lease, EndOf::NotPassed { reason: "exit code 1".into() })
}

fn passes<S: Subject>(
    lab: &Lab<'_, S>,
    now: UnixMillis,
    lease: LeaseId,
    children: Vec<NewTask>,
) -> IterationEnd {
    let complete = Complete {
        call: lab.call(now),
        lease: lease.clone(),
        result: None,
        upstream: None,
        children,
        artifacts: Some(ArtifactCheck::by(|task, parent| parent.is_some() && task.id == id("waiting"))),
        then: None,
    };
    end(lease, EndOf::Complete(Box::new(complete)))
}

fn spec(name: &str) -> NewTask {
    of_kind(name, "loops", "spec")
}

/// P1, P2: renewals, ends, artifacts, lapsed leases and grants are one transaction, each accepted or refused by itself.
pub fn a_loop_manager_asks_for_all_at_once<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let awaits = |name: &str| NewTask { triggered_by: Some("a.md".into()), ..spec(name) };
    lab.add(
        at(0),
        &[of_kind("p", "loops", "plan"), spec("kept"), spec("parks"), spec("late"), spec("paused")],
    );
    let tasks = granted(&lab, at(1), 5);
    lab.step(at(2), "paused", Command::Pause).unwrap();
    lab.step(at(2), "late", Command::Pause).unwrap();
    let waiting = NewTask { parent: Some(id("p")), parent_iteration: Some(1), ..awaits("waiting") };
    lab.add(at(3), &[awaits("seen"), awaits("unseen"), waiting]);
    let child = NewTask { parent: Some(id("p")), parent_iteration: Some(1), ..spec("child") };
    let kept = tasks.iter().find(|task| task.id == id("kept")).unwrap();
    let parked = tasks.iter().find(|task| task.id == id("parks")).unwrap();
    let settle = Settle {
        call: lab.call(at(5)),
        steps: vec![Step { id: id("kept"), command: Command::Renew { caller: holder(kept), ttl_ms: None } }],
        then: None,
    };
    let park = Command::Park { caller: holder(parked), reason: "look".into() };
    let loops = SyncLoops {
        ends: vec![
            passes(&lab, at(5), lease(&tasks, "p"), vec![child]),
            end(lease(&tasks, "parks"), EndOf::Step(park)),
            fails(lease(&tasks, "late")),
        ],
        watched: vec![lease(&tasks, "paused")],
        triggered: vec![id("seen")],
        awaiting: Some(Awaiting { after_seq: 0, limit: 9 }),
        counts: true,
        begin: begin(at(5), 0),
    };
    let synced = lab.ok(&SyncLeases { settle, loops: Some(loops) });
    let loops = synced.loops.unwrap();
    assert!(synced.settled.steps[0].as_ref().unwrap().lease_expires_at > kept.lease_expires_at);
    assert!(matches!(&loops.ends[0], Ok(IterationEnded::Settled(task)) if task.status == Status::Done));
    assert!(matches!(&loops.ends[1], Ok(IterationEnded::Settled(task)) if task.status == Status::Parked));
    assert!(matches!(&loops.ends[2], Err(Refusal::NotActive { .. })), "{:?}", loops.ends[2]);
    assert_eq!(loops.lapsed, [(lease(&tasks, "paused"), Some(Status::Paused))]);
    // The tasks that are triggered by the same request are not looked for once more.
    let awaiting: Vec<&str> = loops.awaiting.iter().map(|(task, _)| task.id.as_str()).collect();
    assert_eq!(awaiting, ["unseen", "waiting"]);
    assert_eq!(loops.counts.unwrap().active.values().sum::<u32>(), 3);
    // Two ends were accepted, so two places are free; the one that was refused frees none.
    let mut begun = ids(&synced.settled.granted);
    begun.sort_unstable();
    assert_eq!(begun.len(), 2, "{begun:?}");
    assert!(lab.task("waiting").artifact_present, "its parent's completion looked for it");
    lab.check();
}

/// A loop that did not pass competes with the others for the places that the ends of one request free.
pub fn ends_free_places_for_others<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"loops":{"maxConcurrent":3}}}"#);
    lab.add(at(0), &[spec("a"), spec("b"), spec("c")]);
    let tasks = granted(&lab, at(1), 3);
    lab.add(at(2), &[spec("d"), spec("e")]);
    let limited = EndLimited {
        call: lab.call(at(20)),
        lease: lease(&tasks, "c"),
        upstream: "kind:none".into(),
        retry_after_ms: None,
    };
    let loops = SyncLoops {
        ends: vec![
            fails(lease(&tasks, "a")),
            fails(lease(&tasks, "b")),
            end(lease(&tasks, "c"), EndOf::Limited(limited)),
        ],
        ..SyncLoops::looking(begin(at(20), 0))
    };
    let (granted, synced) = lab.sync(at(20), loops);
    assert!(
        matches!(&synced.ends[2], Ok(IterationEnded::Limited(task, noted)) if noted.is_hit && task.status == Status::Open)
    );
    let gave_way = |index: usize| match &synced.ends[index] {
        Ok(IterationEnded::NotPassed(_, gave_way)) => gave_way.clone(),
        other => panic!("{other:?}"),
    };
    // Both of the fresh ones rank ahead; the place that is left goes to one of the two that failed.
    let mut begun = ids(&granted);
    begun.sort_unstable();
    assert_eq!(begun.iter().filter(|name| ["d", "e"].contains(name)).count(), 2, "{begun:?}");
    let active = ["a", "b", "c", "d", "e"].iter().filter(|name| lab.task(name).status == Status::Active);
    assert_eq!(active.count(), 3, "no place is given twice, and none is left");
    assert!([gave_way(0), gave_way(1)].iter().any(|gave| matches!(gave, Some(GaveWay::Outranked { .. }))));
    lab.check();
}

/// A child that cannot be added undoes the request and names its loop; the rest goes through without it.
pub fn a_completion_that_cannot_be_undoes_the_request<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("p", "loops", "plan"), spec("taken"), spec("other")]);
    let tasks = granted(&lab, at(1), 3);
    let interrupt = Command::Interrupt { caller: holder(&tasks[1]) };
    let interrupted = tasks[1].lease().unwrap();
    let taken = NewTask { parent: Some(id("p")), parent_iteration: Some(1), ..spec("taken") };
    let ends = vec![
        end(interrupted.clone(), EndOf::Step(interrupt)),
        passes(&lab, at(2), lease(&tasks, "p"), vec![taken]),
    ];
    let settle = Settle { call: lab.call(at(2)), steps: Vec::new(), then: None };
    let mut sync =
        SyncLeases { settle, loops: Some(SyncLoops { ends, ..SyncLoops::looking(begin(at(2), 0)) }) };
    let events = || lab.ok(&Journal { call: lab.call(at(2)), filter: EventFilter::default() }).len();
    let before = events();
    let synced = lab.ok(&sync);
    assert!(matches!(synced.undone_by, Some((1, Refusal::DuplicateId { .. }))), "{synced:?}");
    assert_eq!(synced.loops, None);
    assert_eq!(events(), before);
    assert!(tasks.iter().all(|task| lab.task(task.id.as_str()).status == Status::Active));
    sync.loops.as_mut().unwrap().ends[1] = fails(lease(&tasks, "p"));
    let ends = lab.ok(&sync).loops.unwrap().ends;
    assert!(matches!(ends[..], [Ok(IterationEnded::Settled(_)), Ok(IterationEnded::NotPassed(_, None))]));
    lab.check();
}

/// Whichever loops are chosen in one request, no more of them use a worktree than the host has free; the others begin.
pub fn the_worktree_limit_holds_over_one_request<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[spec("held")]);
    let tasks = granted(&lab, at(1), 1);
    lab.add(
        at(2),
        &[spec("s1"), spec("s2"), spec("s3"), of_kind("p1", "loops", "plan"), of_kind("p2", "loops", "plan")],
    );
    let limit = WorktreeLimit { kinds: ["spec".to_owned()].into(), ceiling: 2, left: 1 };
    let begin = Begin { worktrees: Some(limit), ..begin(at(30), 9) };
    let ends = vec![fails(lease(&tasks, "held"))];
    let (granted, synced) = lab.sync(at(30), SyncLoops { ends, ..SyncLoops::looking(begin) });
    let specs = granted.iter().filter(|grant| grant.task.kind.as_deref() == Some("spec")).count();
    let goes_on = matches!(synced.ends[0], Ok(IterationEnded::NotPassed(_, None)));
    assert_eq!(specs + usize::from(goes_on), 2, "one that was free, and the place of the one that ended");
    assert_eq!(granted.len() - specs, 2, "both plans");
    lab.check();
}

/// An iteration whose model calls a spent budget refused says nothing about its loop: it is interrupted, not counted.
pub fn a_spent_budget_excuses_an_end<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[spec("a"), spec("b")]);
    let tasks = granted(&lab, at(1), 2);
    let spent = Some(("perDay".to_owned(), at(900)));
    lab.ok(&NoteBudget { call: lab.call(at(2)), upstreams: vec!["api".into()], spent });
    let excused = |name, upstream: &str| IterationEnd {
        excused_by_budget_of: Some(upstream.to_owned()),
        ..fails(lease(&tasks, name))
    };
    let ends = vec![excused("a", "api"), excused("b", "other")];
    let (_, synced) = lab.sync(at(3), SyncLoops { ends, ..SyncLoops::looking(begin(at(3), 0)) });
    assert!(matches!(&synced.ends[0], Ok(IterationEnded::BudgetSpent(task, _)) if task.tries == 0));
    assert!(matches!(&synced.ends[1], Ok(IterationEnded::NotPassed(task, None)) if task.tries == 2));
    lab.check();
}

/// A look for which nothing is due takes no turn of a writer.
pub fn a_look_writes_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[spec("a")]);
    let settle = Settle { call: lab.call(at(1)), steps: Vec::new(), then: None };
    let looking = |limit| SyncLoops { counts: true, ..SyncLoops::looking(begin(at(1), limit)) };
    let sync = |limit| SyncLeases { settle: settle.clone(), loops: Some(looking(limit)) };
    assert_eq!((sync(0).access(), sync(1).access()), (Access::Read, Access::Write));
    let synced = lab.ok(&sync(0));
    assert_eq!(synced.loops.unwrap().counts.unwrap().runnable, 1);
    assert_eq!(ids(&lab.ok(&sync(1)).settled.granted), ["a"]);
    lab.check();
}
