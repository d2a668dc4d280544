//! `rota task plan-status`.

use expect_test::expect;

use crate::support::check;

/// Blocked ones are counted as blocked only; the other states appear where not zero.
#[test]
fn counts() {
    check(
        r#"
        task plan-status
        @0 task create a A -r s/a
        @0 task create b B -r s/a --deps a
        @0 task create c C -r s/b
        @0 task create d D -r s/b
        @0 task create e E
        @0 task create f F --deps e
        @1 task claim c --agent x
        @1 task claim e --agent x
        @1 task block e --by d
        @1 task plan-status
        @1 task plan-status --specs 's/a'
        @1 task plan-status --specs 's/*'
        @1 task plan-status --specs 'x'
        @2 task done c --agent x
        @2 task delete d
        @2 task plan-status
        @2 task park a --reason r
        @2 task plan-status
        @2 task create p P
        @2 task pause p
        @2 task plan-status
        @2 task plan-status --queue runs
        "#,
        expect![[r#"
            $ task plan-status
            0 open, 0 active, 0 done, 0 blocked, 0 deleted
            $ @0 task create a A -r s/a
            a
            $ @0 task create b B -r s/a --deps a
            b
            $ @0 task create c C -r s/b
            c
            $ @0 task create d D -r s/b
            d
            $ @0 task create e E
            e
            $ @0 task create f F --deps e
            f
            $ @1 task claim c --agent x
            ## Task c
            id: c
            title: C
            priority: 2
            status: active
            spec: s/b
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-c-1
            retry_count: 0
            $ @1 task claim e --agent x
            ## Task e
            id: e
            title: E
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-e-1
            retry_count: 0
            $ @1 task block e --by d
            blocked e by d
            $ @1 task plan-status
            2 open, 1 active, 0 done, 3 blocked, 0 deleted
            $ @1 task plan-status --specs 's/a'
            1 open, 0 active, 0 done, 1 blocked, 0 deleted
            $ @1 task plan-status --specs 's/*'
            2 open, 1 active, 0 done, 1 blocked, 0 deleted
            $ @1 task plan-status --specs 'x'
            0 open, 0 active, 0 done, 0 blocked, 0 deleted
            $ @2 task done c --agent x
            done c
            $ @2 task delete d
            deleted d
            $ @2 task plan-status
            1 open, 1 active, 1 done, 2 blocked, 1 deleted
            $ @2 task park a --reason r
            parked a
            $ @2 task plan-status
            0 open, 1 active, 1 done, 2 blocked, 1 deleted, 1 parked
            $ @2 task create p P
            p
            $ @2 task pause p
            paused p
            $ @2 task plan-status
            0 open, 1 active, 1 done, 2 blocked, 1 deleted, 1 parked, 1 paused
            $ @2 task plan-status --queue runs
            0 open, 0 active, 0 done, 0 blocked, 0 deleted
        "#]],
    );
}
