//! `rota task attempts`: every lease and how it ended.

use expect_test::expect;

use crate::support::check;

/// Agent, times, outcome, reason; nothing for a task that was never granted.
#[test]
fn every_end() {
    check(
        r#"
        @0 task create a A
        @0 task attempts a
        @1 task claim a --agent x
        @1 task attempts a
        @2 task fail a --agent x --reason "no luck"
        @3 task claim a --agent x
        @4 task fail a --agent x
        @5 task claim a --lease 10
        @20 task claim a --agent y
        @21 task release a --agent y
        @22 task claim a --agent y
        @23 task pause a
        @24 task resume a
        @25 task claim a --agent y
        @26 task park a --agent y --reason "needs a key"
        @27 task reset a
        @28 task claim a --agent z
        @29 task delete a
        @30 task undelete a
        @31 task claim a --agent z
        @32 task update a --status done --agent z
        @33 task attempts a
        task attempts nobody
        task attempts
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task attempts a
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
            $ @1 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME  REASON
            lease-a-1    x        2026-01-01T00:00:01Z -                    -        -
            $ @2 task fail a --agent x --reason "no luck"
            failed a
            $ @3 task claim a --agent x
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: x
            lease_expires_at: 2026-01-01T00:10:03Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: no luck
            $ @4 task fail a --agent x
            failed a
            $ @5 task claim a --lease 10
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:00:15Z
            lease_id: lease-a-3
            retry_count: 2
            $ @20 task claim a --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:20Z
            lease_id: lease-a-4
            retry_count: 3
            last_failure: lease expired (host did not complete)
            $ @21 task release a --agent y
            released a
            $ @22 task claim a --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:22Z
            lease_id: lease-a-5
            retry_count: 3
            last_failure: lease expired (host did not complete)
            $ @23 task pause a
            paused a
            $ @24 task resume a
            resumed a
            $ @25 task claim a --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:25Z
            lease_id: lease-a-6
            retry_count: 3
            last_failure: lease expired (host did not complete)
            $ @26 task park a --agent y --reason "needs a key"
            parked a
            $ @27 task reset a
            reset a
            $ @28 task claim a --agent z
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: z
            lease_expires_at: 2026-01-01T00:10:28Z
            lease_id: lease-a-7
            retry_count: 0
            $ @29 task delete a
            deleted a
            $ @30 task undelete a
            undeleted a
            $ @31 task claim a --agent z
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: z
            lease_expires_at: 2026-01-01T00:10:31Z
            lease_id: lease-a-8
            retry_count: 0
            $ @32 task update a --status done --agent z
            updated a
            $ @33 task attempts a
            LEASE        AGENT    STARTED              ENDED                OUTCOME      REASON
            lease-a-1    x        2026-01-01T00:00:01Z 2026-01-01T00:00:02Z failed       no luck
            lease-a-2    x        2026-01-01T00:00:03Z 2026-01-01T00:00:04Z failed       -
            lease-a-3    -        2026-01-01T00:00:05Z 2026-01-01T00:00:20Z lost         lease expired (host did not complete)
            lease-a-4    y        2026-01-01T00:00:20Z 2026-01-01T00:00:21Z released     -
            lease-a-5    y        2026-01-01T00:00:22Z 2026-01-01T00:00:23Z released     -
            lease-a-6    y        2026-01-01T00:00:25Z 2026-01-01T00:00:26Z needs_person needs a key
            lease-a-7    z        2026-01-01T00:00:28Z 2026-01-01T00:00:29Z released     -
            lease-a-8    z        2026-01-01T00:00:31Z 2026-01-01T00:00:32Z released     -
            $ task attempts nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ task attempts
            ! error: missing task ID
            ! Usage: rota task attempts [OPTIONS] <id>
            [1]
        "#]],
    );
}
