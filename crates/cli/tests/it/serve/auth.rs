//! Who comes in, and what the server refuses before anything is done.

use serde_json::json;

use crate::mcp::client::Http;
use crate::support::Lab;

/// Host and Origin first (403), then the token (401), then the path (404) and the method (405).
#[test]
fn host_origin_token_path() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    let token = format!("Bearer {}", server.token);
    let host = ("Host", server.address.as_str());
    let (good, bad) = (("Authorization", token.as_str()), ("Authorization", "Bearer 0000"));
    let (away, page) = (("Host", "evil.example"), ("Origin", "http://evil.example"));
    let cookie = format!("token={}", server.token);
    let in_query = format!("/api/v1/tasks?token={}", server.token);
    for (path, headers, status, code) in [
        ("/api/v1/tasks", &[away, good][..], 403, "host_denied"),
        ("/api/v1/tasks", &[good], 403, "host_denied"),
        ("/healthz", &[away], 403, "host_denied"),
        ("/api/v1/tasks", &[("Host", "0.0.0.0"), good], 403, "host_denied"),
        ("/api/v1/tasks", &[("Host", "localhost.evil.example"), good], 403, "host_denied"),
        ("/api/v1/tasks", &[("Host", "[::2]"), good], 403, "host_denied"),
        ("http://evil.example/api/v1/tasks", &[host, good], 403, "host_denied"),
        ("/api/v1/tasks", &[host, page, good], 403, "origin_denied"),
        ("/healthz", &[host, page], 403, "origin_denied"),
        ("/api/v1/tasks", &[host, ("Origin", "null"), good], 403, "origin_denied"),
        ("/api/v1/tasks", &[host], 401, "token_denied"),
        ("/api/v1/tasks", &[host, bad], 401, "token_denied"),
        ("/api/v1/tasks", &[host, ("Cookie", &cookie)], 401, "token_denied"),
        (&in_query, &[host], 401, "token_denied"),
        ("/metrics", &[host], 401, "token_denied"),
        ("/elsewhere", &[host], 401, "token_denied"),
        ("/elsewhere", &[host, good], 404, "not_found"),
        ("/api/v1/elsewhere", &[host, good], 404, "not_found"),
        ("/api/v1/tasks/", &[host, good], 404, "not_found"),
        ("/api/v1/claims", &[host, good], 405, "method_not_allowed"),
        ("/api/v1/tasks?colour=red", &[host, good], 400, "bad_request"),
        ("/api/v1/tasks?all=perhaps", &[host, good], 400, "bad_request"),
        ("/api/v1/tasks?queue=a&queue=b", &[host, good], 400, "bad_request"),
        ("/api/v1/tasks?queue=%ff", &[host, good], 400, "bad_request"),
        ("/api/v1/tasks/%ff", &[host, good], 400, "bad_request"),
        ("/api/v1/tasks/%00", &[host, good], 400, "bad_value"),
        ("/api/v1/tasks/%01", &[host, good], 400, "bad_name"),
        ("/api/v1/tasks/x", &[host, good], 404, "task_not_found"),
    ] {
        let reply = server.raw("GET", path, headers, "");
        assert_eq!((reply.status, &reply.json()["code"]), (status, &json!(code)), "{path} {headers:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert_eq!(reply.header("www-authenticate").is_some(), status == 401);
        assert_eq!(reply.header("allow").is_some(), status == 405);
        assert!(!reply.body.contains(&server.token) && !reply.head.contains(&server.token));
    }
    // What a page can send without asking, and its question whether it may send more.
    let form = [host, ("Content-Type", "application/x-www-form-urlencoded")];
    let question = [host, ("Access-Control-Request-Method", "POST"), ("Origin", "http://localhost:1")];
    let path = "/api/v1/tasks";
    for reply in [server.raw("POST", path, &form, "id=a&title=b"), server.raw("OPTIONS", path, &question, "")]
    {
        assert_eq!(reply.status, 401);
        assert!(!reply.head.to_ascii_lowercase().contains("access-control"), "{}", reply.head);
    }
    assert_eq!(lab.line("task list --all").ok(), "");
}

#[test]
fn bodies() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    let token = format!("Bearer {}", server.token);
    let (host, good) = (("Host", server.address.as_str()), ("Authorization", token.as_str()));
    let json_body = ("Content-Type", "application/json");
    let long = format!("{{\"id\":\"a\",\"title\":\"{}\"}}", "x".repeat(17 << 20));
    for (kind, body, status, code) in [
        (("Content-Type", "text/plain"), r#"{"id":"a","title":"A"}"#, 415, "not_json"),
        (("Content-Type", "application/x-www-form-urlencoded"), "id=a&title=A", 415, "not_json"),
        (json_body, "", 400, "bad_request"),
        (json_body, "[]", 400, "bad_request"),
        (json_body, "{", 400, "bad_request"),
        (json_body, r#"{"id":"a"}"#, 400, "bad_request"),
        (json_body, r#"{"id":"a","title":"A","colour":1}"#, 400, "bad_request"),
        (json_body, r#"{"id":"a","id":"b","title":"A"}"#, 400, "bad_request"),
        (json_body, r#"{"id":1,"title":"A"}"#, 400, "bad_request"),
        (json_body, r#"{"id":"a","title":""}"#, 400, "bad_value"),
        (json_body, &long, 413, "body_too_long"),
    ] {
        let reply = server.raw("POST", "/api/v1/tasks", &[host, good, kind], body);
        let shown: String = body.chars().take(60).collect();
        assert_eq!((reply.status, &reply.json()["code"]), (status, &json!(code)), "{shown}");
    }
    assert_eq!(lab.line("task list --all").ok(), "");
    let reply = server.ask("GET", "/tasks", Some(&json!({})));
    assert_eq!(reply.status, 400, "a body where none belongs");
    let made = server.ask("POST", "/tasks?scope=other", Some(&json!({"id": "a/b", "title": "A"})));
    assert_eq!((made.status, made.header("content-type")), (200, Some("application/json")));
    assert_eq!(made.body, lab.line("task show a/b --scope other --json").ok());
    assert_eq!(server.ask("GET", "/tasks/a%2Fb?scope=other", None).body, made.body);
}

#[test]
fn health_and_readiness_are_open() {
    let lab = Lab::new();
    let server = Http::serve(&lab, &[]);
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let reply = server.raw("GET", path, &[("Host", &server.address)], "");
        assert_eq!((reply.status, reply.body.as_str()), (200, body));
        assert_eq!(server.raw("POST", path, &[("Host", &server.address)], "").status, 405);
    }
}

#[test]
fn other_hosts_only_when_told() {
    let ran = Lab::new().line("serve --listen 0.0.0.0:0");
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("error: 0.0.0.0:0 can be reached from other hosts: say --public"),
        "{}",
        ran.stderr
    );
    let ran = Lab::new().line("serve --listen here");
    assert!(ran.stderr.starts_with("error: --listen must be ADDRESS:PORT"), "{}", ran.stderr);
}
