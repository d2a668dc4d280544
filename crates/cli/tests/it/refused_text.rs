//! What no store takes: NUL, a key twice, a result without its commit; and what lists must not leave out.

use serde_json::{Value, json};

use crate::daemon::everywhere;
use crate::mcp::client::{Http, Pipes};
use crate::support::Lab;

fn value(lab: &Lab, line: &str) -> Value {
    serde_json::from_str(&lab.line(line).ok()).unwrap()
}

#[test]
fn nul_is_refused_with_line_and_field() {
    everywhere(|lab| {
        for (field, text) in [
            ("t", r#"{"id":"b","t":"a\u0000b"}"#),
            ("d", r#"{"id":"b","t":"B","d":"a\u0000"}"#),
            ("steps", r#"{"id":"b","t":"B","steps":["x","\u0000"]}"#),
        ] {
            let plan = format!("{{\"id\":\"a\",\"t\":\"A\"}}\n{text}\n");
            let ran = lab.feed("task plan-sync", plan.as_bytes());
            let told = format!("error: line 2: field \"{field}\" contains a NUL character");
            assert!(ran.code == 1 && ran.stderr.starts_with(&told), "{}", ran.stderr);
        }
        std::fs::write(lab.path().join("q.json"), r#"{"entries":[{"id":"a","note":"x\u0000"}]}"#).unwrap();
        let ran = lab.line("queue import q.json");
        assert!(
            ran.code == 1 && ran.stderr.contains("field \"note\" contains a NUL character"),
            "{}",
            ran.stderr
        );
        assert_eq!(value(lab, "task list --all --json")["total"], 0, "nothing was written");
    });
}

/// Texts that no command line can hold: those of requests, of tools and of an export.
#[test]
fn nul_is_refused_by_every_interface() {
    everywhere(|lab| {
        lab.line("task create a 'The first'").ok();
        let server = Http::serve(lab, &[]);
        for (method, path, body, told) in [
            ("GET", "/tasks?assignee=x%00", None, "assignee contains a NUL character"),
            ("GET", "/tasks?scope=x%00", None, "scope contains a NUL character"),
            ("GET", "/tasks/x%00", None, "id contains a NUL character"),
            ("POST", "/tasks", Some(json!({"id": "b", "title": "x\0"})), "title contains a NUL character"),
            (
                "POST",
                "/tasks",
                Some(json!({"id": "b", "title": "B", "steps": ["\0"]})),
                "steps contains a NUL character",
            ),
        ] {
            let reply = server.ask(method, path, body.as_ref());
            assert_eq!((reply.status, &reply.json()["detail"]), (400, &json!(told)), "{method} {path}");
        }
        let mut client = Pipes::start(lab, &["--tools", "all"]);
        for (tool, arguments, told) in [
            ("rota_task_peek", json!({"specs": "x\0"}), "specs contains a NUL character\n"),
            ("rota_task_claim", json!({"category": "x\0"}), "category contains a NUL character\n"),
            (
                "rota_task_create",
                json!({"id": "b", "title": "B", "steps": ["\0"]}),
                "steps contains a NUL character\n",
            ),
        ] {
            let answer = client.call(tool, &arguments);
            assert_eq!(answer["result"]["content"][0]["text"], told, "{tool}: {answer}");
        }
        // A result is JSON, which is kept as it was given.
        lab.line("task claim a --agent w").ok();
        lab.run(&["task", "done", "a", "--agent", "w", "--result", r#"{"commit":"x\u0000"}"#]).ok();
        let exported = lab.line("export").ok();
        let target = Lab::new();
        std::fs::write(target.path().join("good"), &exported).unwrap();
        std::fs::write(target.path().join("bad"), exported.replace("The first", "The \\u0000 first"))
            .unwrap();
        let refused = target.line("import bad");
        let told = "error: line 3: field \"title\" contains a NUL character\n";
        assert_eq!((refused.code, refused.stderr.as_str()), (1, told));
        target.line("import good").ok();
        assert_eq!(value(&target, "task show a --json")["result"], json!({"commit": "x\0"}));
    });
}

#[test]
fn a_key_given_twice_is_refused() {
    let lab = Lab::new();
    let plan = b"{\"id\":\"a\",\"t\":\"A\"}\n{\"id\":\"b\",\"t\":\"B\",\"t\":\"C\"}\n";
    let ran = lab.feed("task plan-sync", plan);
    assert!(
        ran.code == 1 && ran.stderr.starts_with("error: line 2: field \"t\" is given twice"),
        "{}",
        ran.stderr
    );
    assert_eq!(value(&lab, "task list --all --json")["total"], 0);
}

#[test]
fn a_commit_where_the_queue_requires_one() {
    let lab = Lab::new();
    let policy = r#"{"queues":{"free":{"requireCommit":false}}}"#;
    std::fs::write(lab.path().join("p.json"), policy).unwrap();
    lab.line("policy apply p.json").ok();
    lab.line("task create t T").ok();
    lab.line("task create f F --queue free").ok();
    lab.line("task claim t --agent w").ok();
    lab.line("task claim f --agent w --queue free").ok();
    for result in [r#"{"commit":null}"#, r#"{"other":1}"#] {
        let ran = lab.run(&["task", "done", "t", "--agent", "w", "--result", result]);
        assert_eq!((ran.code, ran.stderr.as_str()), (1, "error: result JSON must include a 'commit' key\n"));
    }
    lab.run(&["task", "done", "t", "--agent", "w", "--result", r#"{"commit":"c"}"#]).ok();
    lab.run(&["task", "done", "f", "--agent", "w", "--result", r#"{"other":1}"#]).ok();
    assert_eq!(value(&lab, "task show f --json")["result"], json!({"other": 1}));
}

/// What `queue import` kept comes out again, and entries inside of lists say their version.
#[test]
fn export_gives_back_what_import_kept() {
    let lab = Lab::new();
    let entry = json!({"id": "a", "repo": "/r", "note": "n", "mine": {"x": [1, 2.5]}, "schemaVersion": 1});
    std::fs::write(lab.path().join("q.json"), json!({"schemaVersion": 1, "entries": [entry]}).to_string())
        .unwrap();
    lab.line("queue import q.json").ok();
    let exported = value(&lab, "queue export");
    assert_eq!(exported["entries"][0]["mine"], json!({"x": [1, 2.5]}));
    assert_eq!(
        (&exported["entries"][0]["note"], &exported["entries"][0]["schemaVersion"]),
        (&json!("n"), &json!(1))
    );
    assert_eq!(value(&lab, "queue list --json")["entries"][0]["schemaVersion"], 1);
    assert_eq!(
        lab.line("queue list").ok(),
        "Run Queue: 1 entry(ies) [priority asc]\n  #100 a [pending] - repo=/r note=n\n"
    );
    let other = Lab::new();
    std::fs::write(other.path().join("q.json"), exported.to_string()).unwrap();
    other.line("queue import q.json").ok();
    assert_eq!(value(&other, "queue export")["entries"], exported["entries"]);
    assert_eq!(
        Lab::new().line("queue list").ok(),
        "Run Queue: 0 entry(ies) [priority asc]\n  (queue empty)\n"
    );
}

/// An abandoned task that is not among the first N is shown as active until a claim takes its lease back.
#[test]
fn peek_shows_every_abandoned_task() {
    everywhere(|lab| {
        lab.line("@0 task create late T -p 3").ok();
        lab.line("@0 task claim late --agent w --lease 10").ok();
        for id in ["a", "b"] {
            lab.line(&format!("@0 task create {id} T")).ok();
        }
        let seen = |n: usize| -> Vec<String> {
            let list = value(lab, &format!("@100 task peek -n {n} --json"));
            let word = |task: &Value| {
                format!("{} {}", task["id"].as_str().unwrap(), task["status"].as_str().unwrap())
            };
            list["tasks"].as_array().unwrap().iter().map(word).collect()
        };
        assert_eq!(seen(3), ["a open", "b open", "late open"]);
        assert_eq!(seen(2), ["a open", "b open", "late active"]);
    });
}
