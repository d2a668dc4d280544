//! `rota task claim`: one transaction that chooses or checks, grants, and reads what blockers left.

use expect_test::expect;

use crate::support::check;

/// 002 "Claiming": lower number first, then created_at.
#[test]
fn takes_the_most_urgent_then_the_oldest() {
    check(
        r#"
        @0 task create c C -p 2
        @1 task create b B -p 1
        @2 task create a A -p 1
        @3 task create d D -p 0
        @4 task claim --agent x
        @4 task claim --agent x
        @4 task claim --agent x
        @4 task claim --agent x
        @4 task claim --agent x
        "#,
        expect![[r#"
            $ @0 task create c C -p 2
            c
            $ @1 task create b B -p 1
            b
            $ @2 task create a A -p 1
            a
            $ @3 task create d D -p 0
            d
            $ @4 task claim --agent x
            ## Task d
            id: d
            title: D
            priority: 0
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:04Z
            lease_id: lease-d-1
            retry_count: 0
            $ @4 task claim --agent x
            ## Task b
            id: b
            title: B
            priority: 1
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:04Z
            lease_id: lease-b-1
            retry_count: 0
            $ @4 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 1
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:04Z
            lease_id: lease-a-1
            retry_count: 0
            $ @4 task claim --agent x
            ## Task c
            id: c
            title: C
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:04Z
            lease_id: lease-c-1
            retry_count: 0
            $ @4 task claim --agent x
            ! No eligible tasks
            [2]
        "#]],
    );
}

/// markdown-KV with the claim's keys, in order, values on one line each.
#[test]
fn shows_everything_the_holder_needs() {
    check(
        r#"
        @0 task create base Base
        @0 task create other Other
        @0 task create task "A title" -p 1 -c cat -r spec.md --ref REF -d "line one\nline two" -s '["first","se\ncond"]' --deps base,other
        @1 task claim base --agent w
        @2 task done base --agent w --result '{ "commit": "abc", "n": 1.50 }'
        @3 task delete other
        @4 task claim task --agent me --lease 30
        @5 task fail task --agent me --reason "tests\nfailed"
        @6 task claim --agent me
        "#,
        expect![[r#"
            $ @0 task create base Base
            base
            $ @0 task create other Other
            other
            $ @0 task create task "A title" -p 1 -c cat -r spec.md --ref REF -d "line one\nline two" -s '["first","se\ncond"]' --deps base,other
            task
            $ @1 task claim base --agent w
            ## Task base
            id: base
            title: Base
            priority: 2
            status: active
            assignee: w
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-base-1
            retry_count: 0
            $ @2 task done base --agent w --result '{ "commit": "abc", "n": 1.50 }'
            done base
            $ @3 task delete other
            deleted other
            $ @4 task claim task --agent me --lease 30
            ## Task task
            id: task
            title: A title
            priority: 1
            status: active
            category: cat
            spec: spec.md
            ref: REF
            assignee: me
            lease_expires_at: 2026-01-01T00:00:34Z
            lease_id: lease-task-1
            retry_count: 0
            description: line one\nline two
            deps: base, other
            steps:
            - first
            - se\ncond
            blocker_results:
            - base: {"commit":"abc","n":1.50}
            $ @5 task fail task --agent me --reason "tests\nfailed"
            failed task
            $ @6 task claim --agent me
            ## Task task
            id: task
            title: A title
            priority: 1
            status: active
            category: cat
            spec: spec.md
            ref: REF
            assignee: me
            lease_expires_at: 2026-01-01T00:10:06Z
            lease_id: lease-task-2
            retry_count: 1
            last_failure: tests\nfailed
            description: line one\nline two
            deps: base, other
            steps:
            - first
            - se\ncond
            blocker_results:
            - base: {"commit":"abc","n":1.50}
        "#]],
    );
}

/// 002 "Targeted claim": claimed, blocked, done, deleted, paused, parked: exit 2 and why; unknown: 2.
#[test]
fn by_id_only_if_eligible() {
    check(
        r#"
        @0 task create a A
        @0 task create b B --deps a
        @0 task create c C
        @0 task create d D
        @0 task create e E
        @0 task create f F --after 2026-01-01T01:00:00Z
        @1 task claim b
        @1 task claim a --agent x
        @2 task claim a --agent y
        @3 task done a --agent x
        @4 task claim a
        @4 task delete c
        @4 task claim c
        @4 task pause d
        @4 task claim d
        @4 task park e --reason "needs a key"
        @4 task claim e
        @4 task claim f
        @4 task claim nobody
        @5 task claim b --agent y
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B --deps a
            b
            $ @0 task create c C
            c
            $ @0 task create d D
            d
            $ @0 task create e E
            e
            $ @0 task create f F --after 2026-01-01T01:00:00Z
            f
            $ @1 task claim b
            ! Task not eligible
            !   it is blocked by 'a'
            [2]
            $ @1 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-1
            retry_count: 0
            $ @2 task claim a --agent y
            ! Task not eligible
            !   it is leased by 'x' until 2026-01-01T00:10:01Z
            [2]
            $ @3 task done a --agent x
            done a
            $ @4 task claim a
            ! Task not eligible
            !   it is done
            [2]
            $ @4 task delete c
            deleted c
            $ @4 task claim c
            ! Task not eligible
            !   it is deleted
            [2]
            $ @4 task pause d
            paused d
            $ @4 task claim d
            ! Task not eligible
            !   it is paused
            [2]
            $ @4 task park e --reason "needs a key"
            parked e
            $ @4 task claim e
            ! Task not eligible
            !   it is parked
            [2]
            $ @4 task claim f
            ! Task not eligible
            !   it cools down until 2026-01-01T01:00:00Z
            [2]
            $ @4 task claim nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @5 task claim b --agent y
            ## Task b
            id: b
            title: B
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:05Z
            lease_id: lease-b-1
            retry_count: 0
            deps: a
        "#]],
    );
}

/// An empty queue, and one where everything is blocked or held.
#[test]
fn nothing_eligible_is_2() {
    check(
        r#"
        @0 task claim
        @0 task create a A
        @0 task create b B --deps a
        @0 task claim --agent x
        @0 task claim --agent y
        @0 task claim --queue runs
        "#,
        expect![[r#"
            $ @0 task claim
            ! No eligible tasks
            [2]
            $ @0 task create a A
            a
            $ @0 task create b B --deps a
            b
            $ @0 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @0 task claim --agent y
            ! No eligible tasks
            [2]
            $ @0 task claim --queue runs
            ! No eligible tasks
            [2]
        "#]],
    );
}

/// `--category` and `--specs` narrow the choice, also of a claim by id.
#[test]
fn by_category_and_specs() {
    check(
        r#"
        @0 task create a A -p 0 -c docs -r docs/a.md
        @0 task create b B -p 1 -c code -r src/b.rs
        @0 task create c C -p 2
        @1 task claim --category none
        @1 task claim --specs 'lib/*'
        @1 task claim a --category code
        @1 task claim a --specs 'src/*'
        @1 task claim --category code
        @1 task claim --specs 'src/*,docs/*'
        @1 task claim --category "" --specs ""
        "#,
        expect![[r#"
            $ @0 task create a A -p 0 -c docs -r docs/a.md
            a
            $ @0 task create b B -p 1 -c code -r src/b.rs
            b
            $ @0 task create c C -p 2
            c
            $ @1 task claim --category none
            ! No eligible tasks
            [2]
            $ @1 task claim --specs 'lib/*'
            ! No eligible tasks
            [2]
            $ @1 task claim a --category code
            ! Task not eligible
            !   its category or spec is none of those asked for
            [2]
            $ @1 task claim a --specs 'src/*'
            ! Task not eligible
            !   its category or spec is none of those asked for
            [2]
            $ @1 task claim --category code
            ## Task b
            id: b
            title: B
            priority: 1
            status: active
            category: code
            spec: src/b.rs
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-b-1
            retry_count: 0
            $ @1 task claim --specs 'src/*,docs/*'
            ## Task a
            id: a
            title: A
            priority: 0
            status: active
            category: docs
            spec: docs/a.md
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task claim --category "" --specs ""
            ## Task c
            id: c
            title: C
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-c-1
            retry_count: 0
        "#]],
    );
}

/// Default 600 s; `--lease` is a whole number from 0.
#[test]
fn leases_last_600_seconds_unless_told() {
    check(
        r#"
        @0 task create a A
        @0 task claim --lease 0 --agent x
        @0 task claim --lease 90 --agent y
        @90 task claim
        @91 task claim --lease -1
        @91 task claim --lease 1.5
        @91 task claim --lease ten
        @91 task claim --lease ""
        @91 task claim --lease
        @91 task claim --lease 99999999999999999999
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim --lease 0 --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:00:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @0 task claim --lease 90 --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:01:30Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: lease expired (host did not complete)
            $ @90 task claim
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:11:30Z
            lease_id: lease-a-3
            retry_count: 2
            last_failure: lease expired (host did not complete)
            $ @91 task claim --lease -1
            ! error: --lease must be a non-negative integer, got: -1
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ @91 task claim --lease 1.5
            ! error: --lease must be a non-negative integer, got: 1.5
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ @91 task claim --lease ten
            ! error: --lease must be a non-negative integer, got: ten
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ @91 task claim --lease ""
            ! error: --lease must be a non-negative integer, got: 
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ @91 task claim --lease
            ! error: --lease requires a value
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
            $ @91 task claim --lease 99999999999999999999
            ! error: --lease must be a non-negative integer, got: 99999999999999999999
            ! Usage: rota task claim [OPTIONS] [id]
            [1]
        "#]],
    );
}

/// 002 "Lease-based recovery": expired means lease_expires_at <= now; the attempt is counted.
#[test]
fn an_expired_lease_is_claimable_and_counted() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent dead --lease 600
        @599 task claim a --agent alive
        @599 task claim --agent alive
        @600 task claim a --agent alive
        @1200 task claim --agent third
        @1201 task attempts a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim a --agent dead --lease 600
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: dead
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @599 task claim a --agent alive
            ! Task not eligible
            !   it is leased by 'dead' until 2026-01-01T00:10:00Z
            [2]
            $ @599 task claim --agent alive
            ! No eligible tasks
            [2]
            $ @600 task claim a --agent alive
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: alive
            lease_expires_at: 2026-01-01T00:20:00Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: lease expired (host did not complete)
            $ @1200 task claim --agent third
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: third
            lease_expires_at: 2026-01-01T00:30:00Z
            lease_id: lease-a-3
            retry_count: 2
            last_failure: lease expired (host did not complete)
            $ @1201 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME  REASON
            lease-a-1    dead     2026-01-01T00:00:00Z 2026-01-01T00:10:00Z lost     lease expired (host did not complete)
            lease-a-2    alive    2026-01-01T00:10:00Z 2026-01-01T00:20:00Z lost     lease expired (host did not complete)
            lease-a-3    third    2026-01-01T00:20:00Z -                    -        -
        "#]],
    );
}

/// An edge written while it was held still holds it back.
#[test]
fn a_blocked_expired_one_is_not_taken() {
    check(
        r#"
        @0 task create a A
        @0 task create b B -p 9
        @0 task claim a --agent dead --lease 10
        @1 task block a --by b
        @20 task claim a
        @20 task claim --agent x
        @21 task done b --agent x
        @22 task claim --agent x
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B -p 9
            b
            $ @0 task claim a --agent dead --lease 10
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: dead
            lease_expires_at: 2026-01-01T00:00:10Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task block a --by b
            blocked a by b
            $ @20 task claim a
            ! Task not eligible
            !   it is blocked by 'b'
            [2]
            $ @20 task claim --agent x
            ## Task b
            id: b
            title: B
            priority: 9
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:20Z
            lease_id: lease-b-1
            retry_count: 0
            $ @21 task done b --agent x
            done b
            $ @22 task claim --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:22Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: lease expired (host did not complete)
            deps: b
        "#]],
    );
}
