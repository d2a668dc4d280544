//! `rota task list`.

use expect_test::expect;

use crate::support::check;

/// Columns at least 20, 1, 8, 5, 35 wide, `-` for nothing; deleted ones left out; nothing when empty.
#[test]
fn a_table_in_the_one_order() {
    check(
        r#"
        task list
        @0 task create b "Second of its priority"
        @1 task create c "A title that is longer than thirty-five characters" -c category
        @2 task create a First -p 0 -c cat
        @3 task create an-id-that-is-longer-than-twenty-characters T -p 10
        @4 task create gone Gone
        @5 task claim a --agent agent-7
        @5 task delete gone
        task list
        task list --all
        task list --status deleted
        task list --status open,active
        task list --status " open , active "
        task list --status parked
        task list --assignee agent-7
        task list --assignee nobody
        task list --assignee "" --status active
        "#,
        expect![[r#"
            $ task list
            $ @0 task create b "Second of its priority"
            b
            $ @1 task create c "A title that is longer than thirty-five characters" -c category
            c
            $ @2 task create a First -p 0 -c cat
            a
            $ @3 task create an-id-that-is-longer-than-twenty-characters T -p 10
            an-id-that-is-longer-than-twenty-characters
            $ @4 task create gone Gone
            gone
            $ @5 task claim a --agent agent-7
            ## Task a
            id: a
            title: First
            priority: 0
            status: active
            category: cat
            assignee: agent-7
            lease_expires_at: 2026-01-01T00:10:05Z
            lease_id: lease-a-1
            retry_count: 0
            $ @5 task delete gone
            deleted gone
            $ task list
            ID                                          P  S        CAT      TITLE                                              AGENT
            a                                           0  active   cat      First                                              agent-7
            b                                           2  open     -        Second of its priority                             -
            c                                           2  open     category A title that is longer than thirty-five characters -
            an-id-that-is-longer-than-twenty-characters 10 open     -        T                                                  -
            $ task list --all
            ID                                          P  S        CAT      TITLE                                              AGENT
            a                                           0  active   cat      First                                              agent-7
            b                                           2  open     -        Second of its priority                             -
            c                                           2  open     category A title that is longer than thirty-five characters -
            gone                                        2  deleted  -        Gone                                               -
            an-id-that-is-longer-than-twenty-characters 10 open     -        T                                                  -
            $ task list --status deleted
            ID                   P S        CAT   TITLE                               AGENT
            gone                 2 deleted  -     Gone                                -
            $ task list --status open,active
            ID                                          P  S        CAT      TITLE                                              AGENT
            a                                           0  active   cat      First                                              agent-7
            b                                           2  open     -        Second of its priority                             -
            c                                           2  open     category A title that is longer than thirty-five characters -
            an-id-that-is-longer-than-twenty-characters 10 open     -        T                                                  -
            $ task list --status " open , active "
            ID                                          P  S        CAT      TITLE                                              AGENT
            a                                           0  active   cat      First                                              agent-7
            b                                           2  open     -        Second of its priority                             -
            c                                           2  open     category A title that is longer than thirty-five characters -
            an-id-that-is-longer-than-twenty-characters 10 open     -        T                                                  -
            $ task list --status parked
            $ task list --assignee agent-7
            ID                   P S        CAT   TITLE                               AGENT
            a                    0 active   cat   First                               agent-7
            $ task list --assignee nobody
            $ task list --assignee "" --status active
            ID                   P S        CAT   TITLE                               AGENT
            a                    0 active   cat   First                               agent-7
        "#]],
    );
}

/// The same tasks as markdown-KV, a blank line between them.
#[test]
fn as_markdown() {
    check(
        r#"
        @0 task create a A -c cat -r spec --ref ref -s '["x"]' -d "not shown"
        @0 task create b B --deps a
        task list --markdown
        task list --status done --markdown
        "#,
        expect![[r#"
            $ @0 task create a A -c cat -r spec --ref ref -s '["x"]' -d "not shown"
            a
            $ @0 task create b B --deps a
            b
            $ task list --markdown
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
            category: cat
            spec: spec
            ref: ref
            steps:
            - x

            ## Task b
            id: b
            title: B
            priority: 2
            status: open
            deps: a
            $ task list --status done --markdown
        "#]],
    );
}

/// `--all` with `--status`: 1; an unknown state: 1 and the known ones.
#[test]
fn flags_that_exclude_each_other() {
    check(
        r#"
        task list --all --status open
        task list --status bogus
        task list --status ""
        task list --status ,
        task list --status
        task list --bogus
        task list extra
        "#,
        expect![[r#"
            $ task list --all --status open
            ! error: --all and --status are mutually exclusive
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list --status bogus
            ! error: unknown status 'bogus' (known: open, active, paused, done, failed, parked, invalidated, deleted)
            [1]
            $ task list --status ""
            ! error: --status is empty
            [1]
            $ task list --status ,
            ! error: --status is empty
            [1]
            $ task list --status
            ! error: --status requires a value
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list --bogus
            ! error: unknown flag '--bogus'
            ! Usage: rota task list [OPTIONS]
            [1]
            $ task list extra
            ! error: unexpected argument 'extra'
            ! Usage: rota task list [OPTIONS]
            [1]
        "#]],
    );
}
