//! The real Claude Code and Codex from npm, started with nothing but what `rota setup` wrote: with a scripted model they
//! work through three tasks, file a fourth, finish it, and stop when nothing is left. `tests/clients/setup-agents` runs
//! them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rota_testbed::dialogue::{
    self, message_events, response_text, response_with, stream_of, text_block, tool_block,
};
use rota_testbed::provider::{Provider, Seen, Step};
use serde_json::{Value, json};

use crate::gateway::agents::installed;
use crate::support::{Lab, ROTA};

/// The tool calls of the model, one for each of its turns.
fn calls() -> Vec<(&'static str, Value)> {
    let done = |id: &str| ("rota_task_done", json!({ "id": id }));
    let claim = || ("rota_task_claim", json!({}));
    vec![
        claim(),
        done("one"),
        claim(),
        ("rota_task_create", json!({"id": "found", "title": "Found on the way", "priority": 3})),
        done("two"),
        claim(),
        done("three"),
        claim(),
        done("found"),
        claim(),
    ]
}

/// A model that makes the calls, then says that it is done. Its turns are the requests that offer Rota's tools.
fn model(
    is_turn: impl Fn(&str) -> bool + Send + Sync,
    call: impl Fn(usize, &str, &Value) -> Vec<Step> + Send + Sync,
    text: impl Fn() -> Vec<Step> + Send + Sync,
) -> impl Fn(&Seen) -> Vec<Step> + Send + Sync {
    let turns = AtomicUsize::new(0);
    move |seen| {
        let path = seen.target.split('?').next().unwrap_or_default();
        let body = String::from_utf8_lossy(&seen.body);
        if !(path.ends_with("/messages") || path.ends_with("/responses")) {
            return dialogue::reply(seen);
        }
        if !is_turn(&body) {
            return text();
        }
        let turn = turns.fetch_add(1, Ordering::SeqCst);
        calls().get(turn).map_or_else(&text, |(tool, input)| call(turn, tool, input))
    }
}

/// A repository with three tasks, set up for an agent.
fn workspace(client: &str) -> Lab {
    let lab = Lab::new();
    assert!(Command::new("git").args(["init", "-q"]).current_dir(lab.path()).status().unwrap().success());
    for (priority, id) in ["one", "two", "three"].into_iter().enumerate() {
        lab.line(&format!("task create {id} {id} -p {priority}")).ok();
    }
    lab.line(&format!("setup {client} --remind")).ok();
    lab
}

/// Runs an agent to its end, with `rota` on its path.
fn finish(lab: &Lab, mut command: Command) -> String {
    let home = lab.path().join("home");
    let path = format!("{}:{}", Path::new(ROTA).parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.env("HOME", &home).env("PATH", path).env("NO_PROXY", "*");
    let ran = command.current_dir(lab.path()).stdin(Stdio::null()).output().unwrap();
    let told = format!("{}\n{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{told}");
    assert!(told.contains("Nothing is left."), "{told}");
    told
}

/// All four tasks are done, by one agent, whose name begins like this.
fn check_tasks(lab: &Lab, agent: &str, told: &str) {
    let tasks = lab.line("task list --json").json();
    let tasks = tasks["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 4, "{tasks:?}\n{told}");
    assert!(tasks.iter().all(|task| task["status"] == "done"), "{tasks:?}\n{told}");
    let mut agents: Vec<&str> = tasks.iter().filter_map(|task| task["assignee"].as_str()).collect();
    agents.dedup();
    assert!(agents.len() == 1 && agents[0].starts_with(agent), "{agents:?}");
}

/// The instructions of the managed section and the text of `rota prime` reached the model, and the last claim its refusal.
fn check_requests(provider: &Provider) {
    let bodies: Vec<String> =
        provider.seen().iter().map(|seen| String::from_utf8_lossy(&seen.body).into_owned()).collect();
    let first = bodies.iter().find(|body| body.contains("## Tasks are in Rota")).unwrap();
    assert!(first.contains("# Rota: the tasks of this project"), "rota prime is not in the first request");
    assert!(first.contains("- one \\\"one\\\""), "the next task is not in the first request");
    assert!(bodies.last().unwrap().contains("eligible"), "the last claim found nothing");
}

#[test]
#[ignore = "installs Claude Code: tests/clients/setup-agents"]
fn claude_code_works_through_the_queue() {
    let provider = Provider::start(model(
        |body| body.contains("\"name\":\"Bash\""),
        |turn, tool, input| {
            let (id, name) = (format!("toolu_{turn}"), format!("mcp__rota__{tool}"));
            stream_of(&message_events(&tool_block(&id, &name, &input.to_string()), "tool_use"))
        },
        || stream_of(&message_events(&text_block("Nothing is left."), "end_turn")),
    ));
    let lab = workspace("claude");
    // What a person answers to the dialogs at the first start: the folder is trusted, its server and tools may be used.
    let folder = lab.path().canonicalize().unwrap().display().to_string();
    let home = lab.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let trusted =
        json!({"projects": {folder: {"hasTrustDialogAccepted": true, "enabledMcpjsonServers": ["rota"]}}});
    std::fs::write(home.join(".claude.json"), trusted.to_string()).unwrap();
    let mut command = Command::new(installed().join("claude"));
    command.args(["-p", "Work through the tasks.", "--allowedTools", "mcp__rota", "--output-format", "text"]);
    command.env("ANTHROPIC_BASE_URL", provider.url()).env("ANTHROPIC_API_KEY", "key");
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_TELEMETRY", "1");
    let told = finish(&lab, command);
    check_tasks(&lab, "claude-", &told);
    check_requests(&provider);
}

#[test]
#[ignore = "installs Codex: tests/clients/setup-agents"]
fn codex_works_through_the_queue() {
    let provider = Provider::start(model(
        |body| body.contains("mcp__rota"),
        |turn, tool, input| {
            let item = json!({
                "id": format!("fc_{turn}"), "type": "function_call", "status": "completed",
                "call_id": format!("call_{turn}"), "namespace": "mcp__rota", "name": tool,
                "arguments": input.to_string(),
            });
            stream_of(&response_with(&item.to_string(), &[]))
        },
        || stream_of(&response_text("Nothing is left.")),
    ));
    let lab = workspace("codex");
    let folder = lab.path().canonicalize().unwrap();
    let home = lab.path().join("codex-home");
    std::fs::create_dir(&home).unwrap();
    let config = format!(
        "model_provider = \"scripted\"\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{}/v1\"\n\
         env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n[projects.\"{}\"]\ntrust_level = \"trusted\"\n",
        provider.url(),
        folder.display()
    );
    std::fs::write(home.join("config.toml"), config).unwrap();
    let mut command = Command::new(installed().join("codex"));
    // A person reviews hooks in the interface of Codex; this is the same for a program.
    command.args(["exec", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]);
    command.args(["-m", "gpt-5", "Work through the tasks."]);
    command.env("CODEX_HOME", &home).env("OPENAI_API_KEY", "key");
    let told = finish(&lab, command);
    check_tasks(&lab, "mcp-", &told);
    check_requests(&provider);
}

#[test]
#[ignore = "installs Claude Code: tests/clients/setup-agents"]
fn claude_code_accepts_the_plugin() {
    let lab = Lab::new();
    let plugin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/claude-code");
    let mut command = Command::new(installed().join("claude"));
    command.args(["plugin", "validate", "--strict", plugin]).env("HOME", lab.path());
    let ran = command.stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
