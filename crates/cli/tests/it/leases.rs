//! `renew`, `done`, `fail`, `release`: what the holder of a lease may do with it.

use expect_test::expect;

use crate::support::check;

/// Other holder and not active 1, unknown 2; the length counts from now.
#[test]
fn renew_extends_for_the_holder_only() {
    check(
        r#"
        @0 task create a A
        @0 task renew a
        @0 task claim a --agent x
        @100 task renew a --agent x
        @100 task show a
        @200 task renew a --agent x --lease 30
        @200 task show a
        @210 task renew a --agent y
        @210 task renew nobody --agent x
        @210 task renew
        @210 task renew a --lease -5
        @240 task renew a --agent x
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task renew a
            ! error: task 'a' is not active (status: open)
            !   claim it first: rota task claim a
            [1]
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
            $ @100 task renew a --agent x
            renewed a
            $ @100 task show a
            ID:          a
            Title:       A
            Status:      active
            Priority:    2
            Assignee:    x
            Lease:       2026-01-01T00:11:40Z lease-a-1
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:01:40Z
            $ @200 task renew a --agent x --lease 30
            renewed a
            $ @200 task show a
            ID:          a
            Title:       A
            Status:      active
            Priority:    2
            Assignee:    x
            Lease:       2026-01-01T00:03:50Z lease-a-1
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:03:20Z
            $ @210 task renew a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:03:50Z
            [1]
            $ @210 task renew nobody --agent x
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @210 task renew
            ! error: missing task ID
            ! Usage: rota task renew [OPTIONS] <id>
            [1]
            $ @210 task renew a --lease -5
            ! error: --lease must be a non-negative integer, got: -5
            ! Usage: rota task renew [OPTIONS] <id>
            [1]
            $ @240 task renew a --agent x
            renewed a
        "#]],
    );
}

/// `done <id>`; again, by a stranger, unknown.
#[test]
fn done_settles_once() {
    check(
        r#"
        @0 task create a A
        @0 task create b B --deps a
        @0 task done a
        @0 task claim a --agent x
        @1 task done a --agent y
        @1 task done a --agent x
        @2 task done a --agent x
        @2 task done nobody
        @2 task done
        @3 task peek
        @3 task show a
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B --deps a
            b
            $ @0 task done a
            ! error: task 'a' is not active (status: open)
            !   claim it first: rota task claim a
            [1]
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
            $ @1 task done a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:00Z
            [1]
            $ @1 task done a --agent x
            done a
            $ @2 task done a --agent x
            ! error: task 'a' is not active (status: done)
            [1]
            $ @2 task done nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @2 task done
            ! error: missing task ID
            ! Usage: rota task done [OPTIONS] <id>
            [1]
            $ @3 task peek
            ## Task b
            id: b
            title: B
            priority: 2
            status: open
            deps: a
            $ @3 task show a
            ID:          a
            Title:       A
            Status:      done
            Priority:    2
            Assignee:    x
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
        "#]],
    );
}

/// What is given is kept as it is.
#[test]
fn a_result_must_be_an_object_with_a_commit() {
    check(
        r#"
        @0 task create a A
        @0 task claim a
        @1 task done a --result '{"sha":"abc"}'
        @1 task done a --result '[1]'
        @1 task done a --result '"commit"'
        @1 task done a --result null
        @1 task done a --result '{"commit":'
        @1 task done a --result ''
        @1 task show a
        @1 task done a --result '{"commit": "abc", "z": [1, 2.50], "a": {}}'
        @1 task show a
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
            $ @1 task done a --result '{"sha":"abc"}'
            ! error: result JSON must include a 'commit' key
            [1]
            $ @1 task done a --result '[1]'
            ! error: result JSON must be an object
            [1]
            $ @1 task done a --result '"commit"'
            ! error: result JSON must be an object
            [1]
            $ @1 task done a --result null
            ! error: result JSON must be an object
            [1]
            $ @1 task done a --result '{"commit":'
            ! error: --result is not JSON: EOF while parsing a value at line 1 column 10
            [1]
            $ @1 task done a --result ''
            ! error: --result is not JSON: EOF while parsing a value at line 1 column 0
            [1]
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      active
            Priority:    2
            Lease:       2026-01-01T00:10:00Z lease-a-1
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:00Z
            $ @1 task done a --result '{"commit": "abc", "z": [1, 2.50], "a": {}}'
            done a
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      done
            Priority:    2
            Result:      {"commit":"abc","z":[1,2.50],"a":{}}
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
        "#]],
    );
}

/// 002 "Completion": open, assignee and lease cleared, retry_count grows, claimable at once.
#[test]
fn fail_reopens_at_once_and_counts() {
    check(
        r#"
        @0 task create a A
        @0 task fail a
        @0 task claim a --agent x
        @1 task fail a --agent y
        @1 task fail a --agent x --reason "tests do not pass"
        @1 task show a
        @1 task claim --agent y
        @2 task fail a --agent y
        @2 task show a
        @2 task fail nobody
        @2 task fail
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task fail a
            ! error: task 'a' is not active (status: open)
            !   claim it first: rota task claim a
            [1]
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
            $ @1 task fail a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:00Z
            [1]
            $ @1 task fail a --agent x --reason "tests do not pass"
            failed a
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      open
            Priority:    2
            Retries:     1
            Fail reason: tests do not pass
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
            $ @1 task claim --agent y
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            assignee: y
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: tests do not pass
            $ @2 task fail a --agent y
            failed a
            $ @2 task show a
            ID:          a
            Title:       A
            Status:      open
            Priority:    2
            Retries:     2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            $ @2 task fail nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @2 task fail
            ! error: missing task ID
            ! Usage: rota task fail [OPTIONS] <id>
            [1]
        "#]],
    );
}

/// Open at once, no attempt counted.
#[test]
fn release_gives_back_uncounted() {
    check(
        r#"
        @0 task create a A
        @0 task release a
        @0 task claim a --agent x
        @1 task release a --agent y
        @1 task release a --agent x
        @1 task show a
        @1 task release nobody
        @1 task release
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task release a
            ! error: task 'a' is not active (status: open)
            !   claim it first: rota task claim a
            [1]
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
            $ @1 task release a --agent y
            ! error: agent 'y' is not the assignee of task 'a'
            !   it is held by 'x' under lease-a-1 until 2026-01-01T00:10:00Z
            [1]
            $ @1 task release a --agent x
            released a
            $ @1 task show a
            ID:          a
            Title:       A
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:01Z
            $ @1 task release nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @1 task release
            ! error: missing task ID
            ! Usage: rota task release [OPTIONS] <id>
            [1]
        "#]],
    );
}
