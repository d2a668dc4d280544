//! Who speaks for a lease: late workers, strangers, callers without a name (DESIGN 4, 13.9 to 13.11, 13.18).

use expect_test::expect;

use crate::support::check;

/// P2, S2: after the lease was lost and granted again, nothing of the first holder is accepted.
#[test]
fn a_late_worker_is_refused_and_told_who_holds_it() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent slow --lease 10
        @20 task claim a --agent fast
        @21 task renew a --agent slow
        @21 task done a --agent slow --result '{"commit":"late"}'
        @21 task fail a --agent slow
        @21 task release a --agent slow
        @21 task done a --lease-id lease-a-1
        @21 task renew a --lease-id lease-a-1 --agent fast
        @22 task done a --agent fast --lease-id lease-a-2
        @23 task done a --lease-id lease-a-1
        @23 task attempts a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim a --agent slow --lease 10
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: slow
            lease_expires_at: 2026-01-01T00:00:10Z
            lease_id: lease-a-1
            retry_count: 0
            $ @20 task claim a --agent fast
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: fast
            lease_expires_at: 2026-01-01T00:10:20Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: lease expired (host did not complete)
            $ @21 task renew a --agent slow
            ! error: agent 'slow' is not the assignee of task 'a'
            !   it is held by 'fast' under lease-a-2 until 2026-01-01T00:10:20Z
            [1]
            $ @21 task done a --agent slow --result '{"commit":"late"}'
            ! error: agent 'slow' is not the assignee of task 'a'
            !   it is held by 'fast' under lease-a-2 until 2026-01-01T00:10:20Z
            [1]
            $ @21 task fail a --agent slow
            ! error: agent 'slow' is not the assignee of task 'a'
            !   it is held by 'fast' under lease-a-2 until 2026-01-01T00:10:20Z
            [1]
            $ @21 task release a --agent slow
            ! error: agent 'slow' is not the assignee of task 'a'
            !   it is held by 'fast' under lease-a-2 until 2026-01-01T00:10:20Z
            [1]
            $ @21 task done a --lease-id lease-a-1
            ! error: lease 'lease-a-1' is not the current lease of task 'a'
            !   it is held by 'fast' under lease-a-2 until 2026-01-01T00:10:20Z
            [1]
            $ @21 task renew a --lease-id lease-a-1 --agent fast
            ! error: lease 'lease-a-1' is not the current lease of task 'a'
            !   it is held by 'fast' under lease-a-2 until 2026-01-01T00:10:20Z
            [1]
            $ @22 task done a --agent fast --lease-id lease-a-2
            done a
            $ @23 task done a --lease-id lease-a-1
            ! error: task 'a' is not active (status: done)
            [1]
            $ @23 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME  REASON
            lease-a-1    slow     2026-01-01T00:00:00Z 2026-01-01T00:00:20Z lost     lease expired (host did not complete)
            lease-a-2    fast     2026-01-01T00:00:20Z 2026-01-01T00:00:22Z done     -
        "#]],
    );
}

/// DESIGN 13.9: accepted while neither reclaimed nor granted again.
#[test]
fn an_expired_lease_settles_while_nobody_took_it() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent x --lease 10
        @500 task done a --agent x
        @500 task show a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task claim a --agent x --lease 10
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:00:10Z
            lease_id: lease-a-1
            retry_count: 0
            $ @500 task done a --agent x
            done a
            $ @500 task show a
            ID:          a
            Title:       A
            Status:      done
            Priority:    2
            Assignee:    x
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:08:20Z
        "#]],
    );
}

/// DESIGN 13.11: a caller that names nobody is refused; an anonymous lease is settled by any caller that names no wrong one.
#[test]
fn anonymous_callers() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent x
        @1 task done a
        @2 task create b B
        @2 task claim b
        @3 task done b --agent anybody
        @4 task create c C
        @4 task claim c
        @4 task done c --lease-id lease-c-9
        @4 task done c --agent y --lease-id lease-c-1
        @5 task create r R --queue runs
        @5 task claim --queue runs --agent x
        @5 task done r --agent x
        @5 task done r
        @5 task done r --lease-id lease-r-1
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
            $ @1 task done a
            ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
            [1]
            $ @2 task create b B
            b
            $ @2 task claim b
            ## Task b
            id: b
            title: B
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:02Z
            lease_id: lease-b-1
            retry_count: 0
            $ @3 task done b --agent anybody
            done b
            $ @4 task create c C
            c
            $ @4 task claim c
            ## Task c
            id: c
            title: C
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:10:04Z
            lease_id: lease-c-1
            retry_count: 0
            $ @4 task done c --lease-id lease-c-9
            ! error: lease 'lease-c-9' is not the current lease of task 'c'
            !   it is held by an agent without a name under lease-c-1 until 2026-01-01T00:10:04Z
            [1]
            $ @4 task done c --agent y --lease-id lease-c-1
            done c
            $ @5 task create r R --queue runs
            r
            $ @5 task claim --queue runs --agent x
            ## Task r
            id: r
            title: R
            priority: 100
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:05:05Z
            lease_id: lease-r-1
            retry_count: 0
            $ @5 task done r --agent x
            ! error: queue 'runs' requires the lease of task 'r' to be named (--lease-id)
            [1]
            $ @5 task done r
            ! error: queue 'runs' requires the lease of task 'r' to be named (--lease-id)
            [1]
            $ @5 task done r --lease-id lease-r-1
            done r
        "#]],
    );
}

/// ROTA_LEASE counts only for the task it names, `--lease-id` always; empty variables are unset.
#[test]
fn the_lease_of_the_surroundings() {
    check(
        r#"
        @0 task create a A
        @0 task create b B
        @0 task claim a --agent x
        @0 task claim b --agent x
        @1 ROTA_LEASE=lease-b-7 task renew a
        @1 ROTA_LEASE=lease-a-7 task renew a
        @1 ROTA_LEASE=lease-a-1 task renew a
        @1 ROTA_LEASE=nonsense task renew a
        @1 ROTA_LEASE= task renew a
        @1 ROTA_LEASE=lease-a-1 task renew a --lease-id lease-a-2
        @1 task renew a --lease-id lease-b-1
        @1 task renew a --lease-id nonsense
        @1 ROTA_AGENT=y task renew a
        @1 ROTA_AGENT=y task renew a --agent x
        @1 ROTA_AGENT= task renew a
        @1 ROTA_AGENT=y ROTA_LEASE=lease-a-1 task renew a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B
            b
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
            $ @0 task claim b --agent x
            ## Task b
            id: b
            title: B
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:00Z
            lease_id: lease-b-1
            retry_count: 0
            $ @1 ROTA_LEASE=lease-b-7 task renew a
            ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
            [1]
            $ @1 ROTA_LEASE=lease-a-7 task renew a
            ! error: lease 'lease-a-7' is not the current lease of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:00Z
            [1]
            $ @1 ROTA_LEASE=lease-a-1 task renew a
            renewed a
            $ @1 ROTA_LEASE=nonsense task renew a
            ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
            [1]
            $ @1 ROTA_LEASE= task renew a
            ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
            [1]
            $ @1 ROTA_LEASE=lease-a-1 task renew a --lease-id lease-a-2
            ! error: lease 'lease-a-2' is not the current lease of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ @1 task renew a --lease-id lease-b-1
            ! error: lease 'lease-b-1' is not the current lease of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ @1 task renew a --lease-id nonsense
            ! error: 'nonsense' is not a lease id (lease-<task id>-<number>)
            [1]
            $ @1 ROTA_AGENT=y task renew a
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
            $ @1 ROTA_AGENT=y task renew a --agent x
            renewed a
            $ @1 ROTA_AGENT= task renew a
            ! error: task 'a' is held by 'x': name the holder (--agent) or its lease (--lease-id)
            [1]
            $ @1 ROTA_AGENT=y ROTA_LEASE=lease-a-1 task renew a
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:01Z
            [1]
        "#]],
    );
}

/// DESIGN 13.18: its lease ends, and its agent is told.
#[test]
fn a_deleted_task_refuses_its_agent() {
    check(
        r#"
        @0 task create a A
        @0 task claim a --agent x
        @1 task delete a
        @2 task done a --agent x --result '{"commit":"c"}'
        @2 task attempts a
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
            $ @1 task delete a
            deleted a
            $ @2 task done a --agent x --result '{"commit":"c"}'
            ! error: task 'a' is not active (status: deleted)
            [1]
            $ @2 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME  REASON
            lease-a-1    x        2026-01-01T00:00:00Z 2026-01-01T00:00:01Z released -
        "#]],
    );
}
