//! Claimed issues become loops, and later cycles look at what came of them.

use super::{git, line, read, repository, write};
use crate::support::Lab;

/// Dispatches to a loop whose agent is a script, with what may be changed.
fn with_agent(script: &str) -> Lab {
    let lab = repository("source: local");
    let text = "disk: {min_free_gb: 0}\nsupervisor: {source: local, dispatch: {kind: ralph, allowed_files: ['src/*'], \
         commit_message: '^fix: '}}\nloops:\n  ralph: {run: [sh, agent.sh], max_iterations: 1, env: {GIT_AUTHOR_NAME: a, \
         GIT_AUTHOR_EMAIL: a@example.com, GIT_COMMITTER_NAME: a, GIT_COMMITTER_EMAIL: a@example.com}}\n";
    write(&lab, "rota.yml", text);
    write(&lab, "agent.sh", script);
    git(lab.path(), &["add", "-A"]);
    git(lab.path(), &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "second"]);
    lab.line("issue add --title 'Fix the login' --body '## Outcome\n\nIt works.'").ok();
    lab
}

fn cycle(lab: &Lab) -> String {
    let ran = lab.line("supervise --once");
    assert!(ran.code == 0, "{}{}", ran.stdout, ran.stderr);
    line(&ran, "CLAIMED").to_owned()
}

#[test]
fn a_result_that_is_accepted_closes_the_issue() {
    let lab = with_agent(
        "mkdir -p src && echo fixed > src/login && git add src && git commit -qm 'fix: the login'\n",
    );
    assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
    let shown: serde_json::Value =
        serde_json::from_str(&lab.line("task show issue-1-1 --json").ok()).unwrap();
    let prompt = shown["description"].as_str().unwrap();
    assert!(prompt.contains("### Expected outcome\n\n> It works.\n"), "{prompt}");
    assert!(prompt.contains("- Change only these files: `src/*`.\n"), "{prompt}");
    // A cycle never waits for an agent.
    assert_eq!(cycle(&lab), "CLAIMED none");
    assert_eq!(lab.line("up --until-idle").code, 0);
    assert_eq!(cycle(&lab), "CLAIMED none");
    let shown = lab.line("issue show 1").ok();
    assert!(shown.starts_with("#1 closed Fix the login\ntask issue-1 (done)"), "{shown}");
    assert!(shown.contains("Done under `lease-issue-1-1`: 1 commits, 1 files changed."), "{shown}");
}

#[test]
fn a_result_that_is_not_accepted_opens_it_again_and_in_the_end_parks_it() {
    let lab = with_agent("echo x >> docs/other && git add docs && git commit -qm 'fix: something else'\n");
    assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
    for attempt in 1..=3 {
        assert_eq!(lab.line("up --until-idle").code, 0);
        let looked = lab.line("supervise --once");
        assert!(
            looked.stderr.contains("1 files were changed that may not be: docs/other"),
            "{}",
            looked.stderr
        );
        // Open again, it is claimed again in the same cycle, unless it is parked.
        let again = if attempt < 3 { "CLAIMED #1 label=in-progress verified=true" } else { "CLAIMED none" };
        assert_eq!(line(&looked, "CLAIMED"), again);
    }
    lab.line("supervise --once").ok();
    let shown = lab.line("issue show 1").ok();
    assert!(shown.contains("The attempt under `lease-issue-1-1` is not accepted: 1 files"), "{shown}");
    assert!(shown.contains("Rota leaves this issue alone from now on: result not accepted"), "{shown}");
    assert_eq!(read(&lab, "docs/other"), "x\nx\nx\n");
}
