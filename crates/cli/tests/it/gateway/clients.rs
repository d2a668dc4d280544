//! Real clients: the SDKs of both providers from PyPI and npm, an old and a new generation of each, streaming and not,
//! while the provider throws at them what alone would have ended them. They are installed when they are missing, of fixed
//! versions, below the target folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use rota_testbed::dialogue;
use rota_testbed::provider::{Provider, Seen, Step, answer as said};
use serde_json::{Value, json};

use super::{KEY, Running, config};
use crate::support::Lab;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients");

/// Where the SDKs are.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("model-sdks");
        let status = Command::new(format!("{SCRIPTS}/install-sdks")).arg(&folder).status().unwrap();
        assert!(status.success(), "{SCRIPTS}/install-sdks failed");
        folder
    })
}

/// Pushes back whenever a question comes for the first time: as no client would bear it, one way after the other.
fn unkind() -> impl Fn(&Seen) -> Vec<Step> + Send + Sync {
    let met: Mutex<HashMap<Vec<u8>, usize>> = Mutex::default();
    move |seen| {
        let mut met = met.lock().unwrap();
        let times = met.entry([seen.target.as_bytes(), &seen.body].concat()).or_default();
        *times += 1;
        match *times {
            1 => said(429, &[], r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#),
            2 => said(
                529,
                &[],
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            3 => said(503, &[("retry-after", "0")], "<html>"),
            _ => dialogue::reply(seen),
        }
    }
}

/// Runs a client to its end and reads its lines.
fn lines(command: &mut Command) -> Vec<Value> {
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check(api: &str, client: impl Fn(&Path) -> Command) {
    let provider = Provider::start(unkind());
    let lab = Lab::new();
    std::fs::write(lab.path().join("rota.yml"), config(&provider, "")).unwrap();
    let _running = Running::start(&lab);
    let env: Value = serde_json::from_str(&lab.line("gate env --json").ok()).unwrap();
    let variables: HashMap<String, String> = serde_json::from_value(env["variables"].clone()).unwrap();
    let mut command = client(installed());
    let got = lines(command.env_remove("HTTP_PROXY").env("NO_PROXY", "*").envs(&variables));
    let right = |kind: &str| json!({"kind": kind, "text": dialogue::HELLO, "output": dialogue::TOKENS});
    let refusal = if api == "anthropic" { "model: claude-refused" } else { "no such model" };
    let error = json!({"kind": "error", "status": 404, "message": refusal});
    let mut expected = vec![right("whole"), right("stream")];
    if api == "openai" {
        expected.push(right("responses"));
    }
    expected.push(error);
    assert_eq!(got, expected);
    // Each question four times at the provider, which is more than any of them tries, and once at the client.
    assert_eq!(provider.seen().len(), expected.len() * 4);
    for seen in provider.seen() {
        let shown = (seen.header("x-api-key"), seen.header("authorization"));
        let bearer = format!("Bearer {KEY}");
        assert!(shown == (Some(KEY), None) || shown == (None, Some(bearer.as_str())), "{shown:?}");
    }
}

fn python(api: &'static str, generation: &'static str) {
    check(api, |folder| {
        let mut command = Command::new(folder.join(format!("python-{generation}/bin/python")));
        command.arg(format!("{SCRIPTS}/models.py")).arg(api);
        command
    });
}

fn node(api: &'static str, generation: &'static str) {
    check(api, |folder| {
        let mut command = Command::new("node");
        command.arg(format!("{SCRIPTS}/models.mjs")).arg(folder.join("node")).args([api, generation]);
        command
    });
}

#[test]
fn anthropic_for_python_old() {
    python("anthropic", "old");
}

#[test]
fn anthropic_for_python_new() {
    python("anthropic", "new");
}

#[test]
fn openai_for_python_old() {
    python("openai", "old");
}

#[test]
fn openai_for_python_new() {
    python("openai", "new");
}

#[test]
fn anthropic_for_node_old() {
    node("anthropic", "old");
}

#[test]
fn anthropic_for_node_new() {
    node("anthropic", "new");
}

#[test]
fn openai_for_node_old() {
    node("openai", "old");
}

#[test]
fn openai_for_node_new() {
    node("openai", "new");
}
