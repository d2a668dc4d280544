//! Claimed issues become loops, and later cycles look at what came of them.

use super::{git, line, read, repository, write};
use crate::support::Lab;

/// Dispatches to a loop whose agent is a script, with what may be changed.
fn with_agent(script: &str) -> Lab {
    with_kind(script, "")
}

/// The same with more settings of the kind.
fn with_kind(script: &str, more: &str) -> Lab {
    let lab = repository("source: local");
    let text = format!(
        "disk: {{min_free_gb: 0}}\nsupervisor: {{source: local, dispatch: {{kind: ralph, allowed_files: ['src/*'], \
         commit_message: '^fix: '}}}}\nloops:\n  ralph: {{run: [sh, agent.sh], max_iterations: 1, {more}\
         env: {{GIT_AUTHOR_NAME: a, GIT_AUTHOR_EMAIL: a@example.com, GIT_COMMITTER_NAME: a, \
         GIT_COMMITTER_EMAIL: a@example.com}}}}\n"
    );
    write(&lab, "rota.yml", &text);
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
    assert!(shown.contains("Done under `lease-issue-1-1`: 1 commit on branch m"), "{shown}");
    for part in
        ["1 file changed.", "fix: the login\n", "src/login | 1 +\n", "1 file changed, 1 insertion(+)\n"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

fn prompt(lab: &Lab, id: &str) -> String {
    let shown: serde_json::Value =
        serde_json::from_str(&lab.line(&format!("task show {id} --json")).ok()).unwrap();
    shown["description"].as_str().unwrap().to_owned()
}

/// Exit code 0 alone delivers nothing: the issue stays open, and the next attempt is told why.
#[test]
fn nothing_delivered_closes_nothing() {
    for (script, problem) in [
        ("exit 0\n", "there is no commit"),
        ("git commit -q --allow-empty -m 'fix: nothing'\n", "its commits change nothing"),
        ("mkdir -p src && echo x > src/new\n", "1 file has changes that are not committed: src/new"),
        (
            "mkdir -p src && echo a > src/a && git add src && git commit -qm 'fix: a' && echo b > src/a\n",
            "1 file has changes that are not committed: src/a",
        ),
        (
            "mkdir -p src && echo a > src/a && git add src && git commit -qm 'wip'\n",
            "a commit message does not match ^fix: : wip",
        ),
    ] {
        for more in ["", "worktree: true, "] {
            let lab = with_kind(script, more);
            assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
            let first = prompt(&lab, "issue-1-1");
            assert!(first.contains("- Commit your work: a result without a commit is refused.\n"), "{first}");
            assert!(
                first.contains("- Every commit message must match the regular expression `^fix: `.\n"),
                "{first}"
            );
            assert!(!first.contains("last attempt"), "{first}");
            lab.line("up --until-idle");
            let looked = lab.line("supervise --once");
            let shown = lab.line("issue show 1").ok();
            assert!(shown.starts_with("#1 open "), "{script}: {shown}");
            assert!(looked.stderr.contains(problem), "{script} {more}: {}", looked.stderr);
            assert!(shown.contains(&format!("is not accepted: {problem}")), "{shown}");
            let second = prompt(&lab, "issue-1-2");
            let why = format!("### Why the last attempt was not accepted\n\n> {problem}\n");
            assert!(second.contains(&why), "{second}");
        }
    }
}

/// A kind may do without commits, but not with edits that are in none.
#[test]
fn commits_may_be_optional() {
    let lab = with_kind("exit 0\n", "commits: optional, ");
    assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
    assert!(!prompt(&lab, "issue-1-1").contains("Commit your work"));
    lab.line("up --until-idle");
    cycle(&lab);
    let shown = lab.line("issue show 1").ok();
    assert!(shown.starts_with("#1 closed ") && shown.contains("0 commits on branch m"), "{shown}");
    let lab = with_kind("mkdir -p src && echo x > src/new\n", "commits: optional, ");
    cycle(&lab);
    lab.line("up --until-idle");
    assert!(lab.line("supervise --once").stderr.contains("not committed: src/new"));
    assert!(lab.line("issue show 1").ok().starts_with("#1 open "));
}

/// Whatever was uncommitted before the agent began, and whatever the supervisor itself writes, is not the agent's.
#[test]
fn files_of_others_are_not_the_agents() {
    // The agent commits everything it finds, the supervisor's state file and lock included.
    let lab = with_agent(
        "mkdir -p src && echo fixed > src/login && git add -A src agents && git commit -qm 'fix: the login'\n",
    );
    write(&lab, "notes.txt", "mine\n");
    write(&lab, "docs/governance.md.orig", "mine, too\n");
    write(&lab, "logs/governance_violations.log", "");
    assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
    lab.line("up --until-idle");
    let ran = lab.line("supervise --once");
    let shown = lab.line("issue show 1").ok();
    assert!(shown.starts_with("#1 closed "), "{shown}{}", ran.stderr);
    let committed = std::process::Command::new("git")
        .args(["-C", lab.path().to_str().unwrap(), "show", "--name-only", "--format=", "HEAD"])
        .output()
        .unwrap();
    let committed = String::from_utf8(committed.stdout).unwrap();
    assert!(committed.contains("agents/state/scheduler_state.json.lock"), "{committed}");
    // The same file with another content is.
    let lab = with_agent(
        "mkdir -p src && echo fixed > src/login && git add src && git commit -qm 'fix: x' && echo y >> notes.txt\n",
    );
    write(&lab, "notes.txt", "mine\n");
    cycle(&lab);
    lab.line("up --until-idle");
    assert!(lab.line("supervise --once").stderr.contains("not committed: notes.txt"));
}

/// Exit code 77: the issue is parked with the question as a comment, and each answer brings it back.
#[test]
fn an_agent_may_ask_a_person() {
    let lab = with_agent("echo working; echo 'Which database?'; exit 77\n");
    let answers = [
        "--agent alice issue comment 1 --body 'The staging one.'",
        "issue edit 1 --title 'Fix the login page'",
        "issue edit 1 --body 'It says 500.'",
        "issue label 1 --add rota:retry",
    ];
    assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
    for (fence, answer) in (1..).zip(answers) {
        lab.line("up --until-idle");
        assert_eq!(cycle(&lab), "CLAIMED none", "{answer}");
        let shown = lab.line("issue show 1").ok();
        assert!(shown.contains("task issue-1 (parked)\n") && !shown.contains("[in-progress]"), "{shown}");
        assert_eq!(shown.matches("the agent needs a person: Which database?").count(), fence, "{shown}");
        assert_eq!(cycle(&lab), "CLAIMED none", "it waits for a person");
        lab.line(answer).ok();
        assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true", "{answer}");
    }
    assert!(!lab.line("issue show 1").ok().contains("rota:retry]"));
    let prompt = prompt(&lab, "issue-1-5");
    assert!(prompt.contains("### Comment by alice\n\n> The staging one.\n"), "{prompt}");
    assert!(prompt.contains("> it asked a person: Which database?\n"), "{prompt}");
    assert_eq!(lab.line("doctor").code, 0);
}

#[test]
fn a_result_that_is_not_accepted_opens_it_again_and_in_the_end_parks_it() {
    let lab = with_agent("echo x >> docs/other && git add docs && git commit -qm 'fix: something else'\n");
    assert_eq!(cycle(&lab), "CLAIMED #1 label=in-progress verified=true");
    for attempt in 1..=3 {
        assert_eq!(lab.line("up --until-idle").code, 0);
        let looked = lab.line("supervise --once");
        assert!(
            looked.stderr.contains("1 file was changed that may not be: docs/other"),
            "{}",
            looked.stderr
        );
        // Open again, it is claimed again in the same cycle, unless it is parked.
        let again = if attempt < 3 { "CLAIMED #1 label=in-progress verified=true" } else { "CLAIMED none" };
        assert_eq!(line(&looked, "CLAIMED"), again);
    }
    lab.line("supervise --once").ok();
    let shown = lab.line("issue show 1").ok();
    assert!(shown.contains("The attempt under `lease-issue-1-1` is not accepted: 1 file"), "{shown}");
    assert!(shown.contains("Rota leaves this issue alone from now on: result not accepted"), "{shown}");
    assert_eq!(read(&lab, "docs/other"), "x\nx\nx\n");
}
