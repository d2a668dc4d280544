//! `block`, `unblock`, `deps`: who waits for whom.

use expect_test::expect;

use crate::support::check;

/// Adding twice is fine; unknown task or edge: 2.
#[test]
fn blocking() {
    check(
        r#"
        @0 task create a A
        @0 task create b B
        @0 task block a --by b
        @0 task block a --by b
        @0 task show a
        @0 task claim a
        @0 task unblock a --by b
        @0 task unblock a --by b
        @0 task block nobody --by a
        @0 task block a --by nobody
        @0 task unblock nobody --by a
        @0 task unblock a --by nobody
        @0 task block a
        @0 task block
        @0 task unblock a
        @0 task block a --by
        @0 task claim a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B
            b
            $ @0 task block a --by b
            blocked a by b
            $ @0 task block a --by b
            blocked a by b
            $ @0 task show a
            ID:          a
            Title:       A
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:00Z
            Dependencies:
              b (open)
            $ @0 task claim a
            ! Task not eligible
            !   it is blocked by 'b'
            [2]
            $ @0 task unblock a --by b
            unblocked a from b
            $ @0 task unblock a --by b
            ! error: dependency not found
            [2]
            $ @0 task block nobody --by a
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @0 task block a --by nobody
            ! error: blocker task 'nobody' not found
            [2]
            $ @0 task unblock nobody --by a
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @0 task unblock a --by nobody
            ! error: blocker task 'nobody' not found
            [2]
            $ @0 task block a
            ! error: missing --by
            ! Usage: rota task block [OPTIONS] --by <ID> <id>
            [1]
            $ @0 task block
            ! error: missing task ID
            ! Usage: rota task block [OPTIONS] --by <ID> <id>
            [1]
            $ @0 task unblock a
            ! error: missing --by
            ! Usage: rota task unblock [OPTIONS] --by <ID> <id>
            [1]
            $ @0 task block a --by
            ! error: --by requires a value
            ! Usage: rota task block [OPTIONS] --by <ID> <id>
            [1]
            $ @0 task claim a
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
        "#]],
    );
}

/// DESIGN 13.16.
#[test]
fn cycles_are_refused_with_their_path() {
    check(
        r#"
        @0 task create a A
        @0 task create b B --deps a
        @0 task create c C --deps b
        @0 task block a --by c
        @0 task block a --by a
        @0 task block c --by a
        @0 task deps a
        @0 task deps c
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B --deps a
            b
            $ @0 task create c C --deps b
            c
            $ @0 task block a --by c
            ! error: a -> c -> b -> a would be a cycle
            [1]
            $ @0 task block a --by a
            ! error: a -> a would be a cycle
            [1]
            $ @0 task block c --by a
            blocked c by a
            $ @0 task deps a
            (no dependencies)
            $ @0 task deps c
            a [open] A
            b [open] B
              a [open] A
        "#]],
    );
}

/// DESIGN 13.14 and 13.15: a parked or paused blocker still blocks.
#[test]
fn an_edge_is_satisfied_by_done_or_deleted() {
    check(
        r#"
        @0 task create a A
        @0 task create b B
        @0 task create t T --deps a,b
        @0 task claim a
        @1 task done a
        @1 task claim t
        @1 task park b --reason r
        @1 task claim t
        @1 task reset b
        @1 task pause b
        @1 task claim t
        @2 task delete b
        @2 task claim t
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B
            b
            $ @0 task create t T --deps a,b
            t
            $ @0 task claim a
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-a-1
            retry_count: 0
            $ @1 task done a
            done a
            $ @1 task claim t
            ! Task not eligible
            !   it is blocked by 'b'
            [2]
            $ @1 task park b --reason r
            parked b
            $ @1 task claim t
            ! Task not eligible
            !   it is blocked by 'b'
            [2]
            $ @1 task reset b
            reset b
            $ @1 task pause b
            paused b
            $ @1 task claim t
            ! Task not eligible
            !   it is blocked by 'b'
            [2]
            $ @2 task delete b
            deleted b
            $ @2 task claim t
            ## Task t
            id: t
            title: T
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:02Z
            lease_id: lease-t-1
            retry_count: 0
            deps: a, b
        "#]],
    );
}

/// What was satisfied by a deletion is open again.
#[test]
fn undeleting_a_blocker_blocks_again() {
    check(
        r#"
        @0 task create a A
        @0 task create t T --deps a
        @0 task delete a
        @1 task peek
        @2 task undelete a
        @2 task peek
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create t T --deps a
            t
            $ @0 task delete a
            deleted a
            $ @1 task peek
            ## Task t
            id: t
            title: T
            priority: 2
            status: open
            deps: a
            $ @2 task undelete a
            undeleted a
            $ @2 task peek
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
        "#]],
    );
}

/// Direct ones unindented, two spaces per further level, the task itself not printed.
#[test]
fn deps_are_a_tree() {
    check(
        r#"
        @0 task create base Base
        @0 task create left Left --deps base
        @0 task create right Right --deps base
        @0 task create top Top --deps left,right
        @0 task deps top
        @0 task deps left
        @0 task deps base
        @0 task deps nobody
        @0 task deps
        "#,
        expect![[r#"
            $ @0 task create base Base
            base
            $ @0 task create left Left --deps base
            left
            $ @0 task create right Right --deps base
            right
            $ @0 task create top Top --deps left,right
            top
            $ @0 task deps top
            left [open] Left
              base [open] Base
            right [open] Right
              base [open] Base
            $ @0 task deps left
            base [open] Base
            $ @0 task deps base
            (no dependencies)
            $ @0 task deps nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @0 task deps
            ! error: missing task ID
            ! Usage: rota task deps [OPTIONS] <id>
            [1]
        "#]],
    );
}
