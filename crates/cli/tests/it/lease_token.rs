//! Agents of a daemon on PostgreSQL: no password, a token for their lease, and nothing beyond it.

use rota_testbed::Server;

use crate::daemon::{Daemon, configure, read, states, until};
use crate::support::{Lab, ROTA};

/// Tries what it is given, line by line, and writes down how each ended.
const AGENT: &str = r#"#!/bin/sh
echo "$ROTA_STORE" > store; echo "$ROTA_TOKEN" > token; env > seen
while read -r line; do
  eval "$ROTA $line" > out 2> err < /dev/null; code=$?
  echo "$code $line" >> tried
  [ $code = 0 ] || cat err >> refusals
done < script
until test -e go; do sleep 0.02; done
"#;

#[test]
fn an_agent_has_its_lease_and_no_more() {
    let lab = Lab::on(Server::shared().fresh_url());
    std::fs::write(lab.path().join("agent.sh"), AGENT).unwrap();
    configure(
        &lab,
        &format!(
            "  ralph: {{run: [sh, agent.sh], env: {{ROTA: '{ROTA}'}}}}\n  waits: {{run: [sleep, '1000']}}\n"
        ),
    );
    let allowed = [
        "loop show $ROTA_TASK",
        "why $ROTA_TASK",
        "loop list",
        "task list",
        "loop add --kind waits --id child --parent $ROTA_TASK",
        "task create mine Mine",
        "task renew $ROTA_TASK",
    ];
    let refused = [
        "task done other",
        "task fail other --reason no",
        "task renew other",
        "task release other",
        "--lease-id lease-other-1 task done other",
        "--lease-id lease-other-1 task renew other",
        "--scope elsewhere task list",
        "--scope elsewhere task create x X",
        "policy show",
        "policy apply script",
        "queue list",
        "sched plan",
        "sched lease",
        "export",
        "doctor",
        "prune",
        "log",
    ];
    let script: String = allowed.iter().chain(&refused).map(|line| format!("{line}\n")).collect();
    std::fs::write(lab.path().join("script"), script).unwrap();
    lab.line("loop add --kind waits --id other").ok();
    lab.line("loop add --kind ralph --id r").ok();
    let daemon = Daemon::start(&lab);
    let tried = || std::fs::read_to_string(lab.path().join("tried")).unwrap_or_default();
    until("it has tried everything", || tried().lines().count() == allowed.len() + refused.len());
    let told = std::fs::read_to_string(lab.path().join("refusals")).unwrap_or_default();
    for line in tried().lines() {
        let (code, line) = line.split_once(' ').unwrap();
        assert_eq!(code == "0", allowed.contains(&line), "{line}: {code}\n{told}");
    }
    assert!(read(lab.path().join("store")).starts_with("http://127.0.0.1:"));
    assert!(!read(lab.path().join("seen")).contains("postgres://"), "no way to the database");

    // The same token from outside, while the lease is held and afterwards.
    let (store, token) = (read(lab.path().join("store")), read(lab.path().join("token")));
    let with_token = |line: &str| {
        let mut command = lab.command();
        command.env("ROTA_STORE", store.trim()).env("ROTA_TOKEN", token.trim());
        let output = command.args(line.split(' ')).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(with_token("loop list").0, 0);
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("its lease ends", || states(&lab).contains(&"r complete".to_owned()));
    for line in ["loop list", "loop show r", "task create late Late", "why r"] {
        let (code, said) = with_token(line);
        assert!(code != 0 && said.contains("lease-r-1 is not held any more"), "{line}: {code} {said}");
    }
    assert_ne!(lab.line("task show late").code, 0);
    daemon.down(&lab);
}

/// A daemon that was killed: its agents' way to their tasks is there again with the next one.
#[test]
fn an_agent_outlives_the_daemon_that_gave_it_a_token() {
    let lab = Lab::on(Server::shared().fresh_url());
    configure(
        &lab,
        &format!(
            "  ralph: {{run: 'echo x > began; until test -e go; do sleep 0.02; done; \"$ROTA\" loop show r > shown', env: {{ROTA: '{ROTA}'}}}}\n"
        ),
    );
    lab.line("loop add --kind ralph --id r").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || std::fs::read(lab.path().join("began")).is_ok_and(|text| !text.is_empty()));
    daemon.kill9();
    let daemon = Daemon::start(&lab);
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("it completes", || states(&lab) == ["r complete"]);
    assert!(read(lab.path().join("shown")).contains("lease-r-1"));
    daemon.down(&lab);
}
