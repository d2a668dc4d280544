//! `rota task plan-sync`: the backlog agrees with a plan, in one transaction (002, DESIGN 13.17 and 13.18).

use expect_test::expect;

use crate::support::{Lab, check};

/// Insert, update, delete, skip; the second identical run reports zeros.
#[test]
fn the_diff_per_spec() {
    check(
        r#"
        @0 task plan-sync
        | {"id":"a","t":"A","spec":"s1","p":1,"d":"text","cat":"c","ref":"r","steps":["x","y"]}
        | {"id":"b","t":"B","spec":"s1","deps":["a"]}
        | {"id":"c","t":"C","spec":"s2"}
        | {"id":"d","t":"D"}
        @1 task list --markdown
        @1 task claim a --agent w
        @2 task done a --agent w
        @3 task plan-sync
        | {"id":"a","t":"changed","spec":"s1"}
        | {"id":"b","t":"B2","spec":"s1"}
        | {"id":"e","t":"E","spec":"s1"}
        @3 task plan-sync
        | {"id":"a","t":"changed","spec":"s1"}
        | {"id":"b","t":"B2","spec":"s1"}
        | {"id":"e","t":"E","spec":"s1"}
        @4 task plan-sync
        | {"id":"e","t":"E","spec":"s1"}
        @4 task plan-sync
        | {"id":"e","t":"E","spec":"s1"}
        @5 task list --all
        @5 task show a
        @5 task plan-sync
        @5 task plan-sync
        |
        |
        @5 task plan-status
        "#,
        expect![[r#"
            $ @0 task plan-sync
            inserted: 4, updated: 0, deleted: 0, skipped (done): 0
            $ @1 task list --markdown
            ## Task a
            id: a
            title: A
            priority: 1
            status: open
            category: c
            spec: s1
            ref: r
            steps:
            - x
            - y

            ## Task b
            id: b
            title: B
            priority: 2
            status: open
            spec: s1
            deps: a

            ## Task c
            id: c
            title: C
            priority: 2
            status: open
            spec: s2

            ## Task d
            id: d
            title: D
            priority: 2
            status: open
            $ @1 task claim a --agent w
            ## Task a
            id: a
            title: A
            priority: 1
            status: active
            category: c
            spec: s1
            ref: r
            assignee: w
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-1
            retry_count: 0
            description: text
            steps:
            - x
            - y
            $ @2 task done a --agent w
            done a
            $ @3 task plan-sync
            inserted: 1, updated: 1, deleted: 0, skipped (done): 1
            $ @3 task plan-sync
            inserted: 0, updated: 0, deleted: 0, skipped (done): 1
            $ @4 task plan-sync
            inserted: 0, updated: 0, deleted: 1, skipped (done): 0
            $ @4 task plan-sync
            inserted: 0, updated: 0, deleted: 0, skipped (done): 0
            $ @5 task list --all
            ID                   P S        CAT   TITLE                               AGENT
            a                    1 done     c     A                                   w
            b                    2 deleted  -     B2                                  -
            c                    2 open     -     C                                   -
            d                    2 open     -     D                                   -
            e                    2 open     -     E                                   -
            $ @5 task show a
            ID:          a
            Title:       A
            Status:      done
            Priority:    1
            Category:    c
            Description: text
            Spec:        s1
            Ref:         r
            Assignee:    w
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            Steps:
              1. x
              2. y
            $ @5 task plan-sync
            inserted: 0, updated: 0, deleted: 0, skipped (done): 0
            $ @5 task plan-sync
            inserted: 0, updated: 0, deleted: 0, skipped (done): 0
            $ @5 task plan-status
            3 open, 0 active, 1 done, 0 blocked, 1 deleted
        "#]],
    );
}

/// An absent field is cleared, but absent `deps` leaves the edges alone; a dep-only change counts as updated.
#[test]
fn absent_fields_and_edges() {
    check(
        r#"
        @0 task plan-sync
        | {"id":"late","t":"Late","deps":["early"]}
        | {"id":"early","t":"Early","d":"text","p":0,"cat":"c","steps":["x"]}
        @1 task deps late
        @2 task plan-sync
        | {"id":"late","t":"Late"}
        | {"id":"early","t":"Early"}
        @2 task show early
        @2 task deps late
        @3 task plan-sync
        | {"id":"late","t":"Late","deps":[]}
        @3 task deps late
        @3 task plan-sync
        | {"id":"late","t":"Late","deps":[]}
        "#,
        expect![[r#"
            $ @0 task plan-sync
            inserted: 2, updated: 0, deleted: 0, skipped (done): 0
            $ @1 task deps late
            early [open] Early
            $ @2 task plan-sync
            inserted: 0, updated: 1, deleted: 0, skipped (done): 0
            $ @2 task show early
            ID:          early
            Title:       Early
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:02Z
            $ @2 task deps late
            early [open] Early
            $ @3 task plan-sync
            inserted: 0, updated: 1, deleted: 0, skipped (done): 0
            $ @3 task deps late
            (no dependencies)
            $ @3 task plan-sync
            inserted: 0, updated: 0, deleted: 0, skipped (done): 0
        "#]],
    );
}

/// Deleted tasks come back as open with attempts 0, counted inserted; an active one that is removed ends its lease.
#[test]
fn revived_and_removed() {
    check(
        r#"
        @0 task plan-sync
        | {"id":"a","t":"A","spec":"s"}
        | {"id":"b","t":"B","spec":"s"}
        @1 task claim a --agent w
        @2 task fail a --agent w --reason r
        @3 task claim a --agent w
        @4 task plan-sync
        | {"id":"b","t":"B","spec":"s"}
        @5 task done a --agent w
        @6 task plan-sync
        | {"id":"a","t":"A again","spec":"s"}
        | {"id":"b","t":"B","spec":"s"}
        @6 task show a
        @7 task claim a --agent w
        "#,
        expect![[r#"
            $ @0 task plan-sync
            inserted: 2, updated: 0, deleted: 0, skipped (done): 0
            $ @1 task claim a --agent w
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            spec: s
            assignee: w
            lease_expires_at: 2026-01-01T00:10:01Z
            lease_id: lease-a-1
            retry_count: 0
            $ @2 task fail a --agent w --reason r
            failed a
            $ @3 task claim a --agent w
            ## Task a
            id: a
            title: A
            priority: 2
            status: active
            spec: s
            assignee: w
            lease_expires_at: 2026-01-01T00:10:03Z
            lease_id: lease-a-2
            retry_count: 1
            last_failure: r
            $ @4 task plan-sync
            inserted: 0, updated: 0, deleted: 1, skipped (done): 0
            $ @5 task done a --agent w
            ! error: task 'a' is not active (status: deleted)
            [1]
            $ @6 task plan-sync
            inserted: 1, updated: 0, deleted: 0, skipped (done): 0
            $ @6 task show a
            ID:          a
            Title:       A again
            Status:      open
            Priority:    2
            Spec:        s
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:06Z
            $ @7 task claim a --agent w
            ## Task a
            id: a
            title: A again
            priority: 2
            status: active
            spec: s
            assignee: w
            lease_expires_at: 2026-01-01T00:10:07Z
            lease_id: lease-a-3
            retry_count: 0
        "#]],
    );
}

/// `--specs` limits which specs may lose tasks; `--dry-run` changes nothing; unknown keys are named once.
#[test]
fn flags_and_unknown_keys() {
    check(
        r#"
        @0 task plan-sync
        | {"id":"a","t":"A","spec":"s/1"}
        | {"id":"b","t":"B","spec":"s/1"}
        | {"id":"c","t":"C","spec":"t/2"}
        | {"id":"d","t":"D","spec":"t/2"}
        @1 task plan-sync --dry-run
        | {"id":"a","t":"A","spec":"s/1"}
        | {"id":"c","t":"C","spec":"t/2"}
        | {"id":"e","t":"E"}
        @1 task plan-status
        @1 task plan-sync --specs 's/*'
        | {"id":"a","t":"A","spec":"s/1"}
        | {"id":"c","t":"C","spec":"t/2"}
        @1 task list
        @2 task plan-sync
        | {"id":"x","t":"X","colour":1,"size":2}
        | {"id":"y","t":"Y","colour":1}
        @3 task plan-sync --dry-run
        | {"id":"x","t":"X","colour":1,"size":2}
        | {"id":"z"}
        "#,
        expect![[r#"
            $ @0 task plan-sync
            inserted: 4, updated: 0, deleted: 0, skipped (done): 0
            $ @1 task plan-sync --dry-run
            inserted: 1, updated: 0, deleted: 2, skipped (done): 0
            $ @1 task plan-status
            4 open, 0 active, 0 done, 0 blocked, 0 deleted
            $ @1 task plan-sync --specs 's/*'
            inserted: 0, updated: 0, deleted: 1, skipped (done): 0
            $ @1 task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     A                                   -
            c                    2 open     -     C                                   -
            d                    2 open     -     D                                   -
            $ @2 task plan-sync
            inserted: 2, updated: 0, deleted: 0, skipped (done): 0
            ! warning: unknown keys ignored: colour, size
            $ @3 task plan-sync --dry-run
            ! error: line 2: field "t" is missing or empty
            [1]
        "#]],
    );
}

/// Any bad line: 1, the real line, the field and the value; nothing written, no summary.
#[test]
fn bad_lines() {
    let lab = Lab::new();
    lab.transcript("@0 task create a A\n@0 task create r R --queue runs");
    lab.check_refused(
        r#"
        task plan-sync
        | {"id":"n","t":"N"}
        |
        | {"id":"m",
        task plan-sync
        | [1]
        task plan-sync
        | {"t":"T"}
        task plan-sync
        | {"id":"","t":"T"}
        task plan-sync
        | {"id":"x"}
        task plan-sync
        | {"id":"x","t":"  "}
        task plan-sync
        | {"id":7,"t":"T"}
        task plan-sync
        | {"id":"n","t":"N"}
        | {"id":"m","t":"M"}
        | {"id":"x","t":"T","p":-1}
        task plan-sync
        | {"id":"x","t":"T","p":1.5}
        task plan-sync
        | {"id":"x","t":"T","p":"1"}
        task plan-sync
        | {"id":"x","t":"T","p":4294967296}
        task plan-sync
        | {"id":"x","t":"T","steps":"one"}
        task plan-sync
        | {"id":"x","t":"T","steps":[1]}
        task plan-sync
        | {"id":"x","t":"T","deps":["nobody"]}
        task plan-sync
        | {"id":"x","t":"T","deps":["a","a"]}
        task plan-sync
        | {"id":"x","t":"T","deps":["x"]}
        task plan-sync
        | {"id":"x","t":"T"}
        | {"id":"x","t":"T"}
        task plan-sync
        | {"id":"r","t":"R"}
        task plan-sync
        | {"id":"x","t":"X","deps":["y"]}
        | {"id":"y","t":"Y","deps":["x"]}
        task plan-sync
        | {"id":"a\u001bb","t":"T"}
        task plan-sync
        | {"id":"-x","t":"T"}
        task plan-sync
        | {"id":"../x","t":"T"}
        "#,
        expect![[r#"
            $ task plan-sync
            ! error: line 3: invalid JSON: EOF while parsing a value at column 10
            [1]
            $ task plan-sync
            ! error: line 1: invalid JSON: invalid type: sequence, expected a map at column 0
            [1]
            $ task plan-sync
            ! error: line 1: field "id" is missing or empty
            [1]
            $ task plan-sync
            ! error: line 1: field "id" is missing or empty
            [1]
            $ task plan-sync
            ! error: line 1: field "t" is missing or empty
            [1]
            $ task plan-sync
            ! error: line 1: field "t" is missing or empty
            [1]
            $ task plan-sync
            ! error: line 1: field "id" must be a text, got: 7
            [1]
            $ task plan-sync
            ! error: line 3: field "p" must be a non-negative integer, got: -1
            [1]
            $ task plan-sync
            ! error: line 1: field "p" must be a non-negative integer, got: 1.5
            [1]
            $ task plan-sync
            ! error: line 1: field "p" must be a non-negative integer, got: "1"
            [1]
            $ task plan-sync
            ! error: line 1: field "p" must be a non-negative integer, got: 4294967296
            [1]
            $ task plan-sync
            ! error: line 1: field "steps" must be a list of texts, got: "one"
            [1]
            $ task plan-sync
            ! error: line 1: field "steps" must be a list of texts, got: [1]
            [1]
            $ task plan-sync
            ! error: line 1: unknown dependency 'nobody'
            [1]
            $ task plan-sync
            ! error: line 1: duplicate dependency 'a'
            [1]
            $ task plan-sync
            ! error: line 1: task 'x' depends on itself
            [1]
            $ task plan-sync
            ! error: line 2: duplicate id 'x' (first on line 1)
            [1]
            $ task plan-sync
            ! error: line 1: task 'r' belongs to queue 'runs'
            [1]
            $ task plan-sync
            ! error: line 1: x -> y -> x would be a cycle
            [1]
            $ task plan-sync
            ! error: line 1: task id has the control character \u{1b} in 'a\u{1b}b'
            [1]
            $ task plan-sync
            ! error: line 1: task id '-x' begins with '-'
            [1]
            $ task plan-sync
            ! error: line 1: task id '../x' has the path step '..'
            [1]
        "#]],
    );
}

/// Bytes that are no UTF-8 name their line too.
#[test]
fn invalid_utf8_on_standard_input() {
    let lab = Lab::new();
    lab.line("@0 task create a A").ok();
    let before = lab.export();
    let ran = lab.feed("task plan-sync", b"{\"id\":\"x\",\"t\":\"X\"}\n{\"id\":\"y\",\"t\":\"\xff\xfe\"}\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("error: line 2: invalid UTF-8"), "{}", ran.stderr);
    assert_eq!(lab.export(), before);
}

fn plan(bad_line: Option<usize>) -> Vec<u8> {
    let line = |number: usize| match number {
        number if Some(number) == bad_line => "{\"id\":\"oops\"}\n".to_owned(),
        1 => "{\"id\":\"t1\",\"t\":\"Task 1\",\"spec\":\"specs/0.md\"}\n".to_owned(),
        number => format!(
            "{{\"id\":\"t{number}\",\"t\":\"Task {number}\",\"spec\":\"specs/{}.md\",\"deps\":[\"t{}\"]}}\n",
            number % 10,
            number / 2
        ),
    };
    (1..=10_000).flat_map(|number| line(number).into_bytes()).collect()
}

/// S7: 10,000 lines in one transaction; a second run reports zeros; a bad line 7,000 changes nothing and is named.
#[test]
fn ten_thousand_lines() {
    let lab = Lab::new();
    let bad = lab.feed("@0 task plan-sync", &plan(Some(7_000)));
    assert_eq!((bad.code, bad.stdout.as_str()), (1, ""));
    assert_eq!(bad.stderr, "error: line 7000: field \"t\" is missing or empty\n");
    assert_eq!(lab.line("task plan-status").ok(), "0 open, 0 active, 0 done, 0 blocked, 0 deleted\n");
    let first = lab.feed("@1 task plan-sync", &plan(None)).ok();
    assert_eq!(first, "inserted: 10000, updated: 0, deleted: 0, skipped (done): 0\n");
    let count = lab.line("task plan-status").ok();
    assert_eq!(count, "1 open, 0 active, 0 done, 9999 blocked, 0 deleted\n");
    let before = lab.line("log -n 1").ok();
    let second = lab.feed("@2 task plan-sync", &plan(None)).ok();
    assert_eq!(second, "inserted: 0, updated: 0, deleted: 0, skipped (done): 0\n");
    let bad = lab.feed("@3 task plan-sync", &plan(Some(7_000)));
    assert_eq!(bad.code, 1);
    assert_eq!(lab.line("task plan-status").ok(), count);
    assert_eq!(lab.line("log -n 1").ok(), before, "nothing was written");
}
