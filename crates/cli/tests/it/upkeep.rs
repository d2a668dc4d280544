//! `rota doctor`, `export`, `import`, `backup`, `prune`, `migrate`.

use expect_test::expect;
use rusqlite::Connection;

use crate::support::{Lab, check};

/// Out of one store, into another, and the same bytes out of that.
#[test]
fn export_and_import() {
    let lab = Lab::new();
    lab.line("@0 task create a A").ok();
    lab.line("@1 task create b B --deps a").ok();
    lab.line("@2 task claim a --agent x").ok();
    assert_eq!(lab.line("export one.jsonl").ok(), "exported 2 tasks, 1 edges, 4 events\n");
    let first = std::fs::read_to_string(lab.path().join("one.jsonl")).unwrap();
    assert_eq!(lab.line("export").ok(), first);
    assert!(first.starts_with("{\"export\":{\"schemaVersion\":1,\"scopes\":[\"default\"]}}\n"), "{first}");
    lab.line("import one.jsonl --store sqlite:two.db").ok();
    assert_eq!(lab.line("export --store sqlite:two.db").ok(), first);
    assert_eq!(lab.line("log --store sqlite:two.db").ok(), lab.line("log").ok());
    lab.line("@3 task done a --agent x --store sqlite:two.db").ok();
    lab.line("doctor --store sqlite:two.db").ok();
    std::fs::write(lab.path().join("bad.jsonl"), first.replacen("\"task\"", "\"tusk\"", 1)).unwrap();
    lab.check(
        "
        import one.jsonl
        import bad.jsonl --store sqlite:three.db
        task list --all --store sqlite:three.db
        import missing.jsonl
        import
        ",
        expect![[r#"
            $ import one.jsonl
            ! error: an import needs empty scopes, but the store has 'default' (queues: tasks): import into another store
            [1]
            $ import bad.jsonl --store sqlite:three.db
            ! error: line 3: unknown variant `tusk`, expected one of `export`, `block`, `usage`, `queue`, `policy`, `agent`, `task`, `edge`, `retired`, `event`, `end` at line 1 column 7
            [1]
            $ task list --all --store sqlite:three.db
            $ import missing.jsonl
            ! error: missing.jsonl: No such file or directory (os error 2)
            [1]
            $ import
            ! error: missing file
            ! Usage: rota import [OPTIONS] <file>
            [1]
        "#]],
    );
}

/// What is wrong is said, with what `--fix` would do; 1 until it is done.
#[test]
fn doctor_says_and_repairs() {
    let lab = Lab::new();
    lab.line("@0 task create a A").ok();
    lab.line("@0 task create b B --deps a").ok();
    let connection = Connection::open(lab.database()).unwrap();
    connection.execute("UPDATE tasks SET open_blockers = 3 WHERE id = 'b'", []).unwrap();
    lab.check(
        "
        doctor
        doctor --fix
        doctor
        doctor --json
        ",
        expect![[r#"
            $ doctor
            schema 5, 1 scopes, 2 tasks, 3 events
            blockers default b: 3 open blockers are stored, there are 1 (--fix would store the count)
            1 problems
            [1]
            $ doctor --fix
            schema 5, 1 scopes, 2 tasks, 3 events
            blockers default b: 3 open blockers are stored, there are 1 (repaired: store the count)
            1 problems, 1 repaired
            $ doctor
            schema 5, 1 scopes, 2 tasks, 3 events
            nothing is wrong
            $ doctor --json
            {
              "schemaVersion": 1,
              "schema": 5,
              "scopes": 1,
              "tasks": 2,
              "events": 3,
              "total": 0,
              "repaired": 0,
              "problems": []
            }
        "#]],
    );
}

/// A dry run says the same and changes nothing.
#[test]
fn prune_says_what_it_does() {
    check(
        "
        @0 task create a A
        @0 task create b B --deps a
        @1 task claim a --agent x
        @2 task done a --agent x
        @3 task create c C
        @4 task delete c
        @5000 prune --older-than 1h --dry-run
        @5000 task list --all
        @5000 prune --older-than 1h
        @5000 task list --all
        @5000 prune --older-than 1h --json
        doctor
        prune --older-than soon
        prune
        ",
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task create b B --deps a
            b
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
            $ @2 task done a --agent x
            done a
            $ @3 task create c C
            c
            $ @4 task delete c
            deleted c
            $ @5000 prune --older-than 1h --dry-run
            would prune 1 tasks and 4 events of others, kept 1 that others need
            $ @5000 task list --all
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 done     -     A                                   x
            b                    2 open     -     B                                   -
            c                    2 deleted  -     C                                   -
            $ @5000 prune --older-than 1h
            pruned 1 tasks and 4 events of others, kept 1 that others need
            $ @5000 task list --all
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 done     -     A                                   x
            b                    2 open     -     B                                   -
            $ @5000 prune --older-than 1h --json
            {
              "schemaVersion": 1,
              "dryRun": false,
              "unchangedSince": "2026-01-01T00:23:20.000Z",
              "tasks": 0,
              "needed": 1,
              "events": 0
            }
            $ doctor
            schema 5, 1 scopes, 2 tasks, 2 events
            nothing is wrong
            $ prune --older-than soon
            ! error: --older-than must be a duration such as 30d, 12h or 45m, got: soon
            ! Usage: rota prune [OPTIONS] --older-than <DURATION>
            [1]
            $ prune
            ! error: missing --older-than
            ! Usage: rota prune [OPTIONS] --older-than <DURATION>
            [1]
        "#]],
    );
}

#[test]
fn backup_and_migrate() {
    let lab = Lab::new();
    lab.check(
        "
        migrate --status
        migrate
        migrate --status --json
        task create a A
        backup copy.db
        task list --store sqlite:copy.db
        backup no/such/folder.db
        migrate --grant-to x
        ",
        expect![[r#"
            $ migrate --status
            schema 0, this rota knows 5: run `rota migrate`
            [1]
            $ migrate
            migrated from schema 0 to 5
            $ migrate --status --json
            {
              "schemaVersion": 1,
              "found": 5,
              "known": 5
            }
            $ task create a A
            a
            $ backup copy.db
            backed up to copy.db (a SQLite database)
            $ task list --store sqlite:copy.db
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     A                                   -
            $ backup no/such/folder.db
            ! error: no/such/folder.db: No such file or directory (os error 2)
            [1]
            $ migrate --grant-to x
            ! error: the store's URL cannot be used: only PostgreSQL has roles to grant to
            [1]
        "#]],
    );
    Connection::open(lab.database()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = lab.line("migrate --status");
    assert_eq!((newer.code, newer.stdout.as_str()), (1, ""));
    assert!(
        newer.stderr.contains("has schema 99, this rota knows up to 5: use a newer rota"),
        "{}",
        newer.stderr
    );
}
