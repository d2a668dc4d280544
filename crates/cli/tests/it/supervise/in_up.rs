//! `rota up --supervise`: the supervisor inside of the daemon.

use std::process::{Child, Stdio};

use rota_testbed::Server;

use super::{ended, first_cycle, read, repository, repository_on, start, state, until, write};
use crate::daemon::signal;
use crate::support::Lab;

const LOG: &str = ".rota/run/supervise.log";

fn up(lab: &Lab, arguments: &[&str]) -> Child {
    let mut command = lab.command();
    command.args(["up", "--no-gateway"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn log(lab: &Lab) -> String {
    std::fs::read_to_string(lab.path().join(LOG)).unwrap_or_default()
}

fn configure(lab: &Lab, more: &str) {
    let text = format!(
        "disk: {{min_free_gb: 0}}\nsupervisor: {{source: local, cycle_interval_seconds: 1{more}}}\nnotify:\n\
         - {{on: [cycle_failed, governance_violation], run: [sh, -c, 'cat >> told.jsonl; echo >> told.jsonl']}}\n"
    );
    write(lab, "rota.yml", &text);
}

fn down(child: Child) -> String {
    signal("TERM", child.id());
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stderr
}

/// Its lines are in the log, and status, metrics and hooks know its cycles.
fn runs_in_up(lab: &Lab, arguments: &[&str]) {
    lab.line("issue add --title one").ok();
    let child = up(lab, arguments);
    until("an issue is claimed", || log(lab).contains("CLAIMED #1 label=in-progress verified=true"));
    until("a cycle has ended", || log(lab).contains("SLEEP seconds=1\n"));
    assert!(log(lab).contains("pinned: docs/governance.md "), "{}", log(lab));
    let status = lab.line("status").ok();
    assert!(status.contains("supervisor runs: ") && status.contains("last claimed #1"), "{status}");
    let status: serde_json::Value = serde_json::from_str(&lab.line("status --json").ok()).unwrap();
    assert_eq!(
        (&status["supervisor"]["running"], &status["supervisor"]["lastClaimedIssue"]),
        (&true.into(), &1.into())
    );
    assert!(status["supervisor"]["cycleCount"].as_u64() > Some(0), "{status}");
    // A cycle that fails is told.
    write(lab, "docs/governance.md", "changed\n");
    until("a cycle has failed", || state(lab)["consecutive_failures"].as_u64() > Some(0));
    until("hooks are told", || {
        let told = std::fs::read_to_string(lab.path().join("told.jsonl")).unwrap_or_default();
        told.contains("\"event\":\"cycle_failed\"") && told.contains("scheduler.governance_failed")
    });
    let metrics = metrics(lab);
    assert!(metrics.contains("rota_supervisor_failures_in_row 1\n"), "{metrics}");
    assert!(metrics.contains("rota_supervisor_running 1\n"), "{metrics}");
    assert!(
        metrics.contains("rota_supervisor_last_code{code=\"scheduler.governance_failed\"} 1\n"),
        "{metrics}"
    );
    let said = down(child);
    assert!(!said.contains("CYCLE_START"), "{said}");
    assert!(log(lab).ends_with("SLEEP seconds=60\n"), "{}", log(lab));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(lab.path().join(LOG)).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

fn metrics(lab: &Lab) -> String {
    use std::io::{Read, Write};
    let address = read(lab, ".rota/run/serve");
    let address = address.trim().strip_prefix("http://").unwrap();
    let token = read(lab, ".rota/token");
    let mut text = String::new();
    until("the metrics have cycles", || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!(
            "GET /metrics HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            token.trim()
        );
        stream.write_all(head.as_bytes()).unwrap();
        text.clear();
        stream.read_to_string(&mut text).unwrap();
        text.contains("rota_supervisor_failures_in_row 1\n")
    });
    text
}

#[test]
fn by_the_flag_and_by_the_configuration() {
    let lab = repository("source: local");
    configure(&lab, "");
    runs_in_up(&lab, &["--supervise"]);
    let lab = repository_on(Lab::on(Server::shared().fresh_url()), "source: local");
    configure(&lab, ", in_up: true");
    runs_in_up(&lab, &[]);
}

/// While another process has the state file, it waits and says so; then it takes over.
#[test]
fn it_waits_for_another_supervisor() {
    let lab = repository("source: local");
    configure(&lab, ", in_up: true");
    let other = start(&lab, &[]);
    until("it has begun", || lab.path().join("agents/state/scheduler_state.json").exists());
    let child = up(&lab, &[]);
    until("it waits", || log(&lab).contains("the supervisor waits: another rota supervise runs on "));
    assert!(!log(&lab).contains("CYCLE_START"), "{}", log(&lab));
    signal("TERM", other.id());
    ended(other);
    until("it has taken over", || log(&lab).contains("CYCLE_START"));
    let said = down(child);
    assert!(said.contains("the supervisor waits: "), "{said}");
    assert_eq!(log(&lab).matches("supervisor waits").count(), 1);
}

/// Never in a daemon that ends by itself.
#[test]
fn not_with_once_or_until_idle() {
    let lab = repository("source: local");
    configure(&lab, ", in_up: true");
    for arguments in ["up --once", "up --until-idle"] {
        assert_eq!(lab.line(arguments).code, 0);
    }
    assert_eq!(log(&lab), "");
    for arguments in ["up --supervise --once", "up --supervise --until-idle"] {
        let ran = lab.line(arguments);
        assert!(ran.code == 1 && ran.stderr.contains("not with --once or --until-idle"), "{}", ran.stderr);
    }
    write(&lab, "rota.yml", "disk: {min_free_gb: 0}\n");
    let ran = lab.line("up --supervise");
    assert!(ran.code == 1 && ran.stderr.contains("has no section 'supervisor'"), "{}", ran.stderr);
}

/// A pin that was lost is told to the hooks, too.
#[test]
fn hooks_hear_of_a_pin_that_was_lost() {
    let lab = repository("source: local");
    configure(&lab, "");
    first_cycle(&lab);
    std::fs::remove_dir_all(lab.path().join(".rota")).unwrap();
    let child = up(&lab, &["--supervise"]);
    until("hooks are told", || {
        let told = std::fs::read_to_string(lab.path().join("told.jsonl")).unwrap_or_default();
        told.contains("\"event\":\"governance_violation\"") && told.contains("pinned anew")
    });
    assert!(log(&lab).contains("warning: pinned anew: docs/governance.md "), "{}", log(&lab));
    down(child);
}
