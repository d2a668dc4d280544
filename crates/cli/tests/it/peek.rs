//! `rota task peek`: the top of the queue and everything under way, read-only.

use expect_test::expect;

use crate::support::check;

/// Nothing to show is no output and exit 0.
#[test]
fn is_empty_without_tasks() {
    check(
        r#"
        task peek
        "#,
        expect![[r#"
            $ task peek
        "#]],
    );
}

/// 002 "Peek": top N claimable by priority, then age; all active regardless of N, with their assignee.
#[test]
fn shows_the_top_and_all_active_ones() {
    check(
        r#"
        @0 task create low Low -p 3 -c docs -r specs/a.md --ref R -s '["one","two"]'
        @1 task create old Old
        @2 task create new New
        @3 task create top Top -p 0
        @4 task create blocked Blocked -p 0 --deps low
        @5 task create busy1 Busy -p 9
        @6 task create busy2 Busy -p 0
        @7 task claim busy1 --agent a1
        @7 task claim busy2 --agent a2
        @8 task peek
        @8 task peek -n 1
        @8 task peek -n 0
        @8 task peek -n 18446744073709551615 --specs 'specs/*'
        @8 task peek -n x
        @8 task peek -n -1
        "#,
        expect![[r#"
            $ @0 task create low Low -p 3 -c docs -r specs/a.md --ref R -s '["one","two"]'
            low
            $ @1 task create old Old
            old
            $ @2 task create new New
            new
            $ @3 task create top Top -p 0
            top
            $ @4 task create blocked Blocked -p 0 --deps low
            blocked
            $ @5 task create busy1 Busy -p 9
            busy1
            $ @6 task create busy2 Busy -p 0
            busy2
            $ @7 task claim busy1 --agent a1
            ## Task busy1
            id: busy1
            title: Busy
            priority: 9
            status: active
            assignee: a1
            lease_expires_at: 2026-01-01T00:10:07Z
            lease_id: lease-busy1-1
            retry_count: 0
            $ @7 task claim busy2 --agent a2
            ## Task busy2
            id: busy2
            title: Busy
            priority: 0
            status: active
            assignee: a2
            lease_expires_at: 2026-01-01T00:10:07Z
            lease_id: lease-busy2-1
            retry_count: 0
            $ @8 task peek
            ## Task top
            id: top
            title: Top
            priority: 0
            status: open

            ## Task old
            id: old
            title: Old
            priority: 2
            status: open

            ## Task new
            id: new
            title: New
            priority: 2
            status: open

            ## Task low
            id: low
            title: Low
            priority: 3
            status: open
            category: docs
            spec: specs/a.md
            ref: R
            steps:
            - one
            - two

            ## Task busy2
            id: busy2
            title: Busy
            priority: 0
            status: active
            assignee: a2

            ## Task busy1
            id: busy1
            title: Busy
            priority: 9
            status: active
            assignee: a1
            $ @8 task peek -n 1
            ## Task top
            id: top
            title: Top
            priority: 0
            status: open

            ## Task busy2
            id: busy2
            title: Busy
            priority: 0
            status: active
            assignee: a2

            ## Task busy1
            id: busy1
            title: Busy
            priority: 9
            status: active
            assignee: a1
            $ @8 task peek -n 0
            ## Task busy2
            id: busy2
            title: Busy
            priority: 0
            status: active
            assignee: a2

            ## Task busy1
            id: busy1
            title: Busy
            priority: 9
            status: active
            assignee: a1
            $ @8 task peek -n 18446744073709551615 --specs 'specs/*'
            ## Task low
            id: low
            title: Low
            priority: 3
            status: open
            category: docs
            spec: specs/a.md
            ref: R
            steps:
            - one
            - two
            $ @8 task peek -n x
            ! error: -n must be a non-negative integer, got: x
            ! Usage: rota task peek [OPTIONS]
            [1]
            $ @8 task peek -n -1
            ! error: -n must be a non-negative integer, got: -1
            ! Usage: rota task peek [OPTIONS]
            [1]
        "#]],
    );
}

/// `--specs`: comma-separated globs on the task's spec, for claimable and active ones.
#[test]
fn limits_to_specs() {
    check(
        r#"
        @0 task create a A -r specs/a.md
        @0 task create b B -r docs/b.md
        @0 task create c C
        @0 task create d D -r specs/d.md
        @0 task claim d
        @1 task peek --specs 'specs/*'
        @1 task peek --specs '*/a.md,docs/?.md'
        @1 task peek --specs nothing
        "#,
        expect![[r#"
            $ @0 task create a A -r specs/a.md
            a
            $ @0 task create b B -r docs/b.md
            b
            $ @0 task create c C
            c
            $ @0 task create d D -r specs/d.md
            d
            $ @0 task claim d
            ## Task d
            id: d
            title: D
            priority: 2
            status: active
            spec: specs/d.md
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-d-1
            retry_count: 0
            $ @1 task peek --specs 'specs/*'
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
            spec: specs/a.md

            ## Task d
            id: d
            title: D
            priority: 2
            status: active
            spec: specs/d.md
            $ @1 task peek --specs '*/a.md,docs/?.md'
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
            spec: specs/a.md

            ## Task b
            id: b
            title: B
            priority: 2
            status: open
            spec: docs/b.md
            $ @1 task peek --specs nothing
        "#]],
    );
}

/// At its place, as open, without assignee; claiming it counts an attempt.
#[test]
fn shows_an_expired_lease_once_as_open() {
    check(
        r#"
        @0 task create a A -p 5
        @0 task create b B -p 1
        @0 task claim b --agent dead --lease 60
        @59 task peek
        @60 task peek
        @60 task peek -n 1
        @61 task claim --agent alive
        "#,
        expect![[r#"
            $ @0 task create a A -p 5
            a
            $ @0 task create b B -p 1
            b
            $ @0 task claim b --agent dead --lease 60
            ## Task b
            id: b
            title: B
            priority: 1
            status: active
            assignee: dead
            lease_expires_at: 2026-01-01T00:01:00Z
            lease_id: lease-b-1
            retry_count: 0
            $ @59 task peek
            ## Task a
            id: a
            title: A
            priority: 5
            status: open

            ## Task b
            id: b
            title: B
            priority: 1
            status: active
            assignee: dead
            $ @60 task peek
            ## Task b
            id: b
            title: B
            priority: 1
            status: open

            ## Task a
            id: a
            title: A
            priority: 5
            status: open
            $ @60 task peek -n 1
            ## Task b
            id: b
            title: B
            priority: 1
            status: open
            $ @61 task claim --agent alive
            ## Task b
            id: b
            title: B
            priority: 1
            status: active
            assignee: alive
            lease_expires_at: 2026-01-01T00:11:01Z
            lease_id: lease-b-2
            retry_count: 1
            last_failure: lease expired (host did not complete)
        "#]],
    );
}

/// Not claimable, so it is still shown as what it is.
#[test]
fn an_expired_lease_that_is_blocked_stays_active() {
    check(
        r#"
        @0 task create a A
        @0 task create b B
        @0 task claim a --agent dead --lease 60
        @1 task block a --by b
        @90 task peek
        @91 task claim a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B
            b
            $ @0 task claim a --agent dead --lease 60
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: dead
            lease_expires_at: 2026-01-01T00:01:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task block a --by b
            blocked a by b
            $ @90 task peek
            ## Task b
            id: b
            title: B
            priority: 2
            status: open

            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: dead
            deps: b
            $ @91 task claim a
            ! Task not eligible
            !   it is blocked by 'b'
            [2]
        "#]],
    );
}

/// Peek is no claim: what it shows stays claimable, and the journal says nothing of it.
#[test]
fn changes_nothing() {
    check(
        r#"
        @0 task create a A
        @1 task peek
        @1 task peek
        log -n 5
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @1 task peek
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
            $ @1 task peek
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
            $ log -n 5
            2026-01-01T00:00:00.000Z      1  created a
        "#]],
    );
}
