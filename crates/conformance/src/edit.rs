//! Changing fields, and states by a person's hand.

use rota_core::{Caller, Refusal, Status};

use crate::lab::{after, at, done, holder, id, in_queue, new, urgent};
use crate::{Lab, Subject};
use rota_store::EventFilter;
use rota_store::intents::add::NewTask;
use rota_store::intents::edit::{Edit, FORCED};
use rota_store::intents::read::Journal;
use rota_store::intents::settle::DeleteMany;

fn edit<S: Subject>(lab: &Lab<'_, S>, now: i64, name: &str) -> Edit {
    let call = lab.call(at(now));
    Edit {
        call,
        id: id(name),
        title: None,
        priority: None,
        description: None,
        steps: None,
        status: None,
        caller: Caller::default(),
        force: false,
    }
}

/// What is given changes, the rest stays; nothing given is no event; a done task is immutable.
pub fn fields_change_and_done_is_immutable<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[NewTask { description: Some("d".into()), ..new("a") }]);
    let changed = Edit {
        title: Some("New".into()),
        priority: Some(0),
        steps: Some(vec!["s".into()]),
        ..edit(&lab, 1, "a")
    };
    let task = lab.ok(&changed);
    assert_eq!((task.title.as_str(), task.priority, task.events), ("New", Some(0), 2));
    assert_eq!((task.description.as_deref(), task.updated_at), (Some("d"), at(1)));
    assert_eq!(lab.ok(&changed).events, 2, "the same again changes nothing");
    let cleared = Edit { description: Some(String::new()), ..edit(&lab, 2, "a") };
    assert_eq!(lab.ok(&cleared).description, None);
    // Also while somebody holds it, whose lease is not touched.
    let held = lab.take(at(3), "a");
    let task = lab.ok(&Edit { title: Some("Held".into()), ..edit(&lab, 4, "a") });
    assert_eq!((task.fence, task.lease_expires_at), (held.fence, held.lease_expires_at));
    lab.must(at(5), "a", done(holder(&held)));
    assert_eq!(lab.refused(&changed), Refusal::DoneIsImmutable { id: id("a") });
    assert_eq!(lab.refused(&edit(&lab, 6, "x")), Refusal::TaskNotFound { id: id("x") });
    lab.check();
}

/// DESIGN 13.28: done, open, paused and deleted are reached through the state machine; others are refused.
pub fn a_status_is_reached_through_the_state_machine<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a"), after("b", &["a"])]);
    let to =
        |now, status| Edit { status: Some(status), title: Some(format!("T{now}")), ..edit(&lab, now, "a") };
    for (now, status) in
        [(1, Status::Open), (2, Status::Paused), (3, Status::Open), (4, Status::Deleted), (5, Status::Open)]
    {
        let task = lab.ok(&to(now, status));
        assert_eq!((task.status, task.title), (status, format!("T{now}").into()));
        lab.check();
    }
    let held = lab.take(at(6), "a");
    let by_holder = Edit { caller: holder(&held), ..to(7, Status::Open) };
    assert_eq!(lab.ok(&by_holder).status, Status::Open, "an active one is released");
    assert!(lab.step(at(7), "a", done(holder(&held))).is_err());
    for status in [Status::Active, Status::Failed, Status::Parked, Status::Invalidated] {
        assert!(matches!(lab.refused(&to(8, status)), Refusal::BadValue { .. }));
        assert_eq!(lab.task("a").title, "T7", "the title was not kept either");
    }
    lab.take(at(9), "a");
    let forced = Edit { force: true, ..to(10, Status::Done) };
    assert_eq!(lab.ok(&forced).status, Status::Done, "a person's override");
    assert_eq!(lab.claim(at(11), 9), ["b"]);
    lab.check();
}

/// DESIGN 13.28: while a task is held its state is changed by its holder, or by force, which the journal says.
pub fn a_held_tasks_status_needs_its_holder<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("a")]);
    let first = lab.take(at(0), "a");
    lab.reclaim(at(600), "tasks");
    let second = lab.take(at(601), "a");
    let statuses = [Status::Done, Status::Open, Status::Paused, Status::Deleted];
    for status in statuses {
        let to = |caller: Caller| Edit { status: Some(status), caller, ..edit(&lab, 602, "a") };
        assert!(matches!(lab.refused(&to(holder(&first))), Refusal::StaleLease { .. }), "{status}");
        assert!(matches!(lab.refused(&to(Caller::agent("other"))), Refusal::NotHolder { .. }), "{status}");
        let unnamed = lab.refused(&to(Caller::default()));
        assert!(matches!(unnamed, Refusal::HolderRequired { .. }), "{status}: {unnamed:?}");
        assert_eq!(lab.task("a"), second);
    }
    for (now, status) in
        [(610, Status::Open), (620, Status::Paused), (630, Status::Deleted), (640, Status::Done)]
    {
        let held =
            if lab.task("a").status == Status::Active { lab.task("a") } else { lab.take(at(now), "a") };
        let change = Edit { status: Some(status), ..edit(&lab, now, "a") };
        let by_agent = Edit { caller: Caller { lease: None, ..holder(&held) }, ..change.clone() };
        let task = if now == 640 { lab.ok(&Edit { force: true, ..change }) } else { lab.ok(&by_agent) };
        assert_eq!(task.status, status);
        if status != Status::Done && status != Status::Open {
            lab.ok(&Edit { status: Some(Status::Open), ..edit(&lab, now + 1, "a") });
        }
        lab.check();
    }
    let filter = EventFilter { task: Some(id("a")), ..EventFilter::default() };
    let events = lab.ok(&Journal { call: lab.call(at(650)), filter });
    let last = events.last().map(|event| (event.kind.word(), event.data.reason.clone()));
    assert_eq!(last, Some(("overridden", Some(FORCED.to_owned()))));
}

/// Bulk deletion sees one queue, ends leases, and counts what it deleted.
pub fn deleting_many_by_filter<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let of = |name: &str, category: &str, spec: &str| NewTask {
        category: Some(category.into()),
        spec_ref: Some(spec.into()),
        ..new(name)
    };
    lab.add(at(0), &[of("a", "x", "s"), of("b", "x", "t"), of("c", "y", "s"), after("d", &["a", "b", "c"])]);
    lab.add(at(0), &[in_queue("r", "runs")]);
    lab.finish(at(1), "b");
    let held = lab.take(at(1), "a");
    let all = DeleteMany {
        call: lab.call(at(2)),
        queue: "tasks".into(),
        statuses: vec![],
        spec: None,
        category: None,
    };
    let done_only = DeleteMany { statuses: vec![Status::Done], ..all.clone() };
    assert_eq!(lab.ok(&DeleteMany { category: Some("none".into()), ..all.clone() }), 0);
    assert_eq!(lab.ok(&done_only), 1);
    assert_eq!(lab.ok(&done_only), 0);
    let x_of_s = DeleteMany { spec: Some("s".into()), category: Some("x".into()), ..all.clone() };
    assert_eq!(lab.ok(&x_of_s), 1);
    assert!(lab.step(at(2), "a", done(holder(&held))).is_err());
    lab.check();
    assert_eq!(lab.ok(&all), 2);
    assert_eq!(lab.ok(&all), 0);
    assert_eq!(lab.task("r").status, Status::Open);
    assert_eq!(lab.ok(&DeleteMany { queue: "issues".into(), ..all.clone() }), 0);
    assert!(matches!(lab.refused(&DeleteMany { queue: "x".into(), ..all }), Refusal::UnknownQueue { .. }));
    lab.check();
}

/// The index moves with the task.
pub fn a_new_priority_moves_the_task<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[urgent("a", 1), urgent("b", 2), urgent("c", 3)]);
    lab.ok(&Edit { priority: Some(0), ..edit(&lab, 1, "c") });
    lab.check();
    lab.ok(&Edit { priority: Some(9), ..edit(&lab, 1, "a") });
    lab.check();
    assert_eq!(lab.claim(at(2), 9), ["c", "b", "a"]);
}
