//! Stores that cannot be used: 1 and what is wrong with them, 75 only for what may pass by itself (S8).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use expect_test::expect;
use rusqlite::Connection;

use crate::support::{Lab, ROTA, feed, rota_in};

/// A store that fails is never reported as "nothing eligible", whatever the verb.
const VERBS: &str = "task claim\ntask list\ntask create x X\nwhy a\nlog";

fn fresh(lab: &Lab) {
    lab.line("@0 task create a A").ok();
    // Everything into the one file, so that what happens to it happens to all.
    let connection = Connection::open(lab.database()).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;").unwrap();
}

#[test]
fn a_directory() {
    let lab = Lab::new();
    fs::create_dir_all(lab.database()).unwrap();
    lab.check(
        VERBS,
        expect![[r#"
        $ task claim
        ! error: the database <folder>/.rota/rota.db is a directory
        [1]
        $ task list
        ! error: the database <folder>/.rota/rota.db is a directory
        [1]
        $ task create x X
        ! error: the database <folder>/.rota/rota.db is a directory
        [1]
        $ why a
        ! error: the database <folder>/.rota/rota.db is a directory
        [1]
        $ log
        ! error: the database <folder>/.rota/rota.db is a directory
        [1]
    "#]],
    );
}

#[test]
fn no_database_at_all() {
    let lab = Lab::new();
    fs::create_dir(lab.path().join(".rota")).unwrap();
    let garbage =
        b"This is a text file, and long enough to be looked at as a database header is.\n".repeat(20);
    fs::write(lab.database(), &garbage).unwrap();
    lab.check(
        VERBS,
        expect![[r#"
        $ task claim
        ! error: <folder>/.rota/rota.db is damaged or not a SQLite database: file is not a database
        [1]
        $ task list
        ! error: <folder>/.rota/rota.db is damaged or not a SQLite database: file is not a database
        [1]
        $ task create x X
        ! error: <folder>/.rota/rota.db is damaged or not a SQLite database: file is not a database
        [1]
        $ why a
        ! error: <folder>/.rota/rota.db is damaged or not a SQLite database: file is not a database
        [1]
        $ log
        ! error: <folder>/.rota/rota.db is damaged or not a SQLite database: file is not a database
        [1]
    "#]],
    );
    assert_eq!(fs::read(lab.database()).unwrap(), garbage, "it was not touched");
}

#[test]
fn a_truncated_database() {
    let lab = Lab::new();
    fresh(&lab);
    let whole = fs::read(lab.database()).unwrap();
    fs::write(lab.database(), &whole[..whole.len() / 2]).unwrap();
    for line in VERBS.lines() {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}");
        assert!(ran.stderr.contains("is damaged or not a SQLite database"), "{line}: {}", ran.stderr);
    }
}

#[test]
fn another_programs_database() {
    let lab = Lab::new();
    fs::create_dir(lab.path().join(".rota")).unwrap();
    let connection = Connection::open(lab.database()).unwrap();
    connection.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").unwrap();
    lab.check(
        "task claim\ntask create x X",
        expect![[r#"
        $ task claim
        ! error: <folder>/.rota/rota.db is a SQLite database, but not one of Rota's
        [1]
        $ task create x X
        ! error: <folder>/.rota/rota.db is a SQLite database, but not one of Rota's
        [1]
    "#]],
    );
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}

#[test]
fn a_newer_schema() {
    let lab = Lab::new();
    fresh(&lab);
    Connection::open(lab.database()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    lab.check(
        VERBS,
        expect![[r#"
            $ task claim
            ! error: <folder>/.rota/rota.db has schema 99, this rota knows up to 5: use a newer rota
            [1]
            $ task list
            ! error: <folder>/.rota/rota.db has schema 99, this rota knows up to 5: use a newer rota
            [1]
            $ task create x X
            ! error: <folder>/.rota/rota.db has schema 99, this rota knows up to 5: use a newer rota
            [1]
            $ why a
            ! error: <folder>/.rota/rota.db has schema 99, this rota knows up to 5: use a newer rota
            [1]
            $ log
            ! error: <folder>/.rota/rota.db has schema 99, this rota knows up to 5: use a newer rota
            [1]
        "#]],
    );
}

#[test]
fn a_folder_that_is_not_there() {
    let lab = Lab::new();
    lab.check(
        "task list --store sqlite:no/such/rota.db",
        expect![[r#"
        $ task list --store sqlite:no/such/rota.db
        ! error: <folder>/no/such: No such file or directory (os error 2)
        [1]
    "#]],
    );
    fs::write(lab.path().join(".rota"), "a file").unwrap();
    lab.check(
        "task list",
        expect![[r#"
            $ task list
            ! error: <folder>/.rota: not a directory
            [1]
        "#]],
    );
}

/// By another process: a file that this one wrote cannot be run while another thread is about to start a child.
pub fn copy_program(to: &Path) {
    if !to.exists() {
        assert!(std::process::Command::new("cp").arg(ROTA).arg(to).status().unwrap().success());
    }
}

/// Runs as somebody who may not, also where the tests run as root.
fn as_nobody(lab: &Lab, line: &str) -> (i32, String, String) {
    let program = lab.path().join("rota");
    copy_program(&program);
    let mut command = rota_in(&program, lab.path());
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let ran = feed(command.args(line.split(' ')), b"");
    (ran.code, ran.stdout.clone(), lab.shown(&ran))
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn no_permission() {
    let lab = Lab::new();
    fresh(&lab);
    let before = fs::read(lab.database()).unwrap();
    let folder = lab.path().join(".rota");
    let mut shown = String::new();
    for (case, of_folder, of_file) in
        [("the file", 0o777, 0o000), ("the folder", 0o000, 0o666), ("nothing may be written", 0o555, 0o444)]
    {
        mode(&lab.database(), of_file);
        mode(&folder, of_folder);
        mode(lab.path(), 0o755);
        for line in ["task claim", "task list", "task create x X"] {
            let (code, stdout, text) = as_nobody(&lab, line);
            if case == "nothing may be written" && line == "task list" {
                assert!(code == 0 && stdout.contains("\na "), "who may read reads: {text}");
                continue;
            }
            assert_eq!((code, stdout.as_str()), (1, ""), "{case}, {line}: {text}");
            shown.push_str(&format!("{case}: $ {line}\n{text}"));
        }
        mode(&folder, 0o755);
        mode(&lab.database(), 0o644);
    }
    expect![[r#"
        the file: $ task claim
        ! error: no permission for <folder>/.rota/rota.db: unable to open database file: <folder>/.rota/rota.db
        [1]
        the file: $ task list
        ! error: no permission for <folder>/.rota/rota.db: unable to open database file: <folder>/.rota/rota.db
        [1]
        the file: $ task create x X
        ! error: no permission for <folder>/.rota/rota.db: unable to open database file: <folder>/.rota/rota.db
        [1]
        the folder: $ task claim
        ! error: no permission for <folder>/.rota/rota.db: Permission denied (os error 13)
        [1]
        the folder: $ task list
        ! error: no permission for <folder>/.rota/rota.db: Permission denied (os error 13)
        [1]
        the folder: $ task create x X
        ! error: no permission for <folder>/.rota/rota.db: Permission denied (os error 13)
        [1]
        nothing may be written: $ task claim
        ! error: the database <folder>/.rota/rota.db is read-only
        [1]
        nothing may be written: $ task create x X
        ! error: the database <folder>/.rota/rota.db is read-only
        [1]
    "#]].assert_eq(&shown);
    assert_eq!(fs::read(lab.database()).unwrap(), before);
}

#[test]
fn a_folder_where_nothing_can_be_made() {
    let lab = Lab::new();
    copy_program(&lab.path().join("rota"));
    mode(lab.path(), 0o555);
    let (code, stdout, text) = as_nobody(&lab, "task create x X");
    mode(lab.path(), 0o755);
    assert_eq!((code, stdout.as_str()), (1, ""));
    expect![[r#"
        ! error: no permission for <folder>/.rota: Permission denied (os error 13)
        [1]
    "#]]
    .assert_eq(&text);
}

/// Another program that holds the write lock for longer than the patience of 30 s: 75, and nothing is lost.
#[test]
fn busy_is_75() {
    let lab = Lab::new();
    lab.line("@0 task create a A").ok();
    let holder = Connection::open(lab.database()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(lab.line("task list").ok().contains("\na "), "readers do not wait");
    assert!(lab.line("task peek").ok().contains("id: a\n"), "peek takes no lock");
    lab.check(
        "task claim",
        expect![[r#"
        $ task claim
        ! error: the store at <folder>/.rota/rota.db stayed busy for 30 s
        [75]
    "#]],
    );
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(lab.line("task claim").code, 0);
}

/// With `--json`, the errors of `task`, `loop` and `why` have a second line for programs; those of other commands and the
/// answer "nothing eligible" have none.
#[test]
fn errors_for_programs() {
    let lab = Lab::new();
    let told = |line: &str| {
        let ran = lab.line(line);
        assert_ne!(ran.code, 0, "{line}");
        assert_eq!(ran.stdout, "", "{line}");
        ran.stderr
    };
    let object = |line: &str| -> serde_json::Value {
        let stderr = told(line);
        assert!(stderr.starts_with("error: "), "{line}: {stderr}");
        let last = stderr.lines().last().unwrap();
        let object: serde_json::Value =
            serde_json::from_str(last).unwrap_or_else(|_| panic!("{line}: {stderr}"));
        assert_eq!(object["schemaVersion"], 1, "{line}");
        let message = object["error"]["message"].as_str().unwrap();
        assert_eq!(stderr.lines().next().unwrap(), format!("error: {message}"), "{line}");
        object["error"].clone()
    };
    lab.line("task create a A").ok();
    assert_eq!(object("task show nope --json")["code"], "task_not_found");
    lab.line("task claim a --agent w").ok();
    let held = object("task done a --agent x --json");
    assert_eq!(held["code"], "not_holder");
    assert!(held["hint"].as_str().is_some_and(|hint| hint.contains('w')), "{held}");
    assert_eq!(object("--json task create")["code"], "usage");
    assert_eq!(object("loop show nope --json")["code"], "task_not_found");
    assert_eq!(object("why nope --json")["code"], "task_not_found");
    assert_eq!(told("task claim --json"), "No eligible tasks\n");
    assert!(!told("task show nope").contains("schemaVersion"));
    assert_eq!(told("sched complete nope --json").lines().count(), 1);
    assert_eq!(told("queue show nope --json").lines().count(), 1);
    fs::write(lab.database(), "").unwrap();
    for line in ["task list --json", "task claim --json", "loop list --json", "why a --json"] {
        assert_eq!(object(line)["code"], "store_corrupt");
    }
    for line in ["sched plan --json", "queue list --json", "policy show --json", "log --json"] {
        assert_eq!(told(line).lines().count(), 1, "{line}");
    }
}
