//! `rota task update`.

use expect_test::expect;

use crate::support::check;

/// What is given changes, the rest stays; an empty description clears it.
#[test]
fn fields() {
    check(
        r#"
        @0 task create a A -p 1 -d text -s '["one"]' -c cat
        @1 task update a --title "New title" --priority 0 --description "new text" --steps '["x","y"]'
        @1 task show a
        @2 task update a -p 3 -d "" -s '[]'
        @2 task show a
        @3 task update a --title ""
        @3 task update a --priority -1
        @3 task update a --priority 1.5
        @3 task update a --steps nope
        @3 task update a
        @3 task update
        @3 task update nobody --title T
        @3 task update a --bogus
        "#,
        expect![[r#"
            $ @0 task create a A -p 1 -d text -s '["one"]' -c cat
            a
            $ @1 task update a --title "New title" --priority 0 --description "new text" --steps '["x","y"]'
            updated a
            $ @1 task show a
            ID:          a
            Title:       New title
            Status:      open
            Priority:    0
            Category:    cat
            Description: new text
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
            Steps:
              1. x
              2. y
            $ @2 task update a -p 3 -d "" -s '[]'
            updated a
            $ @2 task show a
            ID:          a
            Title:       New title
            Status:      open
            Priority:    3
            Category:    cat
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            $ @3 task update a --title ""
            ! error: title is empty
            [1]
            $ @3 task update a --priority -1
            ! error: -p (priority) must be a non-negative integer, got: -1
            ! Usage: rota task update [OPTIONS] <id>
            [1]
            $ @3 task update a --priority 1.5
            ! error: -p (priority) must be a non-negative integer, got: 1.5
            ! Usage: rota task update [OPTIONS] <id>
            [1]
            $ @3 task update a --steps nope
            ! error: -s (steps) must be a JSON array of texts: expected ident at line 1 column 2
            ! Usage: rota task update [OPTIONS] <id>
            [1]
            $ @3 task update a
            ! error: no fields to update
            ! Usage: rota task update [OPTIONS] <id>
            [1]
            $ @3 task update
            ! error: missing task ID
            ! Usage: rota task update [OPTIONS] <id>
            [1]
            $ @3 task update nobody --title T
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @3 task update a --bogus
            ! error: unknown flag '--bogus'
            ! Usage: rota task update [OPTIONS] <id>
            [1]
        "#]],
    );
}

/// A done task is immutable: 1.
#[test]
fn done_is_immutable() {
    check(
        r#"
        @0 task create a A
        @0 task claim a
        @0 task done a
        @1 task update a --title T
        @1 task update a --status open
        @1 task update a --status done
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim a
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @0 task done a
            done a
            $ @1 task update a --title T
            ! error: task 'a' is done and cannot be updated
            [1]
            $ @1 task update a --status open
            ! error: task 'a' is done and cannot be updated
            [1]
            $ @1 task update a --status done
            ! error: task 'a' is done and cannot be updated
            [1]
        "#]],
    );
}

/// DESIGN 13.28: done from open and active; open, paused, deleted through the machine; others refused.
#[test]
fn status_goes_through_the_state_machine() {
    check(
        r#"
        @0 task create a A
        @0 task update a --status active
        @0 task update a --status parked
        @0 task update a --status failed
        @0 task update a --status invalidated
        @0 task update a --status bogus
        @0 task update a --status paused
        @1 task update a --status done
        @1 task update a --status open
        @1 task claim a --agent x
        @2 task update a --status open --agent x
        @2 task done a --agent x
        @3 task claim a --agent x
        @3 task update a --status paused --agent x
        @3 task update a --status deleted
        @3 task update a --status open
        @4 task park a --reason r
        @4 task update a --status parked
        @4 task update a --status open
        @5 task claim a --agent x
        @6 task update a --title Renamed --status done --lease-id lease-a-3
        @6 task done a --agent x
        @6 task show a
        log --task a -n 2
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task update a --status active
            ! error: --status takes open, paused, done or deleted, got: active
            [1]
            $ @0 task update a --status parked
            ! error: --status takes open, paused, done or deleted, got: parked
            [1]
            $ @0 task update a --status failed
            ! error: --status takes open, paused, done or deleted, got: failed
            [1]
            $ @0 task update a --status invalidated
            ! error: --status takes open, paused, done or deleted, got: invalidated
            [1]
            $ @0 task update a --status bogus
            ! error: unknown status 'bogus' (known: open, active, paused, done, failed, parked, invalidated, deleted)
            [1]
            $ @0 task update a --status paused
            updated a
            $ @1 task update a --status done
            ! error: task 'a' cannot be marked done (status: paused); only open and active tasks can
            [1]
            $ @1 task update a --status open
            updated a
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
            $ @2 task update a --status open --agent x
            updated a
            $ @2 task done a --agent x
            ! error: task 'a' is not active (status: open)
            !   claim it first: rota task claim a
            [1]
            $ @3 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:03Z
            lease_id: lease-a-2
            retry_count: 0
            $ @3 task update a --status paused --agent x
            updated a
            $ @3 task update a --status deleted
            updated a
            $ @3 task update a --status open
            updated a
            $ @4 task park a --reason r
            parked a
            $ @4 task update a --status parked
            ! error: --status takes open, paused, done or deleted, got: parked
            [1]
            $ @4 task update a --status open
            updated a
            $ @5 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:05Z
            lease_id: lease-a-3
            retry_count: 0
            $ @6 task update a --title Renamed --status done --lease-id lease-a-3
            updated a
            $ @6 task done a --agent x
            ! error: task 'a' is not active (status: done)
            [1]
            $ @6 task show a
            ID:          a
            Title:       Renamed
            Status:      done
            Priority:    2
            Assignee:    x
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:06Z
            $ log --task a -n 2
            2026-01-01T00:00:06.000Z     13  edited a
            2026-01-01T00:00:06.000Z     14  overridden a  active -> done  lease-a-3
        "#]],
    );
}

/// One transaction: all of it or nothing.
#[test]
fn a_refused_status_leaves_the_fields_alone() {
    check(
        r#"
        @0 task create a A
        @0 task park a --reason r
        @1 task update a --title B --status done
        @1 task show a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task park a --reason r
            parked a
            $ @1 task update a --title B --status done
            ! error: task 'a' cannot be marked done (status: parked); only open and active tasks can
            [1]
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      parked
            Priority:    2
            Parked:      r
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:00Z
        "#]],
    );
}
