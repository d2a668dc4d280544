//! `rota task create`.

use expect_test::expect;

use crate::support::check;

/// Every flag, short and long, and the defaults.
#[test]
fn prints_the_id_and_keeps_every_field() {
    check(
        r#"
        @0 task create setup "Set up" -p 0
        @1 task create login "Fix the login" -p 1 -c auth -d "Two lines\nof text" -s '["read","write"]' -r specs/login.md --ref GH-7 --deps setup --after 2026-01-01T01:00:00+01:00
        @2 task create plain Plain
        @3 task create long "Long flags" --priority 3 --category c --description d --steps '[]' --spec s --deps "setup, login"
        @9 task show login
        @9 task show plain
        @9 task show long
        @9 task list
        "#,
        expect![[r#"
            $ @0 task create setup "Set up" -p 0
            setup
            $ @1 task create login "Fix the login" -p 1 -c auth -d "Two lines\nof text" -s '["read","write"]' -r specs/login.md --ref GH-7 --deps setup --after 2026-01-01T01:00:00+01:00
            login
            $ @2 task create plain Plain
            plain
            $ @3 task create long "Long flags" --priority 3 --category c --description d --steps '[]' --spec s --deps "setup, login"
            long
            $ @9 task show login
            ID:          login
            Title:       Fix the login
            Status:      open
            Priority:    1
            Category:    auth
            Description: Two lines\nof text
            Spec:        specs/login.md
            Ref:         GH-7
            Not before:  2026-01-01T00:00:00Z
            Created:     2026-01-01T00:00:01Z
            Updated:     2026-01-01T00:00:01Z
            Steps:
              1. read
              2. write
            Dependencies:
              setup (open)
            $ @9 task show plain
            ID:          plain
            Title:       Plain
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:02Z
            Updated:     2026-01-01T00:00:02Z
            $ @9 task show long
            ID:          long
            Title:       Long flags
            Status:      open
            Priority:    3
            Category:    c
            Description: d
            Spec:        s
            Created:     2026-01-01T00:00:03Z
            Updated:     2026-01-01T00:00:03Z
            Dependencies:
              login (open)
              setup (open)
            $ @9 task list
            ID                   P S        CAT   TITLE                               AGENT
            setup                0 open     -     Set up                              -
            login                1 open     auth  Fix the login                       -
            plain                2 open     -     Plain                               -
            long                 3 open     c     Long flags                          -
        "#]],
    );
}

/// The messages scripts look for.
#[test]
fn says_what_is_missing() {
    check(
        r#"
        task create
        task create a
        task create ""  T
        task create a ""
        task create a "  "
        "#,
        expect![[r#"
            $ task create
            ! error: missing task ID
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create a
            ! error: missing task title
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create ""  T
            ! error: task id is empty
            [1]
            $ task create a ""
            ! error: title is empty
            [1]
            $ task create a "  "
            ! error: title is empty
            [1]
        "#]],
    );
}

/// Duplicate id, unknown dep, bad number: 1; a number names what was given.
#[test]
fn refuses_duplicates_unknown_deps_and_bad_numbers() {
    check(
        r#"
        task create a A
        task create a B
        task delete a
        task create a B
        task create b B --deps nobody
        task create b B --deps a,a
        task create b B --deps b
        task create b B -p -1
        task create b B -p 1.5
        task create b B -p ten
        task create b B -p ""
        task create b B -p 4294967296
        task create b B -s '{"a":1}'
        task create b B -s '[1]'
        task create b B -s '['
        task create b B --after soon
        task create b B -p
        task list
        "#,
        expect![[r#"
            $ task create a A
            a
            $ task create a B
            ! error: task 'a' already exists
            !   see it: rota task show a
            [1]
            $ task delete a
            deleted a
            $ task create a B
            ! error: task 'a' already exists
            !   see it: rota task show a
            [1]
            $ task create b B --deps nobody
            ! error: unknown dependency 'nobody' of task 'b'
            [1]
            $ task create b B --deps a,a
            ! error: dependency 'a' of task 'b' is given twice
            [1]
            $ task create b B --deps b
            ! error: b -> b would be a cycle
            [1]
            $ task create b B -p -1
            ! error: -p (priority) must be a non-negative integer, got: -1
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -p 1.5
            ! error: -p (priority) must be a non-negative integer, got: 1.5
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -p ten
            ! error: -p (priority) must be a non-negative integer, got: ten
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -p ""
            ! error: -p (priority) must be a non-negative integer, got: 
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -p 4294967296
            ! error: -p (priority) must be a non-negative integer, got: 4294967296
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -s '{"a":1}'
            ! error: -s (steps) must be a JSON array of texts: invalid type: map, expected a sequence at line 1 column 0
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -s '[1]'
            ! error: -s (steps) must be a JSON array of texts: invalid type: integer `1`, expected a string at line 1 column 2
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -s '['
            ! error: -s (steps) must be a JSON array of texts: EOF while parsing a list at line 1 column 1
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B --after soon
            ! error: --after: 'soon' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task create b B -p
            ! error: --priority requires a value
            ! Usage: rota task create [OPTIONS] <id> <title>
            [1]
            $ task list
        "#]],
    );
}

/// `create` makes the queue it names; every other verb refuses an unknown one and lists the known.
#[test]
fn makes_a_queue() {
    check(
        r#"
        task list --queue docs
        task peek --queue docs
        task claim --queue docs
        task plan-sync --queue docs
        task plan-status --queue docs
        task delete --all --confirm --queue docs
        @0 task create a A --queue docs
        @0 task create r R --queue runs
        task list --queue docs
        task list --queue nope
        @0 task show r
        task list
        task done a
        "#,
        expect![[r#"
            $ task list --queue docs
            ! error: unknown queue 'docs' (known: issues, loops, runs, tasks)
            [1]
            $ task peek --queue docs
            ! error: unknown queue 'docs' (known: issues, loops, runs, tasks)
            [1]
            $ task claim --queue docs
            ! error: unknown queue 'docs' (known: issues, loops, runs, tasks)
            [1]
            $ task plan-sync --queue docs
            ! error: unknown queue 'docs' (known: issues, loops, runs, tasks)
            [1]
            $ task plan-status --queue docs
            ! error: unknown queue 'docs' (known: issues, loops, runs, tasks)
            [1]
            $ task delete --all --confirm --queue docs
            ! error: unknown queue 'docs' (known: issues, loops, runs, tasks)
            [1]
            $ @0 task create a A --queue docs
            a
            $ @0 task create r R --queue runs
            r
            $ task list --queue docs
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     A                                   -
            $ task list --queue nope
            ! error: unknown queue 'nope' (known: docs, issues, loops, runs, tasks)
            [1]
            $ @0 task show r
            ID:          r
            Title:       R
            Status:      open
            Priority:    100
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:00Z
            $ task list
            $ task done a
            ! error: task 'a' is not active (status: open)
            !   claim it first: rota task claim a
            [1]
        "#]],
    );
}

/// `--after`: not before that time; until then it cools down.
#[test]
fn waits_until_after() {
    check(
        r#"
        @0 task create a A --after 2026-01-01T00:01:00Z
        @59 task claim
        @59 task claim a
        @59 task peek
        @60 task peek
        @60 task claim
        "#,
        expect![[r#"
            $ @0 task create a A --after 2026-01-01T00:01:00Z
            a
            $ @59 task claim
            ! No eligible tasks
            [2]
            $ @59 task claim a
            ! Task not eligible
            !   it cools down until 2026-01-01T00:01:00Z
            [2]
            $ @59 task peek
            $ @60 task peek
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
            $ @60 task claim
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            lease_expires_at: 2026-01-01T00:11:00Z
            lease_id: lease-a-1
            retry_count: 0
        "#]],
    );
}
