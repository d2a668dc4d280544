//! The token of a lease: what its holder may do, and that it ends with the lease.

use rota_door::{LeaseClaim, Token};
use serde_json::{Value, json};

use crate::mcp::client::Http;
use crate::support::Lab;

fn claim(lab: &Lab, scope: &str, task: &str, lease: &str) -> String {
    let token = Token::of_file(&lab.path().join(".rota/token")).unwrap();
    let claim = LeaseClaim { scope: scope.to_owned(), task: task.to_owned(), lease: lease.to_owned() };
    token.seal(&claim).expose().to_owned()
}

#[test]
fn a_holder_works_in_its_scope_and_settles_its_own_task() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    for (id, scope) in [("mine", "default"), ("theirs", "default"), ("far", "other")] {
        lab.line(&format!("task create {id} T --scope {scope}")).ok();
        lab.line(&format!("task claim {id} --scope {scope}")).ok();
    }
    lab.line("task create free T").ok();
    let token = claim(&lab, "default", "mine", "lease-mine-1");
    let child = json!({"kind": "ralph", "id": "child"});
    let code = |method: &str, path: &str, body: Option<Value>| {
        let reply = server.ask_as(&token, method, path, body.as_ref());
        if reply.status == 200 { "ok".to_owned() } else { reply.json()["code"].as_str().unwrap().to_owned() }
    };
    for (method, path, body, wanted) in [
        ("GET", "/tasks", None, "ok"),
        ("GET", "/tasks/theirs", None, "ok"),
        ("GET", "/tasks/far", None, "task_not_found"),
        ("GET", "/tasks/far?scope=other", None, "lease_may_not"),
        ("GET", "/tasks/free/why", None, "ok"),
        ("POST", "/loops", Some(child), "ok"),
        ("POST", "/tasks/mine/renew", None, "ok"),
        ("POST", "/tasks/theirs/renew", None, "lease_may_not"),
        ("POST", "/tasks/theirs/done", None, "lease_may_not"),
        ("POST", "/tasks/theirs/fail", None, "lease_may_not"),
        ("POST", "/tasks/theirs/release?leaseId=lease-theirs-1", None, "lease_may_not"),
        ("POST", "/leases/lease-mine-1/complete", None, "lease_may_not"),
        ("POST", "/claims?now=2099-01-01T00:00:00Z", None, "lease_may_not"),
        ("GET", "/policy", None, "lease_may_not"),
        ("GET", "/rules", None, "lease_may_not"),
        ("GET", "/queues/runs/plan", None, "lease_may_not"),
        ("POST", "/queues/tasks/pause", None, "lease_may_not"),
        ("POST", "/prunings", Some(json!({"olderThanMs": 0})), "lease_may_not"),
        ("POST", "/examinations", None, "lease_may_not"),
        ("GET", "/journal", None, "lease_may_not"),
        ("POST", "/tasks/mine/done?leaseId=lease-mine-9", None, "stale_lease"),
        ("POST", "/tasks/mine/done", Some(json!({"result": {"commit": "c"}})), "ok"),
        ("GET", "/tasks", None, "lease_ended"),
        ("POST", "/tasks/mine/done", None, "lease_ended"),
    ] {
        assert_eq!(code(method, path, body), wanted, "{method} {path}");
    }
}

/// A seal is no lease: one that was never granted, is another's now, or is sealed by somebody else stays outside.
#[test]
fn only_a_lease_that_is_held_counts() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    lab.line("task create a T").ok();
    lab.line("task claim a").ok();
    lab.line("task release a").ok();
    lab.line("task claim a").ok();
    for (task, lease, status) in [("a", "lease-a-1", 403), ("a", "lease-a-2", 200), ("b", "lease-b-1", 403)] {
        let token = claim(&lab, "default", task, lease);
        assert_eq!(server.ask_as(&token, "GET", "/tasks", None).status, status, "{lease}");
    }
    let elsewhere = Lab::new();
    elsewhere.line("task list").ok();
    let forged = claim(&elsewhere, "default", "a", "lease-a-2");
    assert_eq!(server.ask_as(&forged, "GET", "/tasks", None).status, 401);
}

/// The command line with the token of a lease, as an agent has it.
#[test]
fn an_agent_by_the_command_line() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    lab.line("task create a T").ok();
    lab.line("task claim a --agent up").ok();
    let run = |line: &str| {
        let mut command = lab.command_on_store();
        let token = claim(&lab, "default", "a", "lease-a-1");
        command.env("ROTA_STORE", format!("http://{}", server.address)).env("ROTA_TOKEN", token);
        command.env("ROTA_LEASE", "lease-a-1").args(line.split(' '));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run("task renew a"), (0, "renewed a\n".into(), String::new()));
    let (code, _, said) = run("policy show");
    assert_eq!(
        (code, said.as_str()),
        (1, "error: the token of lease-a-1 does not allow `policy show` here\n")
    );
    assert_eq!(run("task done a"), (0, "done a\n".into(), String::new()));
    assert_eq!(run("task list"), (1, String::new(), "error: lease-a-1 is not held any more\n".into()));
}
