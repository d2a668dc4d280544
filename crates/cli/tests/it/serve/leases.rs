//! Lease tokens over HTTP: `rota serve` accepts them with the same rights as the agents' listener, and they end with the
//! lease.

use rota_auth::{LeaseToken, Token};
use rota_verbs::lease_token::rights_as_markdown;
use serde_json::{Value, json};

use crate::daemon::everywhere;
use crate::mcp::client::Http;
use crate::support::Lab;

fn claim(lab: &Lab, scope: &str, task: &str, lease: &str) -> String {
    let token = Token::of_file(&lab.path().join(".rota/token")).unwrap();
    let claim = LeaseToken { scope: scope.to_owned(), task: task.to_owned(), lease: lease.to_owned() };
    token.sign(&claim).expose().to_owned()
}

#[test]
fn a_holder_works_in_its_scope_and_settles_its_own_task() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    for (id, scope) in [("mine", "default"), ("theirs", "default"), ("far", "other")] {
        lab.line(&format!("task create {id} T --scope {scope}")).ok();
        lab.line(&format!("task claim {id} --scope {scope} --agent x")).ok();
    }
    lab.line("task create free T").ok();
    lab.line("task block mine --by free").ok();
    let token = claim(&lab, "default", "mine", "lease-mine-1");
    let child = json!({"kind": "ralph", "id": "child", "parent": "mine"});
    let code = |method: &str, path: &str, body: Option<Value>| {
        let reply = server.ask_as(&token, method, path, body.as_ref());
        if reply.status == 200 { "ok".to_owned() } else { reply.json()["code"].as_str().unwrap().to_owned() }
    };
    let task = |priority: u32| Some(json!({"id": "new", "title": "T", "priority": priority}));
    for (method, path, body, wanted) in [
        ("GET", "/tasks", None, "lease_may_not"),
        ("GET", "/tasks/mine", None, "ok"),
        ("GET", "/tasks/mine?withDeps=true", None, "ok"),
        ("GET", "/tasks/mine?scope=default", None, "ok"),
        ("GET", "/tasks/mine?agent=x", None, "ok"),
        ("GET", "/tasks/mine?agent=somebody", None, "lease_may_not"),
        ("GET", "/tasks/theirs", None, "lease_may_not"),
        ("GET", "/tasks/far", None, "lease_may_not"),
        ("GET", "/tasks/far?scope=other", None, "lease_may_not"),
        ("GET", "/tasks/free", None, "ok"),
        ("GET", "/tasks/free/why", None, "ok"),
        ("GET", "/tasks/theirs/why", None, "lease_may_not"),
        ("POST", "/loops", Some(child), "lease_may_not"),
        ("POST", "/tasks", task(1), "lease_may_not"),
        ("POST", "/tasks", task(2), "ok"),
        ("POST", "/tasks", task(2), "duplicate_id"),
        ("POST", "/tasks/mine/renew", None, "ok"),
        ("POST", "/tasks/mine/renew", Some(json!({"lease": 600})), "ok"),
        ("POST", "/tasks/mine/renew", Some(json!({"lease": 601})), "lease_may_not"),
        ("POST", "/tasks/mine/renew", Some(json!({"lease": u64::MAX})), "lease_may_not"),
        ("POST", "/tasks/theirs/renew", None, "lease_may_not"),
        ("POST", "/tasks/theirs/done", None, "lease_may_not"),
        ("POST", "/tasks/theirs/fail", None, "lease_may_not"),
        ("POST", "/tasks/theirs/release?leaseId=lease-theirs-1", None, "lease_may_not"),
        ("POST", "/leases/lease-mine-1/complete", None, "lease_may_not"),
        ("POST", "/claims", None, "lease_may_not"),
        ("POST", "/tasks/mine/renew?now=2026-01-01T00:00:00Z", None, "lease_may_not"),
        ("GET", "/tasks/mine?now=2026-01-01T00:00:00Z", None, "lease_may_not"),
        ("PATCH", "/tasks/mine", Some(json!({"priority": 0})), "lease_may_not"),
        ("PATCH", "/tasks/theirs", Some(json!({"status": "done", "force": true})), "lease_may_not"),
        ("GET", "/openapi.json", None, "lease_may_not"),
        ("GET", "/events", None, "lease_may_not"),
        ("POST", "/tasks/mine/done?leaseId=lease-mine-9", None, "lease_may_not"),
        ("POST", "/tasks/mine/done", Some(json!({"next": true})), "lease_may_not"),
        ("POST", "/tasks/mine/done", Some(json!({"next": true, "queue": "tasks"})), "lease_may_not"),
        ("POST", "/tasks/mine/done", Some(json!({"result": {"commit": "c"}})), "ok"),
        ("GET", "/tasks/mine", None, "lease_ended"),
        ("POST", "/tasks/mine/done", None, "lease_ended"),
    ] {
        assert_eq!(code(method, path, body), wanted, "{method} {path}");
    }
}

/// A created task is no more urgent than that of its creator, given or by default, and no loop.
#[test]
fn a_created_task_is_no_more_urgent() {
    everywhere(|lab| {
        let server = Http::serve(lab, &[]);
        lab.line("task create low T -p 4").ok();
        lab.line("task claim low --agent x").ok();
        let token = claim(lab, "default", "low", "lease-low-1");
        let create = |body: Value| {
            let reply = server.ask_as(&token, "POST", "/tasks", Some(&body)).json();
            reply["code"].as_str().map_or_else(|| reply["priority"].to_string(), str::to_owned)
        };
        for (body, wanted) in [
            (json!({"id": "default", "title": "T"}), "4"),
            (json!({"id": "same", "title": "T", "priority": 4}), "4"),
            (json!({"id": "later", "title": "T", "priority": 5}), "5"),
            (json!({"id": "runs", "title": "T", "queue": "runs"}), "100"),
            (json!({"id": "sooner", "title": "T", "priority": 3}), "lease_may_not"),
            (json!({"id": "whole", "title": "T", "priority": 0.0}), "lease_may_not"),
            (json!({"id": "text", "title": "T", "priority": "0"}), "bad_value"),
            (json!({"id": "loop", "title": "T", "queue": "loops"}), "lease_may_not"),
        ] {
            assert_eq!(create(body.clone()), wanted, "{body}");
        }
    });
}

/// Every operation of the description but those of the rights is refused with 403 and says what a lease token may do.
#[test]
fn every_other_operation_is_refused_and_changes_nothing() {
    everywhere(|lab| {
        let server = Http::serve(lab, &[]);
        for id in ["mine", "theirs"] {
            lab.line(&format!("task create {id} T")).ok();
            lab.line(&format!("task claim {id} --agent x")).ok();
        }
        let token = claim(lab, "default", "mine", "lease-mine-1");
        let before = lab.export();
        let described = server.ask("GET", "/openapi.json", None).json();
        let mut count = 0;
        for (path, methods) in described["paths"].as_object().unwrap() {
            let Some(below) = path.strip_prefix("/api/v1") else { continue };
            for (method, operation) in methods.as_object().unwrap() {
                let Some(name) = operation["operationId"].as_str().or(operation["summary"].as_str()) else {
                    continue;
                };
                let at = below.replace("{id}", "theirs").replace(['{', '}'], "");
                let reply = server.ask_as(&token, &method.to_uppercase(), &at, None);
                // A body that is missing is noticed before or after the token; nothing is ever carried out.
                assert!(matches!(reply.status, 400 | 403), "{name}: {reply:?}");
                if reply.status == 403 {
                    let hint = reply.json()["hint"].as_str().unwrap_or_default().to_owned();
                    assert!(hint.starts_with("a lease token may read its own task"), "{name}: {hint}");
                    count += 1;
                }
            }
        }
        assert!(count > 60, "{count}");
        assert_eq!(lab.export(), before);
    });
}

/// DESIGN 13.9: the token of an expired lease opens renew, done, fail and release, until the lease is reclaimed.
#[test]
fn an_expired_lease_may_only_be_renewed_or_ended() {
    everywhere(|lab| {
        let server = Http::serve(lab, &[]);
        for id in ["done", "fail", "release", "renew", "lost"] {
            lab.line(&format!("@0 task create {id} T")).ok();
            lab.line(&format!("@0 task claim {id} --agent x")).ok();
            let token = claim(lab, "default", id, &format!("lease-{id}-1"));
            let ask = |method: &str, path: &str, body: Option<Value>| {
                let reply = server.ask_as(&token, method, path, body.as_ref());
                let json = reply.json();
                let code = if reply.status == 200 { "ok" } else { json["code"].as_str().unwrap() };
                (code.to_owned(), json["detail"].as_str().unwrap_or_default().to_owned())
            };
            let create = Some(json!({"id": "new", "title": "T"}));
            for (method, path, body) in [
                ("GET", format!("/tasks/{id}"), None),
                ("GET", format!("/tasks/{id}/why"), None),
                ("POST", format!("/tasks/{id}/park"), Some(json!({"reason": "r"}))),
                ("POST", "/tasks".to_owned(), create),
            ] {
                let (code, detail) = ask(method, &path, body);
                assert_eq!(code, "lease_expired", "{method} {path}");
                assert!(detail.contains("expired at 2026-01-01T00:10:00Z"), "{detail}");
            }
            if id == "lost" {
                lab.line("task claim lost --agent y").ok();
                assert_eq!(ask("POST", "/tasks/lost/done", None).0, "lease_ended");
                continue;
            }
            assert_eq!(ask("POST", &format!("/tasks/{id}/{id}"), None).0, "ok", "{id}");
            let after = if id == "renew" { "ok" } else { "lease_ended" };
            assert_eq!(ask("GET", &format!("/tasks/{id}"), None).0, after, "{id}");
        }
    });
}

/// A signature alone is not enough: a lease that was never granted or is held by another, and a token signed with
/// another key, are denied.
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
        let path = format!("/tasks/{task}");
        assert_eq!(server.ask_as(&token, "GET", &path, None).status, status, "{lease}");
    }
    let mixed = claim(&lab, "default", "a", "lease-b-1");
    assert_eq!(server.ask_as(&mixed, "GET", "/tasks/a", None).status, 403);
    let elsewhere = Lab::new();
    drop(Http::serve(&elsewhere, &[]));
    let forged = claim(&elsewhere, "default", "a", "lease-a-2");
    assert_eq!(server.ask_as(&forged, "GET", "/tasks/a", None).status, 401);
}

/// The command line with a lease token, as an agent has it.
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
    assert_eq!(code, 1);
    assert!(
        said.starts_with("error: the token of lease-a-1 may not use `policy show`\n  a lease token may"),
        "{said}"
    );
    let before = lab.export();
    let (code, printed, said) = run("task done a --next");
    assert_eq!((code, printed.as_str(), lab.export()), (1, "", before), "{said}");
    let wanted = "error: the token of lease-a-1 may not give `next` to `task done`\n  a lease token may";
    assert!(said.starts_with(wanted), "{said}");
    assert_eq!(run("task done a"), (0, "done a\n".into(), String::new()));
    let (code, _, said) = run("task show a");
    assert_eq!(code, 1);
    assert!(said.starts_with("error: lease-a-1 has ended: it was settled or reclaimed\n"), "{said}");
}

/// MCP over HTTP is for operators: a lease token does not open it.
#[test]
fn a_lease_token_does_not_open_mcp() {
    let lab = Lab::new();
    let server = Http::start(&lab, &[]);
    lab.line("task create a T").ok();
    lab.line("task claim a --agent x").ok();
    let token = format!("Bearer {}", claim(&lab, "default", "a", "lease-a-1"));
    let headers = [("Host", server.address.as_str()), ("Authorization", token.as_str())];
    let reply = server.raw("POST", "/mcp", &headers, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!((reply.status, &reply.json()["code"]), (401, &json!("token_denied")));
}

/// `docs/lease-tokens.md` has the table of the code.
#[test]
fn the_page_is_the_table() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lease-tokens.md");
    const BEGIN: &str = "<!-- begin generated: rights -->\n";
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once("<!-- end").unwrap();
    let wanted = format!("{before}{BEGIN}{}<!-- end{after}", rights_as_markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, wanted).unwrap();
    } else {
        assert!(page == wanted, "run UPDATE_DOCS=1 cargo test -p rota-cli --test it the_page_is_the_table");
    }
}
