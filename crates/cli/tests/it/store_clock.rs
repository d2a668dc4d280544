//! The host's clock steps back under a SQLite store. The store's own times are moved ahead instead, which is the same.

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::support::{Lab, Ran};

/// Everything that was written by the clock was written so much later.
fn move_ahead(lab: &Lab, by_ms: i64) -> i64 {
    let connection = Connection::open(lab.database()).unwrap();
    connection.execute("UPDATE journal SET at = at + ?1", params![by_ms]).unwrap();
    connection.execute("UPDATE clock SET newest_at = newest_at + ?1", params![by_ms]).unwrap();
    newest(&connection)
}

fn newest(connection: &Connection) -> i64 {
    connection.query_row("SELECT max(at) FROM journal", [], |row| row.get(0)).unwrap()
}

fn shown(lab: &Lab, id: &str) -> Value {
    serde_json::from_str(&lab.run(&["task", "show", id, "--json"]).stdout).unwrap()
}

const MINUTE: i64 = 60_000;

/// Up to ten minutes the newest time is used as now: time stands still, and never goes back.
#[test]
fn a_small_step_back_is_bridged() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let newest_at = move_ahead(&lab, 9 * MINUTE);
    lab.line("task create b B").ok();
    lab.line("task claim b --agent w").ok();
    let connection = Connection::open(lab.database()).unwrap();
    assert_eq!(newest(&connection), newest_at, "neither before nor after it");
    let lease: i64 = connection
        .query_row("SELECT lease_expires_at FROM tasks WHERE id = 'b'", [], |row| row.get(0))
        .unwrap();
    assert!(lease > newest_at, "a lease that ends in the future");
    assert!(!finds_the_clock(&lab));
}

/// Whether a doctor finds fault with the clock. The journal was changed under its feet, and it finds that, too.
fn finds_the_clock(lab: &Lab) -> bool {
    lab.line("doctor").stdout.lines().any(|line| line.starts_with("clock "))
}

#[track_caller]
fn warned(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("warning: the newest entry of "), "{lines:?}");
}

/// Further back: what writes stops with both times, what reads warns, and a person decides.
#[test]
fn a_large_step_back_stops_writing() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    lab.line("task claim a --agent w").ok();
    let before = shown(&lab, "a");
    move_ahead(&lab, 60 * MINUTE);
    let journal = lab.run(&["log", "--json"]).stdout;
    for line in [
        "task create b B",
        "task claim --agent w",
        "task renew a --agent w",
        "task done a --agent w",
        "task delete a",
    ] {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (75, ""), "{line}: {}", ran.stderr);
        let says = |word: &str| ran.stderr.contains(word);
        assert!(says("was written at 20") && says("this host's clock says 20"), "{line}: {}", ran.stderr);
        assert!(says("rota doctor --accept-clock"), "{line}: {}", ran.stderr);
    }
    for line in ["task list", "task peek", "why a"] {
        warned(&lab.line(line));
    }
    assert_eq!(shown(&lab, "a"), before, "nothing was changed");
    assert_eq!(lab.run(&["log", "--json"]).stdout, journal);
    assert!(finds_the_clock(&lab) && lab.line("doctor").code == 1);
    let accepted = lab.line("doctor --accept-clock");
    assert!(accepted.stderr.contains("accepted this host's clock"), "{}", accepted.stderr);
    lab.line("task create b B").ok();
    assert!(!finds_the_clock(&lab));
    let again = lab.line("doctor --accept-clock");
    assert!(again.stderr.contains("is not behind"), "{}", again.stderr);
}

/// A clock that is ahead of the journal is nothing special, and a time that was given is no clock.
#[test]
fn a_step_ahead_and_given_times_are_normal() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    move_ahead(&lab, -600 * MINUTE);
    lab.line("task create b B").ok();
    let mut command = lab.command();
    command.env("ROTA_ALLOW_NOW", "1").args(["task", "create", "c", "C", "--now", "2099-01-01T00:00:00Z"]);
    assert!(command.output().unwrap().status.success());
    lab.line("task create d D").ok();
    assert!(!finds_the_clock(&lab));
}

/// A renewal without a length never shortens a lease; one with a length sets it.
#[test]
fn a_renewal_never_shortens() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    lab.line("task claim a --agent w --lease 7200").ok();
    let until = |lab: &Lab| shown(lab, "a")["leaseExpiresAt"].as_str().unwrap().to_owned();
    let promised = until(&lab);
    lab.line("task renew a --agent w").ok();
    assert_eq!(until(&lab), promised);
    let connection = Connection::open(lab.database()).unwrap();
    connection.execute("UPDATE tasks SET lease_expires_at = lease_expires_at + 3600000", []).unwrap();
    let promised = until(&lab);
    lab.line("task renew a --agent w").ok();
    assert_eq!(until(&lab), promised, "as after a step back of an hour");
    lab.line("task renew a --agent w --lease 60").ok();
    assert!(until(&lab) < promised);
}
