//! `--now` on verbs that write: at or before the store's clock, unless the process that opens the store was started with
//! `ROTA_ALLOW_NOW=1` (CONTRACTS 1).

use serde_json::{Value, json};

use crate::daemon::everywhere;
use crate::mcp::client::{Http, Pipes};
use crate::support::{Lab, feed};

const LATER: &str = "2099-01-01T00:00:00Z";

const WRITES: &[&str] = &[
    "task create b B",
    "task claim",
    "task claim held",
    "task renew held --agent x",
    "task done held --agent x",
    "task fail held --agent x",
    "task release held --agent x",
    "task park held --reason r",
    "task pause a",
    "task delete a",
    "task delete --all --confirm",
    "task update a --title T",
    "task block a --by held",
    "task plan-sync",
    "queue add --id r --app x",
    "queue drain --limit 9",
    "queue pause tasks",
    "sched lease",
    "sched reclaim --queue tasks",
    "sched policy set --maxConcurrent 9",
    "policy apply p.json",
    "loop add --kind ralph --id l",
    "issue add --title T",
    "prune --older-than 1d",
];

const READS: &[&str] =
    &["task peek", "task list", "task show a", "why a", "task plan-status", "sched plan", "log"];

fn prepare(lab: &Lab) {
    std::fs::write(lab.path().join("p.json"), "{\"queues\":{\"tasks\":{\"maxAttempts\":9}}}").unwrap();
    lab.line("task create a A").ok();
    lab.line("task create held H").ok();
    lab.line("task claim held --agent x").ok();
}

#[test]
fn a_writer_cannot_be_in_the_future() {
    everywhere(|lab| {
        prepare(lab);
        let before = lab.export();
        for line in WRITES {
            let ran = lab.line(&format!("--now {LATER} {line}"));
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}");
            let said = "error: --now 2099-01-01T00:00:00.000Z is later than the store's clock (";
            assert!(ran.stderr.starts_with(said), "{line}: {}", ran.stderr);
            assert_eq!(lab.export(), before, "{line}");
        }
        for line in READS {
            assert_eq!(lab.line(&format!("--now {LATER} {line}")).code, 0, "{line}");
        }
        // At or before the clock is fine, and the variable allows the rest.
        lab.line("--now 2025-01-01T00:00:00Z task create past P").ok();
        lab.line(&format!("ROTA_ALLOW_NOW=0 --now {LATER} task list")).ok();
        assert_eq!(lab.line(&format!("ROTA_ALLOW_NOW=0 --now {LATER} task create b B")).code, 1);
        lab.line(&format!("ROTA_ALLOW_NOW=1 --now {LATER} task create b B")).ok();
        assert_eq!(lab.line(&format!("ROTA_ALLOW_NOW=1 --now {LATER} task claim held --agent y")).code, 0);
    });
}

/// Over HTTP it is the server's variable that counts.
#[test]
fn a_server_decides_for_its_callers() {
    let lab = Lab::new();
    prepare(&lab);
    let server = Http::serve(&lab, &[]);
    let mut command = lab.command_on_store();
    command.env("ROTA_STORE", format!("http://{}", server.address)).env("ROTA_TOKEN", &server.token);
    command.env("ROTA_ALLOW_NOW", "1").args(["--now", LATER, "task", "claim", "held", "--agent", "y"]);
    let ran = feed(&mut command, b"");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("is later than the store's clock"), "{}", ran.stderr);
    let reply = server.ask("POST", &format!("/claims?now={LATER}"), Some(&json!({})));
    assert_eq!((reply.status, &reply.json()["code"]), (409, &json!("now_ahead")));
    assert_eq!(server.ask("GET", &format!("/tasks?now={LATER}"), None).status, 200);
}

fn takes_now(client: &mut Pipes) -> Vec<String> {
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools
        .filter(|tool| tool["inputSchema"]["properties"]["now"].is_object())
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// MCP offers `now` on read-only tools; on others only where the server was started with the variable.
#[test]
fn a_model_sets_the_time_only_to_look() {
    let lab = Lab::new();
    prepare(&lab);
    let mut client = Pipes::start(&lab, &["--tools", "all"]);
    let listed = client.ask("tools/list", json!({}));
    let reads: Vec<String> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| tool["annotations"]["readOnlyHint"] == true)
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(takes_now(&mut client), reads);
    let before = lab.export();
    for (tool, arguments) in [
        ("rota_task_claim", json!({"now": LATER})),
        ("rota_task_claim", json!({"now": "2025-01-01T00:00:00Z"})),
        ("rota_task_claim", json!({"id": "held", "now": LATER})),
        ("rota_task_create", json!({"id": "b", "title": "B", "now": LATER})),
        ("rota_sched_reclaim", json!({"queue": "tasks", "now": LATER})),
    ] {
        let answer = client.call(tool, &arguments);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("unknown argument 'now'"), "{tool}: {text}");
    }
    assert_eq!(lab.export(), before);
    let looked = client.call("rota_task_peek", &json!({"now": LATER}));
    assert!(!looked["result"]["isError"].as_bool().unwrap_or(false), "{looked}");
    let mut allowed = Pipes::start_with(&lab, &[], &[("ROTA_ALLOW_NOW", "1")]);
    let claimed = allowed.call("rota_task_claim", &json!({"now": LATER}));
    let expires = &claimed["result"]["structuredContent"]["leaseExpiresAt"];
    assert_eq!(*expires, Value::from("2099-01-01T00:10:00.000Z"), "{claimed}");
}
