//! Adding tasks, and the edges between them (P7).

use rota_core::transition::Command;
use rota_core::{Fence, Json, Refusal, Status};

use crate::lab::{after, at, done, fail, held, holder, id, in_queue, new, urgent};
use crate::{Lab, Subject};
use rota_store::intents::add::{Add, NewPriority, NewTask, Past};
use rota_store::intents::edges::{Block, Unblock};
use rota_store::intents::rehearse::Rehearse;

/// A new task is open, numbered, stamped, and has its queue's default priority.
pub fn adding_fills_in_what_the_queue_says<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let full = NewTask {
        kind: Some("plan".into()),
        priority: NewPriority::Unset,
        description: Some("line\nline".into()),
        category: Some("cat".into()),
        steps: vec!["one".into(), "two".into()],
        spec_ref: Some("spec".into()),
        reference: Some("ref".into()),
        payload: Json::parse(r#"{"z":1.50,"a":[null]}"#).ok(),
        not_before: Some(at(9)),
        ..in_queue("full", "loops")
    };
    let added = lab.add(at(1), &[new("plain"), in_queue("run", "runs"), full]);
    let [plain, run, full] = added.as_slice() else { panic!("three were added") };
    assert_eq!((plain.status, plain.priority, run.priority), (Status::Open, Some(2), Some(100)));
    assert_eq!((full.priority, full.next_eligible_at, full.steps.len()), (None, Some(at(9)), 2));
    assert_eq!(full.payload.as_ref().map(Json::as_str), Some(r#"{"z":1.50,"a":[null]}"#));
    assert_eq!((plain.created_at, plain.open_since, plain.updated_at), (at(1), at(1), at(1)));
    assert!(plain.seq < run.seq && run.seq < full.seq);
    for task in &added {
        assert_eq!(lab.task(task.id.as_str()), *task, "what is returned is what is stored");
    }
    let empty = NewTask { kind: Some(String::new()), payload: Json::parse("null").ok(), ..new("empty") };
    let empty = lab.add(at(1), &[empty]).remove(0);
    assert_eq!((empty.kind, empty.payload), (None, None), "nothing is nothing");
    lab.check();
}

/// S6 in the small: one bad task in a batch, and none of it is there.
pub fn a_batch_is_added_whole_or_not_at_all<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("old")]);
    let call = lab.call(at(1));
    for tasks in [
        vec![new("a"), new("b"), new("old")],
        vec![new("a"), new("b"), new("a")],
        vec![new("a"), after("b", &["a", "nobody"])],
        vec![after("a", &["b"]), after("b", &["c"]), after("c", &["a"])],
        vec![new("a"), NewTask { parent: Some(id("nobody")), ..new("b") }],
    ] {
        lab.refused(&Add { call: call.clone(), tasks });
        assert_eq!(lab.picture(at(1)).rows.len(), 1);
    }
    assert_eq!(lab.add(at(1), &[]).len(), 0);
    assert_eq!(lab.add(at(1), &[new("a"), new("b")]).len(), 2);
    assert_eq!(lab.claim(at(2), 9), ["old", "a", "b"]);
    lab.check();
}

/// P7: tasks of one batch may depend on each other in any order.
pub fn edges_inside_a_batch_may_point_forward<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[after("c", &["b", "a"]), after("b", &["a"]), new("a")]);
    for name in ["a", "b", "c"] {
        lab.check();
        assert_eq!(lab.claim(at(1), 9), [name]);
        lab.must(at(1), name, done(holder(&lab.task(name))));
    }
    lab.check();
}

/// Each refusal names what is wrong.
pub fn what_cannot_be_added_is_refused<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("gone")]);
    lab.must(at(0), "gone", Command::Delete);
    let orphan = NewTask { parent: Some(id("gone")), ..new("x") };
    for (task, wanted) in [
        (new("a"), Refusal::DuplicateId { id: id("a") }),
        (new("gone"), Refusal::DuplicateId { id: id("gone") }),
        (after("x", &["y"]), Refusal::UnknownDependency { id: id("x"), dep: id("y") }),
        (after("x", &["a", "a"]), Refusal::DuplicateDependency { id: id("x"), dep: id("a") }),
        (after("x", &["x"]), Refusal::WouldCycle { path: vec![id("x"), id("x")] }),
        (orphan, Refusal::ParentNotFound { id: id("gone") }),
    ] {
        let call = lab.call(at(1));
        assert_eq!(lab.refused(&Add { call, tasks: vec![task] }), wanted);
    }
    lab.check();
}

/// P7: an edge holds a task back until it is gone; adding it twice is fine, removing it twice is not.
pub fn blocking_and_unblocking<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b")]);
    lab.block(at(1), "a", "b");
    lab.block(at(1), "a", "b");
    lab.check();
    assert_eq!(lab.claim(at(2), 9), ["b"]);
    lab.unblock(at(5), "a", "b");
    assert_eq!(lab.task("a").open_since, at(5), "runnable since it was unblocked");
    lab.check();
    assert_eq!(lab.claim(at(6), 9), ["a"]);
    let call = lab.call(at(7));
    let unblock = |task: &str, by: &str| Unblock { call: call.clone(), task: id(task), by: id(by) };
    assert_eq!(lab.refused(&unblock("a", "b")), Refusal::EdgeNotFound);
    assert_eq!(lab.refused(&unblock("a", "x")), Refusal::BlockerNotFound { id: id("x") });
    assert_eq!(lab.refused(&unblock("x", "b")), Refusal::TaskNotFound { id: id("x") });
    let block = Block { call: call.clone(), task: id("a"), by: id("x") };
    assert_eq!(lab.refused(&block), Refusal::BlockerNotFound { id: id("x") });
    let block = Block { call, task: id("x"), by: id("a") };
    assert_eq!(lab.refused(&block), Refusal::TaskNotFound { id: id("x") });
    lab.block(at(8), "a", "b");
    lab.must(at(8), "b", done(holder(&lab.task("b"))));
    lab.unblock(at(9), "a", "b");
    lab.check();
}

/// P7: a circle is refused when its last edge is written, with its path, and changes nothing.
pub fn circles_are_refused_with_their_path<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), after("b", &["a"]), after("c", &["b"]), after("d", &["a"])]);
    let before = lab.picture(at(1)).normal();
    for (task, by, path) in
        [("a", "a", vec!["a", "a"]), ("a", "b", vec!["a", "b", "a"]), ("a", "c", vec!["a", "c", "b", "a"])]
    {
        let refused = lab.refused(&Block { call: lab.call(at(1)), task: id(task), by: id(by) });
        assert_eq!(refused, Refusal::WouldCycle { path: path.into_iter().map(id).collect() });
    }
    assert_eq!(lab.picture(at(1)).normal(), before);
    lab.block(at(1), "d", "c");
    lab.check();
}

/// P7, S4: it becomes runnable with its last blocker, not before, and since that moment.
pub fn a_fan_in_waits_for_its_last_blocker<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), new("b"), new("c"), after("all", &["a", "b", "c"]), after("ab", &["a", "b"])]);
    for (now, name) in [(1, "b"), (2, "c"), (3, "a")] {
        lab.finish(at(now), name);
        lab.check();
        let all = lab.picture(at(now));
        assert_eq!(all.open_blockers(&id("all")).len(), 3 - usize::try_from(now).unwrap());
    }
    let all = lab.task("all");
    assert_eq!((all.open_since, all.ready_at()), (at(3), at(3)));
    assert_eq!(lab.claim(at(4), 9), ["all", "ab"]);
    lab.check();
}

/// DESIGN 13.15: only done and deleted satisfy an edge.
pub fn a_blocker_that_ends_badly_still_blocks<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxAttempts":1}}}"#);
    lab.add(at(0), &[new("a"), after("b", &["a"])]);
    let task = lab.take(at(1), "a");
    assert_eq!(lab.must(at(1), "a", fail(holder(&task))).status, Status::Parked);
    for (command, status) in [
        (Command::Reset, Status::Open),
        (Command::Pause, Status::Paused),
        (Command::Cancel, Status::Invalidated),
        (Command::Reset, Status::Open),
        (Command::Orphan { parent: "x".into() }, Status::Failed),
    ] {
        assert_eq!(lab.must(at(2), "a", command).status, status);
        lab.check();
        assert!(!lab.picture(at(3)).open_blockers(&id("b")).is_empty());
    }
    assert_eq!(lab.claim(at(3), 9), Vec::<String>::new());
    lab.must(at(4), "a", Command::Delete);
    assert_eq!(lab.claim(at(5), 9), ["b"]);
    lab.check();
}

/// P7, DESIGN 13.14: deleting a blocker frees, undeleting holds back again; a done one that is reiterated too.
pub fn deleting_and_undeleting_a_blocker<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[urgent("x", 0), after("b", &["x"]), after("c", &["x", "b"])]);
    lab.must(at(1), "x", Command::Delete);
    assert_eq!(lab.picture(at(1)).open_blockers(&id("b")).len(), 0);
    lab.check();
    lab.must(at(2), "x", Command::Undelete);
    lab.check();
    assert_eq!(lab.claim(at(2), 9), ["x"]);
    lab.must(at(3), "x", done(holder(&lab.task("x"))));
    lab.must(at(4), "x", Command::Reiterate);
    lab.check();
    assert_eq!(lab.claim(at(4), 9), ["x"]);
    // Deleting what is done changes nothing for those who waited for it.
    lab.must(at(5), "x", done(holder(&lab.task("x"))));
    let ready_since = lab.task("b").open_since;
    lab.must(at(9), "x", Command::Delete);
    assert_eq!(lab.task("b").open_since, ready_since);
    assert_eq!(lab.claim(at(9), 9), ["b"]);
    lab.must(at(10), "x", Command::Undelete);
    lab.must(at(10), "b", done(holder(&lab.task("b"))));
    lab.check();
    assert_eq!(lab.claim(at(11), 9), ["x"]);
}

/// A child waits for its parent to be done; 64 levels are enough.
pub fn hierarchies_wait_for_the_parent_and_have_a_limit<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let child = |name: &str, parent: &str| NewTask { parent: Some(id(parent)), ..new(name) };
    lab.add(at(0), &[new("root"), child("kid", "root"), child("grandkid", "kid")]);
    assert_eq!(lab.task("grandkid").depth, 2);
    lab.check();
    lab.finish(at(1), "root");
    lab.check();
    assert_eq!(lab.task("kid").open_since, at(1));
    // Without its parent a child is an orphan and fails; with it again, it can be reset, and waits.
    lab.must(at(2), "root", Command::Delete);
    lab.check();
    assert_eq!(lab.task("grandkid").status, Status::Failed);
    assert_eq!(lab.claim(at(2), 9), Vec::<String>::new());
    lab.must(at(3), "root", Command::Undelete);
    lab.must(at(3), "kid", Command::Reset);
    assert_eq!(lab.claim(at(3), 9), ["root"]);
    lab.must(at(4), "root", done(holder(&lab.task("root"))));
    assert_eq!(lab.claim(at(4), 9), ["kid"]);
    lab.check();
    let names: Vec<String> = (0..=64).map(|level| format!("level{level}")).collect();
    let chain = names.iter().zip([None].into_iter().chain(names.iter().map(Some)));
    let chain: Vec<NewTask> = chain
        .map(|(name, parent)| NewTask { parent: parent.map(|parent| id(parent)), ..new(name) })
        .collect();
    lab.add(at(5), &chain);
    let deep = Add { call: lab.call(at(5)), tasks: vec![child("level65", "level64")] };
    assert_eq!(lab.refused(&deep), Refusal::TooDeep { id: id("level65"), depth: 65 });
    lab.check();
}

/// C6 on stores: a chain of 2,000 and a fan of 1,000 are written, checked for circles, and woken.
pub fn a_long_chain_and_a_wide_fan<S: Subject>(subject: &S) {
    const CHAIN: usize = 2_000;
    const FAN: usize = 1_000;
    let lab = Lab::new(subject);
    let name = |number: usize| format!("n{number:04}");
    let link = |number: usize| match number {
        0 => new(&name(0)),
        number => after(&name(number), &[&name(number - 1)]),
    };
    lab.add(at(0), &(0..CHAIN).map(link).collect::<Vec<_>>());
    let last = name(CHAIN - 1);
    let closing = Block { call: lab.call(at(1)), task: id(&name(0)), by: id(&last) };
    let Refusal::WouldCycle { path } = lab.refused(&closing) else { panic!("it closes a circle") };
    assert_eq!(path.len(), CHAIN + 1);
    lab.add(at(2), &(0..FAN).map(|number| after(&format!("f{number}"), &["n0000"])).collect::<Vec<_>>());
    assert_eq!(lab.ok(&crate::lab::claim(at(3), 10)).len(), 1);
    lab.must(at(3), "n0000", done(crate::lab::held("n0000", 1)));
    assert_eq!(lab.ok(&crate::lab::claim(at(4), 9_999)).len(), FAN + 1);
    let picture = lab.picture(at(4));
    assert!(picture.rows.values().all(|row| row.open_blockers <= 1));
}

/// What comes from elsewhere keeps its state, age and attempts; edges to what is finished hold nothing back, and a lease
/// of an earlier life is never granted again. A rehearsal keeps nothing.
pub fn tasks_from_elsewhere_bring_their_past<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let past = |status| Past { created_at: Some(at(-900)), attempts: 2, ..Past::new(status) };
    let tasks = vec![
        NewTask { past: Some(past(Status::Done)), ..new("done") },
        NewTask {
            past: Some(Past { fence: Fence::new(7), ..past(Status::Open) }),
            ..after("free", &["done"])
        },
        NewTask { past: Some(past(Status::Open)), ..after("waits", &["free", "parked"]) },
        NewTask {
            past: Some(Past { parked_reason: Some("broke".into()), ..past(Status::Parked) }),
            ..new("parked")
        },
        NewTask { past: Some(past(Status::Deleted)), ..new("gone") },
        new("fresh"),
    ];
    let add = Add { call: lab.call(at(0)), tasks };
    let rehearsed = lab.ok(&Rehearse(&add));
    assert_eq!((rehearsed.len(), lab.picture(at(0)).rows.len()), (6, 0));
    lab.ok(&add);
    lab.check();
    let (finished, parked) = (lab.task("done"), lab.task("parked"));
    assert_eq!(
        (finished.status, finished.created_at, finished.finished_at),
        (Status::Done, at(-900), Some(at(0)))
    );
    assert_eq!(
        (parked.status, parked.parked_reason.as_deref(), parked.attempts),
        (Status::Parked, Some("broke"), 2)
    );
    assert_eq!(lab.claim(at(1), 9), ["free", "fresh"], "the older one first");
    assert_eq!(lab.task("free").lease().map(|lease| lease.to_string()).as_deref(), Some("lease-free-8"));
    assert!(matches!(lab.step(at(1), "free", done(held("free", 7))), Err(Refusal::StaleLease { .. })));
    lab.must(at(1), "free", done(held("free", 8)));
    lab.must(at(1), "parked", Command::Reset);
    lab.finish(at(2), "parked");
    assert_eq!(lab.claim(at(2), 9), ["waits"]);
    lab.check();
}
