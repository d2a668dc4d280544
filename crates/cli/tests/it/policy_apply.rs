//! `policy apply` loses nothing silently; rules of any queue by flag and by `rota.yml`; where the copy is written.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Lab;

fn write(lab: &Lab, name: &str, text: &str) {
    std::fs::write(lab.path().join(name), text).unwrap();
}

fn value(lab: &Lab, line: &str) -> Value {
    serde_json::from_str(&lab.line(line).ok()).unwrap()
}

fn queues(lab: &Lab) -> Value {
    value(lab, "policy show")["policy"]["queues"].clone()
}

/// Two values that are not defaults.
fn published() -> Lab {
    let lab = Lab::new();
    write(
        &lab,
        "first.json",
        r#"{"queues":{"tasks":{"leaseTtlMs":900000},"mine":{"leaseTtlMs":5000}},"gate":{"burst":20}}"#,
    );
    lab.line("policy apply first.json").ok();
    lab
}

#[test]
fn what_a_document_does_not_name_is_not_lost_silently() {
    let lab = published();
    let before = lab.line("policy show").ok();
    write(&lab, "one.json", r#"{"queues":{"tasks":{"maxAttempts":3}}}"#);
    let refused = lab.line("policy apply one.json");
    assert_eq!(refused.code, 1);
    let told = "error: the document would set published values back to their defaults: gate.burst (now 20, then 10), ";
    assert!(refused.stderr.starts_with(told), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("queues.tasks.leaseTtlMs (now 900000, then 600000)"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("--merge") && refused.stderr.contains("--replace"), "{}", refused.stderr);
    assert_eq!(lab.line("policy show").ok(), before, "nothing was published");
    lab.line("policy apply --merge one.json").ok();
    let merged = queues(&lab);
    assert_eq!(
        (&merged["tasks"]["maxAttempts"], &merged["tasks"]["leaseTtlMs"]),
        (&json!(3), &json!(900_000))
    );
    assert!(merged.get("mine").is_some());
    // One that names the default means it.
    write(
        &lab,
        "named.json",
        r#"{"queues":{"tasks":{"leaseTtlMs":600000,"maxAttempts":3},"mine":{"leaseTtlMs":5000,"maxAttempts":null}},"gate":{"burst":20}}"#,
    );
    lab.line("policy apply named.json").ok();
    assert_eq!(queues(&lab)["tasks"]["leaseTtlMs"], 600_000);
    lab.line("policy apply --replace one.json").ok();
    assert_eq!(value(&lab, "policy show")["policy"]["gate"]["burst"], 10);
    for (line, told) in [
        ("policy apply --merge --replace one.json", "error: --merge and --replace are mutually exclusive\n"),
        ("policy apply --replace one.json --merge", "error: --replace and --merge are mutually exclusive\n"),
        ("policy apply --merge --merge one.json", "error: --merge is given twice\n"),
    ] {
        let refused = lab.line(line);
        assert!(refused.code == 1 && refused.stderr.starts_with(told), "{line}: {}", refused.stderr);
    }
}

#[test]
fn an_empty_document_brings_the_defaults_back() {
    let lab = published();
    write(&lab, "empty.json", "{}");
    lab.line("policy apply empty.json").ok();
    let shown = value(&lab, "policy show");
    assert_eq!(
        (&shown["policy"]["gate"]["burst"], &shown["policy"]["queues"]["mine"]),
        (&json!(10), &Value::Null)
    );
}

#[test]
fn a_flat_document_leaves_other_queues_alone() {
    let lab = published();
    write(&lab, "flat.json", r#"{"maxConcurrent":2}"#);
    lab.line("policy apply flat.json").ok();
    let now = queues(&lab);
    assert_eq!((&now["runs"]["maxConcurrent"], &now["tasks"]["leaseTtlMs"]), (&json!(2), &json!(900_000)));
    write(&lab, "other.json", r#"{"maxAttempts":9}"#);
    let refused = lab.line("policy apply other.json");
    assert!(refused.stderr.contains("queues.runs.maxConcurrent (now 2, then 1)"), "{}", refused.stderr);
}

#[test]
fn rules_of_any_queue() {
    let lab = Lab::new();
    let set = value(&lab, "sched policy set --queue issues --maxConcurrent 5");
    assert_eq!(set["policy"]["maxConcurrent"], 5);
    assert_eq!(value(&lab, "sched policy show --queue issues")["policy"], set["policy"]);
    assert_eq!(value(&lab, "sched policy show")["policy"]["maxConcurrent"], 1, "runs stays");
    let refused = lab.line("sched policy set --queue isues --maxConcurrent 5");
    assert!(refused.code == 1 && refused.stderr.contains("isues"), "{}", refused.stderr);
}

#[test]
fn queues_in_the_configuration() {
    let lab = Lab::new();
    write(&lab, "rota.yml", "queues: {issues: {max_concurrent: 5}, nightly: {max_attempts: 2}}\n");
    let ran = lab.line("up --until-idle --no-serve");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let now = queues(&lab);
    assert_eq!((&now["issues"]["maxConcurrent"], &now["nightly"]["maxAttempts"]), (&json!(5), &json!(2)));
    for (text, told) in [
        ("queues: {issues: {max_concurent: 5}}\n", "queues.issues.max_concurent"),
        ("queues: {issues: {max_concurrent: 0}}\n", "queues.issues.max"),
        (
            "concurrency: {max_loops: 3}\nqueues: {loops: {max_concurrent: 4}}\n",
            "queues.loops.maxConcurrent: another section of the file says 3",
        ),
    ] {
        write(&lab, "rota.yml", text);
        let ran = lab.line("task list");
        assert!(ran.code == 1 && ran.stderr.contains(told), "{text}: {}", ran.stderr);
    }
}

/// Each scope has a copy of its own, and git does not show it unless it is tracked.
#[test]
fn the_copy_of_a_scope() {
    let lab = Lab::new();
    let git = |words: &[&str]| {
        let ran = Command::new("git").args(words).current_dir(lab.path()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    git(&["init", "-q"]);
    lab.line("sched policy set --maxConcurrent 2").ok();
    lab.line("sched policy set --maxConcurrent 3 --scope o/r@main").ok();
    lab.line("sched policy set --maxConcurrent 4").ok();
    assert!(lab.path().join("rota.policy.json").exists());
    assert!(lab.path().join("rota.policy.o%2Fr%40main.json").exists());
    assert_eq!(git(&["status", "--porcelain"]), "");
    let exclude = std::fs::read_to_string(lab.path().join(".git/info/exclude")).unwrap();
    assert_eq!(exclude.matches("/rota.policy.json\n").count(), 1, "{exclude}");
    // A copy that is tracked stays visible.
    let tracked = Lab::new();
    let git = |words: &[&str]| Command::new("git").args(words).current_dir(tracked.path()).output().unwrap();
    git(&["init", "-q"]);
    write(&tracked, "rota.policy.json", "{}");
    git(&["add", "rota.policy.json"]);
    tracked.line("sched policy set --maxConcurrent 2").ok();
    let exclude = std::fs::read_to_string(tracked.path().join(".git/info/exclude")).unwrap_or_default();
    assert!(!exclude.contains("rota.policy"), "{exclude}");
}
