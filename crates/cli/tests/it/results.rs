//! Results that agents leave: real files of every type and content, taken as the result of a task.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::daemon::everywhere;
use crate::support::Lab;

/// Contents of regular files, each under the id of its task. The random ones are damaged copies of a good result.
fn contents() -> Vec<(String, Vec<u8>)> {
    let nested = |depth: usize| format!("{}1{}\n", "{\"a\":".repeat(depth), "}".repeat(depth));
    let mut contents: Vec<(String, Vec<u8>)> = [
        ("empty", Vec::new()),
        ("good", b"{\"commit\":\"abc\"}\n".to_vec()),
        ("unended", b"{\"commit\":\"abc\"}".to_vec()),
        ("array", b"[1]\n".to_vec()),
        ("binary", (0..=255).collect()),
        ("not-utf8", b"{\"commit\":\"\xff\xfe\"}\n".to_vec()),
        ("nul", b"{\"a\":\"\\u0000\"}\n".to_vec()),
        ("surrogate", b"{\"a\":\"\\ud800\"}\n".to_vec()),
        ("twice", b"{\"a\":1,\"a\":2}\n".to_vec()),
        ("number", b"{\"a\":1e300,\"b\":123456789012345678901234567890}\n".to_vec()),
        ("escapes", b"\x1b]0;x\x07\x1b[2J{\"a\":\"\x1b[31m\"}\n".to_vec()),
        ("hidden", "{\"a\":\"\u{202e}\u{200b}\u{e0041}\u{9b}31m\"}\n".into()),
        ("deep", nested(50_000).into()),
        ("less-deep", nested(60).into()),
        ("long", format!("{{\"a\":\"{}\"}}\n", "x".repeat(2_000_000)).into()),
        ("lines", format!("{}{{\"a\":1}}\n", "\n".repeat(100_000)).into()),
    ]
    .map(|(id, bytes)| (id.to_owned(), bytes))
    .into();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for number in 0..40 {
        let mut bytes = b"{\"commit\":\"abc\",\"x\":[1,2,{\"y\":\"z\"}]}\n".to_vec();
        for _ in 0..4 {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        contents.push((format!("random-{number}"), bytes));
    }
    contents
}

/// Files that are not regular ones; `cat` of a directory or a socket fails, and so does the task.
fn plant_others(folder: &Path) -> [&'static str; 6] {
    assert!(Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap().success());
    drop(UnixListener::bind(folder.join("socket")).unwrap());
    std::fs::create_dir(folder.join("directory")).unwrap();
    std::fs::hard_link(folder.join("good"), folder.join("hard")).unwrap();
    std::os::unix::fs::symlink(folder.join("good"), folder.join("link")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero")).unwrap();
    ["fifo", "socket", "directory", "hard", "link", "zero"]
}

const COMMAND: &str = r#"
case $ROTA_TASK in
  fifo) (echo '{"commit":"abc"}' > results/fifo &); cat results/fifo ;;
  zero) head -c 3000000 results/zero ;;
  *) cat "results/$ROTA_TASK" ;;
esac
"#;

#[test]
fn files_of_every_type() {
    everywhere(|lab: &Lab| {
        let folder = lab.path().join("results");
        std::fs::create_dir(&folder).unwrap();
        let mut plan = String::new();
        let mut add = |id: &str| plan.push_str(&format!("{{\"id\":\"{id}\",\"t\":\"{id}\"}}\n"));
        for (id, bytes) in contents() {
            std::fs::write(folder.join(&id), bytes).unwrap();
            add(&id);
        }
        plant_others(&folder).into_iter().for_each(&mut add);
        lab.feed("task plan-sync", plan.as_bytes()).ok();
        let output = std::fs::File::create(lab.path().join("output")).unwrap();
        let mut work = lab.command();
        work.args(["work", "--until-empty", "--give-up", "1", "--", "sh", "-c", COMMAND]);
        let ran = work.stdout(output.try_clone().unwrap()).stderr(output).status().unwrap();
        let text = lab.line("task list --all --json").ok();
        assert!(text.len() < 1_000_000, "shown without blowing up: {} bytes", text.len());
        let list: Value = serde_json::from_str(&text).unwrap();
        let tasks = list["tasks"].as_array().or(list.as_array()).unwrap();
        for task in tasks {
            let (id, status) = (task["id"].as_str().unwrap(), task["status"].as_str().unwrap());
            let wanted = if matches!(id, "directory" | "socket") { "parked" } else { "done" };
            assert_eq!(status, wanted, "{id}: {ran}");
        }
        let result = |id: &str| &tasks.iter().find(|task| task["id"] == id).unwrap()["result"];
        for id in ["good", "unended", "fifo", "hard", "link"] {
            assert_eq!(result(id)["commit"], "abc", "{id}");
        }
        for id in ["empty", "array", "binary", "deep", "long", "zero", "escapes", "surrogate"] {
            assert!(result(id).is_null(), "{id} is no result: {}", result(id));
        }
        let found: Value = serde_json::from_str(&lab.line("doctor --json").ok()).unwrap();
        assert_eq!(found["total"], 0, "{found}");
        let deep = "[".repeat(65) + &"]".repeat(65);
        lab.line("task create direct D").ok();
        lab.line("task claim direct --agent me").ok();
        let refused =
            lab.run(&["task", "done", "direct", "--agent", "me", "--result", &format!("{{\"a\":{deep}}}")]);
        assert_eq!(refused.code, 1, "{}", refused.stdout);
        assert!(refused.stderr.contains("nested more than 64 levels deep"), "{}", refused.stderr);
    });
}
