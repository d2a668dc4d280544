//! Real clients: the official Python SDK in both generations, the official inspector, and the official conformance
//! suite. They are installed when they are missing, of fixed versions, below the target folder.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::client::{HANDSHAKE, Http, INLINE};
use super::same_bytes::{ALLOW_NOW, Step, compare, steps, tools};
use crate::support::{Lab, ROTA};

pub const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients");

/// Where the clients are.
pub fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("mcp-clients");
        let status = Command::new(format!("{SCRIPTS}/install")).arg(&folder).status().unwrap();
        assert!(status.success(), "{SCRIPTS}/install failed");
        folder
    })
}

/// A program of npm's, run by the Node that came with it.
fn npm(program: &str) -> Command {
    let bin = installed().join("node/node_modules/.bin");
    let mut command = Command::new(bin.join(program));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display()));
    command
}

/// The Python SDK as a process that makes one call per line.
struct Sdk {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Sdk {
    fn start(generation: u32, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(installed().join(format!("python-{generation}/bin/python")));
        command.arg(format!("{SCRIPTS}/sdk.py")).args(arguments).current_dir(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let call = json!({"name": tool, "arguments": arguments});
        writeln!(self.input.as_mut().unwrap(), "{call}").unwrap();
        self.next()
    }

    /// Lists and calls every tool, compares with the command line, and leaves.
    fn check(mut self, labs: (&Lab, &Lab), protocol: &str) {
        let greeting = self.next();
        assert_eq!(greeting["protocol"], protocol);
        let mut listed: Vec<String> = serde_json::from_value(greeting["tools"].clone()).unwrap();
        listed.sort();
        assert_eq!(listed, tools(labs.1));
        compare(labs, &steps(), |tool, arguments| self.call(tool, arguments)).is_everything(&listed);
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

fn over_stdio(generation: u32, protocol: &str) {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let sdk = Sdk::start(
        generation,
        mcp.path(),
        &["stdio", "env", "ROTA_ALLOW_NOW=1", ROTA, "mcp", "--tools", "all"],
    );
    sdk.check((&cli, &mcp), protocol);
}

fn over_http(generation: u32, protocol: &str) {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let server = Http::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    let url = format!("http://{}/mcp", server.address);
    let sdk = Sdk::start(generation, mcp.path(), &["http", &url, &server.token]);
    sdk.check((&cli, &mcp), protocol);
}

#[test]
fn python_sdk_1_over_stdio() {
    over_stdio(1, HANDSHAKE);
}

#[test]
fn python_sdk_1_over_http() {
    over_http(1, HANDSHAKE);
}

#[test]
fn python_sdk_2_over_stdio() {
    over_stdio(2, INLINE);
}

#[test]
fn python_sdk_2_over_http() {
    over_http(2, INLINE);
}

/// Leases for the tools that settle one. Each call of the inspector is a session of its own, whose end releases what it was
/// granted, so these are granted by the command line.
const GRANTED: &str = "
    @0 task create renewed R
    @0 task create failed F
    @0 task create released R
    @0 task create done D
    @0 task claim renewed --agent me
    @0 task claim failed --agent me
    @0 task claim released --agent me
    @0 task claim done --agent me
    @0 queue add --id e1 --app x --repo 1
    @0 queue add --id e2 --app x --repo 2
    @0 queue add --id e3 --app x --repo 3
    @0 sched policy set --maxConcurrent 3
    @0 sched lease --limit 3
";

/// Every tool once, all of them answered.
fn each_tool_once() -> Vec<Step> {
    const PLAN: &str = "{\"id\":\"a\",\"t\":\"A\"}\n{\"id\":\"b\",\"t\":\"B\",\"deps\":[\"a\"]}\n";
    let lease = |id: &str| json!({"id": id, "leaseId": format!("lease-{id}-1")});
    let entry = |id: &str| json!({"leaseId": format!("lease-{id}-1")});
    vec![
        Step("@0 task plan-sync --json", PLAN, "rota_task_plan_sync", json!({"plan": PLAN})),
        Step("@1 task peek --json -n 1", "", "rota_task_peek", json!({"limit": 1})),
        Step("@1 task create c C --json", "", "rota_task_create", json!({"id": "c", "title": "C"})),
        Step("@2 task claim b --json --agent me", "", "rota_task_claim", json!({"id": "b", "agent": "me"})),
        Step(
            "@3 task renew renewed --json --lease-id lease-renewed-1",
            "",
            "rota_task_renew",
            lease("renewed"),
        ),
        Step("@4 task fail failed --json --lease-id lease-failed-1", "", "rota_task_fail", lease("failed")),
        Step(
            "@5 task release released --json --lease-id lease-released-1",
            "",
            "rota_task_release",
            lease("released"),
        ),
        Step("@6 task done done --json --lease-id lease-done-1", "", "rota_task_done", lease("done")),
        Step("@7 task show b --json --with-deps", "", "rota_task_show", json!({"id": "b", "withDeps": true})),
        Step("@7 why b --json", "", "rota_why", json!({"id": "b"})),
        Step("@7 why nobody --json", "", "rota_why", json!({"id": "nobody"})),
        Step(
            "@8 queue add --id r1 --app x --repo r",
            "",
            "rota_queue_add",
            json!({"id": "r1", "app": "x", "repo": "r"}),
        ),
        Step("@8 queue list --json --status pending", "", "rota_queue_list", json!({"status": "pending"})),
        Step("@8 queue show r1", "", "rota_queue_show", json!({"id": "r1"})),
        Step("@9 sched policy show", "", "rota_sched_policy_show", json!({})),
        Step("@9 sched policy set --maxAttempts 1", "", "rota_sched_policy_set", json!({"maxAttempts": 1})),
        Step("@10 sched plan", "", "rota_sched_plan", json!({})),
        Step("@10 sched lease --limit 0", "", "rota_sched_lease", json!({"limit": 0})),
        Step("@11 sched renew lease-e1-1", "", "rota_sched_renew", entry("e1")),
        Step("@12 sched release lease-e2-1", "", "rota_sched_release", entry("e2")),
        Step("@13 sched reset r1", "", "rota_sched_reset", json!({"id": "r1"})),
        Step("@15 sched complete lease-e3-1", "", "rota_sched_complete", entry("e3")),
        Step("@16 sched reclaim", "", "rota_sched_reclaim", json!({})),
        Step("@16 queue drain", "", "rota_queue_drain", json!({})),
    ]
}

/// Runs the inspector; what it prints.
fn inspect(target: &[&str], method: &[&str]) -> Value {
    let mut command = npm("mcp-inspector");
    command.arg("--cli").args(target).args(method);
    let ran = command.output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&ran.stderr)))
}

fn inspector(labs: (&Lab, &Lab), target: &[&str]) {
    let listed = inspect(target, &["--method", "tools/list"]);
    let names = listed["tools"].as_array().unwrap().iter();
    let mut names: Vec<String> = names.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, tools(labs.1));
    for lab in [labs.0, labs.1] {
        let granted = lab.transcript(GRANTED);
        assert!(!granted.contains("\n! "), "{granted}");
    }
    let seen = compare(labs, &each_tool_once(), |tool, arguments| {
        let mut method =
            vec!["--method".to_owned(), "tools/call".to_owned(), "--tool-name".to_owned(), tool.to_owned()];
        for (name, value) in arguments.as_object().unwrap() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            method.extend(["--tool-arg".to_owned(), format!("{name}={text}")]);
        }
        let method: Vec<&str> = method.iter().map(String::as_str).collect();
        json!({"result": inspect(target, &method)})
    });
    let never: Vec<&String> = names.iter().filter(|name| !seen.answered.contains(name.as_str())).collect();
    // An entry that is not parked, and a task that is blocked.
    assert_eq!(never, ["rota_sched_reset", "rota_task_claim"]);
}

#[test]
fn inspector_over_stdio() {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let folder = mcp.path().to_str().unwrap();
    let target = [
        ROTA,
        "mcp",
        "--tools",
        "all",
        "--cwd",
        folder,
        "-e",
        "ROTA_HOST=test-host",
        "-e",
        "ROTA_ALLOW_NOW=1",
    ];
    inspector((&cli, &mcp), &target);
}

#[test]
fn inspector_over_http() {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let server = Http::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    let (url, token) =
        (format!("http://{}/mcp", server.address), format!("Authorization: Bearer {}", server.token));
    inspector((&cli, &mcp), &[&url, "--transport", "http", "--header", &token]);
}

#[test]
fn conformance_suite() {
    let lab = Lab::new();
    let server = Http::start(&lab, &["--tools", "all"]);
    let url = format!("http://{}/mcp", server.address);
    for scenario in ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"] {
        let mut command = npm("conformance");
        command.args(["server", "--url", &url, "--scenario", scenario]).current_dir(lab.path());
        // It cannot be told a token, so its requests are given one.
        command.env("ROTA_TOKEN", &server.token);
        command.env("NODE_OPTIONS", format!("--import {SCRIPTS}/with_token.mjs"));
        let ran = command.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let passed = said.contains(", 0 failed, 0 warnings") && !said.contains("Passed: 0/");
        assert!(ran.status.success() && passed, "{scenario}: {said}{}", String::from_utf8_lossy(&ran.stderr));
    }
}
