//! Agents of `rota up` and `rota work`, on both stores: no way to the store itself, a token for their lease, and nothing
//! beyond it. Each attack is refused and leaves the journal as it was.

use std::process::{Child, Stdio};

use rota_testbed::Server;
use serde_json::Value;

use crate::daemon::{Daemon, configure, everywhere, read, states, until, wait_for};
use crate::support::{Lab, ROTA};

/// Waits for each file of lines in turn, runs the lines, and writes down how each ended.
const AGENT: &str = r#"#!/bin/sh
echo "$ROTA_STORE" > store; echo "$ROTA_TOKEN" > token; env > seen
for part in attacks rights; do
  until test -e $part; do sleep 0.02; done
  while read -r line; do
    eval "$ROTA $line" > out 2> err < /dev/null; code=$?
    echo "$code $line: $(head -c 300 err | tr '\n' ' ')" >> $part.new
  done < $part
  mv $part.new $part.tried
done
until test -e go; do sleep 0.02; done
"#;

/// What a lease token was a master key for, and what else an agent might try.
const ATTACKS: &[&str] = &[
    // Settling, renewing and parking what another agent holds.
    "task done other",
    "task fail other --reason no",
    "task release other",
    "task renew other",
    "task park other --reason x",
    "--lease-id lease-other-1 task done other",
    "--agent holder task done other",
    // Around the fences.
    "task update other --status done",
    "task update other --status done --force",
    "task update $ROTA_TASK --status paused --force",
    // Its own priority, for a long time, at another time.
    "task update $ROTA_TASK --priority 0",
    "task renew $ROTA_TASK --lease 31536000",
    "task claim victim --lease 31536000",
    "task claim --lease 31536000",
    "--now 2099-01-01T00:00:00Z task renew $ROTA_TASK",
    "--now 2026-01-01T00:00:00Z task done $ROTA_TASK",
    // The work of others.
    "task update victim --description rewritten",
    "task update victim --title T --steps '[]'",
    "task delete victim",
    "task delete --all --confirm",
    "task delete --status open",
    "task plan-sync --specs '*'",
    "task pause victim",
    "task park victim --reason x",
    "task block victim --by $ROTA_TASK",
    "task block $ROTA_TASK --by victim",
    "task unblock $ROTA_TASK --by blocker",
    "task reset victim",
    "task undelete victim",
    "loop cancel victim",
    "loop reiterate victim",
    "loop move victim --host elsewhere",
    // Adding where it may not, or more urgently than its own.
    "loop add --kind waits --id rogue",
    "loop add --kind waits --id rogue --parent victim",
    "loop add --kind waits --id rogue --parent $ROTA_TASK --priority critical",
    "task create rogue R -p 0",
    "task create rogue R --queue issues",
    "queue add --id rogue --app x",
    "issue add --title rogue",
    "--scope elsewhere task create rogue R",
    // Control.
    "policy show",
    "policy apply attacks",
    "sched policy set --maxConcurrent 9",
    "sched lease",
    "sched reclaim --queue tasks",
    "queue drain",
    "queue pause tasks",
    "supervise pin",
    "prune --older-than 0s",
    "doctor --fix",
    "task agent register",
    // Reading what is not its own.
    "task show victim",
    "task show blocker --with-deps",
    "why victim",
    "task show nobody",
    "loop show victim",
    "task list --all",
    "task peek",
    "task plan-status",
    "task deps $ROTA_TASK",
    "loop list",
    "loop tree",
    "log",
    "export",
    "queue list",
    "sched plan",
    "task agent list",
    "--scope elsewhere task show $ROTA_TASK",
];

const RIGHTS: &[&str] = &[
    "task show $ROTA_TASK --with-deps",
    "task show blocker",
    "why $ROTA_TASK",
    "why blocker",
    "task renew $ROTA_TASK",
    "task renew $ROTA_TASK --lease 60",
    "task create mine Mine",
    "task create urgent Mine -p 2",
];

/// A backlog with a victim, a task that another agent holds, and a blocker that is done.
fn prepare(lab: &Lab) {
    std::fs::write(lab.path().join("agent.sh"), AGENT.replace("$ROTA ", &format!("'{ROTA}' "))).unwrap();
    for id in ["victim", "other", "blocker"] {
        lab.line(&format!("task create {id} T")).ok();
    }
    lab.line("task claim other --agent holder --lease 86400").ok();
    lab.line("task claim blocker --agent a").ok();
    lab.line("task done blocker --agent a").ok();
}

/// The journal without renewals, which come by themselves.
fn journal(lab: &Lab) -> Vec<Value> {
    let log: Value = serde_json::from_str(&lab.line("log --json").ok()).unwrap();
    let events = log["events"].as_array().unwrap().iter();
    events.filter(|event| event["event"] != "renewed").cloned().collect()
}

/// Has the agent run lines and returns how each ended: its exit code, the line and the error.
fn run_in_agent(lab: &Lab, part: &str, lines: &[&str]) -> Vec<(i32, String)> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(lab.path().join("lines"), text).unwrap();
    std::fs::rename(lab.path().join("lines"), lab.path().join(part)).unwrap();
    let tried = lab.path().join(format!("{part}.tried"));
    until("it has tried everything", || tried.exists());
    let tried = read(tried);
    assert_eq!(tried.lines().count(), lines.len(), "{tried}");
    tried
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(code, line)| (code.parse().unwrap(), line.to_owned()))
        .collect()
}

fn attack_and_use(lab: &Lab, more_rights: &[&str]) {
    until("the agent runs", || lab.path().join("seen").exists());
    assert!(read(lab.path().join("store")).starts_with("http://127.0.0.1:"));
    let seen = read(lab.path().join("seen"));
    assert!(!seen.contains("postgres://") && !seen.contains("rota.db"), "no way to the store: {seen}");
    let before = journal(lab);
    for (code, line) in run_in_agent(lab, "attacks", ATTACKS) {
        assert_ne!(code, 0, "{line}");
    }
    assert_eq!(journal(lab), before, "an attack changed something");
    let rights: Vec<&str> = RIGHTS.iter().chain(more_rights).copied().collect();
    for (code, line) in run_in_agent(lab, "rights", &rights) {
        assert_eq!(code, 0, "{line}");
    }
    let created: Value = serde_json::from_str(&lab.line("log --task mine --json").ok()).unwrap();
    assert!(created.to_string().contains("discoveredFrom"), "it is linked: {created}");
}

/// The token after its lease has ended.
fn after_the_lease(lab: &Lab, lease: &str) {
    let (store, token) = (read(lab.path().join("store")), read(lab.path().join("token")));
    for line in ["task show own", "task create late Late", "why own", "task done own", "task renew own"] {
        let mut command = lab.command();
        command.env("ROTA_STORE", store.trim()).env("ROTA_TOKEN", token.trim());
        let output = command.args(line.split(' ')).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("{lease} has ended")), "{line}: {said}");
    }
    assert_ne!(lab.line("task show late").code, 0);
}

#[test]
fn an_agent_has_its_lease_and_no_more() {
    everywhere(|lab| under_daemon(lab, &["--publish"]));
}

#[test]
fn the_agents_listener_is_there_without_the_api() {
    everywhere(|lab| under_daemon(lab, &["--publish", "--no-serve"]));
}

fn under_daemon(lab: &Lab, arguments: &[&str]) {
    prepare(lab);
    configure(lab, "  ralph: {run: [sh, agent.sh]}\n  waits: {run: [sleep, '1000']}\n");
    lab.line("loop add --kind ralph --id own").ok();
    lab.line("task block own --by blocker").ok();
    let mut command = lab.command();
    command.arg("up").args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let daemon = Daemon(command.spawn().unwrap());
    let below = "loop add --kind waits --id child --parent $ROTA_TASK --prompt more";
    attack_and_use(lab, &[below, "loop show $ROTA_TASK", "task show child", "why child"]);
    let url = read(lab.path().join(".rota/run/serve"));
    let operator = lab.command().args(["task", "list"]).env("ROTA_STORE", url.trim()).output().unwrap();
    assert_eq!(operator.status.success(), !arguments.contains(&"--no-serve"), "{operator:?}");
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("its lease ends", || states(lab).contains(&"own complete".to_owned()));
    after_the_lease(lab, "lease-own-1");
    daemon.down(lab);
}

#[test]
fn a_command_of_rota_work_has_its_lease_and_no_more() {
    everywhere(|lab| {
        prepare(lab);
        lab.line("task create own T --queue mine").ok();
        lab.line("task block own --by blocker").ok();
        let mut child = work(lab);
        attack_and_use(lab, &[]);
        std::fs::write(lab.path().join("go"), "").unwrap();
        wait_for(&mut child);
        assert!(child.wait().unwrap().success());
    });
}

fn work(lab: &Lab) -> Child {
    let mut command = lab.command();
    command.args(["work", "--queue", "mine", "--until-empty", "--", "sh", "agent.sh"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Speaks MCP as an agent's client would: asks for what it may and may not do, and finishes its task.
const SPEAKS_MCP: &str = r#"#!/bin/sh
{
  echo '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
  echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
  id=1
  while read -r tool arguments; do
    echo '{"jsonrpc":"2.0","id":'$id',"method":"tools/call","params":{"name":"'$tool'","arguments":'$arguments'}}'
    id=$((id + 1))
  done < calls
  until [ "$(wc -l < answers)" -ge $id ]; do sleep 0.02; done
} | "$ROTA" mcp --tools all > answers
mv answers answered
"#;

/// `rota mcp` in the hands of an agent has the rights of its lease token, and no way to the store.
#[test]
fn an_agent_by_mcp_has_its_lease_and_no_more() {
    let lab = Lab::new();
    std::fs::write(lab.path().join("agent.sh"), SPEAKS_MCP).unwrap();
    let calls = [
        ("rota_why", r#"{"id":"own"}"#, true),
        ("rota_task_renew", r#"{"id":"own","lease":60}"#, true),
        ("rota_task_create", r#"{"id":"new","title":"New","steps":["a","b"],"deps":["own"]}"#, true),
        ("rota_task_show", r#"{"id":"victim"}"#, false),
        ("rota_task_claim", "{}", false),
        ("rota_task_done", r#"{"id":"victim"}"#, false),
        ("rota_task_done", r#"{"id":"own","next":true}"#, false),
        ("rota_task_plan_sync", r#"{"plan":""}"#, false),
        ("rota_sched_policy_set", r#"{"maxConcurrent":9}"#, false),
        ("rota_queue_drain", "{}", false),
    ];
    let text: String = calls.iter().map(|(tool, arguments, _)| format!("{tool} {arguments}\n")).collect();
    std::fs::write(lab.path().join("calls"), text).unwrap();
    std::fs::write(lab.path().join("answers"), "").unwrap();
    configure(&lab, &format!("  ralph: {{run: [sh, agent.sh], env: {{ROTA: '{ROTA}'}}}}\n"));
    lab.line("task create victim T").ok();
    lab.line("loop add --kind ralph --id own").ok();
    let daemon = Daemon::start(&lab);
    until("it has an answer to everything", || lab.path().join("answered").exists());
    let answers = read(lab.path().join("answered"));
    for (number, (tool, arguments, is_allowed)) in calls.iter().enumerate() {
        let answers = answers.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let answer = answers.into_iter().find(|answer| answer["id"] == number + 1).unwrap();
        let is_error = answer["result"]["isError"] == true;
        assert_eq!(is_error, !is_allowed, "{tool} {arguments}: {answer}");
        if is_error {
            assert!(answer.to_string().contains("a lease token may"), "{answer}");
        }
    }
    let new: Value = serde_json::from_str(&lab.line("task show new --json").ok()).unwrap();
    assert_eq!((&new["steps"], &new["deps"]), (&serde_json::json!(["a", "b"]), &serde_json::json!(["own"])));
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
