//! Authentication, and what the HTTP transport refuses before anything is read.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::client::{Http, Pipes};
use crate::support::Lab;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Host and Origin first (403), then the token (401), then the path (404).
#[test]
fn host_origin_token_path() {
    let lab = Lab::new();
    let server = Http::start(&lab, &[]);
    let token = format!("Bearer {}", server.token);
    let host = ("Host", server.address.as_str());
    let (good, bad) = (("Authorization", token.as_str()), ("Authorization", "Bearer 0000"));
    let (away, page) = (("Host", "evil.example"), ("Origin", "http://evil.example"));
    let near = ("Origin", "http://localhost:5173");
    for (path, headers, status, code) in [
        ("/mcp", &[away, good][..], 403, "host_denied"),
        ("/mcp", &[away], 403, "host_denied"),
        ("/mcp", &[good], 403, "host_denied"),
        ("/elsewhere", &[away, page, good], 403, "host_denied"),
        ("/mcp", &[("Host", "0.0.0.0"), good], 403, "host_denied"),
        ("/mcp", &[("Host", "localhost.evil.example"), good], 403, "host_denied"),
        ("http://evil.example/mcp", &[host, good], 403, "host_denied"),
        ("/mcp", &[host, page, good], 403, "origin_denied"),
        ("/mcp", &[host, ("Origin", "null"), good], 403, "origin_denied"),
        ("/mcp", &[host], 401, "token_denied"),
        ("/mcp", &[host, near], 401, "token_denied"),
        ("/mcp", &[host, bad], 401, "token_denied"),
        ("/elsewhere", &[host], 401, "token_denied"),
        ("/elsewhere", &[host, good], 404, "not_found"),
        ("/mcp?token=x", &[host], 401, "token_denied"),
    ] {
        let reply = server.raw("POST", path, headers, PING);
        assert_eq!((reply.status, &reply.json()["code"]), (status, &json!(code)), "{path} {headers:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert_eq!(reply.header("www-authenticate").is_some(), status == 401);
        assert!(!reply.body.contains(&server.token) && !reply.head.contains(&server.token));
    }
    // What a page can send without asking, and its question whether it may send more.
    let form = [host, ("Content-Type", "application/x-www-form-urlencoded")];
    let question = [host, ("Access-Control-Request-Method", "POST"), near];
    for reply in [server.raw("POST", "/mcp", &form, "a=b"), server.raw("OPTIONS", "/mcp", &question, "")] {
        assert_eq!(reply.status, 401);
        assert!(!reply.head.to_ascii_lowercase().contains("access-control"), "{}", reply.head);
    }
    let json = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    for origin in [None, Some(near)] {
        let headers: Vec<_> = [host, good].into_iter().chain(origin).chain(json).collect();
        assert_eq!(server.raw("POST", "/mcp", &headers, &initialize.to_string()).status, 200);
    }
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let lab = Lab::new();
    let server = Http::start(&lab, &[]);
    let reply = server.post(&[], &json!("x".repeat(8 * 1_024 * 1_024)));
    assert_eq!((reply.status, &reply.json()["code"]), (413, &json!("body_too_long")));
}

/// The token is made for its owner alone, used again, and kept out of git.
#[test]
fn the_token_is_made_once() {
    let lab = Lab::new();
    let first = Http::start(&lab, &[]);
    let second = Http::start(&lab, &[]);
    assert_eq!(first.token, second.token);
    assert!(first.address.starts_with("127.0.0.1:") && first.address != second.address);
    let folder = lab.path().join(".rota");
    let mode = folder.join("token").metadata().unwrap().permissions().mode();
    assert_eq!((first.token.len(), mode & 0o777), (64, 0o600));
    assert_eq!(std::fs::read_to_string(folder.join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn a_token_that_others_could_know_stops_the_server() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    let token = lab.path().join(".rota/token");
    std::fs::write(&token, "x".repeat(64)).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = lab.line("mcp --http --listen 127.0.0.1:0");
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    let path = token.canonicalize().unwrap();
    let wanted = format!(
        "error: {0} can be read or changed by others (mode 0644): run chmod 600 {0}\n",
        path.display()
    );
    assert_eq!(refused.stderr, wanted);
    std::fs::rename(&token, lab.path().join("mine")).unwrap();
    std::os::unix::fs::symlink(lab.path().join("mine"), &token).unwrap();
    let refused = lab.line("mcp --http --listen 127.0.0.1:0");
    assert!(refused.stderr.contains("is not a regular file"), "{}", refused.stderr);
}

/// Each tool set, its hints and its schemas.
#[test]
fn what_is_offered() {
    let lab = Lab::new();
    let mut client = Pipes::start(&lab, &[]);
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let core = [
        "rota_task_peek",
        "rota_task_claim",
        "rota_task_renew",
        "rota_task_done",
        "rota_task_fail",
        "rota_task_release",
        "rota_task_create",
        "rota_why",
    ];
    assert_eq!(names, core);
    for tool in tools {
        let reads = ["rota_task_peek", "rota_why"].contains(&tool["name"].as_str().unwrap());
        assert_eq!(tool["annotations"]["readOnlyHint"], reads, "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
    }
    let unknown = client.call("rota_task_clam", &json!({}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(unknown["error"]["message"], "unknown tool 'rota_task_clam', did you mean 'rota_task_claim'?");
    let hidden = client.call("rota_sched_plan", &json!({}));
    assert_eq!(
        hidden["error"]["message"],
        "tool 'rota_sched_plan' is not offered: start the server with --tools all"
    );
    let typo = client.call("rota_why", &json!({"scpoe": "a"}));
    let text = "unknown argument 'scpoe', did you mean 'scope'? (known here: id, scope, now)\n";
    assert_eq!(typo["result"]["content"][0]["text"], text);
}

#[test]
fn bad_command_lines() {
    let lab = Lab::new();
    for (line, message) in [
        ("mcp --tools few", "--tools must be core or all, got: few"),
        ("mcp --listen 127.0.0.1:1", "--listen is only for --http"),
        ("mcp --http --listen here", "--listen must be ADDRESS:PORT (e.g. 127.0.0.1:8789), got: here"),
        (
            "mcp --http --listen 127.0.0.1:99999",
            "--listen must be ADDRESS:PORT (e.g. 127.0.0.1:8789), got: 127.0.0.1:99999",
        ),
        ("mcp --now tomorrow", "--now: 'tomorrow' is not an RFC 3339 time"),
    ] {
        let ran = lab.line(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}");
        assert!(ran.stderr.starts_with(&format!("error: {message}")), "{line}: {}", ran.stderr);
    }
}
