//! `rota queue`: entries in the words of the contract.

use expect_test::expect;

use crate::support::{Lab, check};

/// Entries, byte for byte; the list in both forms.
#[test]
fn adding_listing_showing() {
    check(
        r#"
        @0 queue add --id a --app review --repo /r --note "look at it" --priority 5
        @1 queue add --id b --workflow w --runId r1 --repo /s
        @2 queue list
        @2 queue list --json
        @2 queue list --status leased
        @2 queue list --repo /s
        @2 queue show b
        @2 queue list --queue tasks
        "#,
        expect![[r#"
            $ @0 queue add --id a --app review --repo /r --note "look at it" --priority 5
            {
              "schemaVersion": 1,
              "id": "a",
              "appId": "review",
              "repo": "/r",
              "priority": 5,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "note": "look at it",
              "attempts": 0
            }
            $ @1 queue add --id b --workflow w --runId r1 --repo /s
            {
              "schemaVersion": 1,
              "id": "b",
              "runId": "r1",
              "workflowId": "w",
              "repo": "/s",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:01.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @2 queue list
            Run Queue: 2 entry(ies) [priority asc]
              #5 a [pending] review repo=/r note=look at it
              #100 b [pending] w repo=/s
            $ @2 queue list --json
            {
              "schemaVersion": 1,
              "total": 2,
              "entries": [
                {
                  "schemaVersion": 1,
                  "id": "a",
                  "appId": "review",
                  "repo": "/r",
                  "priority": 5,
                  "enqueuedAt": "2026-01-01T00:00:00.000Z",
                  "status": "pending",
                  "note": "look at it",
                  "attempts": 0
                },
                {
                  "schemaVersion": 1,
                  "id": "b",
                  "runId": "r1",
                  "workflowId": "w",
                  "repo": "/s",
                  "priority": 100,
                  "enqueuedAt": "2026-01-01T00:00:01.000Z",
                  "status": "pending",
                  "attempts": 0
                }
              ]
            }
            $ @2 queue list --status leased
            Run Queue: 0 entry(ies) [priority asc]
              (queue empty)
            $ @2 queue list --repo /s
            Run Queue: 1 entry(ies) [priority asc]
              #100 b [pending] w repo=/s
            $ @2 queue show b
            {
              "schemaVersion": 1,
              "id": "b",
              "runId": "r1",
              "workflowId": "w",
              "repo": "/s",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:01.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @2 queue list --queue tasks
            Run Queue: 0 entry(ies) [priority asc]
              (queue empty)
        "#]],
    );
}

/// Pending until first leased, then ready; leased, drained, parked, paused.
#[test]
fn the_words_of_a_life() {
    let lab = Lab::new();
    lab.line("sched policy set --maxAttempts 1").ok();
    let status = |id: &str| {
        let entry: serde_json::Value =
            serde_json::from_str(&lab.line(&format!("queue show {id}")).ok()).unwrap();
        entry["status"].as_str().unwrap().to_owned()
    };
    lab.line("@0 queue add --id a --repo /r").ok();
    assert_eq!(status("a"), "pending");
    lab.line("@0 sched lease").ok();
    assert_eq!(status("a"), "leased");
    lab.line("@0 sched release lease-a-1").ok();
    assert_eq!(status("a"), "ready");
    lab.line("task pause a").ok();
    assert_eq!(status("a"), "paused");
    lab.line("task resume a").ok();
    lab.line("@0 sched lease").ok();
    lab.line("@0 sched release lease-a-2 --failed").ok();
    assert_eq!(status("a"), "parked");
    lab.line("@0 sched reset a").ok();
    assert_eq!(status("a"), "ready");
    lab.line("@0 sched lease").ok();
    lab.line("@0 sched complete lease-a-3").ok();
    assert_eq!(status("a"), "drained");
    lab.line("task create d D --queue runs").ok();
    lab.line("task delete d").ok();
    assert_eq!(status("d"), "deleted");
}

/// Draining takes what has no obstacle, in order and with one time, around the ceiling.
#[test]
fn draining() {
    check(
        r#"
        @0 queue add --id a --repo /r
        @0 queue add --id b --repo /s
        @0 queue add --id c --repo /r
        @0 task create later L --queue runs --after 2026-01-01T01:00:00Z
        @1 sched lease
        @2 queue drain --limit 9 --repo /r
        @3 queue drain
        @4 queue drain
        "#,
        expect![[r#"
            $ @0 queue add --id a --repo /r
            {
              "schemaVersion": 1,
              "id": "a",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @0 queue add --id b --repo /s
            {
              "schemaVersion": 1,
              "id": "b",
              "repo": "/s",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @0 queue add --id c --repo /r
            {
              "schemaVersion": 1,
              "id": "c",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @0 task create later L --queue runs --after 2026-01-01T01:00:00Z
            later
            $ @1 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:01.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "a",
                  "leaseId": "lease-a-1",
                  "leaseExpiresAt": "2026-01-01T00:05:01.000Z",
                  "attempts": 0,
                  "priority": 100
                }
              ]
            }
            $ @2 queue drain --limit 9 --repo /r
            {
              "schemaVersion": 1,
              "drained": [
                {
                  "schemaVersion": 1,
                  "id": "c",
                  "repo": "/r",
                  "priority": 100,
                  "enqueuedAt": "2026-01-01T00:00:00.000Z",
                  "status": "drained",
                  "attempts": 0,
                  "drainedAt": "2026-01-01T00:00:02.000Z"
                }
              ],
              "remaining": 0
            }
            $ @3 queue drain
            {
              "schemaVersion": 1,
              "drained": [
                {
                  "schemaVersion": 1,
                  "id": "b",
                  "repo": "/s",
                  "priority": 100,
                  "enqueuedAt": "2026-01-01T00:00:00.000Z",
                  "status": "drained",
                  "attempts": 0,
                  "drainedAt": "2026-01-01T00:00:03.000Z"
                }
              ],
              "remaining": 1
            }
            $ @4 queue drain
            {
              "schemaVersion": 1,
              "drained": [],
              "remaining": 1
            }
        "#]],
    );
}

/// A paused queue grants nothing and says so.
#[test]
fn pausing_a_queue() {
    check(
        r#"
        @0 queue add --id a --repo /r
        @0 queue pause runs
        @1 sched plan
        @1 sched lease
        @1 queue drain
        @1 queue resume runs
        @2 sched lease
        "#,
        expect![[r#"
            $ @0 queue add --id a --repo /r
            {
              "schemaVersion": 1,
              "id": "a",
              "repo": "/r",
              "priority": 100,
              "enqueuedAt": "2026-01-01T00:00:00.000Z",
              "status": "pending",
              "attempts": 0
            }
            $ @0 queue pause runs
            {
              "schemaVersion": 1,
              "queue": "runs",
              "paused": true
            }
            $ @1 sched plan
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:01.000Z",
              "maxConcurrent": 1,
              "inFlight": 0,
              "available": 1,
              "leases": [],
              "skipped": [
                {
                  "id": "a",
                  "reason": "paused"
                }
              ]
            }
            $ @1 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:01.000Z",
              "granted": 0,
              "leases": []
            }
            $ @1 queue drain
            {
              "schemaVersion": 1,
              "drained": [],
              "remaining": 1
            }
            $ @1 queue resume runs
            {
              "schemaVersion": 1,
              "queue": "runs",
              "paused": false
            }
            $ @2 sched lease
            {
              "schemaVersion": 1,
              "now": "2026-01-01T00:00:02.000Z",
              "granted": 1,
              "leases": [
                {
                  "id": "a",
                  "leaseId": "lease-a-1",
                  "leaseExpiresAt": "2026-01-01T00:05:02.000Z",
                  "attempts": 0,
                  "priority": 100
                }
              ]
            }
        "#]],
    );
}

/// One line, exit code 1, nothing changed.
#[test]
fn what_is_refused() {
    let lab = Lab::new();
    lab.line("@0 queue add --id a --repo /r").ok();
    lab.check_refused(
        r#"
        queue add --id a --repo /r
        queue add --id "x\ny" --repo /r
        queue add --id -x --repo /r
        queue add --repo /r --priority high
        queue add --repo /r --priority -1
        queue add --repo /r --priority
        queue add --repo /r --queue ""
        queue add --repo
        queue show nobody
        queue show
        queue list --status done
        queue list --queue nope
        queue drain --limit x
        queue drain --queue nope
        queue pause nope
        queue pause
        queue export --queue nope
        queue frobnicate
        queue
        queue add --now tomorrow
        "#,
        expect![[r#"
            $ queue add --id a --repo /r
            ! error: task 'a' already exists
            [1]
            $ queue add --id "x\ny" --repo /r
            ! error: task id has the control character \n in 'x\ny'
            [1]
            $ queue add --id -x --repo /r
            ! error: unknown flag '-x'
            [1]
            $ queue add --repo /r --priority high
            ! error: Invalid --priority "high": expected a number (e.g. --priority 4)
            [1]
            $ queue add --repo /r --priority -1
            ! error: Invalid --priority "-1": expected a number (e.g. --priority 4)
            [1]
            $ queue add --repo /r --priority
            ! error: --priority requires a value (e.g. --priority 4)
            [1]
            $ queue add --repo /r --queue ""
            ! error: queue name is empty
            [1]
            $ queue add --repo
            ! error: --repo requires a value
            [1]
            $ queue show nobody
            ! error: Queue entry not found: nobody
            [1]
            $ queue show
            ! error: missing entry ID
            [1]
            $ queue list --status done
            ! error: Unknown --status "done": expected one of pending, ready, leased, paused, drained, failed, parked, invalidated, deleted
            [1]
            $ queue list --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ queue drain --limit x
            ! error: Invalid --limit "x": expected a number (e.g. --limit 4)
            [1]
            $ queue drain --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ queue pause nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ queue pause
            ! error: missing queue
            [1]
            $ queue export --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ queue frobnicate
            ! error: unknown command 'frobnicate'
            [1]
            $ queue
            ! error: missing command (add, list, show, drain, import, export, pause, resume)
            [1]
            $ queue add --now tomorrow
            ! error: --now: 'tomorrow' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            [1]
        "#]],
    );
}
