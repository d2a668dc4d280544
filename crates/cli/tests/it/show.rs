//! `rota task show`.

use expect_test::expect;

use crate::support::check;

/// Labels padded to 13 columns; retries when not 0; steps, dependencies, blockers' results.
#[test]
fn all_labels() {
    check(
        r#"
        @0 task create base Base
        @0 task create other Other
        @0 task create t Title -p 1 -c cat -d "A description" -s '["one","two"]' -r spec.md --ref REF --deps base,other
        @1 task claim base --agent w
        @2 task done base --agent w --result '{"commit":"abc"}'
        @2 task claim other --agent w
        @2 task done other --agent w
        @3 task claim t --agent x
        @4 task fail t --agent x --reason "no luck"
        @5 task claim t --agent y --lease 60
        @6 task show t
        @6 task show t --with-deps
        @6 task show base --with-deps
        @7 task done t --agent y --result '{"commit":"def"}'
        @7 task show t
        @8 task delete t
        @8 task show t
        task show nobody
        task show
        task show a b
        "#,
        expect![[r#"
            $ @0 task create base Base
            base
            $ @0 task create other Other
            other
            $ @0 task create t Title -p 1 -c cat -d "A description" -s '["one","two"]' -r spec.md --ref REF --deps base,other
            t
            $ @1 task claim base --agent w
            ## Task base
            id: base
            title: Base
            priority: 2
            status: active
            assignee: w
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-base-1
            retry_count: 0
            $ @2 task done base --agent w --result '{"commit":"abc"}'
            done base
            $ @2 task claim other --agent w
            ## Task other
            id: other
            title: Other
            priority: 2
            status: active
            assignee: w
            lease_expires_at: 2026-01-01T00:10:02Z
            lease_id: lease-other-1
            retry_count: 0
            $ @2 task done other --agent w
            done other
            $ @3 task claim t --agent x
            ## Task t
            id: t
            title: Title
            priority: 1
            status: active
            category: cat
            spec: spec.md
            ref: REF
            assignee: x
            lease_expires_at: 2026-01-01T00:10:03Z
            lease_id: lease-t-1
            retry_count: 0
            description: A description
            deps: base, other
            steps:
            - one
            - two
            blocker_results:
            - base: {"commit":"abc"}
            $ @4 task fail t --agent x --reason "no luck"
            failed t
            $ @5 task claim t --agent y --lease 60
            ## Task t
            id: t
            title: Title
            priority: 1
            status: active
            category: cat
            spec: spec.md
            ref: REF
            assignee: y
            lease_expires_at: 2026-01-01T00:01:05Z
            lease_id: lease-t-2
            retry_count: 1
            last_failure: no luck
            description: A description
            deps: base, other
            steps:
            - one
            - two
            blocker_results:
            - base: {"commit":"abc"}
            $ @6 task show t
            ID:          t
            Title:       Title
            Status:      active
            Priority:    1
            Category:    cat
            Description: A description
            Spec:        spec.md
            Ref:         REF
            Assignee:    y
            Lease:       2026-01-01T00:01:05Z lease-t-2
            Retries:     1
            Fail reason: no luck
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:05Z
            Steps:
              1. one
              2. two
            Dependencies:
              base (done)
              other (done)
            $ @6 task show t --with-deps
            ID:          t
            Title:       Title
            Status:      active
            Priority:    1
            Category:    cat
            Description: A description
            Spec:        spec.md
            Ref:         REF
            Assignee:    y
            Lease:       2026-01-01T00:01:05Z lease-t-2
            Retries:     1
            Fail reason: no luck
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:05Z
            Steps:
              1. one
              2. two
            Dependencies:
              base (done)
              other (done)
            Blocker Results:
              base: {"commit":"abc"}
            $ @6 task show base --with-deps
            ID:          base
            Title:       Base
            Status:      done
            Priority:    2
            Assignee:    w
            Result:      {"commit":"abc"}
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            $ @7 task done t --agent y --result '{"commit":"def"}'
            done t
            $ @7 task show t
            ID:          t
            Title:       Title
            Status:      done
            Priority:    1
            Category:    cat
            Description: A description
            Spec:        spec.md
            Ref:         REF
            Assignee:    y
            Retries:     1
            Fail reason: no luck
            Result:      {"commit":"def"}
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:07Z
            Steps:
              1. one
              2. two
            Dependencies:
              base (done)
              other (done)
            $ @8 task delete t
            deleted t
            $ @8 task show t
            ID:          t
            Title:       Title
            Status:      deleted
            Priority:    1
            Category:    cat
            Description: A description
            Spec:        spec.md
            Ref:         REF
            Retries:     1
            Fail reason: no luck
            Result:      {"commit":"def"}
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:08Z
            Deleted:     2026-01-01T00:00:08Z
            Steps:
              1. one
              2. two
            Dependencies:
              base (done)
              other (done)
            $ task show nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ task show
            ! error: missing task ID
            ! Usage: rota task show [OPTIONS] <id>
            [1]
            $ task show a b
            ! error: unexpected argument 'b'
            ! Usage: rota task show [OPTIONS] <id>
            [1]
        "#]],
    );
}
