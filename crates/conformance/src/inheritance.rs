//! What children take from their parents: priorities, and whether they are kept when a parent names them again.

use rota_core::transition::Command;
use rota_core::{Caller, Status, Task};

use crate::Subject;
use crate::lab::{Lab, at, claim_of, holder, id, of_kind};
use rota_store::intents::add::{NewPriority, NewTask};
use rota_store::intents::edit::Edit;
use rota_store::intents::iterate::{Begin, Complete};
use rota_store::intents::loops::Reiterate;

fn unset(name: &str, parent: Option<&str>) -> NewTask {
    let parent = parent.map(id);
    NewTask { parent, priority: NewPriority::Unset, ..of_kind(name, "loops", "spec") }
}

/// A loop takes the nearest ancestor's priority; a change is handed down to those that wait and inherited it.
pub fn loops_inherit_a_trees_priority<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let top = NewTask { priority: NewPriority::Given(1), ..unset("top", None) };
    let own = NewTask { priority: NewPriority::Given(0), ..unset("own", Some("child")) };
    lab.add(at(0), &[top, unset("child", Some("top")), unset("grandchild", Some("child")), own]);
    lab.add(at(0), &[unset("below-own", Some("own")), unset("alone", None), unset("under", Some("alone"))]);
    let priority = |name: &str| (lab.task(name).priority, lab.task(name).priority_inherited);
    assert_eq!(priority("top"), (Some(1), false));
    assert_eq!(priority("child"), (Some(1), true));
    assert_eq!(priority("grandchild"), (Some(1), true));
    assert_eq!((priority("own"), priority("below-own")), ((Some(0), false), (Some(0), true)));
    assert_eq!((priority("alone"), priority("under")), ((None, false), (None, false)));
    let set = |name: &str, to: u32| Edit {
        call: lab.call(at(1)),
        id: id(name),
        title: None,
        priority: Some(to),
        description: None,
        steps: None,
        status: None,
        caller: Caller { agent: None, lease: None },
        force: false,
    };
    lab.must(at(1), "child", Command::Pause);
    lab.ok(&set("top", 3));
    assert_eq!((priority("child"), priority("grandchild")), ((Some(3), true), (Some(3), true)));
    assert_eq!((priority("own").0, priority("below-own").0), (Some(0), Some(0)));
    // A priority of its own is not touched by the next change above it.
    lab.ok(&set("child", 2));
    lab.ok(&set("top", 0));
    assert_eq!((priority("child"), priority("grandchild")), ((Some(2), false), (Some(2), true)));
    lab.ok(&set("alone", 1));
    assert_eq!(priority("under"), (Some(1), true));
    lab.check();
}

fn begin<S: Subject>(lab: &Lab<'_, S>, now: i64, name: &str) -> Task {
    let claim = claim_of("loops", at(now), 1);
    let granted = lab.ok(&Begin::new(claim, vec!["plan".into(), "spec".into()], true)).granted.remove(0).task;
    assert_eq!(granted.id, id(name));
    granted
}

fn complete<S: Subject>(lab: &Lab<'_, S>, now: i64, task: &Task, children: Vec<NewTask>) {
    lab.ok(&Complete {
        call: lab.call(at(now)),
        lease: task.lease().unwrap(),
        result: None,
        upstream: None,
        children,
        artifacts: None,
        then: None,
    });
}

fn made_from(name: &str, parent: &str, iteration: u32, hash: &str) -> NewTask {
    NewTask {
        parent_iteration: Some(iteration),
        triggered_by: Some(format!("iterations/00{iteration}/artifacts/{name}.md")),
        artifact_present: true,
        trigger_hash: Some(hash.into()),
        ..unset(name, Some(parent))
    }
}

/// A plan that is started over keeps a finished child that it makes from the same again, with what was invalidated below
/// it; one that is made from something else starts over.
pub fn a_child_made_from_the_same_is_kept<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[NewTask { kind: Some("plan".into()), ..unset("p", None) }]);
    let plan = begin(&lab, 1, "p");
    complete(&lab, 2, &plan, vec![made_from("same", "p", 1, "x"), made_from("other", "p", 1, "x")]);
    let same = begin(&lab, 3, "same");
    complete(&lab, 4, &same, vec![made_from("leaf", "same", 1, "l"), made_from("given-up", "same", 1, "g")]);
    // Deeper loops go first: both leaves are taken before the other spec.
    lab.must(at(5), "given-up", Command::Cancel);
    lab.must(at(5), "leaf", Command::Pause);
    let other = begin(&lab, 6, "other");
    complete(&lab, 7, &other, vec![]);
    lab.must(at(8), "leaf", Command::Resume);
    let again = Reiterate { call: lab.call(at(9)), id: id("p"), reason: None };
    lab.ok(&again);
    assert_eq!(lab.task("leaf").status, Status::Invalidated);
    let plan = begin(&lab, 10, "p");
    complete(&lab, 11, &plan, vec![made_from("same", "p", 2, "x"), made_from("other", "p", 2, "y")]);
    let kept = lab.task("same");
    assert_eq!((kept.status, kept.iteration, kept.parent_iteration), (Status::Done, 1, Some(2)));
    assert_eq!(kept.triggered_by.as_deref(), Some("iterations/002/artifacts/same.md"));
    assert_eq!(lab.task("leaf").status, Status::Open, "it goes on with its parent");
    assert_eq!(lab.task("given-up").status, Status::Invalidated, "a person gave it up");
    let other = lab.task("other");
    assert_eq!((other.status, other.parent_iteration, other.tries), (Status::Open, Some(2), 0));
    let leaf = begin(&lab, 12, "leaf");
    lab.must(at(13), "leaf", Command::Done { caller: holder(&leaf), result: None });
    lab.check();
}
