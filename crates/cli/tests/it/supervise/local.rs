//! Cycles on the local tracker: the exact lines, the state file, the lock, signals, and what cannot be meant.

use expect_test::expect;
use rota_testbed::Server;

use super::{ended, first_cycle, line, read, repository, repository_on, start, state, until, write};
use crate::support::{Lab, hangup_is_ignored};

const STATE: &str = "agents/state/scheduler_state.json";

#[test]
fn issues_of_the_local_tracker() {
    crate::support::check(
        r##"
        issue list
        @0 issue add --title "Fix the login" --body "It says 500.\nAlways." --label bug --label bug
        @1 issue add --title "a\n\eb"
        issue list
        issue show 1
        @2 issue close 1
        @3 issue close #1
        issue list --json
        issue list --all
        issue show 7
        issue show x
        issue close 0
        issue add --title " "
        issue add
        "##,
        expect![[r#"
            $ issue list
            $ @0 issue add --title "Fix the login" --body "It says 500.\nAlways." --label bug --label bug
            #1
            $ @1 issue add --title "a\n\eb"
            #2
            $ issue list
            #1 open Fix the login [bug]
            #2 open a\n\u{1b}b
            $ issue show 1
            #1 open Fix the login [bug]
            task issue-1 (open)

            It says 500.
            Always.
            $ @2 issue close 1
            closed #1
            $ @3 issue close #1
            closed #1
            $ issue list --json
            {
              "schemaVersion": 1,
              "total": 1,
              "issues": [
                {
                  "number": 2,
                  "title": "a\n\u001bb",
                  "state": "open",
                  "labels": [],
                  "task": "issue-2",
                  "status": "open",
                  "createdAt": "2026-01-01T00:00:01.000Z",
                  "updatedAt": "2026-01-01T00:00:01.000Z"
                }
              ]
            }
            $ issue list --all
            #1 closed Fix the login [bug]
            #2 open a\n\u{1b}b
            $ issue show 7
            ! error: issue #7 not found
            !   see what there is: rota issue list --all
            [2]
            $ issue show x
            ! error: the number of an issue counts from 1, got: x
            [1]
            $ issue close 0
            ! error: the number of an issue counts from 1, got: 0
            [1]
            $ issue add --title " "
            ! error: title is empty
            [1]
            $ issue add
            ! error: missing --title
            ! Usage: rota issue add [OPTIONS] --title <T>
            [1]
        "#]],
    );
}

#[test]
fn issues_are_labelled_commented_edited_and_opened_again() {
    crate::support::check(
        r##"
        @0 issue add --title one --label bug
        @1 issue label 1 --add wip --add bug --remove none
        @2 issue label #1 --remove bug
        @3 --agent alice issue comment 1 --body "Please use\nthe staging database."
        @4 issue edit 1 --title "One, please" --body text
        @5 issue show 1
        @6 issue edit 1 --body ""
        @7 issue close 1
        @8 issue reopen 1
        @9 issue reopen 1
        issue show 1
        issue label 1
        issue label 1 --add x --remove x
        issue label 1 --add ""
        issue comment 1 --body " "
        issue comment 1 --body "<!-- rota: parked 1.0 -->"
        issue comment 7 --body x
        issue edit 1
        issue edit 1 --title " "
        issue reopen 7
        "##,
        expect![[r#"
            $ @0 issue add --title one --label bug
            #1
            $ @1 issue label 1 --add wip --add bug --remove none
            #1 open one [bug] [wip]
            $ @2 issue label #1 --remove bug
            #1 open one [wip]
            $ @3 --agent alice issue comment 1 --body "Please use\nthe staging database."
            commented on #1
            $ @4 issue edit 1 --title "One, please" --body text
            #1 open One, please [wip]
            $ @5 issue show 1
            #1 open One, please [wip]
            task issue-1 (open)

            text

            Please use
            the staging database.
            $ @6 issue edit 1 --body ""
            #1 open One, please [wip]
            $ @7 issue close 1
            closed #1
            $ @8 issue reopen 1
            reopened #1
            $ @9 issue reopen 1
            reopened #1
            $ issue show 1
            #1 open One, please [wip]
            task issue-1 (open)

            Please use
            the staging database.
            $ issue label 1
            ! error: no label is given: name one to add or to remove
            [1]
            $ issue label 1 --add x --remove x
            ! error: label 'x' is both added and removed
            [1]
            $ issue label 1 --add ""
            ! error: label is empty
            [1]
            $ issue comment 1 --body " "
            ! error: comment is empty
            [1]
            $ issue comment 1 --body "<!-- rota: parked 1.0 -->"
            ! error: comment may not contain the supervisor's marker '<!-- rota:'
            [1]
            $ issue comment 7 --body x
            ! error: issue #7 not found
            !   see what there is: rota issue list --all
            [2]
            $ issue edit 1
            ! error: nothing to change: give a title or a body
            [1]
            $ issue edit 1 --title " "
            ! error: title is empty
            [1]
            $ issue reopen 7
            ! error: issue #7 not found
            !   see what there is: rota issue list --all
            [2]
        "#]],
    );
}

#[test]
fn a_life_in_cycles() {
    let lab = repository("source: local");
    lab.check(
        r#"
        @0 supervise --once
        @1 issue add --title "fix: \"quotes\" \\ and\nlines"
        @2 issue add --title second
        @3 supervise --once
        @4 supervise --once
        @5 issue close 1
        @6 supervise --once --json
        "#,
        expect![[r#"
            $ @0 supervise --once
            CYCLE_START count=1 ts=2026-01-01T00:00:00Z
            STATE failures=0 backoff=60s last_claimed=none
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED none
            CLAIMED none
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            - failure_code: scheduler.no_tasks
            SLEEP seconds=60
            ! pinned: docs/governance.md 17294023893c4d18461dbafc9f53674b5047e00730c0672333f19d970840a4d3 by supervisor@test-host:<folder>/agents/state/scheduler_state.json
            $ @1 issue add --title "fix: \"quotes\" \\ and\nlines"
            #1
            $ @2 issue add --title second
            #2
            $ @3 supervise --once
            CYCLE_START count=2 ts=2026-01-01T00:00:03Z
            STATE failures=0 backoff=60s last_claimed=none
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED #1 "fix: \"quotes\" \\ and\nlines"
            CLAIMED #1 label=in-progress verified=true
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            SLEEP seconds=60
            $ @4 supervise --once
            CYCLE_START count=3 ts=2026-01-01T00:00:04Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED none
            CLAIMED none
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            - failure_code: scheduler.no_tasks
            SLEEP seconds=60
            $ @5 issue close 1
            closed #1
            $ @6 supervise --once --json
            {"schemaVersion":1,"count":4,"ts":"2026-01-01T00:00:06Z","state":{"failures":0,"backoffSeconds":60,"lastClaimed":1},"governance":{"valid":true},"environment":{"valid":true},"selected":{"number":2,"title":"second"},"gate":{"valid":true},"claimed":{"number":2,"label":"in-progress","verified":true},"report":{"governanceCompliant":true,"violationsDetected":0,"enforcementActions":"none"},"sleepSeconds":60}
        "#]],
    );
    assert_eq!(state(&lab)["cycle_count"], 4);
    assert_eq!(lab.line("doctor").code, 0);
}

/// The same inputs give the same bytes, in the output and in the state file.
#[test]
fn deterministic() {
    let run = || {
        let lab = repository("source: local, governance: {rules: {allowed_actions: [never]}}");
        let lines = "@0 issue add --title one\n@0 issue add --title never\n@1 supervise --once\n@2 issue close 1\n\
                     @3 supervise --once\n@4 supervise --once\n@5 supervise --once\n@6 supervise --once";
        (lab.transcript(lines), read(&lab, STATE), read(&lab, "logs/governance_violations.log"))
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first.0.contains("GATE_VALID=false rule=allowed_actions"), "{}", first.0);
}

#[test]
fn what_cannot_be_meant() {
    let lab = repository("source: local");
    write(&lab, "settings.json", "{\"cycle_interval_seconds\": 5}");
    write(&lab, "bad.json", "{\"cycle_interval\": 5}");
    write(&lab, "zero.json", "{\"cycle_max_runtime_seconds\": 0}");
    let settings = lab.line("supervise --once --settings settings.json");
    assert_eq!(line(&settings, "SLEEP"), "SLEEP seconds=5");
    lab.check_refused(
        r#"
        supervise --once --cycles 2
        supervise --cycles 0
        supervise --cycles x
        supervise --now 2026-01-01T00:00:00Z
        supervise --settings bad.json
        supervise --settings zero.json
        supervise --settings none.json
        supervise --config none.yml
        supervise check extra
        "#,
        expect![[r#"
            $ supervise --once --cycles 2
            ! error: --once and --cycles are mutually exclusive
            ! Usage: rota supervise [OPTIONS]
            [1]
            $ supervise --cycles 0
            ! error: --cycles counts from 1, got: 0
            ! Usage: rota supervise [OPTIONS]
            [1]
            $ supervise --cycles x
            ! error: --cycles must be a non-negative integer, got: x
            ! Usage: rota supervise [OPTIONS]
            [1]
            $ supervise --now 2026-01-01T00:00:00Z
            ! error: --now goes with --once only: other cycles go by the clock
            ! Usage: rota supervise [OPTIONS]
            [1]
            $ supervise --settings bad.json
            ! error: --settings bad.json: unknown field `cycle_interval`, expected `cycle_interval_seconds` or `cycle_max_runtime_seconds` at line 1 column 17
            [1]
            $ supervise --settings zero.json
            ! error: --settings zero.json: cycle_max_runtime_seconds: expected a whole number from 1 to 86400
            [1]
            $ supervise --settings none.json
            ! error: --settings none.json: No such file or directory (os error 2)
            [1]
            $ supervise --config none.yml
            ! error: none.yml: No such file or directory (os error 2)
            [1]
            $ supervise check extra
            ! error: unexpected argument 'extra'
            ! Usage: rota supervise check [OPTIONS]
            [1]
        "#]],
    );
    let without = Lab::new();
    let ran = without.line("supervise --once");
    assert!(ran.code == 1 && ran.stderr.contains("has no section 'supervisor'"), "{}", ran.stderr);
    let tracker =
        "source: gitea, api_base: 'http://127.0.0.1:1/api/v1', owner: o, repo: r, token_env: MY_TOKEN";
    let ran = repository(tracker).line("supervise --once");
    assert!(ran.code == 1 && ran.stderr.contains("the variable MY_TOKEN"), "{}", ran.stderr);
}

/// Every failure of the surroundings is listed, nothing is claimed, and the failures add up.
#[test]
fn surroundings_that_are_not_in_order() {
    let lab = repository("source: local, check_remote: true");
    lab.line("issue add --title one").ok();
    std::fs::remove_file(lab.path().join("agents/state/environment.json")).unwrap();
    for sleep in ["SLEEP seconds=60", "SLEEP seconds=120", "SLEEP seconds=180"] {
        let ran = lab.line("supervise --once");
        assert_eq!(ran.code, 1);
        assert_eq!(
            line(&ran, "ENV_VALID"),
            "ENV_VALID=false failure=environment.repository.unavailable,environment.governance.missing"
        );
        assert_eq!(line(&ran, "SLEEP"), sleep);
    }
    write(&lab, "agents/state/environment.json", "[]");
    let checked = lab.line("supervise check --json");
    let report: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!((checked.code, report["valid"].as_bool()), (1, Some(false)));
    let codes = ["environment.repository.unavailable", "environment.governance.unreadable"];
    assert_eq!(report["failures"], serde_json::json!(codes));
    assert_eq!(lab.line("issue show 1 --json").ok().matches("in-progress").count(), 0);
    // Without git nothing can be said of the repository.
    let mut command = lab.command();
    command.args(["supervise", "check"]).env("PATH", lab.path());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("environment.runtime.invalid: git cannot be called"), "{said}");
}

#[test]
fn a_state_file_that_is_corrupt_is_kept_and_refused() {
    let lab = repository("source: local");
    first_cycle(&lab);
    let good = read(&lab, STATE);
    for torn in [&good[..good.len() / 2], "", "{\"cycle_count\": 1}", "\u{1}"] {
        write(&lab, STATE, torn);
        let ran = lab.line("supervise --once");
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(ran.stderr.starts_with("error: the state file "), "{}", ran.stderr);
        assert_eq!(read(&lab, STATE), torn);
    }
    let names = std::fs::read_dir(lab.path().join("agents/state")).unwrap();
    let copies = names.filter(|name| {
        name.as_ref().unwrap().file_name().to_string_lossy().starts_with("scheduler_state.json.corrupt-")
    });
    assert_eq!(copies.count(), 4);
    std::fs::remove_file(lab.path().join(STATE)).unwrap();
    assert_eq!(line(&lab.line("supervise --once"), "CYCLE_START").split(' ').nth(1), Some("count=1"));
}

fn send(signal: &str, child: &std::process::Child) {
    let mut kill = std::process::Command::new("kill");
    assert!(kill.args([format!("-{signal}"), child.id().to_string()]).status().unwrap().success());
}

/// One supervisor per state file; a signal ends the sleep cleanly.
#[test]
fn one_at_a_time_and_a_clean_end() {
    let lab = repository("source: local");
    for signal in ["TERM", "INT", "HUP"] {
        let child = start(&lab, &[]);
        let slept = || state(&lab)["cycle_count"].as_u64() > Some(0);
        until("a cycle has ended", || lab.path().join(STATE).exists() && slept());
        let second = lab.line("supervise --once");
        assert!(second.stderr.starts_with("error: another rota supervise runs on "), "{}", second.stderr);
        assert_eq!(second.code, 1);
        send(signal, &child);
        if signal == "HUP" && hangup_is_ignored() {
            // Under `nohup` it goes on, and so do these tests.
            send("TERM", &child);
        }
        let ran = ended(child);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.ends_with("SLEEP seconds=60\n"), "{}", ran.stdout);
        std::fs::remove_file(lab.path().join(STATE)).unwrap();
    }
    let ran = lab.line("supervise --cycles 2 --settings s.json");
    assert_eq!(ran.code, 1, "there is no such file");
    write(&lab, "s.json", "{\"cycle_interval_seconds\": 1}");
    let ran = lab.line("supervise --cycles 2 --settings s.json");
    assert_eq!((ran.code, ran.stdout.matches("CYCLE_START").count()), (0, 2), "{}", ran.stdout);
}

/// What rota.yml says about the policy counts from the first start on.
#[test]
fn the_policy_of_the_file_is_published() {
    let lab = repository("source: local");
    write(&lab, "rota.yml", "supervisor: {source: local}\nconcurrency: {max_loops: 7}\n");
    first_cycle(&lab);
    assert!(lab.line("policy show --json").ok().contains("\"maxConcurrent\": 7"));
    assert!(read(&lab, "rota.policy.json").contains("\"maxConcurrent\": 7"));
    // On a server the published policy decides, and the difference is named, as by the daemon and the gateway.
    let lab = repository_on(Lab::on(Server::shared().fresh_url()), "source: local");
    write(&lab, "rota.yml", "supervisor: {source: local}\nconcurrency: {max_loops: 7}\n");
    let ran = lab.line("supervise --once");
    let told = "warning: rota.yml differs from the published policy, which decides (--publish publishes it): \
                queues.loops.maxConcurrent 50 → 7\n";
    assert!(ran.code == 0 && ran.stderr.contains(told), "{}", ran.stderr);
    assert!(!lab.line("policy show --json").ok().contains("\"maxConcurrent\": 7"));
    let ran = lab.line("supervise --once --publish");
    assert!(ran.code == 0 && !ran.stderr.contains("differs"), "{}", ran.stderr);
    assert!(lab.line("policy show --json").ok().contains("\"maxConcurrent\": 7"));
}

/// When nobody reads what it prints, it ends.
#[test]
fn nobody_listens() {
    use std::io::BufRead;
    let lab = repository("source: local, cycle_interval_seconds: 1");
    let mut child = start(&lab, &[]);
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("CYCLE_START count=1 "), "{line}");
    drop(output);
    assert_eq!(ended(child).code, 1);
}
