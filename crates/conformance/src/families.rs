//! Trees: what a change of one loop means for those below it, and the verbs that work on whole trees.

use rota_core::obstacle::Obstacle;
use rota_core::transition::{Command, Verb};
use rota_core::{LeaseId, Refusal, Status, Task, UnixMillis};

use crate::Subject;
use crate::lab::{Lab, at, claim_of, done, held, holder, id, of_kind};
use rota_store::EventFilter;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::iterate::Begin;
use rota_store::intents::loops::{AddLoop, Cancel, Move, Reiterate, ShowLoop, Tree, TreeLine};
use rota_store::intents::read::Journal;
use rota_store::intents::settle::DeleteMany;

fn below(name: &str, parent: &str, kind: &str) -> NewTask {
    NewTask { parent: Some(id(parent)), priority: NewPriority::Unset, ..of_kind(name, "loops", kind) }
}

fn begin<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, kind: &str) -> Task {
    let mut claim = claim_of("loops", now, 1);
    claim.host = Some("one".into());
    let begin = Begin::new(claim, vec![kind.into()], true);
    lab.ok(&begin).granted.remove(0).task
}

fn reiterate<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, name: &str) -> Reiterate {
    Reiterate { call: lab.call(now), id: id(name), reason: Some("once more".into()) }
}

/// A plan that is done, with two specs of which one is done, phases below both, and ralphs below a phase.
fn tree<S: Subject>(lab: &Lab<'_, S>) {
    lab.add(at(0), &[of_kind("plan", "loops", "plan"), of_kind("other", "loops", "plan")]);
    lab.add(at(1), &[below("s1", "plan", "spec"), below("s2", "plan", "spec"), below("o1", "other", "spec")]);
    lab.add(at(2), &[below("p1", "s1", "phase"), below("p2", "s2", "phase")]);
    lab.add(at(3), &[below("r1", "p1", "ralph"), below("r2", "p1", "ralph")]);
    lab.finish(at(4), "plan");
    lab.finish(at(5), "s1");
    lab.finish(at(6), "p1");
}

fn statuses<S: Subject>(lab: &Lab<'_, S>, names: &str) -> String {
    let word = |name: &str| lab.task(name).status.word().to_owned();
    names.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Deleting a loop fails all below it that have not finished, also through those that have, and ends their leases.
pub fn orphans_fail_with_all_below_them<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    tree(&lab);
    let running = lab.take(at(7), "r1");
    lab.must(at(8), "p2", Command::Pause);
    lab.must(at(9), "plan", Command::Delete);
    assert_eq!(statuses(&lab, "plan s1 s2 p1 p2 r1 r2"), "deleted done failed done failed failed failed");
    assert_eq!(statuses(&lab, "other o1"), "open open");
    let r1 = lab.task("r1");
    assert_eq!(r1.fail_reason.as_deref(), Some("'plan', above it, was deleted"));
    assert!(matches!(lab.step(at(10), "r1", done(holder(&running))), Err(Refusal::NotActive { .. })));
    // What its parent has left behind is not reopened until the parent is back.
    let refused = lab.step(at(11), "s2", Command::Reset).unwrap_err();
    let why = Obstacle::ParentNotDone { parent: id("plan"), status: Status::Deleted };
    assert_eq!(refused, Refusal::CannotReopen { id: id("s2"), why });
    assert!(matches!(
        lab.refused(&Add { call: lab.call(at(11)), tasks: vec![below("s3", "plan", "spec")] }),
        Refusal::ParentNotFound { .. }
    ));
    lab.must(at(12), "plan", Command::Undelete);
    lab.must(at(13), "s2", Command::Reset);
    assert_eq!(lab.task("s2").status, Status::Open);
    let many = DeleteMany {
        call: lab.call(at(14)),
        queue: "loops".into(),
        statuses: vec![Status::Open],
        spec: None,
        category: None,
    };
    lab.ok(&many);
    assert_eq!(statuses(&lab, "plan s2 other o1"), "deleted deleted deleted deleted");
    lab.check();
}

/// A child of an earlier iteration is invalidated when the next one begins; one that came from none is not.
pub fn children_of_earlier_iterations_go<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("plan", "loops", "plan")]);
    let first = begin(&lab, at(1), "plan");
    let add = |now: UnixMillis, task: NewTask, lease: Option<LeaseId>| AddLoop {
        call: lab.call(now),
        task,
        lease,
        by_token: false,
    };
    let child = lab.ok(&add(at(2), below("s1", "plan", "spec"), first.lease()));
    assert_eq!((child.parent_iteration, child.depth, child.host.as_deref()), (Some(1), 1, Some("one")));
    lab.ok(&add(at(2), below("s2", "plan", "spec"), None));
    let stranger = LeaseId { task: id("s1"), fence: rota_core::Fence::new(7) };
    assert_eq!(lab.ok(&add(at(2), below("s3", "plan", "spec"), Some(stranger))).parent_iteration, None);
    lab.add(at(3), &[below("p1", "s1", "phase")]);
    lab.must(at(4), "plan", Command::Iterate { caller: holder(&first), reason: "exit code 1".into() });
    assert_eq!(statuses(&lab, "plan s1 p1 s2 s3"), "active invalidated invalidated open open");
    let reason = "it came from iteration 1 of 'plan', which is now at 2";
    assert_eq!(lab.task("p1").fail_reason.as_deref(), Some(reason));
    let why = Obstacle::Stale { parent_iteration: 1, current: 2 };
    assert_eq!(lab.step(at(5), "s1", Command::Reset), Err(Refusal::CannotReopen { id: id("s1"), why }));
    // The next iteration has it again.
    let anew = NewTask { title: "Anew".into(), ..below("s1", "plan", "spec") };
    let revived = lab.ok(&add(at(6), anew.clone(), first.lease()));
    assert_eq!(
        (revived.status, revived.title.as_str(), revived.parent_iteration),
        (Status::Open, "Anew", Some(2))
    );
    assert!(matches!(lab.refused(&add(at(6), anew.clone(), first.lease())), Refusal::DuplicateId { .. }));
    // A late agent adds nothing.
    lab.must(at(7), "plan", Command::Interrupt { caller: holder(&first) });
    let late = add(at(8), below("s4", "plan", "spec"), first.lease());
    assert!(matches!(lab.refused(&late), Refusal::NotActive { .. }));
    begin(&lab, at(9), "plan");
    assert!(matches!(lab.refused(&late), Refusal::StaleLease { .. }));
    assert_eq!(statuses(&lab, "s1 s2 s3"), "invalidated open open");
    lab.check();
}

/// Starting a finished loop over invalidates what is unfinished below it, running ones too, in the same transaction.
pub fn reiterating_invalidates_all_below<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    tree(&lab);
    let running = lab.take(at(7), "r1");
    let changed = lab.ok(&reiterate(&lab, at(8), "plan"));
    assert_eq!((changed.task.status, changed.task.tries), (Status::Open, 0));
    let mut gone: Vec<String> = changed.below.iter().map(ToString::to_string).collect();
    gone.sort();
    assert_eq!(gone, ["p2", "r1", "r2", "s2"]);
    let words = "open done invalidated done invalidated invalidated invalidated";
    assert_eq!(statuses(&lab, "plan s1 s2 p1 p2 r1 r2"), words);
    assert!(matches!(lab.step(at(9), "r1", done(holder(&running))), Err(Refusal::NotActive { .. })));
    let filter = EventFilter { task: Some(id("plan")), ..EventFilter::default() };
    let events = lab.ok(&Journal { call: lab.call(at(9)), filter });
    let last = events.last().unwrap();
    assert_eq!(last.kind, rota_core::event::EventKind::Step(Verb::Reiterate));
    assert_eq!(last.data.reason.as_deref(), Some("once more"));
    // What is open or running is not started over, and nothing below it is touched.
    lab.add(at(10), &[below("s4", "plan", "spec")]);
    assert!(matches!(lab.refused(&reiterate(&lab, at(10), "plan")), Refusal::WrongStatus { .. }));
    let claimed = lab.take(at(11), "plan");
    assert!(matches!(lab.refused(&reiterate(&lab, at(11), "plan")), Refusal::WrongStatus { .. }));
    assert_eq!(lab.task("s4").status, Status::Open);
    lab.must(at(12), "plan", Command::Exhaust { caller: holder(&claimed), reason: "no".into() });
    assert_eq!(lab.ok(&reiterate(&lab, at(13), "plan")).below, [id("s4")]);
    assert!(matches!(lab.refused(&reiterate(&lab, at(13), "nobody")), Refusal::TaskNotFound { .. }));
    lab.check();
}

/// Cancelling gives up a loop and what is unfinished below it; a tree that has finished cannot be cancelled.
pub fn cancelling_gives_up_a_tree<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    tree(&lab);
    lab.take(at(7), "r1");
    let cancel = |now, name: &str| Cancel { call: lab.call(now), id: id(name) };
    // The plan is done and stays so.
    let changed = lab.ok(&cancel(at(8), "plan"));
    assert_eq!((changed.task.status, changed.below.len()), (Status::Done, 4));
    assert_eq!(statuses(&lab, "s1 s2 p2 r1 r2"), "done invalidated invalidated invalidated invalidated");
    assert_eq!(lab.task("r2").fail_reason.as_deref(), Some("'plan', above it, was cancelled"));
    assert!(matches!(lab.refused(&cancel(at(9), "plan")), Refusal::WrongStatus { .. }));
    let changed = lab.ok(&cancel(at(10), "other"));
    assert_eq!((changed.task.status, changed.below), (Status::Invalidated, vec![id("o1")]));
    lab.check();
}

/// A whole tree is handed over, from wherever in it, but not while something of it runs.
pub fn a_tree_moves_as_a_whole<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    tree(&lab);
    let to = |now, name: &str, host: &str| Move { call: lab.call(now), id: id(name), host: host.into() };
    lab.take(at(7), "r1");
    let running = Refusal::TreeRunning { id: id("s2"), running: id("r1") };
    assert_eq!(lab.refused(&to(at(8), "s2", "two")), running);
    assert_eq!(lab.task("plan").host, None);
    lab.must(at(9), "r1", Command::Release { caller: held("r1", 1) });
    let changed = lab.ok(&to(at(10), "s2", "two"));
    assert_eq!((changed.task.host.as_deref(), changed.below.len()), (Some("two"), 6));
    let elsewhere =
        rota_store::intents::claim::Claim { host: Some("one".into()), ..claim_of("loops", at(11), 9) };
    assert_eq!(lab.claimed(&elsewhere), ["other"]);
    let here = rota_store::intents::claim::Claim { host: Some("two".into()), ..claim_of("loops", at(12), 9) };
    assert_eq!(lab.claimed(&here), ["r1", "r2", "s2"]);
    assert!(matches!(lab.refused(&to(at(13), "nobody", "two")), Refusal::TaskNotFound { .. }));
    lab.check();
}

/// Trees are shown depth first, children in the order they were added; deleted ones only above others.
pub fn trees_are_shown_depth_first<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    tree(&lab);
    let shown = |name: Option<&str>| {
        let tree = Tree { call: lab.call(at(20)), queue: "loops".into(), id: name.map(id) };
        let line = |line: TreeLine| format!("{}{}", line.level, line.task.id);
        lab.ok(&tree).into_iter().map(line).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(None), "0plan 1s1 2p1 3r1 3r2 1s2 2p2 0other 1o1");
    assert_eq!(shown(Some("s1")), "0s1 1p1 2r1 2r2");
    lab.must(at(8), "s2", Command::Delete);
    lab.must(at(9), "r2", Command::Delete);
    lab.must(at(9), "o1", Command::Delete);
    lab.must(at(9), "other", Command::Delete);
    assert_eq!(shown(None), "0plan 1s1 2p1 3r1 1s2 2p2");
    assert_eq!(shown(Some("other")), "0other");
    let (view, children) = lab.ok(&ShowLoop { call: lab.call(at(20)), id: id("plan") });
    assert_eq!((view.task.id, children.len()), (id("plan"), 2));
    let nobody = Tree { call: lab.call(at(20)), queue: "loops".into(), id: Some(id("nobody")) };
    assert!(matches!(lab.refused(&nobody), Refusal::TaskNotFound { .. }));
    lab.check();
}

/// C1 on stores: the worked tree of 000 is finished branch by branch, and the second plan comes last.
pub fn branches_are_finished_before_new_ones_begin<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[of_kind("PlanA", "loops", "plan"), of_kind("PlanB", "loops", "plan")]);
    lab.add(at(0), &[below("SpecA1", "PlanA", "spec"), below("SpecA2", "PlanA", "spec")]);
    lab.add(at(0), &[below("PhaseA1a", "SpecA1", "phase"), below("PhaseA1b", "SpecA1", "phase")]);
    lab.add(at(0), &[below("RalphA1a1", "PhaseA1a", "ralph")]);
    let mut order = Vec::new();
    while let [next] = lab.claimed(&claim_of("loops", at(1), 1)).as_slice() {
        let task = lab.task(next);
        lab.must(at(1), next, done(holder(&task)));
        order.push(next.clone());
    }
    let wanted = ["PlanA", "SpecA1", "PhaseA1a", "RalphA1a1", "PhaseA1b", "SpecA2", "PlanB"];
    assert_eq!(order, wanted);
    lab.check();
}

/// The ceilings of 000 by kind: two plans, five specs; a kind without one is bounded by the whole.
pub fn kinds_have_their_ceilings<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(
        at(0),
        r#"{"queues":{"loops":{"perKind":{"plan":2,"spec":5,"phase":20,"ralph":50},"maxConcurrent":50}}}"#,
    );
    for (kind, count) in [("plan", 4), ("spec", 9), ("phase", 22), ("ralph", 3), ("odd", 40)] {
        let tasks: Vec<NewTask> =
            (0..count).map(|number| of_kind(&format!("{kind}{number}"), "loops", kind)).collect();
        lab.add(at(0), &tasks);
    }
    let granted = lab.claimed(&claim_of("loops", at(1), 99));
    let of = |kind: &str| granted.iter().filter(|id| id.starts_with(kind)).count();
    assert_eq!(
        [of("ralph"), of("phase"), of("spec"), of("plan")],
        [3, 20, 5, 0],
        "scores decide up to the whole"
    );
    assert_eq!((granted.len(), of("odd")), (50, 22));
    lab.check();
}
