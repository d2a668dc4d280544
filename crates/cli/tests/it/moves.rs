//! `park`, `reset`, `pause`, `resume`, `undelete`: the state machine by hand.

use expect_test::expect;

use crate::support::check;

/// Parked tasks come back only by `reset`, with attempts forgotten and the fence kept.
#[test]
fn park_and_reset() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent x
        @1 task fail a --agent x --reason r
        @1 task claim a --agent x
        @2 task park a --agent y --reason "not mine"
        @2 task park a --agent x --reason "needs a key"
        @2 task show a
        @3 task claim a
        @3 task park a --reason again
        @3 task resume a
        @4 task reset a
        @4 task show a
        @4 task reset a
        @4 task claim a
        @5 task park a --reason "by a person"
        @5 task park a
        @5 task park
        @5 task park a --reason ""
        @5 task park nobody --reason r
        @5 task reset nobody
        @5 task reset
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task fail a --agent x --reason r
            failed a
            $ @1 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: r
            $ @2 task park a --agent y --reason "not mine"
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-2 until 2026-01-01T00:10:01Z
            [1]
            $ @2 task park a --agent x --reason "needs a key"
            parked a
            $ @2 task show a
            ID:          a
            Title:       A
            Status:      parked
            Priority:    2
            Retries:     1
            Fail reason: r
            Parked:      needs a key
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            $ @3 task claim a
            ! Task not eligible
            !   it is parked
            [2]
            $ @3 task park a --reason again
            ! error: task 'a' cannot be parked (status: parked); only open, active, paused and failed tasks can
            [1]
            $ @3 task resume a
            ! error: task 'a' cannot be resumed (status: parked); only paused tasks can
            [1]
            $ @4 task reset a
            reset a
            $ @4 task show a
            ID:          a
            Title:       A
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:04Z
            $ @4 task reset a
            ! error: task 'a' cannot be reset (status: open); only parked, failed and invalidated tasks can
            [1]
            $ @4 task claim a
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:04Z
            lease_id: lease-a-3
            retry_count: 0
            $ @5 task park a --reason "by a person"
            parked a
            $ @5 task park a
            ! error: missing --reason
            ! Usage: rota task park [OPTIONS] --reason <TEXT> <id>
            [1]
            $ @5 task park
            ! error: missing task ID
            ! Usage: rota task park [OPTIONS] --reason <TEXT> <id>
            [1]
            $ @5 task park a --reason ""
            ! error: missing --reason
            ! Usage: rota task park [OPTIONS] --reason <TEXT> <id>
            [1]
            $ @5 task park nobody --reason r
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @5 task reset nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @5 task reset
            ! error: missing task ID
            ! Usage: rota task reset [OPTIONS] <id>
            [1]
        "#]],
    );
}

/// Pausing an active task ends its lease as released.
#[test]
fn pause_and_resume() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent x
        @1 task pause a
        @1 task show a
        @1 task pause a
        @1 task claim a
        @1 task done a --agent x
        @2 task resume a
        @2 task resume a
        @2 task claim --agent y
        @2 task attempts a
        @2 task pause nobody
        @2 task pause
        @2 task resume nobody
        @2 task resume
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task pause a
            paused a
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      paused
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
            $ @1 task pause a
            ! error: task 'a' cannot be paused (status: paused); only open and active tasks can
            [1]
            $ @1 task claim a
            ! Task not eligible
            !   it is paused
            [2]
            $ @1 task done a --agent x
            ! error: task 'a' is not active (status: paused)
            [1]
            $ @2 task resume a
            resumed a
            $ @2 task resume a
            ! error: task 'a' cannot be resumed (status: open); only paused tasks can
            [1]
            $ @2 task claim --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:02Z
            lease_id: lease-a-2
            retry_count: 0
            $ @2 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME  REASON
            lease-a-1    x        2026-01-01T00:00:00Z 2026-01-01T00:00:01Z released -
            lease-a-2    y        2026-01-01T00:00:02Z -                    -        -
            $ @2 task pause nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @2 task pause
            ! error: missing task ID
            ! Usage: rota task pause [OPTIONS] <id>
            [1]
            $ @2 task resume nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @2 task resume
            ! error: missing task ID
            ! Usage: rota task resume [OPTIONS] <id>
            [1]
        "#]],
    );
}

/// A deleted task is open again; others are refused.
#[test]
fn undelete() {
    check(
        r#"
        @0 task create a A
        @1 task undelete a
        @1 task delete a
        @1 task show a
        @1 task delete a
        @2 task undelete a
        @2 task show a
        @2 task undelete nobody
        @2 task undelete
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @1 task undelete a
            ! error: task 'a' cannot be undeleted (status: open); only deleted tasks can
            [1]
            $ @1 task delete a
            deleted a
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      deleted
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
            Deleted:     2026-01-01T00:00:01Z
            $ @1 task delete a
            ! error: task 'a' cannot be deleted (status: deleted); only open, active, paused, done, failed, parked and invalidated tasks can
            [1]
            $ @2 task undelete a
            undeleted a
            $ @2 task show a
            ID:          a
            Title:       A
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            $ @2 task undelete nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @2 task undelete
            ! error: missing task ID
            ! Usage: rota task undelete [OPTIONS] <id>
            [1]
        "#]],
    );
}
