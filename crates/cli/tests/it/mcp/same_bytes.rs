//! Every verb twice: by the command line on one store, by MCP on another. What comes out must be the same bytes.

use std::collections::BTreeSet;

use rota_testbed::Server;
use serde_json::{Value, json};

use super::client::{HANDSHAKE, Http, INLINE, Pipes};
use crate::support::{Lab, Ran, at};

/// One verb: its line for the command line, what it reads, the tool, and its arguments.
pub struct Step(pub &'static str, pub &'static str, pub &'static str, pub Value);

const PLAN: &str = r#"{"id":"a","t":"First","p":0,"spec":"specs/a.md","steps":["one","two"]}
{"id":"b","t":"Second","deps":["a"],"d":"after the first","cat":"docs"}
{"id":"c","t":"Third","p":3,"odd":1}
"#;

fn task_steps() -> Vec<Step> {
    vec![
        Step(
            "@0 task plan-sync --json --dry-run",
            PLAN,
            "rota_task_plan_sync",
            json!({"plan": PLAN, "dryRun": true}),
        ),
        Step("@0 task plan-sync --json", PLAN, "rota_task_plan_sync", json!({"plan": PLAN})),
        Step(
            "@0 task plan-sync --json --specs 'x*'",
            PLAN,
            "rota_task_plan_sync",
            json!({"plan": PLAN, "specs": "x*"}),
        ),
        Step("@0 task plan-sync --json", "{", "rota_task_plan_sync", json!({"plan": "{"})),
        Step("@1 task peek --json", "", "rota_task_peek", json!({})),
        Step("@1 task peek --json -n 1", "", "rota_task_peek", json!({"limit": 1})),
        Step("@1 task peek --json --specs 'specs/*'", "", "rota_task_peek", json!({"specs": "specs/*"})),
        Step("@1 task peek --json -n -1", "", "rota_task_peek", json!({"limit": -1})),
        Step("@1 task peek --json --queue nowhere", "", "rota_task_peek", json!({"queue": "nowhere"})),
        Step("@1 task peek --json --scope other", "", "rota_task_peek", json!({"scope": "other"})),
        Step("@1 task claim b --json --agent a1", "", "rota_task_claim", json!({"id": "b", "agent": "a1"})),
        Step(
            "@2 task claim --json --agent a1 --lease 900",
            "",
            "rota_task_claim",
            json!({"agent": "a1", "lease": 900}),
        ),
        Step(
            "@2 task claim --json --agent a1 --lease 1.5",
            "",
            "rota_task_claim",
            json!({"agent": "a1", "lease": 1.5}),
        ),
        Step(
            "@2 task claim --json --agent a1 --category none",
            "",
            "rota_task_claim",
            json!({"agent": "a1", "category": "none"}),
        ),
        Step(
            "@3 task renew a --json --agent a1 --lease-id lease-a-1",
            "",
            "rota_task_renew",
            json!({"id": "a", "agent": "a1", "leaseId": "lease-a-1"}),
        ),
        Step(
            "@3 task renew a --json --lease 60 --lease-id lease-a-1",
            "",
            "rota_task_renew",
            json!({"id": "a", "lease": 60, "leaseId": "lease-a-1"}),
        ),
        Step(
            "@3 task renew a --json --agent stranger --lease-id lease-a-1",
            "",
            "rota_task_renew",
            json!({"id": "a", "agent": "stranger", "leaseId": "lease-a-1"}),
        ),
        Step(
            "@3 task renew a --json --lease-id lease-a-9",
            "",
            "rota_task_renew",
            json!({"id": "a", "leaseId": "lease-a-9"}),
        ),
        Step("@3 task renew --json", "", "rota_task_renew", json!({})),
        Step("@4 why b --json", "", "rota_why", json!({"id": "b"})),
        Step("@4 why c --json", "", "rota_why", json!({"id": "c"})),
        Step("@4 why nobody --json", "", "rota_why", json!({"id": "nobody"})),
        Step(
            "@5 task done a --json --lease-id lease-a-1 --result '{\"sha\":1}'",
            "",
            "rota_task_done",
            json!({"id": "a", "leaseId": "lease-a-1", "result": {"sha": 1}}),
        ),
        Step(
            "@5 task done a --json --lease-id lease-a-1 --result '{\"commit\":\"c1\"}'",
            "",
            "rota_task_done",
            json!({"id": "a", "leaseId": "lease-a-1", "result": {"commit": "c1"}}),
        ),
        Step(
            "@5 task done a --json --lease-id lease-a-1",
            "",
            "rota_task_done",
            json!({"id": "a", "leaseId": "lease-a-1"}),
        ),
        Step("@6 task claim --json --agent a2", "", "rota_task_claim", json!({"agent": "a2"})),
        Step(
            "@7 task fail b --json --lease-id lease-b-1 --reason 'no \"way\"'",
            "",
            "rota_task_fail",
            json!({"id": "b", "leaseId": "lease-b-1", "reason": "no \"way\""}),
        ),
        Step(
            "@7 task fail c --json --lease-id lease-c-1",
            "",
            "rota_task_fail",
            json!({"id": "c", "leaseId": "lease-c-1"}),
        ),
        Step("@7 task claim c --json --agent a2", "", "rota_task_claim", json!({"id": "c", "agent": "a2"})),
        Step(
            "@7 task release c --json --lease-id lease-c-1",
            "",
            "rota_task_release",
            json!({"id": "c", "leaseId": "lease-c-1"}),
        ),
        Step(
            "@7 task release c --json --lease-id lease-c-1",
            "",
            "rota_task_release",
            json!({"id": "c", "leaseId": "lease-c-1"}),
        ),
        Step(
            "@7 task create n New --json -p 1 -d text -s '[\"x\"]' --deps a,b --ref R",
            "",
            "rota_task_create",
            json!({"id": "n", "title": "New", "priority": 1, "description": "text", "steps": ["x"], "deps": ["a", "b"],
                   "ref": "R"}),
        ),
        Step("@7 task create n New --json", "", "rota_task_create", json!({"id": "n", "title": "New"})),
        Step("@8 task show b --json", "", "rota_task_show", json!({"id": "b"})),
        Step("@8 task show b --json --with-deps", "", "rota_task_show", json!({"id": "b", "withDeps": true})),
        Step("@8 task show -- --json", "", "rota_task_show", json!({"id": "--json"})),
        Step("task peek --json --now tomorrow", "", "rota_task_peek", json!({"now": "tomorrow"})),
    ]
}

/// `done` with `next`, on the tasks of a queue of its own. The stand-alone requests of one client name agent and lease.
fn next_steps() -> Vec<Step> {
    let mut steps: Vec<Step> = vec![
        Step(
            "@9 task create n1 One --json --queue line",
            "",
            "rota_task_create",
            json!({"id": "n1", "title": "One", "queue": "line"}),
        ),
        Step(
            "@9 task create n2 Two --json --queue line --deps n1 -c docs --spec specs/n.md",
            "",
            "rota_task_create",
            json!({"id": "n2", "title": "Two", "queue": "line", "deps": ["n1"], "category": "docs",
                   "spec": "specs/n.md"}),
        ),
        Step(
            "@9 task claim --json --agent a3 --queue line",
            "",
            "rota_task_claim",
            json!({"agent": "a3", "queue": "line"}),
        ),
    ];
    let done = |line: &'static str, arguments: Value| Step(line, "", "rota_task_done", arguments);
    steps.extend([
        done(
            "@9 task done n1 --json --agent a3 --lease-id lease-n1-1 --lease 60",
            json!({"id": "n1", "agent": "a3", "leaseId": "lease-n1-1", "lease": 60}),
        ),
        done(
            "@9 task done n1 --json --agent a3 --lease-id lease-n1-1 --next --lease x",
            json!({"id": "n1", "agent": "a3", "leaseId": "lease-n1-1", "next": true, "lease": "x"}),
        ),
        done(
            "@9 task done n1 --json --agent a3 --lease-id lease-n1-9 --next --queue line",
            json!({"id": "n1", "agent": "a3", "leaseId": "lease-n1-9", "next": true, "queue": "line"}),
        ),
        done(
            "@9 task done n1 --json --agent a3 --lease-id lease-n1-1 --next --queue nowhere",
            json!({"id": "n1", "agent": "a3", "leaseId": "lease-n1-1", "next": true, "queue": "nowhere"}),
        ),
        done(
            "@9 task done n1 --json --agent a3 --lease-id lease-n1-1 --result '{\"commit\":\"n\"}' --next --queue line \
             --category docs --specs 'specs/*' --lease 60",
            json!({"id": "n1", "agent": "a3", "leaseId": "lease-n1-1", "result": {"commit": "n"}, "next": true,
                   "queue": "line", "category": "docs", "specs": "specs/*", "lease": 60}),
        ),
        done(
            "@9 task done n2 --json --agent a3 --lease-id lease-n2-1 --next --queue line",
            json!({"id": "n2", "agent": "a3", "leaseId": "lease-n2-1", "next": true, "queue": "line"}),
        ),
    ]);
    steps
}

fn sched_steps() -> Vec<Step> {
    vec![
        Step(
            "@10 queue add --id r1 --app review --note 'a note' --priority 10",
            "",
            "rota_queue_add",
            json!({"id": "r1", "app": "review", "note": "a note", "priority": 10}),
        ),
        Step(
            "@10 queue add --id r2 --workflow w --runId 7 --repo elsewhere",
            "",
            "rota_queue_add",
            json!({"id": "r2", "workflow": "w", "runId": "7", "repo": "elsewhere"}),
        ),
        Step(
            "@10 queue add --id r3 --app review --repo elsewhere",
            "",
            "rota_queue_add",
            json!({"id": "r3", "app": "review", "repo": "elsewhere"}),
        ),
        Step(
            "@10 queue add --id r3 --app review",
            "",
            "rota_queue_add",
            json!({"id": "r3", "app": "review"}),
        ),
        Step("@10 queue add --priority high", "", "rota_queue_add", json!({"priority": "high"})),
        Step("@11 queue list --json", "", "rota_queue_list", json!({})),
        Step(
            "@11 queue list --json --repo elsewhere --status pending",
            "",
            "rota_queue_list",
            json!({"repo": "elsewhere", "status": "pending"}),
        ),
        Step("@11 queue list --json --status lost", "", "rota_queue_list", json!({"status": "lost"})),
        Step("@11 queue show r2", "", "rota_queue_show", json!({"id": "r2"})),
        Step("@11 queue show nobody", "", "rota_queue_show", json!({"id": "nobody"})),
        Step("@11 queue show", "", "rota_queue_show", json!({})),
        Step("@12 sched policy show", "", "rota_sched_policy_show", json!({})),
        Step(
            "@12 sched policy set --maxConcurrent 2 --maxAttempts 1 --backoffFactor 1.5",
            "",
            "rota_sched_policy_set",
            json!({"maxConcurrent": 2, "maxAttempts": 1, "backoffFactor": 1.5}),
        ),
        Step(
            "@12 sched policy set --maxConcurrent 0",
            "",
            "rota_sched_policy_set",
            json!({"maxConcurrent": 0}),
        ),
        Step(
            "@12 sched policy set --leaseTtlMs abc",
            "",
            "rota_sched_policy_set",
            json!({"leaseTtlMs": "abc"}),
        ),
        Step("@12 sched policy set", "", "rota_sched_policy_set", json!({})),
        Step("@12 sched policy show --scope other", "", "rota_sched_policy_show", json!({"scope": "other"})),
        Step("@13 sched plan", "", "rota_sched_plan", json!({})),
        Step("@13 sched plan --limit 1", "", "rota_sched_plan", json!({"limit": 1})),
        Step("@13 sched plan --queue nowhere", "", "rota_sched_plan", json!({"queue": "nowhere"})),
        Step("@13 sched lease --limit 0", "", "rota_sched_lease", json!({"limit": 0})),
        Step("@13 sched lease --limit many", "", "rota_sched_lease", json!({"limit": "many"})),
        Step("@13 sched lease --agent h1", "", "rota_sched_lease", json!({"agent": "h1"})),
        Step("@14 sched renew lease-r1-1", "", "rota_sched_renew", json!({"leaseId": "lease-r1-1"})),
        Step("@14 sched renew lease-r1-9", "", "rota_sched_renew", json!({"leaseId": "lease-r1-9"})),
        Step("@15 sched complete lease-r1-1", "", "rota_sched_complete", json!({"leaseId": "lease-r1-1"})),
        Step("@15 sched complete lease-r1-1", "", "rota_sched_complete", json!({"leaseId": "lease-r1-1"})),
        Step("@15 sched complete", "", "rota_sched_complete", json!({})),
        Step("@16 sched release lease-r2-1", "", "rota_sched_release", json!({"leaseId": "lease-r2-1"})),
        Step(
            "@16 sched lease --limit 1 --agent h1",
            "",
            "rota_sched_lease",
            json!({"limit": 1, "agent": "h1"}),
        ),
        Step(
            "@17 sched release lease-r2-2 --failed --reason broken",
            "",
            "rota_sched_release",
            json!({"leaseId": "lease-r2-2", "failed": true, "reason": "broken"}),
        ),
        Step("@17 sched release lease-r2-2", "", "rota_sched_release", json!({"leaseId": "lease-r2-2"})),
        Step("@18 sched reset r2", "", "rota_sched_reset", json!({"id": "r2"})),
        Step("@18 sched reset r2", "", "rota_sched_reset", json!({"id": "r2"})),
        Step(
            "@19 sched lease --limit 1 --agent h1",
            "",
            "rota_sched_lease",
            json!({"limit": 1, "agent": "h1"}),
        ),
        Step("@900 sched reclaim", "", "rota_sched_reclaim", json!({})),
        Step("@900 sched reclaim --queue nowhere", "", "rota_sched_reclaim", json!({"queue": "nowhere"})),
        Step(
            "@901 queue drain --limit 5 --repo elsewhere",
            "",
            "rota_queue_drain",
            json!({"limit": 5, "repo": "elsewhere"}),
        ),
        Step("@901 queue drain --limit x", "", "rota_queue_drain", json!({"limit": "x"})),
    ]
}

/// A line's `@N` is the argument `now`.
fn arguments(step: &Step) -> Value {
    let mut arguments = step.3.clone();
    if let Some((seconds, _)) = step.0.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
        arguments["now"] = json!(at(seconds.parse().unwrap()));
    }
    arguments
}

/// What the command line says about a refusal, without its mark, the usage line and the line for programs.
fn message(ran: &Ran) -> String {
    let is_shown =
        |line: &&str| !line.starts_with("Usage: ") && !line.starts_with(r#"{"schemaVersion":1,"error":"#);
    let lines = ran.stderr.split_inclusive('\n').filter(is_shown);
    let text: String = lines.collect();
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

/// What two folders say alike.
pub fn without_folder(text: &str, lab: &Lab) -> String {
    text.replace(lab.path().canonicalize().unwrap().to_str().unwrap(), "<folder>")
}

/// The journal without the names of sessions, which a command line does not have.
fn without_session(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.contains("\"actor\": \"mcp-")).collect()
}

/// The variables of a server whose tools take `now` also where they change something.
pub const ALLOW_NOW: [(&str, &str); 1] = [("ROTA_ALLOW_NOW", "1")];

/// Every step of this file.
pub fn steps() -> Vec<Step> {
    task_steps().into_iter().chain(next_steps()).chain(sched_steps()).collect()
}

/// What the tools did over the steps.
#[derive(Default)]
pub struct Seen {
    pub answered: BTreeSet<&'static str>,
    pub refused: BTreeSet<&'static str>,
}

impl Seen {
    /// Every tool answered, and every one that can refuse did.
    #[track_caller]
    pub fn is_everything(&self, tools: &[String]) {
        let all: BTreeSet<&str> = tools.iter().map(String::as_str).collect();
        assert_eq!(self.answered, all);
        let never: Vec<&str> = all.into_iter().filter(|tool| !self.refused.contains(tool)).collect();
        assert_eq!(never, ["rota_sched_policy_show"]);
    }
}

/// Runs steps on both sides and compares what comes out of each, and in the end both stores.
pub fn compare(
    (cli, mcp): (&Lab, &Lab),
    steps: &[Step],
    mut call: impl FnMut(&str, &Value) -> Value,
) -> Seen {
    let mut seen = Seen::default();
    for step in steps {
        let Step(line, input, tool, _) = step;
        let ran = cli.feed(line, input.as_bytes());
        let reply = call(tool, &arguments(step));
        let result = &reply["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{line}: {reply}"));
        let text = without_folder(text, mcp);
        if ran.code == 0 {
            assert_eq!(text, without_folder(&ran.stdout, cli), "{line}");
            assert_eq!(result["isError"], false, "{line}");
            let structured: Value = serde_json::from_str(&text).unwrap();
            let shown = without_folder(&result["structuredContent"].to_string(), mcp);
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), structured, "{line}");
            seen.answered.insert(tool);
        } else {
            assert_eq!(text, message(&ran), "{line}");
            assert_eq!(result["isError"], true, "{line}");
            assert_eq!(result["_meta"]["rota/error"]["exitCode"], ran.code, "{line}");
            assert!(result["_meta"]["rota/error"]["code"].is_string(), "{line}");
            assert!(result.get("structuredContent").is_none(), "{line}");
            seen.refused.insert(tool);
        }
    }
    assert_eq!(
        without_session(&without_folder(&mcp.export(), mcp)),
        without_folder(&cli.export(), cli),
        "both stores say the same"
    );
    let policy = |lab: &Lab| std::fs::read_to_string(lab.path().join("rota.policy.json")).unwrap();
    assert_eq!(policy(mcp), policy(cli), "both mirrored the policy");
    seen
}

/// Every tool there is, by name.
pub fn tools(lab: &Lab) -> Vec<String> {
    let mut client = Pipes::start(lab, &["--tools", "all"]);
    let listed = client.ask("tools/list", json!({}));
    let mut names: Vec<String> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    client.close_input();
    assert_eq!(client.end(), (vec![], Some(0)));
    names.sort();
    names
}

#[test]
fn every_verb_over_stdio() {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let mut client = Pipes::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    let seen = compare((&cli, &mcp), &steps(), |tool, arguments| client.call(tool, arguments));
    seen.is_everything(&tools(&mcp));
}

#[test]
fn every_verb_over_http() {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let mut client = Http::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    client.shake_hands();
    let seen = compare((&cli, &mcp), &steps(), |tool, arguments| client.call(tool, arguments));
    seen.is_everything(&tools(&mcp));
}

/// Calls share the server's connections.
#[test]
fn every_verb_on_postgresql() {
    let lab = || Lab::on(Server::shared().fresh_url());
    let (cli, mcp) = (lab(), lab());
    let mut client = Pipes::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    let seen = compare((&cli, &mcp), &steps(), |tool, arguments| client.call(tool, arguments));
    seen.is_everything(&tools(&mcp));
}

/// Sixteen agents at once, through one server: every task is granted once.
#[test]
fn many_calls_at_once() {
    for lab in [Lab::new(), Lab::on(Server::shared().fresh_url())] {
        let plan: String = (0..40).map(|task| format!("{{\"id\":\"t{task}\",\"t\":\"T\"}}\n")).collect();
        lab.feed("task plan-sync", plan.as_bytes()).ok();
        let mut client = Pipes::start(&lab, &[]);
        for _ in 0..50 {
            client.send("tools/call", json!({"name": "rota_task_claim", "arguments": {}}));
        }
        let mut granted = BTreeSet::new();
        for _ in 0..50 {
            let answer = client.next().unwrap();
            let result = &answer["result"];
            if result["isError"] == false {
                assert!(granted.insert(result["structuredContent"]["id"].to_string()), "{answer}");
            } else {
                assert_eq!(result["_meta"]["rota/error"]["code"], "nothing_eligible", "{answer}");
            }
        }
        assert_eq!(granted.len(), 40);
    }
}

/// The newer family has no handshake: every request says who asks, and over HTTP there is no session.
#[test]
fn every_verb_in_the_newer_family() {
    let (cli, mcp) = (Lab::new(), Lab::new());
    let client = Http::start_with(&mcp, &["--tools", "all"], &ALLOW_NOW);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": INLINE,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let ask = |method: &str, name: Option<&str>, mut params: Value| {
        params["_meta"] = meta.clone();
        let mut headers = vec![("mcp-protocol-version", INLINE), ("mcp-method", method)];
        headers.extend(name.map(|name| ("mcp-name", name)));
        client.post(&headers, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).json()
    };
    let found = ask("server/discover", None, json!({}));
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!(INLINE)) && versions.contains(&json!(HANDSHAKE)), "{found}");
    let seen = compare((&cli, &mcp), &steps(), |tool, arguments| {
        ask("tools/call", Some(tool), json!({"name": tool, "arguments": arguments}))
    });
    seen.is_everything(&tools(&mcp));
}
