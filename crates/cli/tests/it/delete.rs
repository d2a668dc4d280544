//! `rota task delete`.

use expect_test::expect;

use crate::support::check;

/// Soft: it stays, and a lease on it ends.
#[test]
fn one() {
    check(
        r#"
        @0 task create a A
        @0 task delete a
        @0 task list
        @0 task list --all
        @0 task delete nobody
        @0 task delete
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task delete a
            deleted a
            $ @0 task list
            $ @0 task list --all
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 deleted  -     A                                   -
            $ @0 task delete nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @0 task delete
            ! error: missing task ID
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
        "#]],
    );
}

/// By state, spec and category, in one queue only.
#[test]
fn many() {
    check(
        r#"
        @0 task create a A -r s1 -c x
        @0 task create b B -r s1 -c y
        @0 task create c C -r s2 -c x
        @0 task create d D -r s2 -c x
        @0 task create r R --queue runs
        @0 task claim d --agent w
        @1 task delete --status parked
        @1 task delete --status open --spec s1 --category x
        @1 task delete --status open,active --spec s2
        @1 task list --all
        @1 task delete --all --confirm --category z
        @1 task delete --all --confirm
        @1 task delete --all --confirm
        @1 task list
        @1 task list --queue runs
        "#,
        expect![[r#"
            $ @0 task create a A -r s1 -c x
            a
            $ @0 task create b B -r s1 -c y
            b
            $ @0 task create c C -r s2 -c x
            c
            $ @0 task create d D -r s2 -c x
            d
            $ @0 task create r R --queue runs
            r
            $ @0 task claim d --agent w
            ## Task d
            id: d
            title: D
            priority: 2
            status: active
            category: x
            spec: s2
            assignee: w
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-d-1
            retry_count: 0
            $ @1 task delete --status parked
            deleted 0 tasks
            $ @1 task delete --status open --spec s1 --category x
            deleted 1 tasks
            $ @1 task delete --status open,active --spec s2
            deleted 2 tasks
            $ @1 task list --all
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 deleted  x     A                                   -
            b                    2 open     y     B                                   -
            c                    2 deleted  x     C                                   -
            d                    2 deleted  x     D                                   -
            $ @1 task delete --all --confirm --category z
            deleted 0 tasks
            $ @1 task delete --all --confirm
            deleted 1 tasks
            $ @1 task delete --all --confirm
            deleted 0 tasks
            $ @1 task list
            $ @1 task list --queue runs
            ID                   P   S        CAT   TITLE                               AGENT
            r                    100 open     -     R                                   -
        "#]],
    );
}

/// `--all` without `--confirm`, `--status deleted`, an id with filters, filters alone: 1.
#[test]
fn what_is_refused() {
    check(
        r#"
        @0 task create a A
        task delete --all
        task delete --status deleted
        task delete --status open,deleted
        task delete --status bogus
        task delete --all --status open --confirm
        task delete --spec s
        task delete --category c
        task delete --confirm
        task delete a --all --confirm
        task delete a --status open
        task delete a --spec s
        task delete a --category c
        task delete a --confirm
        task delete --all --confirm --queue nope
        task list
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ task delete --all
            ! error: --all requires --confirm flag
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete --status deleted
            ! error: --status deleted: they are deleted already
            [1]
            $ task delete --status open,deleted
            ! error: --status deleted: they are deleted already
            [1]
            $ task delete --status bogus
            ! error: unknown status 'bogus' (known: open, active, paused, done, failed, parked, invalidated, deleted)
            [1]
            $ task delete --all --status open --confirm
            ! error: --all and --status are mutually exclusive
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete --spec s
            ! error: --spec and --category need --status or --all
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete --category c
            ! error: --spec and --category need --status or --all
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete --confirm
            ! error: missing task ID
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete a --all --confirm
            ! error: a task ID and filters are mutually exclusive
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete a --status open
            ! error: a task ID and filters are mutually exclusive
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete a --spec s
            ! error: a task ID and filters are mutually exclusive
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete a --category c
            ! error: a task ID and filters are mutually exclusive
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete a --confirm
            ! error: a task ID and filters are mutually exclusive
            ! Usage: rota task delete [OPTIONS] [id]
            [1]
            $ task delete --all --confirm --queue nope
            ! error: unknown queue 'nope' (known: issues, loops, runs, tasks)
            [1]
            $ task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     A                                   -
        "#]],
    );
}
