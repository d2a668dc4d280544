//! Plans as text: every rule of plan-sync as data, and that a second run of the same plan changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use rota_core::glob::Globs;
use rota_core::plan_sync::{PlanChange, PlanScope, PlanText, Stored, diff, read};
use rota_core::{Refusal, Status, Task, TaskId, limits};

use crate::support::{NOW, at, config, id};

/// What reading says, or that it said nothing.
fn complaint(input: impl AsRef<[u8]>) -> String {
    read(input.as_ref()).map_or_else(|refusal| refusal.to_string(), |_| "fine".to_owned())
}

const FIRST: &str = "{\"id\":\"a\",\"t\":\"A\"}\n\n";

#[test]
fn a_bad_line_is_named_with_field_and_value() {
    for (line, problem) in [
        (r#"{"id":"b","t":"B""#, "invalid JSON: EOF while parsing an object at column 17"),
        (r#"{"id":"b","t":"B"} x"#, "invalid JSON: trailing characters at column 20"),
        (r#"["b"]"#, "invalid JSON: invalid type: sequence, expected a map at column 0"),
        ("nonsense", "invalid JSON: expected ident at column 2"),
        ("{}", r#"field "id" is missing or empty"#),
        (r#"{"t":"B"}"#, r#"field "id" is missing or empty"#),
        (r#"{"id":"","t":"B"}"#, r#"field "id" is missing or empty"#),
        (r#"{"id":" ","t":"B"}"#, r#"field "id" is missing or empty"#),
        (r#"{"id":null,"t":"B"}"#, r#"field "id" is missing or empty"#),
        (r#"{"id":7,"t":"B"}"#, r#"field "id" must be a text, got: 7"#),
        (r#"{"id":"-b","t":"B"}"#, "task id '-b' begins with '-'"),
        (r#"{"id":"b\u0007","t":"B"}"#, r"task id has the control character \u{7} in 'b\u{7}'"),
        (r#"{"id":"b"}"#, r#"field "t" is missing or empty"#),
        (r#"{"id":"b","t":""}"#, r#"field "t" is missing or empty"#),
        (r#"{"id":"b","t":["B"]}"#, r#"field "t" must be a text, got: ["B"]"#),
        (r#"{"id":"b","t":"B","p":-1}"#, r#"field "p" must be a non-negative integer, got: -1"#),
        (r#"{"id":"b","t":"B","p":1.5}"#, r#"field "p" must be a non-negative integer, got: 1.5"#),
        (r#"{"id":"b","t":"B","p":"1"}"#, r#"field "p" must be a non-negative integer, got: "1""#),
        (
            r#"{"id":"b","t":"B","p":4294967296}"#,
            r#"field "p" must be a non-negative integer, got: 4294967296"#,
        ),
        (r#"{"id":"b","t":"B","d":1}"#, r#"field "d" must be a text, got: 1"#),
        (r#"{"id":"b","t":"B","cat":{}}"#, r#"field "cat" must be a text, got: {}"#),
        (r#"{"id":"b","t":"B","cat":"a\nb"}"#, r"category has the control character \n in 'a\nb'"),
        (r#"{"id":"b","t":"B","spec":"-x"}"#, "spec '-x' begins with '-'"),
        (r#"{"id":"b","t":"B","steps":"one"}"#, r#"field "steps" must be a list of texts, got: "one""#),
        (r#"{"id":"b","t":"B","steps":[1]}"#, r#"field "steps" must be a list of texts, got: [1]"#),
        (r#"{"id":"b","t":"B","deps":"a"}"#, r#"field "deps" must be a list of texts, got: "a""#),
        (r#"{"id":"b","t":"B","deps":["a","a"]}"#, "duplicate dependency 'a'"),
        (r#"{"id":"b","t":"B","deps":["b"]}"#, "task 'b' depends on itself"),
        (r#"{"id":"b","t":"B","deps":[""]}"#, r#"field "deps": task id is empty"#),
        (r#"{"id":"a","t":"A again"}"#, "duplicate id 'a' (first on line 1)"),
    ] {
        let wanted = format!("line 3: {problem}");
        assert_eq!(complaint(format!("{FIRST}{line}\n")), wanted);
        let with_crlf = complaint(format!("{FIRST}{line}\r\n{{}}"));
        let column = |message: &str| message.rfind(" at column ").unwrap_or(message.len());
        assert_eq!(with_crlf[..column(&with_crlf)], wanted[..column(&wanted)], "the first bad line is named");
    }
}

#[test]
fn what_is_not_text_is_named_too() {
    let mut bytes = FIRST.as_bytes().to_vec();
    bytes.extend(b"{\"id\":\"b\",\"t\":\"\xff\"}\n");
    let message = complaint(&bytes);
    assert!(message.starts_with("line 3: invalid UTF-8: "), "{message}");
}

#[test]
fn limits_are_named() {
    let list = |count: usize| (0..count).map(|n| format!("\"n{n}\"")).collect::<Vec<_>>().join(",");
    let title = "x".repeat(limits::TITLE_BYTES + 1);
    for (line, problem) in [
        (
            format!(r#"{{"id":"b","t":"{title}"}}"#),
            r#"field "t" is 65537 bytes long, at most 65536 are allowed"#,
        ),
        (
            format!(r#"{{"id":"b","t":"B","deps":[{}]}}"#, list(limits::BLOCKERS + 1)),
            r#"field "deps" has 20001 entries, at most 20000 are allowed"#,
        ),
        (
            format!(r#"{{"id":"b","t":"B","steps":[{}]}}"#, list(limits::STEPS + 1)),
            r#"field "steps" has 10001 entries, at most 10000 are allowed"#,
        ),
        (
            format!(r#"{{"id":"b","t":"B","d":"{}"}}"#, "x".repeat(limits::TEXT_BYTES)),
            "4194329 bytes long, at most 4194304 are allowed",
        ),
        (
            format!(r#"{{"id":"{}","t":"B"}}"#, "x".repeat(257)),
            "task id is 257 bytes long, at most 256 are allowed",
        ),
    ] {
        assert_eq!(complaint(format!("{FIRST}{line}")), format!("line 3: {problem}"));
    }
}

#[test]
fn lines_are_read_as_written() {
    let text = concat!(
        "\r\n",
        r#"{"id":"a","t":"A","d":"D","p":0,"cat":"c","spec":"s","ref":"r","deps":["b"],"steps":["1","2"],"x":1}"#,
        "\r\n  \n",
        r#"{"id":"b","t":" B ","d":"","p":null,"cat":null,"deps":null,"steps":null,"x":2,"why":3}"#,
    );
    let PlanText { lines, unknown_keys } = read(text.as_bytes()).unwrap();
    assert_eq!(unknown_keys.into_iter().collect::<Vec<_>>(), ["why", "x"], "each once");
    let [a, b] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((a.line, a.id.as_str(), a.title.as_str(), a.priority), (2, "a", "A", Some(0)));
    assert_eq!((a.description.as_deref(), a.category.as_deref()), (Some("D"), Some("c")));
    assert_eq!((a.spec.as_deref(), a.reference.as_deref()), (Some("s"), Some("r")));
    assert_eq!((a.deps.clone(), a.steps.join(" ")), (Some(vec![id("b")]), "1 2".to_owned()));
    assert_eq!((b.line, b.id.as_str(), b.title.as_str(), b.priority), (4, "b", " B ", None));
    assert_eq!(
        (&b.description, &b.category, &b.spec, &b.reference, &b.deps),
        (&None, &None, &None, &None, &None)
    );
    assert!(b.steps.is_empty());
    assert!(read(b"\n \r\n\t").unwrap().lines.is_empty());
}

/// A store of the simplest kind.
#[derive(Clone, Default)]
struct Backlog {
    tasks: BTreeMap<TaskId, (Task, BTreeSet<TaskId>)>,
}

impl Backlog {
    /// Syncs and says what changed: `insert a; revive b; update c(title) +x -y; delete d; skipped 1`.
    fn sync(&mut self, plan: &str, specs: Option<&str>) -> Result<String, Refusal> {
        let lines = read(plan.as_bytes())?.lines;
        let globs = specs.map(Globs::parse);
        let scope =
            PlanScope { scope: "default", queue: "tasks", default_priority: 2, specs: globs.as_ref() };
        let changes = diff(&lines, &Stored { tasks: self.tasks.clone() }, &scope, NOW)?;
        let mut said = Vec::new();
        said.extend(changes.insert.iter().map(|change| format!("insert {}", self.change(change))));
        said.extend(changes.revive.iter().map(|change| {
            let shown = self.change(change);
            let (task, _) = self.tasks.get_mut(&change.task.id).unwrap();
            (task.status, task.attempts) = (Status::Open, 0);
            format!("revive {shown}")
        }));
        said.extend(changes.update.iter().map(|change| format!("update {}", self.change(change))));
        for removed in &changes.delete {
            self.tasks.get_mut(removed).unwrap().0.status = Status::Deleted;
            said.push(format!("delete {removed}"));
        }
        if changes.skipped > 0 {
            said.push(format!("skipped {}", changes.skipped));
        }
        Ok(said.join("; "))
    }

    /// Writes one change and shows it.
    fn change(&mut self, change: &PlanChange) -> String {
        let id = &change.task.id;
        let old = self.tasks.get(id).cloned();
        let mut shown = id.to_string();
        let mut edges = BTreeSet::new();
        if let Some((task, blockers)) = old {
            let fields: Vec<String> = task.changes_to(&change.task).into_keys().collect();
            if !fields.is_empty() {
                shown += &format!("({})", fields.join(","));
            }
            edges = blockers;
        }
        for add in &change.add {
            shown += &format!(" +{add}");
            assert!(edges.insert(add.clone()), "an edge that is there is not added");
        }
        for remove in &change.remove {
            shown += &format!(" -{remove}");
            assert!(edges.remove(remove), "an edge that is not there is not removed");
        }
        self.tasks.insert(id.clone(), (change.task.clone(), edges));
        shown
    }
}

/// `a` is `{"id":"a","t":"Ta"}`; what follows a comma is added: `a,"p":1`.
fn plan(lines: &[&str]) -> String {
    let line = |line: &&str| {
        let (id, rest) = line.split_at(line.find(',').unwrap_or(line.len()));
        let title = if rest.contains("\"t\":") { String::new() } else { format!(",\"t\":\"T{id}\"") };
        format!("{{\"id\":\"{id}\"{title}{rest}}}\n")
    };
    lines.iter().map(line).collect()
}

/// One rule: what was synced before, where tasks went since, the plan, its globs, what changes.
struct Rule {
    before: &'static [&'static str],
    since: &'static [(&'static str, Status)],
    plan: &'static [&'static str],
    specs: Option<&'static str>,
    changes: &'static str,
}

const RULES: &[Rule] = &[
    // Insert, in line order; a forward reference in the batch works.
    Rule {
        before: &[],
        since: &[],
        plan: &[r#"z,"deps":["a"]"#, "a"],
        specs: None,
        changes: "insert z +a; insert a",
    },
    Rule { before: &[], since: &[], plan: &[], specs: None, changes: "" },
    Rule { before: &["a"], since: &[], plan: &["a"], specs: None, changes: "" },
    // Update: every field; an absent one is cleared, the priority falls back to the default.
    Rule { before: &["a"], since: &[], plan: &[r#"a,"t":"New""#], specs: None, changes: "update a(title)" },
    Rule {
        before: &["a"],
        since: &[],
        plan: &[r#"a,"d":"D","p":1,"cat":"c","ref":"r","steps":["x"],"spec":"s""#],
        specs: None,
        changes: "update a(category,description,priority,ref,spec,steps)",
    },
    Rule {
        before: &[r#"a,"d":"D","p":1,"cat":"c","ref":"r","steps":["x"],"spec":"s""#],
        since: &[],
        plan: &["a"],
        specs: None,
        changes: "update a(category,description,priority,ref,spec,steps)",
    },
    Rule { before: &[r#"a,"p":2"#], since: &[], plan: &["a"], specs: None, changes: "" },
    // Edges: absent or null deps leave them alone, an empty list clears them, a dep-only change is an update.
    Rule { before: &["b", r#"a,"deps":["b"]"#], since: &[], plan: &["a"], specs: None, changes: "" },
    Rule {
        before: &["b", r#"a,"deps":["b"]"#],
        since: &[],
        plan: &[r#"a,"deps":null"#],
        specs: None,
        changes: "",
    },
    Rule {
        before: &["b", r#"a,"deps":["b"]"#],
        since: &[],
        plan: &[r#"a,"deps":[]"#],
        specs: None,
        changes: "update a -b",
    },
    Rule {
        before: &["b", "c", "d", r#"a,"deps":["b","d"]"#],
        since: &[],
        plan: &[r#"a,"deps":["d","c"]"#],
        specs: None,
        changes: "update a +c -b",
    },
    // A dep on a task of another spec, of another queue, or on a deleted one is known.
    Rule {
        before: &["other"],
        since: &[],
        plan: &[r#"a,"deps":["other"]"#],
        specs: None,
        changes: "insert a +other",
    },
    Rule {
        before: &["b"],
        since: &[("b", Status::Deleted)],
        plan: &[r#"a,"deps":["b"]"#],
        specs: None,
        changes: "insert a +b",
    },
    // Delete: per spec in the plan; done ones stay, deleted ones are not counted again.
    Rule {
        before: &[r#"a,"spec":"s""#, r#"b,"spec":"s""#, r#"c,"spec":"t""#, "d"],
        since: &[],
        plan: &[r#"a,"spec":"s""#],
        specs: None,
        changes: "delete b",
    },
    Rule {
        before: &[r#"a,"spec":"s""#, r#"b,"spec":"s""#, r#"c,"spec":"s""#],
        since: &[("b", Status::Done), ("c", Status::Deleted)],
        plan: &[r#"a,"spec":"s""#],
        specs: None,
        changes: "",
    },
    Rule {
        before: &[r#"a,"spec":"s""#, r#"b,"spec":"s""#],
        since: &[("b", Status::Active)],
        plan: &[r#"a,"spec":"s""#],
        specs: None,
        changes: "delete b",
    },
    Rule {
        before: &[r#"p,"spec":"s""#, r#"f,"spec":"s""#, r#"i,"spec":"s""#, r#"h,"spec":"s""#],
        since: &[
            ("p", Status::Parked),
            ("f", Status::Failed),
            ("i", Status::Invalidated),
            ("h", Status::Paused),
        ],
        plan: &[r#"new,"spec":"s""#],
        specs: None,
        changes: "insert new; delete f; delete h; delete i; delete p",
    },
    // Lines without a spec, and a task that moves to another spec, delete nothing.
    Rule { before: &["a", r#"b,"spec":"s""#], since: &[], plan: &["a"], specs: None, changes: "" },
    Rule {
        before: &[r#"a,"spec":"s""#, r#"b,"spec":"s""#],
        since: &[],
        plan: &[r#"a,"spec":"t""#],
        specs: None,
        changes: "update a(spec)",
    },
    // Globs limit which specs may lose tasks, and nothing else.
    Rule {
        before: &[r#"a,"spec":"s1""#, r#"b,"spec":"s1""#, r#"c,"spec":"s2""#, r#"d,"spec":"s2""#],
        since: &[],
        plan: &[r#"a,"spec":"s1""#, r#"c,"spec":"s2","p":9"#, r#"e,"spec":"s2""#],
        specs: Some("s1,x*"),
        changes: "insert e; update c(priority); delete b",
    },
    Rule {
        before: &[r#"a,"spec":"s""#, r#"b,"spec":"s""#],
        since: &[],
        plan: &[r#"a,"spec":"s""#],
        specs: Some("nothing"),
        changes: "",
    },
    // Done ones are immutable; others are updated where they stand; deleted ones come back.
    Rule {
        before: &["a"],
        since: &[("a", Status::Done)],
        plan: &[r#"a,"p":9"#],
        specs: None,
        changes: "skipped 1",
    },
    Rule {
        before: &["b", r#"a,"deps":["b"]"#],
        since: &[("a", Status::Done)],
        plan: &[r#"a,"deps":[]"#],
        specs: None,
        changes: "skipped 1",
    },
    Rule {
        before: &["a", "b", "c"],
        since: &[("a", Status::Active), ("b", Status::Parked), ("c", Status::Paused)],
        plan: &[r#"a,"p":1"#, r#"b,"p":1"#, "c"],
        specs: None,
        changes: "update a(priority); update b(priority)",
    },
    Rule { before: &["a"], since: &[("a", Status::Deleted)], plan: &["a"], specs: None, changes: "revive a" },
    Rule {
        before: &["b", "a"],
        since: &[("a", Status::Deleted)],
        plan: &[r#"a,"p":0,"deps":["b"]"#],
        specs: None,
        changes: "revive a(priority) +b",
    },
];

#[test]
fn every_rule_of_the_diff() {
    for rule in RULES {
        let mut backlog = Backlog::default();
        backlog.sync(&plan(rule.before), None).unwrap();
        for (name, status) in rule.since {
            backlog.tasks.get_mut(&id(name)).unwrap().0.status = *status;
        }
        let changes = backlog.sync(&plan(rule.plan), rule.specs).unwrap();
        assert_eq!(changes, rule.changes, "{:?} after {:?} {:?}", rule.plan, rule.before, rule.since);
        let again = backlog.sync(&plan(rule.plan), rule.specs).unwrap();
        let skipped = if rule.changes.starts_with("skipped") { rule.changes } else { "" };
        assert_eq!(again, skipped, "a second run: {:?}", rule.plan);
    }
}

#[test]
fn a_diff_that_cannot_be_meant_names_its_line() {
    let mut backlog = Backlog::default();
    backlog.sync(&plan(&["mine", "done"]), None).unwrap();
    backlog.tasks.get_mut(&id("done")).unwrap().0.status = Status::Done;
    let other = Task::new("default", id("theirs"), "runs", "R", at(0));
    backlog.tasks.insert(id("theirs"), (other, BTreeSet::new()));
    for (lines, wanted) in [
        (&["a", r#"b,"deps":["a","nowhere"]"#][..], "line 2: unknown dependency 'nowhere'"),
        (&[r#"done,"deps":["nowhere"]"#], "line 1: unknown dependency 'nowhere'"),
        (&["mine", "a", "theirs"], "line 3: task 'theirs' belongs to queue 'runs'"),
        (&[r#"a,"deps":["theirs","mine"]"#], "insert a +theirs +mine"),
    ] {
        let said = backlog.clone().sync(&plan(lines), None);
        assert_eq!(said.unwrap_or_else(|refusal| refusal.to_string()), wanted);
    }
}

/// A task of another queue with the plan's spec is not the plan's to delete.
#[test]
fn another_queue_loses_nothing() {
    let mut backlog = Backlog::default();
    let theirs = Task { spec_ref: Some("s".into()), ..Task::new("default", id("x"), "runs", "R", at(0)) };
    backlog.tasks.insert(id("x"), (theirs, BTreeSet::new()));
    assert_eq!(backlog.sync(&plan(&[r#"a,"spec":"s""#]), None).unwrap(), "insert a");
}

/// Fields that are not the plan's are kept; a new task is open, of the plan's queue, with its default priority.
#[test]
fn the_plan_changes_only_what_it_says() {
    let mut backlog = Backlog::default();
    backlog.sync(&plan(&["a"]), None).unwrap();
    let fresh = Task { priority: Some(2), ..Task::new("default", id("a"), "tasks", "Ta", NOW) };
    assert_eq!(backlog.tasks[&id("a")].0, fresh);
    let held = Task { status: Status::Active, attempts: 3, assignee: Some("me".into()), ..fresh };
    backlog.tasks.insert(id("a"), (held.clone(), BTreeSet::new()));
    backlog.sync(&plan(&[r#"a,"p":7"#]), None).unwrap();
    assert_eq!(backlog.tasks[&id("a")].0, Task { priority: Some(7), ..held });
    let runs = PlanScope { scope: "s", queue: "runs", default_priority: 100, specs: None };
    let lines = read(plan(&["n"]).as_bytes()).unwrap().lines;
    let task = diff(&lines, &Stored::default(), &runs, NOW).unwrap().insert.remove(0).task;
    assert_eq!((task.scope.as_str(), task.queue.as_str(), task.priority), ("s", "runs", Some(100)));
}

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A line about one of a few tasks; deps name only tasks that are always there, or earlier ones.
fn a_line() -> impl Strategy<Value = (usize, String)> {
    let spec = proptest::sample::select(vec!["", r#","spec":"s1""#, r#","spec":"s2""#]);
    let extra = proptest::sample::select(vec![
        "",
        r#","p":1"#,
        r#","d":"D","cat":"c""#,
        r#","steps":["x"],"ref":"r""#,
    ]);
    let deps = proptest::option::of(btree_set(0_usize..NAMES.len(), 0..4));
    (0..NAMES.len(), spec, extra, deps).prop_map(|(name, spec, extra, deps)| {
        let deps = deps.map(|deps| deps.into_iter().filter(|dep| *dep != name).collect::<Vec<_>>());
        let deps = deps.map_or(String::new(), |deps| {
            let names: Vec<String> = deps.into_iter().map(|dep| format!("\"{}\"", NAMES[dep])).collect();
            format!(r#","deps":[{}]"#, names.join(","))
        });
        (name, format!("{}{spec}{extra}{deps}", NAMES[name]))
    })
}

/// A plan with each task at most once.
fn a_plan() -> impl Strategy<Value = String> {
    vec(a_line(), 0..NAMES.len() + 4).prop_map(|lines| {
        let by_name: BTreeMap<usize, String> = lines.into_iter().collect();
        plan(&by_name.values().map(String::as_str).collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(config(1_000))]

    /// S7 in the small: whatever is stored, the same plan a second time changes nothing; done tasks and tasks
    /// without a spec in the plan are left as they are.
    #[test]
    fn a_second_run_changes_nothing(
        first in a_plan(),
        statuses in vec(0..Status::ALL.len(), NAMES.len()),
        second in a_plan(),
        specs in proptest::option::of(proptest::sample::select(vec!["s1", "s*", "x"])),
    ) {
        let mut backlog = Backlog::default();
        backlog.sync(&plan(&NAMES), None).unwrap();
        backlog.sync(&first, None).unwrap();
        for ((task, _), status) in backlog.tasks.values_mut().zip(statuses) {
            task.status = Status::ALL[status];
        }
        let before = backlog.tasks.clone();
        backlog.sync(&second, specs).unwrap();
        let again = backlog.sync(&second, specs).unwrap();
        prop_assert!(again.is_empty() || again.starts_with("skipped"), "{}", again);
        let lines = read(second.as_bytes()).unwrap().lines;
        for (name, (old, edges)) in before {
            let (new, new_edges) = &backlog.tasks[&name];
            match lines.iter().find(|line| line.id == name) {
                Some(line) if old.status != Status::Done => {
                    prop_assert_eq!((new.title.as_str(), &new.spec_ref), (line.title.as_str(), &line.spec));
                    let deps = line.deps.as_ref().map_or(edges, |deps| deps.iter().cloned().collect());
                    prop_assert_eq!(new_edges, &deps);
                    prop_assert_ne!(new.status, Status::Deleted);
                }
                Some(_) => prop_assert_eq!((new, new_edges), (&old, &edges)),
                None => {
                    let deleted = Task { status: Status::Deleted, ..old.clone() };
                    let kept = old.status == Status::Done || old.spec_ref.is_none() || specs == Some("x");
                    prop_assert!(new == &old || (!kept && *new == deleted));
                    prop_assert_eq!(new_edges, &edges);
                }
            }
        }
    }

    /// Z10 in the small: nothing that is read panics, and what is refused names a line that is there.
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in vec(any::<u8>(), 0..200),
        cut in 0_usize..400,
        text in a_plan(),
    ) {
        let mut cut_short = text.into_bytes();
        cut_short.truncate(cut);
        for input in [bytes.clone(), [&cut_short[..], &bytes].concat()] {
            let lines = input.split(|byte| *byte == b'\n').count();
            match read(&input) {
                Ok(plan) => prop_assert!(plan.lines.iter().all(|line| (1..=lines).contains(&line.line))),
                Err(Refusal::BadLine { line, .. }) => prop_assert!((1..=lines).contains(&line)),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
