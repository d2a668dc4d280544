//! The real Claude Code and Codex from npm finish a scripted task through the gateway, tool call included, while the
//! provider throws at them what alone would have ended them. Too large for every check: `tests/clients/agents` runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rota_testbed::dialogue::{
    self, message_events, response_text, response_with, stream_of, text_block, tool_block,
};
use rota_testbed::provider::{Provider, Seen, Step, answer as said};
use serde_json::Value;

use super::{Running, config};
use crate::support::Lab;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients");
/// What the agent is made to run.
const WRITE: &str = "printf done > proof.txt";

/// The folder of the agents' programs.
pub fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("model-agents");
    let status = Command::new(format!("{SCRIPTS}/install-agents")).arg(&folder).status().unwrap();
    assert!(status.success(), "{SCRIPTS}/install-agents failed");
    folder.join("node_modules/.bin")
}

/// Every call is pushed back a few times before it is answered: in turn what ends Claude Code (529 three times) and what
/// ends Codex (429 without `retry-after`, 503 five times).
fn unkind(reply: impl Fn(&Seen) -> Vec<Step> + Send + Sync) -> impl Fn(&Seen) -> Vec<Step> + Send + Sync {
    let calls = AtomicUsize::new(0);
    move |seen| {
        let path = seen.target.split('?').next().unwrap_or_default();
        if !(path.ends_with("/messages") || path.ends_with("/responses")) {
            return dialogue::reply(seen);
        }
        match calls.fetch_add(1, Ordering::SeqCst) % 7 {
            0 => said(429, &[], r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#),
            1..=3 => said(
                529,
                &[],
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            4 | 5 => said(503, &[], "<html>"),
            _ => reply(seen),
        }
    }
}

/// Runs an agent in a folder of its own, as `rota gate env` points it, to its end.
fn run(provider: &Provider, agent: impl FnOnce(&Lab, &Value) -> Command) -> (Lab, String) {
    let lab = Lab::new();
    std::fs::write(lab.path().join("rota.yml"), config(provider, "")).unwrap();
    assert!(Command::new("git").args(["init", "-q"]).current_dir(lab.path()).status().unwrap().success());
    let _running = Running::start(&lab);
    let env: Value = serde_json::from_str(&lab.line("gate env --json").ok()).unwrap();
    let mut command = agent(&lab, &env);
    for (name, value) in env["variables"].as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    let home = lab.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    command.env("HOME", &home).env("NO_PROXY", "*").current_dir(lab.path()).stdin(Stdio::null());
    let ran = command.output().unwrap();
    let told = format!("{}\n{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{told}");
    (lab, told)
}

#[test]
#[ignore = "installs Claude Code: tests/clients/agents"]
fn claude_code_finishes_its_task() {
    let provider = Provider::start(unkind(|seen| {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let has_tools = body.contains("\"name\":\"Bash\"");
        let blocks = match (has_tools, body.contains("tool_result")) {
            (true, false) => {
                let input = serde_json::json!({"command": WRITE, "description": "write"}).to_string();
                return stream_of(&message_events(&tool_block("toolu_1", "Bash", &input), "tool_use"));
            }
            _ => text_block("All done."),
        };
        stream_of(&message_events(&blocks, "end_turn"))
    }));
    let (lab, told) = run(&provider, |_, _| {
        let mut command = Command::new(installed().join("claude"));
        command.args(["-p", "Write the proof.", "--allowedTools", "Bash", "--output-format", "text"]);
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_TELEMETRY", "1");
        command
    });
    assert!(told.contains("All done."), "{told}");
    assert_eq!(std::fs::read_to_string(lab.path().join("proof.txt")).unwrap(), "done");
    println!("Claude Code: {} calls at the provider", provider.seen().len());
}

#[test]
#[ignore = "installs Codex: tests/clients/agents"]
fn codex_finishes_its_task() {
    let provider = Provider::start(unkind(|seen| {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        if body.contains("function_call_output") {
            return stream_of(&response_text("All done."));
        }
        // Whichever tool of its shell it offers.
        let (name, arguments) = if body.contains("\"name\":\"exec_command\"") {
            ("exec_command", serde_json::json!({"cmd": WRITE}))
        } else if body.contains("\"name\":\"shell_command\"") {
            ("shell_command", serde_json::json!({"command": WRITE}))
        } else {
            ("shell", serde_json::json!({"command": ["sh", "-c", WRITE]}))
        };
        let item = serde_json::json!({
            "id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": name,
            "arguments": arguments.to_string(),
        });
        stream_of(&response_with(&item.to_string(), &[]))
    }));
    let (lab, told) = run(&provider, |lab, env| {
        let home = lab.path().join("codex-home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("config.toml"), env["codex"].as_str().unwrap()).unwrap();
        let mut command = Command::new(installed().join("codex"));
        command.args(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]);
        command.args(["-m", "gpt-5", "Write the proof."]).env("CODEX_HOME", &home);
        command
    });
    assert!(told.contains("All done."), "{told}");
    assert_eq!(std::fs::read_to_string(lab.path().join("proof.txt")).unwrap(), "done");
    println!("Codex: {} calls at the provider", provider.seen().len());
}
