//! Making the backlog agree with a plan (S7).

use rota_core::glob::Globs;
use rota_core::transition::Command;
use rota_core::{Refusal, Status, UnixMillis, plan_sync};

use crate::lab::{after, at, claim, done, fail, held, holder, id, in_queue, new};
use crate::{Lab, Subject};
use rota_store::intents::plan_sync::{PlanCounts, PlanSync};

fn sync<S: Subject>(lab: &Lab<'_, S>, now: UnixMillis, text: &str) -> PlanSync {
    let lines = plan_sync::read(text.as_bytes()).unwrap().lines;
    PlanSync { call: lab.call(now), queue: "tasks".into(), lines, specs: None, dry_run: false }
}

fn counts(inserted: usize, updated: usize, deleted: usize, skipped_done: usize) -> PlanCounts {
    PlanCounts { inserted, updated, deleted, skipped_done }
}

const PLAN: &str = r#"
{"id":"c","t":"C","deps":["a","b"],"spec":"s","p":0}
{"id":"a","t":"A","spec":"s","steps":["one"],"d":"text","cat":"x","ref":"r"}

{"id":"b","t":"B","spec":"s","deps":["a"]}
"#;

/// S7: the same plan twice: the second run reports zeros and journals nothing.
pub fn a_second_run_changes_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    assert_eq!(lab.ok(&sync(&lab, at(0), PLAN)), counts(3, 0, 0, 0));
    lab.check();
    let before = lab.picture(at(1)).normal();
    assert_eq!(lab.ok(&sync(&lab, at(1), PLAN)), counts(0, 0, 0, 0));
    assert_eq!(lab.picture(at(1)).normal(), before);
    for name in ["a", "b", "c"] {
        assert_eq!(lab.claim(at(2), 9), [name]);
        lab.must(at(2), name, done(held(name, 1)));
    }
    assert_eq!(lab.ok(&sync(&lab, at(3), PLAN)), counts(0, 0, 0, 3));
    assert_eq!(lab.ok(&sync(&lab, at(3), "")), counts(0, 0, 0, 0));
    lab.check();
}

/// Absent fields are cleared, absent deps left alone, a dep-only change is an update, line order is insertion order.
pub fn fields_edges_and_removals<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[new("outside")]);
    lab.ok(&sync(&lab, at(0), PLAN));
    let text = r#"{"id":"a","t":"A2","spec":"s"}
        {"id":"c","t":"C","p":0,"spec":"s","deps":["b","outside"]}
        {"id":"new","t":"N","spec":"s","deps":["c"]}"#;
    assert_eq!(lab.ok(&sync(&lab, at(1), text)), counts(1, 2, 1, 0));
    lab.check();
    let picture = lab.picture(at(1));
    let a = picture.task("a");
    assert_eq!((a.title.as_str(), &a.description, &a.category, &a.reference), ("A2", &None, &None, &None));
    assert!(a.steps.is_empty());
    assert_eq!(picture.task("b").status, Status::Deleted);
    assert_eq!(picture.open_blockers(&id("c")), [id("outside")], "b is deleted, a no longer named");
    let no_deps = r#"{"id":"c","t":"C","p":0,"spec":"s"}"#;
    assert_eq!(
        lab.ok(&sync(&lab, at(2), no_deps)),
        counts(0, 0, 2, 0),
        "a and new are no longer in the plan"
    );
    assert_eq!(lab.picture(at(2)).edges.len(), 4, "edges are left alone");
    lab.check();
    let unblocked = r#"{"id":"c","t":"C","p":0,"spec":"s","deps":[]}"#;
    assert_eq!(lab.ok(&sync(&lab, at(3), unblocked)), counts(0, 1, 0, 0));
    assert_eq!(lab.claim(at(4), 9), ["c", "outside"]);
    lab.check();
}

/// S7, DESIGN 13.18: a leased task that the plan no longer has is deleted; its agent's done is refused.
pub fn a_removed_task_ends_its_lease<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.ok(&sync(&lab, at(0), PLAN));
    let task = lab.take(at(1), "a");
    let text = r#"{"id":"b","t":"B","spec":"s"}"#;
    assert_eq!(lab.ok(&sync(&lab, at(2), text)), counts(0, 0, 2, 0));
    let refused = lab.step(at(3), "a", done(holder(&task)));
    assert_eq!(refused, Err(Refusal::NotActive { id: id("a"), status: Status::Deleted }));
    assert_eq!(lab.claim(at(3), 9), ["b"], "a deleted blocker does not block");
    lab.check();
}

/// DESIGN 13.17: a deleted task that comes back is open, with attempts forgotten and its fence kept.
pub fn a_deleted_task_is_revived<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"backoff":{"baseMs":60000,"factor":2,"capMs":60000}}}}"#);
    lab.ok(&sync(&lab, at(0), PLAN));
    let task = lab.take(at(1), "a");
    lab.must(at(1), "a", fail(holder(&task)));
    lab.must(at(1), "a", Command::Delete);
    assert_eq!(lab.picture(at(1)).open_blockers(&id("b")).len(), 0);
    assert_eq!(lab.ok(&sync(&lab, at(2), PLAN)), counts(1, 0, 0, 0));
    let task = lab.task("a");
    assert_eq!((task.status, task.attempts, task.fence.get()), (Status::Open, 0, 1));
    assert_eq!((task.next_eligible_at, task.fail_reason), (None, None));
    lab.check();
    assert_eq!(lab.claim(at(2), 9), ["a"]);
    lab.check();
}

/// S7: a bad line anywhere, and nothing is written; the line is named.
pub fn bad_plans_change_nothing<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.add(at(0), &[in_queue("r", "runs"), after("x", &[])]);
    let before = lab.picture(at(0)).normal();
    for (text, line, problem) in [
        (
            "{\"id\":\"n\",\"t\":\"N\"}\n{\"id\":\"m\",\"t\":\"M\",\"deps\":[\"q\"]}",
            2,
            "unknown dependency 'q'",
        ),
        ("{\"id\":\"n\",\"t\":\"N\"}\n\n{\"id\":\"r\",\"t\":\"R\"}", 3, "task 'r' belongs to queue 'runs'"),
    ] {
        let refused = lab.refused(&sync(&lab, at(1), text));
        assert_eq!(refused, Refusal::BadLine { line, problem: problem.to_owned() });
        assert_eq!(lab.picture(at(0)).normal(), before);
    }
    lab.check();
}

/// P7: circles inside a plan, and through what is stored, are refused with the line and the path.
pub fn circles_name_the_line<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.ok(&sync(&lab, at(0), PLAN));
    let before = lab.picture(at(0)).normal();
    let stored = r#"{"id":"n","t":"N","deps":["c"]}
        {"id":"a","t":"A","deps":["n"]}"#;
    let fresh = r#"{"id":"x","t":"X","deps":["y"]}
        {"id":"y","t":"Y","deps":["x"]}"#;
    for (text, path) in [(stored, "a -> n -> c -> a"), (fresh, "x -> y -> x")] {
        let refused = lab.refused(&sync(&lab, at(1), text));
        let Refusal::BadLine { line: 1, problem } = refused else { panic!("{refused:?}") };
        assert_eq!(problem, format!("{path} would be a cycle"));
        assert_eq!(lab.picture(at(0)).normal(), before);
    }
    // The edge that would close it is taken away by the same plan.
    let turned = r#"{"id":"a","t":"A","deps":["b"],"spec":"s"}
        {"id":"b","t":"B","deps":[],"spec":"s"}
        {"id":"c","t":"C","spec":"s","p":0}"#;
    assert_eq!(lab.ok(&sync(&lab, at(2), turned)), counts(0, 2, 0, 0));
    lab.check();
}

/// A dry run counts what a run would do, refuses what it would refuse, and writes nothing.
pub fn a_dry_run_only_counts<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    lab.ok(&sync(&lab, at(0), PLAN));
    let before = lab.picture(at(0)).normal();
    let text = r#"{"id":"a","t":"other","spec":"s"}
        {"id":"n","t":"N","spec":"s"}"#;
    let dry = PlanSync { dry_run: true, ..sync(&lab, at(1), text) };
    assert_eq!(lab.ok(&dry), counts(1, 1, 2, 0));
    let circle = r#"{"id":"a","t":"A","deps":["c"]}"#;
    lab.refused(&PlanSync { dry_run: true, ..sync(&lab, at(1), circle) });
    assert_eq!(lab.picture(at(0)).normal(), before);
    assert_eq!(lab.ok(&PlanSync { dry_run: false, ..dry }), counts(1, 1, 2, 0));
    lab.check();
}

/// S7: 10,000 lines in one transaction; again: zeros; a bad line 7,000 changes nothing and is named.
pub fn ten_thousand_lines<S: Subject>(subject: &S) {
    const LINES: usize = 10_000;
    let lab = Lab::new(subject);
    let line = |number: usize| match number % 10 {
        0 => format!("{{\"id\":\"t{number}\",\"t\":\"T\",\"spec\":\"s\"}}"),
        _ => format!("{{\"id\":\"t{number}\",\"t\":\"T\",\"spec\":\"s\",\"deps\":[\"t{}\"]}}", number - 1),
    };
    let mut lines: Vec<String> = (0..LINES).map(line).collect();
    assert_eq!(lab.ok(&sync(&lab, at(0), &lines.join("\n"))), counts(LINES, 0, 0, 0));
    assert_eq!(lab.ok(&sync(&lab, at(1), &lines.join("\n"))), counts(0, 0, 0, 0));
    lines[6_999] = r#"{"id":"t6999","t":"other","deps":["nobody"]}"#.into();
    let refused = lab.refused(&sync(&lab, at(2), &lines.join("\n")));
    assert_eq!(refused, Refusal::BadLine { line: 7_000, problem: "unknown dependency 'nobody'".into() });
    let picture = lab.picture(at(2));
    assert_eq!((picture.rows.len(), picture.edges.len()), (LINES, LINES / 10 * 9));
    assert_eq!(picture.events.len(), LINES + LINES / 10 * 9, "created and blocked, nothing else");
    assert_eq!(lab.ok(&claim(at(3), LINES)).len(), LINES / 10);
}

/// `--specs` bounds which specs may lose tasks; lines without a spec never delete.
pub fn specs_bound_what_may_be_lost<S: Subject>(subject: &S) {
    let lab = Lab::new(subject);
    let text = |names: &[(&str, &str)]| {
        let line =
            |(name, spec): &(&str, &str)| format!("{{\"id\":\"{name}\",\"t\":\"T\",\"spec\":\"{spec}\"}}");
        names.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    lab.ok(&sync(
        &lab,
        at(0),
        &text(&[("a1", "one"), ("a2", "one"), ("b1", "two"), ("b2", "two"), ("c", "3")]),
    ));
    let less = text(&[("a1", "one"), ("b1", "two")]);
    let only_two = PlanSync { specs: Some(Globs::parse("t*")), ..sync(&lab, at(1), &less) };
    assert_eq!(lab.ok(&only_two), counts(0, 0, 1, 0));
    assert_eq!(lab.task("b2").status, Status::Deleted);
    assert_eq!(lab.ok(&only_two), counts(0, 0, 0, 0), "deleted already");
    assert_eq!(lab.ok(&sync(&lab, at(2), "{\"id\":\"z\",\"t\":\"T\"}")), counts(1, 0, 0, 0));
    assert_eq!(lab.ok(&sync(&lab, at(3), &less)), counts(0, 0, 1, 0));
    assert_eq!(lab.claim(at(4), 9), ["a1", "b1", "c", "z"]);
    lab.check();
}
