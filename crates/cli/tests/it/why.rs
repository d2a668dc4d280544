//! `rota why`: every check, the position, what would free it.

use expect_test::expect;

use crate::support::check;

/// Runnable and next, outranked, blocked, held, expired, cooling, paused, parked, done, deleted; unknown: 2.
#[test]
fn every_verdict() {
    check(
        r#"
        @0 task create a A -p 0
        @1 task create b B -p 1
        @2 task create c C --deps a,b
        @3 task create d D --after 2026-01-01T01:00:00Z
        @4 why a
        @4 why b
        @4 why c
        @4 why d
        @5 task claim a --agent x --lease 60
        @6 why a
        @65 why a
        @66 task pause b
        @66 why b
        @66 task resume b
        @66 task park b --reason "needs a key"
        @66 why b
        @67 task reset b
        @67 task delete b
        @67 why b
        @68 task done a --agent x
        @68 why a
        @68 why c
        why nobody
        why
        why a b
        "#,
        expect![[r#"
            $ @0 task create a A -p 0
            a
            $ @1 task create b B -p 1
            b
            $ @2 task create c C --deps a,b
            c
            $ @3 task create d D --after 2026-01-01T01:00:00Z
            d
            $ @4 why a
            a (tasks, open) is next

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              ok  order     nothing in the way

            position: 1
            earliest: 2026-01-01T00:00:04.000Z
            $ @4 why b
            b (tasks, open) is runnable, but has to wait

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  order     it is number 2 in line, 'a' is next

            position: 2
            ahead:    a
            freed by: the tasks ahead being claimed
            earliest: 2026-01-01T00:00:04.000Z
            $ @4 why c
            c (tasks, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              no  blockers  it is blocked by 'a', 'b'
              ok  cooldown  nothing in the way

            freed by: 'a', 'b' being done or deleted
            $ @4 why d
            d (tasks, open) is not runnable

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              no  cooldown  it cools down until 2026-01-01T01:00:00Z

            freed by: time
            earliest: 2026-01-01T01:00:00.000Z
            $ @5 task claim a --agent x --lease 60
            ## Task a
            id: a
            title: A
            priority: 0
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:01:05Z
            lease_id: lease-a-1
            retry_count: 0
            $ @6 why a
            a (tasks, active) is not runnable

              no  status    it is leased by 'x' until 2026-01-01T00:01:05Z
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: its holder settling it, or the lease running out
            $ @65 why a
            a (tasks, active) is next

              ok  status    active
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              ok  order     nothing in the way

            position: 1
            earliest: 2026-01-01T00:01:05.000Z
            $ @66 task pause b
            paused b
            $ @66 why b
            b (tasks, paused) is not runnable

              no  status    it is paused
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota task resume b
            $ @66 task resume b
            resumed b
            $ @66 task park b --reason "needs a key"
            parked b
            $ @66 why b
            b (tasks, parked) is not runnable

              no  status    it is parked: needs a key
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota task reset b
            $ @67 task reset b
            reset b
            $ @67 task delete b
            deleted b
            $ @67 why b
            b (tasks, deleted) is not runnable

              no  status    it is deleted
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: rota task undelete b
            $ @68 task done a --agent x
            done a
            $ @68 why a
            a (tasks, done) is not runnable

              no  status    it is done
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way

            freed by: nothing: it is done
            $ @68 why c
            c (tasks, open) is next

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              ok  order     nothing in the way

            position: 1
            earliest: 2026-01-01T00:01:08.000Z
            $ why nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ why
            ! error: missing task ID
            ! Usage: rota why [OPTIONS] <id>
            [1]
            $ why a b
            ! error: unexpected argument 'b'
            ! Usage: rota why [OPTIONS] <id>
            [1]
        "#]],
    );
}

/// Queue `runs` grants one at a time.
#[test]
fn a_full_queue_is_a_wait() {
    check(
        r#"
        @0 task create r1 R --queue runs
        @0 task create r2 R --queue runs
        @0 task claim --queue runs --agent x
        @1 why r2
        @1 task claim r2
        "#,
        expect![[r#"
            $ @0 task create r1 R --queue runs
            r1
            $ @0 task create r2 R --queue runs
            r2
            $ @0 task claim --queue runs --agent x
            ## Task r1
            id: r1
            title: R
            priority: 100
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:05:00Z
            lease_id: lease-r1-1
            retry_count: 0
            $ @1 why r2
            r2 (runs, open) is runnable, but has to wait

              ok  status    open
              ok  queue     nothing in the way
              ok  blockers  nothing in the way
              ok  cooldown  nothing in the way
              no  ceiling   its queue is full (1 of 1 leases held)
              ok  order     nothing in the way

            position: 1
            freed by: a lease being settled, or a higher ceiling
            $ @1 task claim r2
            ! Task not eligible
            !   its queue is full (1 of 1 leases held)
            [2]
        "#]],
    );
}
