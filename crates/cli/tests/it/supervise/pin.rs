//! A cycle that pins the governance files reports it, and louder if a pin must have been there before.

use rota_testbed::Server;

use super::{first_cycle, line, repository, repository_on, state, write};
use crate::support::Lab;

const HASH: &str = "17294023893c4d18461dbafc9f53674b5047e00730c0672333f19d970840a4d3";

fn pinned_by(lab: &Lab) -> String {
    let state = lab.path().join("agents/state/scheduler_state.json");
    format!("docs/governance.md {HASH} by supervisor@test-host:{}", state.display())
}

/// Forgets the pin as a replaced or restored store does, and keeps the state file.
fn another_store(lab: &Lab) {
    std::fs::remove_dir_all(lab.path().join(".rota")).unwrap();
}

#[test]
fn the_first_pin_is_one_line() {
    for lab in
        [repository("source: local"), repository_on(Lab::on(Server::shared().fresh_url()), "source: local")]
    {
        let first = lab.line("supervise --once");
        assert_eq!(
            (first.code, first.stderr.as_str()),
            (0, format!("pinned: {}\n", pinned_by(&lab)).as_str())
        );
        assert!(!first.stdout.contains("pinned"), "stdout keeps its bytes: {}", first.stdout);
        assert_eq!(lab.line("supervise --once").stderr, "");
        let journal = lab.line("log --task supervisor/local").ok();
        assert!(
            journal.contains("pinned supervisor/local") && journal.contains("\"the first start\""),
            "{journal}"
        );
    }
}

/// Every file has its line.
#[test]
fn several_files() {
    let lab = repository("source: local, governance: {files: [docs/governance.md, docs/more.md]}");
    write(&lab, "docs/more.md", "More.\n");
    let first = lab.line("supervise --once --json");
    let files: Vec<&str> = first.stderr.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(files, ["docs/governance.md", "docs/more.md"], "{}", first.stderr);
}

#[test]
fn a_pin_that_was_lost_is_a_warning() {
    let lab = repository("source: local");
    first_cycle(&lab);
    lab.line("supervise --once").ok();
    another_store(&lab);
    let again = lab.line("supervise --once");
    let wanted = format!("warning: pinned anew: {}\n", pinned_by(&lab));
    assert_eq!((again.code, again.stderr.as_str()), (0, wanted.as_str()));
    assert_eq!(state(&lab)["cycle_count"], 3);
    let journal = lab.line("log --task supervisor/local").ok();
    assert!(
        journal.contains("pinned anew: the store had no pin, but the state file counts 2 cycles"),
        "{journal}"
    );
}

#[test]
fn a_required_pin_is_never_set_by_a_cycle() {
    let lab = repository("source: local, governance: {pin: required}");
    lab.line("issue add --title one").ok();
    for sleep in [60, 120] {
        let ran = lab.line("supervise --once");
        assert_eq!(
            (ran.code, line(&ran, "GOVERNANCE_VALID")),
            (1, "GOVERNANCE_VALID=false rule=immutability")
        );
        assert!(ran.stderr.contains("run rota supervise pin"), "{}", ran.stderr);
        assert_eq!(line(&ran, "SLEEP"), format!("SLEEP seconds={sleep}"));
    }
    assert!(lab.line("supervise check").stdout.contains("not pinned yet"));
    lab.line("supervise pin").ok();
    let ran = lab.line("supervise --once");
    assert_eq!(
        (line(&ran, "CLAIMED"), ran.stderr.as_str()),
        ("CLAIMED #1 label=in-progress verified=true", "")
    );
    another_store(&lab);
    let ran = lab.line("supervise --once");
    assert_eq!((ran.code, line(&ran, "GOVERNANCE_VALID")), (1, "GOVERNANCE_VALID=false rule=immutability"));
}
