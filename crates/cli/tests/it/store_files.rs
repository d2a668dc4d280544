//! A database that is not what it was: removed, replaced, linked, emptied or copied under the programs that use it (S8).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rusqlite::Connection;
use serde_json::json;

use crate::daemon::{Daemon, configure, read, until, wait_for};
use crate::mcp::client::Http;
use crate::support::{Lab, ROTA};

/// Verbs that only read and verbs that write.
const VERBS: [&str; 7] =
    ["task list", "task peek", "why a", "doctor", "task claim --agent w", "task create x X", "migrate"];

fn beside(lab: &Lab, suffix: &str) -> PathBuf {
    lab.path().join(format!(".rota/rota.db{suffix}"))
}

/// As `git clean -fdx` does.
fn clean(lab: &Lab) {
    for suffix in ["", "-wal", "-shm", "-turn"] {
        fs::remove_file(beside(lab, suffix)).unwrap();
    }
}

/// Every verb fails with these words, prints nothing else, and makes nothing.
#[track_caller]
fn all_fail(lab: &Lab, words: &str) {
    let listed = || {
        let mut names: Vec<_> =
            fs::read_dir(lab.path().join(".rota")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = listed();
    for line in VERBS {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{line}: {}", ran.stderr);
    }
    assert_eq!(listed(), before, "nothing was made");
}

/// A server that has the database open answers nothing from it, to anybody, and says that it is not ready.
#[track_caller]
fn nothing_is_served(server: &Http, code: &str) {
    let calls = [
        ("POST", "/tasks", Some(json!({"id": "late", "title": "Late"}))),
        ("POST", "/claims?agent=w", Some(json!({}))),
        ("POST", "/tasks/a/done", Some(json!({}))),
        ("GET", "/tasks", None),
    ];
    for (method, path, body) in &calls {
        let reply = server.ask(method, path, body.as_ref());
        assert!(reply.status >= 500, "{path}: {reply:?}");
        assert_eq!(reply.json()["code"], code, "{path}");
    }
    let host = [("Host", server.address.as_str())];
    let ready = server.raw("GET", "/readyz", &host, "");
    assert!(ready.status >= 500 && ready.body.contains(code), "{ready:?}");
    assert_eq!(server.raw("GET", "/healthz", &host, "").status, 200, "the process itself is well");
}

#[test]
fn a_server_whose_database_is_unlinked() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let server = Http::serve(&lab, &[]);
    assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
    clean(&lab);
    nothing_is_served(&server, "store_displaced");
    // Everything is gone, so a new store may begin.
    assert_eq!(lab.line("task list").code, 0);
    lab.line("task create b B").ok();
    // The new file is not the old one, although a file system likes to give it the same number.
    nothing_is_served(&server, "store_displaced");
    assert_eq!(lab.line("task list --json").json()["total"], 1, "nothing came from the server");
    drop(server);
    let server = Http::serve(&lab, &[]);
    assert_eq!(server.ask("GET", "/tasks/b", None).status, 200, "a restart is the way out");
}

#[test]
fn a_server_whose_database_comes_back() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let server = Http::serve(&lab, &[]);
    let away = lab.path().join("away.db");
    fs::rename(lab.database(), &away).unwrap();
    nothing_is_served(&server, "store_displaced");
    all_fail(&lab, "is missing although");
    fs::rename(&away, lab.database()).unwrap();
    assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
    let made = server.ask("POST", "/tasks", Some(&json!({"id": "b", "title": "B"})));
    assert_eq!(made.status, 200, "{made:?}");
    assert!(lab.line("task list").ok().contains("\nb "), "both see the same file");
}

#[test]
fn a_server_whose_database_or_log_is_replaced() {
    for suffix in ["", "-wal", "-shm"] {
        let lab = Lab::new();
        lab.line("task create a A").ok();
        let server = Http::serve(&lab, &[]);
        assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
        let copy = lab.path().join("copy");
        fs::copy(beside(&lab, suffix), &copy).unwrap();
        fs::rename(&copy, beside(&lab, suffix)).unwrap();
        // A second look too: a new session would share the index of those that are open, whatever has its name now.
        nothing_is_served(&server, "store_displaced");
        nothing_is_served(&server, "store_displaced");
        drop(server);
        let server = Http::serve(&lab, &[]);
        assert_eq!(server.ask("GET", "/tasks/a", None).status, 200, "{suffix}: a restart is the way out");
        assert_eq!(server.ask("GET", "/tasks/late", None).status, 404, "{suffix}");
    }
}

fn truncate(path: PathBuf, length: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// A server whose database or log is truncated where it lies would go on from its cache, and acknowledge what nobody can
/// read.
#[test]
fn a_server_whose_database_or_log_is_truncated() {
    for (suffix, length) in [("", 0), ("", 4_096), ("", 8_192), ("-wal", 0), ("-wal", 100), ("-wal", 5_000)] {
        let lab = Lab::new();
        lab.line("task create a A").ok();
        let server = Http::serve(&lab, &[]);
        let made = server.ask("POST", "/tasks", Some(&json!({"id": "b", "title": "B"})));
        assert_eq!(made.status, 200, "{made:?}");
        truncate(beside(&lab, suffix), length);
        nothing_is_served(&server, "store_displaced");
        nothing_is_served(&server, "store_displaced");
        let ran = lab.line("task create c C");
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{suffix} {length}: {}", ran.stderr);
        drop(server);
        if suffix.is_empty() {
            assert_eq!(lab.line("task list").code, 1, "{length}");
        } else {
            // What was in the log alone is gone with it; the rest is whole.
            assert!(lab.line("task list").ok().contains("\na "), "{length}");
            assert_eq!(lab.line("doctor").code, 0, "{length}");
        }
    }
}

/// A truncated index can be made anew from the log by the next process that opens the database.
#[test]
fn a_server_whose_index_is_truncated() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let server = Http::serve(&lab, &[]);
    assert_eq!(server.ask("POST", "/tasks", Some(&json!({"id": "b", "title": "B"}))).status, 200);
    truncate(beside(&lab, "-shm"), 0);
    nothing_is_served(&server, "store_displaced");
    lab.line("task create c C").ok();
    assert_eq!(server.ask("POST", "/tasks", Some(&json!({"id": "d", "title": "D"}))).status, 200);
    assert_eq!(lab.line("task list --json").json()["total"], 4);
    assert_eq!(lab.line("doctor").code, 0);
}

#[test]
fn two_names_of_one_database() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let server = Http::serve(&lab, &[]);
    assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
    let other = lab.path().join("other.db");
    fs::hard_link(lab.database(), &other).unwrap();
    all_fail(&lab, "has 2 hard links");
    let by_other = lab.line("task list --store sqlite:other.db");
    assert_eq!(by_other.code, 1, "{}", by_other.stdout);
    nothing_is_served(&server, "store_linked");
    fs::remove_file(other).unwrap();
    assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
}

#[test]
fn a_daemon_whose_database_is_unlinked() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'until test -e go; do sleep 0.1; done'}\n");
    lab.line("loop add --kind ralph --id a").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || crate::daemon::states(&lab) == ["a running"]);
    clean(&lab);
    wait_for(&mut daemon.0);
    assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
    let log = read(lab.path().join("up.log"));
    assert!(log.contains("was removed while this process had the database"), "{log}");
    assert!(!lab.database().exists(), "it made no new one");
    assert_eq!(crate::daemon::started_for(&lab), [] as [u32; 0], "no agent is left");
}

#[test]
fn work_whose_database_is_unlinked() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let script = "touch began; until test -e go; do sleep 0.1; done";
    let mut command = lab.command();
    command.args(["work", "--agent", "w", "--", "sh", "-c", script, ROTA]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("it began", || lab.path().join("began").exists());
    clean(&lab);
    fs::write(lab.path().join("go"), "").unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("was removed while this process had the database"), "{said}");
    assert!(!lab.database().exists(), "it made no new one");
}

#[test]
fn a_database_that_was_emptied() {
    for length in [0, 1, 100, 511] {
        let lab = Lab::new();
        lab.line("task create a A").ok();
        let whole = fs::read(lab.database()).unwrap();
        let words = format!("only {length} bytes long");
        for with_sides in [true, false] {
            fs::write(lab.database(), &whole[..length]).unwrap();
            all_fail(&lab, &words);
            assert_eq!(fs::metadata(lab.database()).unwrap().len(), length as u64);
            if with_sides {
                ["-wal", "-shm", "-turn"]
                    .iter()
                    .for_each(|suffix| fs::remove_file(beside(&lab, suffix)).unwrap());
            }
        }
    }
}

#[test]
fn a_database_that_is_missing_beside_its_files() {
    for left in ["-wal", "-turn"] {
        let lab = Lab::new();
        lab.line("task create a A").ok();
        for suffix in ["", "-wal", "-shm", "-turn"].into_iter().filter(|suffix| *suffix != left) {
            fs::remove_file(beside(&lab, suffix)).unwrap();
        }
        all_fail(&lab, &format!("rota.db{left} is there"));
        fs::remove_file(beside(&lab, left)).unwrap();
        lab.line("task create b B").ok();
    }
}

/// Processes that die while they make a database leave nothing that the next one stumbles over.
#[test]
fn killed_while_it_is_made() {
    for round in 0..40_u64 {
        let lab = Lab::new();
        let mut child =
            lab.command().args(["task", "create", "a", "A"]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::park_timeout(std::time::Duration::from_micros(round * 400));
        child.kill().unwrap();
        child.wait().unwrap();
        let after = lab.line("task create b B");
        assert_eq!((after.code, after.stderr.as_str()), (0, ""), "round {round}");
        assert_eq!(lab.line("doctor").code, 0);
    }
}

/// Commands copy what they wrote into the database when they end: a copy of that file alone has everything.
#[test]
fn a_copy_without_its_log() {
    let lab = Lab::new();
    let copy = |name: &str| {
        let path = lab.path().join(name);
        fs::copy(lab.database(), &path).unwrap();
        format!("--store sqlite:{name}")
    };
    lab.line("task create a A").ok();
    let first = copy("first.db");
    let server = Http::serve(&lab, &[]);
    lab.line("task create b B").ok();
    let second = copy("second.db");
    drop(server);
    assert!(lab.line(&format!("task list {first}")).ok().contains("\na "));
    let listed = lab.line(&format!("task list {second}")).ok();
    assert!(listed.contains("\na ") && listed.contains("\nb "), "{listed}");
    assert_eq!(lab.line(&format!("doctor {second}")).code, 0);
    assert!(beside(&lab, "-wal").exists() && beside(&lab, "-shm").exists(), "for users who may only read");
}

#[test]
fn reading_makes_nothing() {
    let lab = Lab::new();
    for line in ["task list", "task peek", "task plan-status", "log", "doctor", "loop list", "queue list"] {
        let ran = lab.line(line);
        assert!(ran.code == 0 || ran.code == 2, "{line}: {}", ran.stderr);
        assert!(!lab.path().join(".rota").exists(), "{line}");
    }
    lab.line("task create a A").ok();
    assert!(lab.line("task list").ok().contains("\na "));
}

/// Starts a reader that never ends.
fn pin(path: &Path) -> Connection {
    let reader = Connection::open(path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM tasks").unwrap();
    reader
}

/// Another program's reader cannot be ended: a warning names it, and when it is gone the log is short again.
#[test]
fn a_reader_that_never_ends() {
    const LIMIT: u64 = 64 * 1_024 * 1_024;
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let log = beside(&lab, "-wal");
    let reader = pin(&lab.database());
    let text = "x".repeat(60_000);
    let mut warned = false;
    for round in 0..40 {
        let lines: Vec<String> = (0..50)
            .map(|line| json!({"id": format!("t{round}-{line}"), "t": "T", "d": text}).to_string())
            .collect();
        let ran = lab.feed("task plan-sync", lines.join("\n").as_bytes());
        assert!(ran.code == 0 || ran.code == 1, "{}", ran.stderr);
        warned |= ran.stderr.contains("warning: ") && ran.stderr.contains("keeps reading an old state");
        if warned {
            break;
        }
    }
    assert!(warned && fs::metadata(&log).unwrap().len() > LIMIT, "it grew, and somebody was told");
    drop(reader);
    lab.line("task create b B").ok();
    lab.line("task create c C").ok();
    assert!(fs::metadata(&log).unwrap().len() < LIMIT / 2, "{}", fs::metadata(&log).unwrap().len());
}
