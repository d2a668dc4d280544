//! `--json` of verbs that show one task: the key order of the contract, absent fields left out.

use expect_test::expect;

use crate::support::check;

/// A task, in the key order of the contract; absent fields left out.
#[test]
fn tasks() {
    check(
        r#"
        @0 task create base Base --json
        @1 task create a A -p 1 -c cat -r spec --ref ref -d text -s '["one","two"]' --deps base --after 2026-01-01T00:00:02Z --json
        @2 task claim base --agent w --json
        @3 task renew base --agent w --lease 60 --json
        @4 task done base --agent w --result '{"commit":"abc","n":1.50}' --json
        @5 task claim a --agent x --json
        @6 task fail a --agent x --reason "no luck" --json
        @7 task show a --with-deps --json
        "#,
        expect![[r#"
            $ @0 task create base Base --json
            {
              "schemaVersion": 1,
              "id": "base",
              "scope": "default",
              "queue": "tasks",
              "title": "Base",
              "status": "open",
              "priority": 2,
              "fence": 0,
              "attempts": 0,
              "readyAt": "2026-01-01T00:00:00.000Z",
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:00.000Z"
            }
            $ @1 task create a A -p 1 -c cat -r spec --ref ref -d text -s '["one","two"]' --deps base --after 2026-01-01T00:00:02Z --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "open",
              "priority": 1,
              "category": "cat",
              "spec": "spec",
              "ref": "ref",
              "description": "text",
              "steps": [
                "one",
                "two"
              ],
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "nextEligibleAt": "2026-01-01T00:00:02.000Z",
              "createdAt": "2026-01-01T00:00:01.000Z",
              "updatedAt": "2026-01-01T00:00:01.000Z"
            }
            $ @2 task claim base --agent w --json
            {
              "schemaVersion": 1,
              "id": "base",
              "scope": "default",
              "queue": "tasks",
              "title": "Base",
              "status": "active",
              "priority": 2,
              "assignee": "w",
              "leaseId": "lease-base-1",
              "leaseExpiresAt": "2026-01-01T00:10:02.000Z",
              "fence": 1,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:02.000Z",
              "startedAt": "2026-01-01T00:00:02.000Z"
            }
            $ @3 task renew base --agent w --lease 60 --json
            {
              "schemaVersion": 1,
              "id": "base",
              "scope": "default",
              "queue": "tasks",
              "title": "Base",
              "status": "active",
              "priority": 2,
              "assignee": "w",
              "leaseId": "lease-base-1",
              "leaseExpiresAt": "2026-01-01T00:01:03.000Z",
              "fence": 1,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:03.000Z",
              "startedAt": "2026-01-01T00:00:02.000Z"
            }
            $ @4 task done base --agent w --result '{"commit":"abc","n":1.50}' --json
            {
              "schemaVersion": 1,
              "id": "base",
              "scope": "default",
              "queue": "tasks",
              "title": "Base",
              "status": "done",
              "priority": 2,
              "assignee": "w",
              "fence": 1,
              "attempts": 0,
              "result": {
                "commit": "abc",
                "n": 1.50
              },
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:04.000Z",
              "startedAt": "2026-01-01T00:00:02.000Z",
              "finishedAt": "2026-01-01T00:00:04.000Z"
            }
            $ @5 task claim a --agent x --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "active",
              "priority": 1,
              "category": "cat",
              "spec": "spec",
              "ref": "ref",
              "description": "text",
              "steps": [
                "one",
                "two"
              ],
              "deps": [
                "base"
              ],
              "assignee": "x",
              "leaseId": "lease-a-1",
              "leaseExpiresAt": "2026-01-01T00:10:05.000Z",
              "fence": 1,
              "attempts": 0,
              "nextEligibleAt": "2026-01-01T00:00:02.000Z",
              "createdAt": "2026-01-01T00:00:01.000Z",
              "updatedAt": "2026-01-01T00:00:05.000Z",
              "startedAt": "2026-01-01T00:00:05.000Z",
              "blockerResults": [
                {
                  "id": "base",
                  "result": {
                    "commit": "abc",
                    "n": 1.50
                  }
                }
              ]
            }
            $ @6 task fail a --agent x --reason "no luck" --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "open",
              "priority": 1,
              "category": "cat",
              "spec": "spec",
              "ref": "ref",
              "description": "text",
              "steps": [
                "one",
                "two"
              ],
              "deps": [
                "base"
              ],
              "fence": 1,
              "attempts": 1,
              "readyAt": "2026-01-01T00:00:06.000Z",
              "failReason": "no luck",
              "createdAt": "2026-01-01T00:00:01.000Z",
              "updatedAt": "2026-01-01T00:00:06.000Z",
              "startedAt": "2026-01-01T00:00:05.000Z"
            }
            $ @7 task show a --with-deps --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "open",
              "priority": 1,
              "category": "cat",
              "spec": "spec",
              "ref": "ref",
              "description": "text",
              "steps": [
                "one",
                "two"
              ],
              "deps": [
                "base"
              ],
              "fence": 1,
              "attempts": 1,
              "readyAt": "2026-01-01T00:00:06.000Z",
              "failReason": "no luck",
              "createdAt": "2026-01-01T00:00:01.000Z",
              "updatedAt": "2026-01-01T00:00:06.000Z",
              "startedAt": "2026-01-01T00:00:05.000Z",
              "blockers": [
                {
                  "id": "base",
                  "status": "done",
                  "title": "Base",
                  "result": {
                    "commit": "abc",
                    "n": 1.50
                  }
                }
              ]
            }
        "#]],
    );
}

/// Every verb that moves a task shows it afterwards, with its deps.
#[test]
fn moves() {
    check(
        r#"
        @0 task create base Base
        @0 task create a A --deps base
        @0 task pause a --json
        @1 task resume a --json
        @2 task park a --reason why --json
        @3 task reset a --json
        @4 task delete a --json
        @5 task undelete a --json
        @6 task update a --title New --json
        @7 task claim base
        @8 task release base --json
        "#,
        expect![[r#"
            $ @0 task create base Base
            base
            $ @0 task create a A --deps base
            a
            $ @0 task pause a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "paused",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:00.000Z"
            }
            $ @1 task resume a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "open",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:01.000Z"
            }
            $ @2 task park a --reason why --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "parked",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "parkedReason": "why",
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:02.000Z"
            }
            $ @3 task reset a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "open",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:03.000Z"
            }
            $ @4 task delete a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "deleted",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:04.000Z",
              "finishedAt": "2026-01-01T00:00:04.000Z"
            }
            $ @5 task undelete a --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "A",
              "status": "open",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:05.000Z"
            }
            $ @6 task update a --title New --json
            {
              "schemaVersion": 1,
              "id": "a",
              "scope": "default",
              "queue": "tasks",
              "title": "New",
              "status": "open",
              "priority": 2,
              "deps": [
                "base"
              ],
              "fence": 0,
              "attempts": 0,
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:06.000Z"
            }
            $ @7 task claim base
            ## Task base
            id: base
            title: Base
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:07Z
            lease_id: lease-base-1
            retry_count: 0
            $ @8 task release base --json
            {
              "schemaVersion": 1,
              "id": "base",
              "scope": "default",
              "queue": "tasks",
              "title": "Base",
              "status": "open",
              "priority": 2,
              "fence": 1,
              "attempts": 0,
              "readyAt": "2026-01-01T00:00:08.000Z",
              "createdAt": "2026-01-01T00:00:00.000Z",
              "updatedAt": "2026-01-01T00:00:08.000Z",
              "startedAt": "2026-01-01T00:00:07.000Z"
            }
        "#]],
    );
}
