//! `--json` on every verb: one shape, key order, 2-space indent, a newline at the end, `schemaVersion` on top.

use expect_test::expect;

use crate::support::check;

/// `{schemaVersion,total,<plural>:[…]}`, also when empty.
#[test]
fn lists() {
    check(
        r#"
        task list --json
        task peek --json
        @0 task create a A
        @0 task create b B --deps a
        @1 task claim --agent x
        @1 task list --json
        @1 task list --status done --json
        @1 task peek --json
        @1 task deps b --json
        @1 task deps a --json
        @1 task attempts a --json
        @2 task fail a --agent x --reason r
        @2 task attempts a --json
        task agent list --json
        "#,
        expect![[r#"
            $ task list --json
            {
              "schemaVersion": 1,
              "total": 0,
              "tasks": []
            }
            $ task peek --json
            {
              "schemaVersion": 1,
              "total": 0,
              "tasks": []
            }
            $ @0 task create a A
            a
            $ @0 task create b B --deps a
            b
            $ @1 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task list --json
            {
              "schemaVersion": 1,
              "total": 2,
              "tasks": [
                {
                  "id": "a",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "A",
                  "status": "active",
                  "priority": 2,
                  "assignee": "x",
                  "leaseId": "lease-a-1",
                  "leaseExpiresAt": "2026-01-01T00:10:01.000Z",
                  "fence": 1,
                  "attempts": 0,
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:01.000Z",
                  "startedAt": "2026-01-01T00:00:01.000Z"
                },
                {
                  "id": "b",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "B",
                  "status": "open",
                  "priority": 2,
                  "deps": [
                    "a"
                  ],
                  "fence": 0,
                  "attempts": 0,
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:00.000Z"
                }
              ]
            }
            $ @1 task list --status done --json
            {
              "schemaVersion": 1,
              "total": 0,
              "tasks": []
            }
            $ @1 task peek --json
            {
              "schemaVersion": 1,
              "total": 1,
              "tasks": [
                {
                  "id": "a",
                  "scope": "default",
                  "queue": "tasks",
                  "title": "A",
                  "status": "active",
                  "priority": 2,
                  "assignee": "x",
                  "leaseId": "lease-a-1",
                  "leaseExpiresAt": "2026-01-01T00:10:01.000Z",
                  "fence": 1,
                  "attempts": 0,
                  "createdAt": "2026-01-01T00:00:00.000Z",
                  "updatedAt": "2026-01-01T00:00:01.000Z",
                  "startedAt": "2026-01-01T00:00:01.000Z"
                }
              ]
            }
            $ @1 task deps b --json
            {
              "schemaVersion": 1,
              "total": 1,
              "blockers": [
                {
                  "level": 0,
                  "id": "a",
                  "status": "active",
                  "title": "A"
                }
              ]
            }
            $ @1 task deps a --json
            {
              "schemaVersion": 1,
              "total": 0,
              "blockers": []
            }
            $ @1 task attempts a --json
            {
              "schemaVersion": 1,
              "total": 1,
              "attempts": [
                {
                  "leaseId": "lease-a-1",
                  "agent": "x",
                  "startedAt": "2026-01-01T00:00:01.000Z"
                }
              ]
            }
            $ @2 task fail a --agent x --reason r
            failed a
            $ @2 task attempts a --json
            {
              "schemaVersion": 1,
              "total": 1,
              "attempts": [
                {
                  "leaseId": "lease-a-1",
                  "agent": "x",
                  "startedAt": "2026-01-01T00:00:01.000Z",
                  "endedAt": "2026-01-01T00:00:02.000Z",
                  "outcome": "failed",
                  "reason": "r"
                }
              ]
            }
            $ task agent list --json
            {
              "schemaVersion": 1,
              "total": 0,
              "agents": []
            }
        "#]],
    );
}

/// Edges, plan-sync, plan-status, bulk delete.
#[test]
fn other_verbs() {
    check(
        r#"
        @0 task create a A
        @0 task create b B
        @0 task block b --by a --json
        @0 task plan-status --json
        @0 task unblock b --by a --json
        @0 task plan-sync --json
        | {"id":"c","t":"C","color":"red"}
        @0 task plan-sync --dry-run --json
        | {"id":"d","t":"D"}
        @0 task delete --all --confirm --json
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B
            b
            $ @0 task block b --by a --json
            {
              "schemaVersion": 1,
              "id": "b",
              "by": "a"
            }
            $ @0 task plan-status --json
            {
              "schemaVersion": 1,
              "open": 1,
              "active": 0,
              "done": 0,
              "blocked": 1,
              "deleted": 0,
              "parked": 0,
              "failed": 0,
              "paused": 0,
              "invalidated": 0
            }
            $ @0 task unblock b --by a --json
            {
              "schemaVersion": 1,
              "id": "b",
              "by": "a"
            }
            $ @0 task plan-sync --json
            {
              "schemaVersion": 1,
              "inserted": 1,
              "updated": 0,
              "deleted": 0,
              "skippedDone": 0,
              "unknownKeys": [
                "color"
              ]
            }
            ! warning: unknown keys ignored: color
            $ @0 task plan-sync --dry-run --json
            {
              "schemaVersion": 1,
              "inserted": 1,
              "updated": 0,
              "deleted": 0,
              "skippedDone": 0
            }
            $ @0 task delete --all --confirm --json
            {
              "schemaVersion": 1,
              "deleted": 3
            }
        "#]],
    );
}

/// The explanation and the journal.
#[test]
fn why_and_log() {
    check(
        r#"
        @0 task create a A -p 0
        @0 task create b B
        @1 why a --json
        @1 why b --json
        @2 task claim --agent x
        @2 why a --json
        log --json
        "#,
        expect![[r#"
            $ @0 task create a A -p 0
            a
            $ @0 task create b B
            b
            $ @1 why a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "queue": "tasks",
              "status": "open",
              "runnable": true,
              "checks": [
                {
                  "check": "status",
                  "ok": true,
                  "detail": "open"
                },
                {
                  "check": "queue",
                  "ok": true
                },
                {
                  "check": "blockers",
                  "ok": true
                },
                {
                  "check": "cooldown",
                  "ok": true
                },
                {
                  "check": "order",
                  "ok": true
                }
              ],
              "obstacles": [],
              "waits": [],
              "position": 1,
              "ahead": [],
              "earliest": "2026-01-01T00:00:01.000Z"
            }
            $ @1 why b --json
            {
              "schemaVersion": 1,
              "id": "b",
              "queue": "tasks",
              "status": "open",
              "runnable": true,
              "checks": [
                {
                  "check": "status",
                  "ok": true,
                  "detail": "open"
                },
                {
                  "check": "queue",
                  "ok": true
                },
                {
                  "check": "blockers",
                  "ok": true
                },
                {
                  "check": "cooldown",
                  "ok": true
                },
                {
                  "check": "order",
                  "ok": false,
                  "detail": "it is number 2 in line, 'a' is next"
                }
              ],
              "obstacles": [],
              "waits": [
                {
                  "reason": "outranked",
                  "position": 2,
                  "by": "a"
                }
              ],
              "position": 2,
              "ahead": [
                "a"
              ],
              "freedBy": "the tasks ahead being claimed",
              "earliest": "2026-01-01T00:00:01.000Z"
            }
            $ @2 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 0
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:02Z
            lease_id: lease-a-1
            retry_count: 0
            $ @2 why a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "queue": "tasks",
              "status": "active",
              "runnable": false,
              "checks": [
                {
                  "check": "status",
                  "ok": false,
                  "detail": "it is leased by 'x' until 2026-01-01T00:10:02Z",
                  "endsAt": "2026-01-01T00:10:02.000Z"
                },
                {
                  "check": "queue",
                  "ok": true
                },
                {
                  "check": "blockers",
                  "ok": true
                },
                {
                  "check": "cooldown",
                  "ok": true
                }
              ],
              "obstacles": [
                {
                  "reason": "leased",
                  "by": "x",
                  "until": "2026-01-01T00:10:02.000Z"
                }
              ],
              "waits": [],
              "freedBy": "its holder settling it, or the lease running out"
            }
            $ log --json
            {
              "schemaVersion": 1,
              "total": 3,
              "events": [
                {
                  "seq": 1,
                  "at": "2026-01-01T00:00:00.000Z",
                  "event": "created",
                  "scope": "default",
                  "task": "a",
                  "number": 1,
                  "to": "open",
                  "policy": "3196836913b05d4b",
                  "data": {
                    "seq": 1,
                    "changes": {
                      "priority": 0,
                      "queue": "tasks",
                      "title": "A"
                    }
                  }
                },
                {
                  "seq": 2,
                  "at": "2026-01-01T00:00:00.000Z",
                  "event": "created",
                  "scope": "default",
                  "task": "b",
                  "number": 1,
                  "to": "open",
                  "policy": "3196836913b05d4b",
                  "data": {
                    "seq": 2,
                    "changes": {
                      "queue": "tasks",
                      "title": "B"
                    }
                  }
                },
                {
                  "seq": 3,
                  "at": "2026-01-01T00:00:02.000Z",
                  "event": "granted",
                  "scope": "default",
                  "task": "a",
                  "number": 2,
                  "from": "open",
                  "to": "active",
                  "actor": "x",
                  "leaseId": "lease-a-1",
                  "policy": "3196836913b05d4b",
                  "data": {
                    "changes": {
                      "assignee": "x",
                      "fence": 1,
                      "leaseExpiresAt": "2026-01-01T00:10:02.000Z",
                      "startedAt": "2026-01-01T00:00:02.000Z"
                    }
                  }
                }
              ]
            }
        "#]],
    );
}

/// Refusals have no data; the message is the same.
#[test]
fn nothing_and_errors() {
    check(
        r#"
        @0 task claim --json
        @0 task show a --json
        @0 why a --json
        @0 task create a --json
        "#,
        expect![[r#"
            $ @0 task claim --json
            ! No eligible tasks
            [2]
            $ @0 task show a --json
            ! error: task 'a' not found
            !   see what there is: rota task list --all
            ! {"schemaVersion":1,"error":{"code":"task_not_found","message":"task 'a' not found","hint":"see what there is: rota task list --all"}}
            [2]
            $ @0 why a --json
            ! error: task 'a' not found
            !   see what there is: rota task list --all
            ! {"schemaVersion":1,"error":{"code":"task_not_found","message":"task 'a' not found","hint":"see what there is: rota task list --all"}}
            [2]
            $ @0 task create a --json
            ! error: missing task title
            ! Usage: rota task create [OPTIONS] <id> <title>
            ! {"schemaVersion":1,"error":{"code":"usage","message":"missing task title"}}
            [1]
        "#]],
    );
}
