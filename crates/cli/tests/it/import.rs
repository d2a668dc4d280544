//! `rota queue import` and `rota import` of what people have: every shape, dry runs, and what is refused whole.

use expect_test::expect;
use serde_json::{Value, json};

use crate::support::Lab;

fn write(lab: &Lab, name: &str, text: &str) {
    std::fs::write(lab.path().join(name), text).unwrap();
}

fn value(lab: &Lab, line: &str) -> Value {
    serde_json::from_str(&lab.line(line).ok()).unwrap()
}

/// Before scheduling, with it, and what a queue of today exports.
const AGES: &str = r#"{
  "schemaVersion": 1,
  "entries": [
    {"id": "old", "appId": "review", "repo": "/r", "priority": 10, "enqueuedAt": "2025-06-01T10:00:00.000Z", "status": "pending", "note": "first", "owner": {"team": "a", "share": 1.50}},
    {"id": "done", "runId": "r1", "repo": "/r", "priority": 100, "enqueuedAt": "2025-06-01T11:00:00.000Z", "status": "drained", "drainedAt": "2025-06-01T12:00:00.000Z"},
    {"id": "bare"},
    {"id": "ready", "repo": "/r", "priority": 5, "enqueuedAt": "2025-06-02T10:00:00+02:00", "status": "ready", "attempts": 2, "nextEligibleAt": "2099-01-01T00:00:00Z"},
    {"id": "held", "repo": "/r", "priority": 1, "enqueuedAt": "2025-06-02T10:00:00Z", "status": "leased", "attempts": 1, "leaseId": "lease-held-7", "leaseExpiresAt": "2025-06-02T10:05:00Z"},
    {"id": "parked", "repo": "/r", "priority": 1, "enqueuedAt": "2025-06-02T10:00:00Z", "status": "parked", "attempts": 3, "parkedReason": "released as failed (attempt 3/3)"}
  ]
}"#;

/// Every age of `queue.json`: states, times, attempts and unknown fields come along; leases do not.
#[test]
fn a_run_queue_of_every_age() {
    let lab = Lab::new();
    write(&lab, "queue.json", AGES);
    let before = lab.line("export").ok();
    let rehearsed = lab.line("@0 queue import queue.json --dry-run");
    assert_eq!((rehearsed.code, lab.line("export").ok()), (0, before), "a dry run keeps nothing");
    let imported = lab.line("@0 queue import queue.json");
    assert_eq!(imported.stderr, "warning: leased entries come in as ready: held\n");
    assert_eq!(imported.stdout.replace("\"dryRun\": false", "\"dryRun\": true"), rehearsed.stdout);
    let list = value(&lab, "queue list --json");
    let shown: Vec<String> = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            format!("{} {} {} {}", entry["id"], entry["status"], entry["attempts"], entry["enqueuedAt"])
        })
        .collect();
    expect![[r#"
        "held" "ready" 1 "2025-06-02T10:00:00.000Z"
        "parked" "parked" 3 "2025-06-02T10:00:00.000Z"
        "ready" "ready" 2 "2025-06-02T08:00:00.000Z"
        "old" "pending" 0 "2025-06-01T10:00:00.000Z"
        "done" "drained" 0 "2025-06-01T11:00:00.000Z"
        "bare" "pending" 0 "2026-01-01T00:00:00.000Z""#]]
    .assert_eq(&shown.join("\n"));
    // A lease of an earlier life is never granted again.
    let leased = value(&lab, "@9 sched lease");
    assert_eq!(leased["leases"][0]["leaseId"], "lease-held-8");
    let refused = lab.line("@9 sched complete lease-held-7");
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (1, "error: No active lease to complete: lease-held-7\n")
    );
    lab.line("@9 sched complete lease-held-8").ok();
    // What Rota does not know is kept, to the digit.
    let exported = lab.line("export").ok();
    let old = exported.lines().find(|line| line.contains(r#""id":"old""#)).unwrap();
    assert!(old.contains(r#""owner":{"team":"a","share":1.50}"#), "{old}");
    // What is exported can be taken in elsewhere.
    let other = Lab::new();
    write(&other, "queue.json", &lab.line("queue export").ok());
    other.line("queue import queue.json").ok();
    assert_eq!(value(&other, "queue show parked"), value(&lab, "queue show parked"));
    assert_eq!(value(&other, "queue show done"), value(&lab, "queue show done"));
    assert_eq!(lab.line("doctor").ok().lines().last(), Some("nothing is wrong"));
}

/// Corrupt, doubled, unreadable: nothing is loaded, and the entry is named.
#[test]
fn a_run_queue_that_is_refused_whole() {
    let lab = Lab::new();
    lab.line("@0 queue add --id there --repo /r").ok();
    let before = lab.line("export").ok();
    let entries =
        |entries: &str| format!(r#"{{"schemaVersion":1,"entries":[{{"id":"good","repo":"/r"}},{entries}]}}"#);
    for (text, message) in [
        ("".into(), "no queue.json: EOF while parsing a value at line 1 column 0"),
        ("{\"entries\":[{\"id\":\"a\"}".into(), "no queue.json: EOF while parsing"),
        ("{}".into(), "no queue.json: missing field `entries`"),
        (r#"{"schemaVersion":2,"entries":[]}"#.into(), "schemaVersion is 2, this rota reads 1"),
        (entries("7"), "entries[1]: not a JSON object: invalid type: integer `7`"),
        (entries("{}"), "entries[1]: field \"id\" is missing or empty"),
        (entries(r#"{"id":"good"}"#), "entries[1]: id 'good' is there twice, first in entries[0]"),
        (entries(r#"{"id":"there"}"#), "task 'there' already exists"),
        (
            entries(r#"{"id":"x","priority":-1}"#),
            "entries[1]: field \"priority\" must be a non-negative integer, got: -1",
        ),
        (
            entries(r#"{"id":"x","attempts":1.5}"#),
            "entries[1]: field \"attempts\" must be a non-negative integer, got: 1.5",
        ),
        (
            entries(r#"{"id":"x","enqueuedAt":"yesterday"}"#),
            "entries[1]: field \"enqueuedAt\": 'yesterday' is not an RFC 3339 time",
        ),
        (
            entries(r#"{"id":"x","status":"open"}"#),
            "entries[1]: field \"status\" must be one of pending, ready, leased, parked, drained",
        ),
        (entries(r#"{"id":"x","note":7}"#), "entries[1]: field \"note\" must be a text, got: 7"),
        (entries(r#"{"id":"a\u0007b"}"#), "entries[1]: task id has the control character"),
    ] {
        write(&lab, "queue.json", &text);
        let ran = lab.line("queue import queue.json");
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{text}");
        assert!(ran.stderr.starts_with(&format!("error: {message}")), "{text}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
    let missing = lab.line("queue import nothing.json");
    assert_eq!((missing.code, missing.stderr.starts_with("error: nothing.json: ")), (1, true));
    assert_eq!(lab.line("export").ok(), before);
}

const BEADS: &str = r#"{"id":"bd-1","title":"Set up the database","status":"closed","priority":0,"issue_type":"task","created_at":"2025-10-01T10:00:00Z","updated_at":"2025-10-02T10:00:00Z","closed_at":"2025-10-02T10:00:00Z","close_reason":"merged"}
{"id":"bd-2","title":"Add the endpoint","description":"With tests","status":"open","priority":1,"issue_type":"feature","labels":["api"],"created_at":"2025-10-01T11:00:00Z","dependencies":[{"issue_id":"bd-2","depends_on_id":"bd-1","type":"blocks"},{"issue_id":"bd-2","depends_on_id":"bd-7","type":"parent-child"}]}

{"id":"bd-3","title":"Write the page","status":"blocked","priority":2,"issue_type":"task","created_at":"2025-10-01T12:00:00Z","dependencies":[{"issue_id":"bd-3","depends_on_id":"bd-2","type":"blocks"}]}
{"id":"bd-4","title":"Somebody is at it","status":"in_progress","assignee":"ann","created_at":"2025-10-01T13:00:00Z"}
{"id":"bd-5","title":"Later","status":"deferred","defer_until":"2099-01-01T00:00:00Z","created_at":"2025-10-01T13:00:00Z"}
{"id":"bd-6","title":"Gone","status":"tombstone","created_at":"2025-10-01T13:00:00Z"}
{"id":"bd-7","title":"The epic","status":"blocked","issue_type":"epic","created_at":"2025-10-01T09:00:00Z"}
"#;

const TASK_MASTER: &str = r#"{
  "master": {
    "tasks": [
      {"id": 1, "title": "Set up", "description": "The repository", "details": "With a licence", "testStrategy": "Look", "status": "done", "priority": "high", "dependencies": []},
      {"id": 2, "title": "Log in", "status": "in-progress", "priority": "medium", "dependencies": [1],
       "subtasks": [
         {"id": 1, "title": "Form", "status": "pending", "dependencies": []},
         {"id": 2, "title": "Session", "status": "pending", "dependencies": [1, "2.1"]}
       ]},
      {"id": "3", "title": "Log out", "status": "deferred", "priority": "low", "dependencies": ["2"], "metadata": {"githubIssue": 42}}
    ],
    "metadata": {"description": "Tasks for master context"}
  },
  "next": {"tasks": [{"id": 1, "title": "Think", "status": "pending"}]}
}"#;

fn ralph(lab: &Lab, name: &str, rows: &str) {
    let schema = "CREATE TABLE tasks (id TEXT PRIMARY KEY, slug TEXT NOT NULL, scope_repo TEXT NOT NULL,
            scope_branch TEXT NOT NULL, title TEXT NOT NULL, description TEXT, category TEXT, priority INTEGER DEFAULT 2,
            status TEXT DEFAULT 'open', spec_ref TEXT, ref TEXT, result TEXT, assignee TEXT, lease_expires_at TEXT,
            retry_count INTEGER DEFAULT 0, fail_reason TEXT, steps TEXT, created_at TEXT DEFAULT (datetime('now')),
            updated_at TEXT, deleted_at TEXT, UNIQUE (scope_repo, scope_branch, slug));
        CREATE TABLE task_deps (task_id TEXT REFERENCES tasks (id), blocked_by TEXT REFERENCES tasks (id),
            PRIMARY KEY (task_id, blocked_by));
        CREATE TABLE agents (id TEXT PRIMARY KEY, pid INTEGER, hostname TEXT);";
    let connection = rusqlite::Connection::open(lab.path().join(name)).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.execute_batch(schema).unwrap();
    connection.execute_batch(rows).unwrap();
}

const RALPH: &str = "INSERT INTO tasks (id, slug, scope_repo, scope_branch, title, description, category, priority, status,
        spec_ref, result, retry_count, fail_reason, steps, created_at) VALUES
    ('u1', 'db/01', 'o/r', 'main', 'Schema', 'All tables', 'feat', 0, 'done', 'db', '{\"commit\":\"abc\"}', 1, NULL,
        '[\"one\",\"two\"]', '2025-10-01 10:00:00'),
    ('u2', 'db/02', 'o/r', 'main', 'Queries', NULL, 'feat', 1, 'active', 'db', NULL, 2, 'broke', NULL,
        '2025-10-01T11:00:00Z'),
    ('u3', 'db/03', 'o/r', 'main', 'Page', NULL, NULL, 1, 'open', 'db', NULL, 0, NULL, NULL, '2025-10-01 12:00:00'),
    ('u4', 'db/04', 'o/r', 'main', 'Gone', NULL, NULL, 2, 'deleted', 'db', NULL, 0, NULL, NULL, '2025-10-01 12:00:00');
    INSERT INTO task_deps VALUES ('u2', 'u1'), ('u3', 'u2');";

/// Each of the three, recognised, rehearsed, taken in, and worked on from there.
#[test]
fn what_people_have() {
    let lab = Lab::new();
    write(&lab, "issues.jsonl", BEADS);
    write(&lab, "tasks.json", TASK_MASTER);
    ralph(&lab, "tasks.db", RALPH);
    lab.check(
        r#"
        @0 import issues.jsonl --dry-run
        @0 import tasks.json --dry-run
        @0 import tasks.db --dry-run
        @0 task list --all
        @0 import issues.jsonl
        @0 import tasks.json --queue mine --only master
        @0 import tasks.db --from ralph
        @1 task list --all
        @1 task list --all --queue mine
        @1 task claim --agent x
        @1 task claim --agent x --queue mine
        @1 why bd-3
        @1 why db/03
        @1 task show db/02
        "#,
        expect![[r#"
            $ @0 import issues.jsonl --dry-run
            bd-1 [done] Set up the database
            bd-2 [open] Add the endpoint (after bd-1)
            bd-3 [open] Write the page (after bd-2)
            bd-4 [open] Somebody is at it
            bd-5 [open] Later
            bd-6 [deleted] Gone
            bd-7 [paused] The epic
            would import 7 tasks, 2 edges (beads)
            ! warning: somebody was at these, they come in as open: bd-4
            $ @0 import tasks.json --dry-run
            1 [done] Set up
            2.1 [open] Form (after 1)
            2.2 [open] Session (after 1, 2.1)
            2 [open] Log in (after 1, 2.1, 2.2)
            3 [paused] Log out (after 2)
            next/1 [open] Think
            would import 6 tasks, 7 edges (taskmaster)
            ! warning: somebody was at these, they come in as open: 2
            $ @0 import tasks.db --dry-run
            db/01 [done] Schema
            db/03 [open] Page (after db/02)
            db/04 [deleted] Gone
            db/02 [open] Queries (after db/01)
            would import 4 tasks, 2 edges (ralph)
            ! warning: somebody was at these, they come in as open: db/02
            $ @0 task list --all
            $ @0 import issues.jsonl
            imported 7 tasks, 2 edges (beads)
            ! warning: somebody was at these, they come in as open: bd-4
            $ @0 import tasks.json --queue mine --only master
            imported 5 tasks, 7 edges (taskmaster)
            ! warning: somebody was at these, they come in as open: 2
            $ @0 import tasks.db --from ralph
            imported 4 tasks, 2 edges (ralph)
            ! warning: somebody was at these, they come in as open: db/02
            $ @1 task list --all
            ID                   P S        CAT     TITLE                               AGENT
            bd-1                 0 done     task    Set up the database                 -
            db/01                0 done     feat    Schema                              -
            bd-2                 1 open     feature Add the endpoint                    -
            db/02                1 open     feat    Queries                             -
            db/03                1 open     -       Page                                -
            bd-7                 2 paused   epic    The epic                            -
            bd-3                 2 open     task    Write the page                      -
            db/04                2 deleted  -       Gone                                -
            bd-4                 2 open     -       Somebody is at it                   -
            bd-5                 2 open     -       Later                               -
            bd-6                 2 deleted  -       Gone                                -
            $ @1 task list --all --queue mine
            ID                   P S        CAT    TITLE                               AGENT
            1                    1 done     master Set up                              -
            2.1                  2 open     master Form                                -
            2.2                  2 open     master Session                             -
            2                    2 open     master Log in                              -
            3                    3 paused   master Log out                             -
            $ @1 task claim --agent x
            ## Task bd-2
            id: bd-2
            title: Add the endpoint
            priority: 1
            status: active
            category: feature
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-bd-2-1
            retry_count: 0
            description: With tests
            deps: bd-1
            $ @1 task claim --agent x --queue mine
            ## Task 2.1
            id: 2.1
            title: Form
            priority: 2
            status: active
            category: master
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-2.1-1
            retry_count: 0
            deps: 1
            $ @1 why bd-3
            bd-3 (tasks, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              no  blockers  it is blocked by 'bd-2'
              ok  cooldown  nothing in the way

            freed by: 'bd-2' being done or deleted
            $ @1 why db/03
            db/03 (tasks, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              no  blockers  it is blocked by 'db/02'
              ok  cooldown  nothing in the way

            freed by: 'db/02' being done or deleted
            $ @1 task show db/02
            ID:          db/02
            Title:       Queries
            Status:      open
            Priority:    1
            Category:    feat
            Spec:        db
            Retries:     2
            Fail reason: broke
            Created:     2025-10-01T11:00:00Z
            Updated:     2026-01-01T00:00:00Z
            Dependencies:
              db/01 (done)
        "#]],
    );
    let ran = lab.line("--scope other import tasks.json --dry-run --json");
    let payload: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&payload["format"], &payload["dryRun"], &payload["total"]),
        (&json!("taskmaster"), &json!(true), &json!(6))
    );
    assert_eq!(payload["tasks"][3]["deps"], json!(["1", "2.1", "2.2"]));
    let exported = lab.line("export").ok();
    assert!(
        exported.contains(r#""labels":["api"]"#) && exported.contains(r#""metadata":{"githubIssue":42}"#)
    );
    assert_eq!(lab.line("doctor").ok().lines().last(), Some("nothing is wrong"));
}

/// What is wrong is named by its line or record; nothing comes in.
#[test]
fn what_is_refused_whole() {
    let lab = Lab::new();
    lab.line("@0 task create there T").ok();
    let before = lab.line("export").ok();
    let refused = |file: &str, flags: &str, message: &str| {
        for dry in ["", " --dry-run"] {
            let line = format!("import {file}{flags}{dry}");
            let ran = lab.line(&line);
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}");
            assert!(ran.stderr.starts_with(&format!("error: {message}")), "{line}: {}", ran.stderr);
        }
    };
    let good = r#"{"id":"a","title":"A"}"#;
    for (second, message) in [
        (r#"{"id":"b"}"#, "line 2: field \"title\" is missing or empty"),
        ("{", "line 2: not a JSON object: EOF while parsing an object"),
        (r#"{"id":"a","title":"B"}"#, "line 2: id 'a' is there twice, first in line 1"),
        (
            r#"{"id":"b","title":"B","status":"lost"}"#,
            "line 2: field \"status\" must be one of open, in_progress",
        ),
        (
            r#"{"id":"b","title":"B","priority":"P1"}"#,
            "line 2: field \"priority\" must be a non-negative integer, got: \"P1\"",
        ),
        (
            r#"{"id":"b","title":"B","created_at":"today"}"#,
            "line 2: field \"created_at\": 'today' is not an RFC 3339",
        ),
        (
            r#"{"id":"b","title":"B","dependencies":[{"depends_on_id":"zz","type":"blocks"}]}"#,
            "unknown dependency 'zz' of task 'b'",
        ),
        (
            r#"{"id":"b","title":"B","dependencies":[{"depends_on_id":"b","type":"blocks"}]}"#,
            "b -> b would be a cycle",
        ),
        (r#"{"id":"there","title":"B"}"#, "task 'there' already exists"),
    ] {
        write(&lab, "f.jsonl", &format!("{good}\n{second}\n"));
        refused("f.jsonl", "", message);
    }
    for (text, message) in [
        (r#"{"tasks":[{"id":1}]}"#, "master.tasks[0]: field \"title\" is missing or empty"),
        (r#"{"tasks":[{"title":"T"}]}"#, "master.tasks[0]: field \"id\" is missing or empty"),
        (
            r#"{"x":{"tasks":[{"id":1,"title":"T","status":"maybe"}]}}"#,
            "x.tasks[0]: field \"status\" must be one of",
        ),
        (r#"{"tasks":[{"id":1,"title":"T","dependencies":[9]}]}"#, "unknown dependency '9' of task '1'"),
        (
            r#"{"tasks":[{"id":1,"title":"T","subtasks":[{"title":"S"}]}]}"#,
            "master.tasks[0]: subtasks[0]: missing field `id`",
        ),
        (
            r#"{"tasks":[{"id":1,"title":"T"},{"id":"1","title":"T"}]}"#,
            "master.tasks[1]: id '1' is there twice",
        ),
        (r#"{"entries":[]}"#, "f.json is a run queue: use `rota queue import f.json`"),
        (
            r#"{"what":1}"#,
            "f.json is nothing that can be recognised: name what it is with --from (rota, ralph, beads, taskmaster)",
        ),
        ("", "f.json is nothing that can be recognised"),
    ] {
        write(&lab, "f.json", text);
        refused("f.json", "", message);
    }
    write(&lab, "tagged.json", TASK_MASTER);
    refused("tagged.json", " --only nope", "no tag 'nope' (known: master, next)");
    refused(
        "tagged.json",
        " --from jira",
        "unknown format 'jira' for --from (known: rota, ralph, beads, taskmaster)",
    );
    refused("f.jsonl", " --only x", "--only has no effect on a file of beads");
    refused("nothing.json", "", "nothing.json: No such file");
    ralph(
        &lab,
        "two.db",
        "INSERT INTO tasks (id, slug, scope_repo, scope_branch, title) VALUES
        ('u1', 'a', 'o/r', 'main', 'A'), ('u2', 'a', 'o/r', 'dev', 'A')",
    );
    refused("two.db", "", "tasks of several branches: name one with --only (o/r@dev, o/r@main)");
    ralph(
        &lab,
        "bad.db",
        "INSERT INTO tasks (id, slug, scope_repo, scope_branch, title, created_at) VALUES
        ('u1', 'a', 'o/r', 'main', 'A', 'long ago')",
    );
    refused("bad.db", "", "task 'a': field \"created_at\": 'long ago' is not an RFC 3339");
    rusqlite::Connection::open(lab.path().join("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (a)")
        .unwrap();
    refused("other.db", "", "other.db is no tasks.db of Ralph");
    refused(
        ".rota/rota.db",
        "",
        ".rota/rota.db is a store of Rota: use it with --store sqlite:.rota/rota.db",
    );
    assert_eq!(lab.line("export").ok(), before);
}
