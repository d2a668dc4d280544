//! MCP sessions: each has an agent name of its own, settles its own leases, and releases what it holds when it ends.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{HANDSHAKE, Http, INLINE, Pipes, tell};
use crate::daemon::{everywhere, until};
use crate::support::Lab;

fn task(lab: &Lab, id: &str) -> Value {
    serde_json::from_str(&lab.line(&format!("task show {id} --json")).ok()).unwrap()
}

fn is_refused(answer: &Value) -> bool {
    answer["result"]["isError"] == true
}

#[track_caller]
fn accepted(answer: Value) -> Value {
    assert!(!is_refused(&answer) && answer["error"].is_null(), "{answer}");
    answer["result"]["structuredContent"].clone()
}

/// Two sessions without `ROTA_AGENT` finished each other's tasks.
#[test]
fn two_sessions_do_not_finish_each_others_tasks() {
    everywhere(|lab| {
        lab.line("task create a A").ok();
        lab.line("task create b B").ok();
        let (mut one, mut two) = (Pipes::start(lab, &[]), Pipes::start(lab, &[]));
        let a = accepted(one.call("rota_task_claim", &json!({"id": "a"})));
        let b = accepted(two.call("rota_task_claim", &json!({"id": "b"})));
        let (first, second) = (a["assignee"].as_str().unwrap(), b["assignee"].as_str().unwrap());
        assert!(
            first.starts_with("mcp-") && second.starts_with("mcp-") && first != second,
            "{first} {second}"
        );
        let before = lab.export();
        for tool in ["rota_task_done", "rota_task_fail", "rota_task_renew", "rota_task_release"] {
            assert!(is_refused(&two.call(tool, &json!({"id": "a"}))), "{tool}");
            assert!(is_refused(&one.call(tool, &json!({"id": "b"}))), "{tool}");
        }
        assert_eq!(lab.export(), before);
        accepted(one.call("rota_task_renew", &json!({"id": "a"})));
        accepted(one.call("rota_task_done", &json!({"id": "a"})));
        accepted(two.call("rota_task_fail", &json!({"id": "b", "reason": "no"})));
        // The lease id speaks for itself, also for another session.
        let again = accepted(two.call("rota_task_claim", &json!({"id": "b"})));
        accepted(one.call("rota_task_done", &json!({"id": "b", "leaseId": again["leaseId"]})));
        assert_eq!(task(lab, "b")["status"], "done");
    });
}

/// The end of the process, by its input or by a signal, releases what it still holds and nothing else.
#[test]
fn the_end_of_a_process_releases_what_it_holds() {
    everywhere(|lab| {
        for id in ["a", "b", "c", "d", "e"] {
            lab.line(&format!("task create {id} T")).ok();
        }
        lab.line("task claim c --agent someone").ok();
        let mut client = Pipes::start(lab, &[]);
        accepted(client.call("rota_task_claim", &json!({"id": "a"})));
        accepted(client.call("rota_task_claim", &json!({"id": "b"})));
        accepted(client.call("rota_task_done", &json!({"id": "b"})));
        // Taken over meanwhile: its lease is another's, and stays.
        accepted(client.call("rota_task_claim", &json!({"id": "d"})));
        lab.line("task update d --status open --force").ok();
        lab.line("task claim d --agent other").ok();
        client.close_input();
        assert_eq!(client.end().1, Some(0));
        let statuses = ["a", "b", "c", "d"].map(|id| task(lab, id)["status"].as_str().unwrap().to_owned());
        assert_eq!(statuses, ["open", "done", "active", "active"]);
        assert_eq!(task(lab, "a")["attempts"], 0, "released, not failed");
        let mut client = Pipes::start(lab, &[]);
        accepted(client.call("rota_task_claim", &json!({"id": "a"})));
        accepted(client.call("rota_task_claim", &json!({"id": "e", "agent": "named"})));
        tell(&client.child, Signal::TERM);
        assert_eq!(client.end().1, Some(0));
        for id in ["a", "e"] {
            assert_eq!(task(lab, id)["status"], "open", "{id}");
        }
    });
}

/// Over HTTP each session is its own; its deletion and the server's end release what it holds.
#[test]
fn sessions_over_http() {
    everywhere(|lab| {
        for id in ["a", "b", "c"] {
            lab.line(&format!("task create {id} T")).ok();
        }
        let mut one = Http::start_with(lab, &[], &[("ROTA_AGENT", "shared")]);
        one.shake_hands();
        let a = accepted(one.call("rota_task_claim", &json!({"id": "a"})));
        assert!(a["assignee"].as_str().unwrap().starts_with("mcp-"), "{a}");
        let first = one.session.clone().unwrap();
        one.shake_hands();
        assert!(is_refused(&one.call("rota_task_done", &json!({"id": "a"}))), "another session");
        accepted(one.call("rota_task_claim", &json!({"id": "b"})));
        accepted(one.call("rota_task_done", &json!({"id": "b"})));
        accepted(one.call("rota_task_claim", &json!({"id": "c"})));
        let authorization = format!("Bearer {}", one.token);
        let headers = [
            ("Host", one.address.as_str()),
            ("Authorization", authorization.as_str()),
            ("mcp-session-id", first.as_str()),
            ("mcp-protocol-version", HANDSHAKE),
        ];
        let deleted = one.raw("DELETE", "/mcp", &headers, "");
        assert_eq!((deleted.status, deleted.body.as_str()), (204, ""), "{deleted:?}");
        until("its task is open again", || task(lab, "a")["status"] == "open");
        assert_eq!(task(lab, "c")["status"], "active", "the other session goes on");
        assert_eq!(one.end(Signal::TERM), Some(0));
        assert_eq!(task(lab, "c")["status"], "open");
    });
}

/// The task that comes with `next` belongs to the session, whoever the finished lease was granted to: the session settles it
/// without a lease id, and releases it when it ends.
#[test]
fn the_next_task_is_the_sessions_own() {
    everywhere(|lab| {
        for id in ["a", "b", "c", "d"] {
            lab.line(&format!("task create {id} T")).ok();
        }
        let mut client = Pipes::start(lab, &[]);
        let a = accepted(client.call("rota_task_claim", &json!({})));
        let own = a["assignee"].as_str().unwrap();
        let finished = accepted(client.call("rota_task_done", &json!({"id": "a", "next": true})));
        assert_eq!((&finished["id"], &finished["status"]), (&json!("a"), &json!("done")), "{finished}");
        assert_eq!((&finished["next"]["id"], &finished["next"]["assignee"]), (&json!("b"), &json!(own)));
        // By the lease id of another agent: the claim is the session's all the same.
        let c: Value = serde_json::from_str(&lab.line("task claim c --agent other --json").ok()).unwrap();
        let before = lab.export();
        assert!(is_refused(&client.call("rota_task_done", &json!({"id": "c", "next": true}))));
        assert_eq!(lab.export(), before, "a refused done claims nothing");
        let arguments = json!({"id": "c", "leaseId": c["leaseId"], "next": true});
        let finished = accepted(client.call("rota_task_done", &arguments));
        assert_eq!((&finished["next"]["id"], &finished["next"]["assignee"]), (&json!("d"), &json!(own)));
        let log = lab.line("log --task d --json").ok();
        assert!(log.contains(&format!("\"actor\": \"{own}\"")), "{log}");
        let finished = accepted(client.call("rota_task_done", &json!({"id": "b", "next": true})));
        assert!(finished.get("next").is_none(), "{finished}");
        client.close_input();
        assert_eq!(client.end().1, Some(0));
        let statuses = ["a", "b", "c", "d"].map(|id| task(lab, id)["status"].as_str().unwrap().to_owned());
        assert_eq!(statuses, ["done", "done", "done", "open"]);
    });
}

/// A request that stands alone has no session: a claim names its agent, and a settlement its lease.
#[test]
fn without_a_session_a_call_names_agent_and_lease() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let server = Http::start_with(&lab, &[], &[("ROTA_AGENT", "shared")]);
    let call = |tool: &str, arguments: Value| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": INLINE,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        // A session id that was made up does not make a session.
        let headers = [
            ("mcp-protocol-version", INLINE),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
            ("mcp-session-id", "made-up"),
        ];
        server.post(&headers, &message).json()
    };
    let said =
        |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let refused = call("rota_task_claim", json!({}));
    assert!(said(&refused).starts_with("missing agent: without a session"), "{refused}");
    let claimed = accepted(call("rota_task_claim", json!({"agent": "me"})));
    for tool in ["rota_task_renew", "rota_task_done", "rota_task_fail", "rota_task_release"] {
        for arguments in [json!({"id": "a"}), json!({"id": "a", "agent": "me"})] {
            let refused = call(tool, arguments);
            assert!(said(&refused).starts_with("missing leaseId: without a session"), "{tool}: {refused}");
        }
    }
    assert_eq!(task(&lab, "a")["status"], "active");
    lab.line("task create b B").ok();
    let refused = call("rota_task_done", json!({"id": "a", "leaseId": claimed["leaseId"], "next": true}));
    assert!(said(&refused).starts_with("missing agent: without a session"), "{refused}");
    assert_eq!(task(&lab, "a")["status"], "active");
    let arguments = json!({"id": "a", "leaseId": claimed["leaseId"], "next": true, "agent": "me"});
    let finished = accepted(call("rota_task_done", arguments));
    assert_eq!(task(&lab, "a")["status"], "done");
    assert_eq!((&finished["next"]["id"], &finished["next"]["assignee"]), (&json!("b"), &json!("me")));
    accepted(call("rota_task_done", json!({"id": "b", "leaseId": finished["next"]["leaseId"]})));
    assert_eq!(task(&lab, "b")["status"], "done");
}

/// What an agent discovers is filed, and what it will not do is given back.
#[test]
fn creating_and_releasing() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let mut client = Pipes::start(&lab, &[]);
    let filed = client.call(
        "rota_task_create",
        &json!({"id": "b", "title": "B", "priority": 1, "steps": ["one", "two"], "deps": ["a"], "description": "d"}),
    );
    let filed = accepted(filed);
    assert_eq!((&filed["steps"], &filed["deps"]), (&json!(["one", "two"]), &json!(["a"])), "{filed}");
    assert!(is_refused(&client.call("rota_task_create", &json!({"id": "b", "title": "B"}))), "twice");
    assert!(is_refused(&client.call("rota_task_create", &json!({"id": "c"}))), "no title");
    accepted(client.call("rota_task_claim", &json!({})));
    accepted(client.call("rota_task_release", &json!({"id": "a"})));
    assert_eq!(task(&lab, "a")["status"], "open");
}
