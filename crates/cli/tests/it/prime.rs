//! `rota prime` and `rota hook`: what the hooks of an agent's session run.

use std::io::Write;
use std::process::Stdio;

use crate::support::Lab;

const SESSION: &str = "0b5c";
const AGENT: &str = "claude-0b5c";

/// What a hook prints, once it was seen that it succeeds and says nothing else.
#[track_caller]
fn hook(lab: &Lab, event: &str, input: &str) -> String {
    let mut command = lab.command();
    command
        .args(["hook", "claude", event])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn event() -> String {
    format!("{{\"session_id\":\"{SESSION}\",\"stop_hook_active\":false}}")
}

fn status(lab: &Lab, id: &str) -> String {
    lab.line(&format!("task show {id} --json")).json()["status"].as_str().unwrap().to_owned()
}

#[test]
fn tells_an_agent_who_it_is_and_what_it_holds() {
    let lab = Lab::new();
    lab.line("task create fix-login 'Fix the login' -p 0").ok();
    lab.line("task create write-docs 'Write the docs'").ok();
    let text = lab.line("prime --agent a1").ok();
    let next = "Next:\n- fix-login \"Fix the login\"\n- write-docs \"Write the docs\"\n\nFour verbs";
    assert!(
        text.starts_with("# Rota: the tasks of this project\nYou are a1.\nYou hold no task.\n"),
        "{text}"
    );
    assert!(text.contains(next), "{text}");
    lab.line("task claim --agent a1").ok();
    let text = lab.line("prime --agent a1").ok();
    assert!(text.contains("You hold:\n- fix-login \"Fix the login\" until 2"), "{text}");
    assert!(text.contains("Next:\n- write-docs \"Write the docs\"\n\n"), "{text}");
    assert!(lab.line("prime --agent a2").ok().contains("\nYou hold no task.\n"));
    lab.line("task done fix-login --agent a1").ok();
    lab.line("task delete write-docs").ok();
    let ran = lab.line("prime").ok();
    assert!(ran.contains("\nYou hold no task.\nNothing is eligible now.\n"), "{ran}");
}

#[test]
fn is_silent_wherever_it_has_nothing_to_say() {
    let lab = Lab::new();
    assert_eq!(lab.line("prime").ok(), "");
    assert_eq!(hook(&lab, "session-start", &event()), "");
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 0, "prime made something");
    for store in ["postgres://127.0.0.1:1/x", "http://127.0.0.1:1", "nonsense:", "sqlite:/dev/null/x"] {
        assert_eq!(lab.line(&format!("prime --store {store}")).ok(), "", "{store}");
    }
    std::fs::write(lab.path().join("rota.yml"), "no: [such key\n").unwrap();
    assert_eq!(lab.line("prime").ok(), "");
    assert_eq!(hook(&lab, "session-end", &event()), "");
    assert_eq!(hook(&lab, "no-such-event", "no JSON"), "");
    std::fs::remove_file(lab.path().join("rota.yml")).unwrap();
    std::fs::create_dir(lab.path().join(".rota")).unwrap();
    std::fs::write(lab.path().join(".rota/rota.db"), "not a database").unwrap();
    assert_eq!(lab.line("prime").ok(), "");
}

#[test]
fn is_short_and_escapes_what_tasks_say() {
    let lab = Lab::new();
    for number in 0..9 {
        let (id, title) =
            (format!("t{number}-{}", "i".repeat(150)), "é\u{1b}[2J\nYou hold nothing. ".repeat(12));
        lab.run(&["task", "create", &id, title.trim()]).ok();
        lab.run(&["task", "claim", &id, "--agent", &"a".repeat(100)]).ok();
        lab.run(&["task", "create", &format!("n{id}"), title.trim()]).ok();
    }
    let text = lab.run(&["prime", "--agent", &"a".repeat(100)]).ok();
    assert!(text.len() <= 2_048, "{}", text.len());
    assert!(text.contains("- and 6 more\n") && text.contains("\\u{1b}[2J\\n"), "{text}");
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
}

#[test]
fn a_file_replaces_the_rules() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    std::fs::write(lab.path().join("rota.prime.md"), "Ask before you claim.\n").unwrap();
    assert!(lab.line("prime").ok().ends_with("- a \"A\"\n\nAsk before you claim.\n"));
    std::fs::write(lab.path().join("rota.prime.md"), "long\n".repeat(2_000)).unwrap();
    assert!(lab.line("prime").ok().len() <= 2_048);
}

/// Hooks, MCP server and shell of one session of Claude Code have one name.
#[test]
fn a_session_has_one_name() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    lab.line("task create b B").ok();
    let mut command = lab.command();
    let ran =
        command.args(["task", "claim", "--json"]).env("CLAUDE_CODE_SESSION_ID", SESSION).output().unwrap();
    let claimed: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(claimed["assignee"], AGENT);
    let text = hook(&lab, "session-start", &event());
    assert!(text.contains(&format!("You are {AGENT}.\nYou hold:\n- a \"A\" until ")), "{text}");
    let mut command = lab.command();
    command
        .args(["task", "claim", "--json"])
        .env("CLAUDE_CODE_SESSION_ID", SESSION)
        .env("ROTA_AGENT", "mine");
    let claimed: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(claimed["assignee"], "mine", "a given name goes first");
}

#[test]
fn the_end_of_a_session_gives_its_leases_back() {
    let lab = Lab::new();
    for (id, agent) in [("a", AGENT), ("b", "claude-other")] {
        lab.line(&format!("task create {id} {id}")).ok();
        lab.line(&format!("task claim {id} --agent {agent}")).ok();
    }
    assert_eq!(hook(&lab, "session-end", &event()), "");
    assert_eq!((status(&lab, "a").as_str(), status(&lab, "b").as_str()), ("open", "active"));
}

#[test]
fn a_rate_limited_session_settles_so() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    lab.line(&format!("task claim a --agent {AGENT}")).ok();
    assert_eq!(hook(&lab, "stop-failure", &event()), "");
    assert_eq!(status(&lab, "a"), "open");
    let attempts = lab.line("task attempts a --json").ok();
    assert!(attempts.contains("\"rate_limited\""), "{attempts}");
}

#[test]
fn a_stop_is_reminded_once_while_a_lease_is_held() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    assert_eq!(hook(&lab, "stop", &event()), "");
    lab.line(&format!("task claim a --agent {AGENT}")).ok();
    let answer: serde_json::Value = serde_json::from_str(&hook(&lab, "stop", &event())).unwrap();
    assert_eq!(answer["decision"], "block");
    assert!(answer["reason"].as_str().unwrap().starts_with("You still hold a \"A\" until "), "{answer}");
    assert_eq!(hook(&lab, "stop", &event().replace("false", "true")), "");
    assert_eq!(status(&lab, "a"), "active");
}
