//! Every path through a cycle, as a table: what the steps reported, and what is printed, kept and slept.

use expect_test::{Expect, expect};

use super::*;

fn settings() -> Settings {
    Settings { interval_secs: 60, claim_label: "in-progress".into() }
}

fn state() -> State {
    State {
        cycle_count: 11,
        last_claimed_issue: Some(1),
        last_cycle_utc: Some(UnixMillis::new(1_770_976_740_000)),
        ..State::fresh(60)
    }
}

fn issue(title: &str) -> Option<Selected> {
    Some(Selected { number: 14, title: title.into() })
}

fn violated(rule: Rule) -> Result<(), Violated> {
    Err(Violated { rule, count: 1 })
}

/// What the steps report up to and including the claim.
fn passing() -> Vec<Reported> {
    vec![
        Reported::Governance(Ok(())),
        Reported::Environment(Vec::new()),
        Reported::Started,
        Reported::Selection(issue("fix: ...")),
        Reported::Gate(Ok(())),
        Reported::Claim { verified: true },
        Reported::Dispatched,
    ]
}

fn first(count: usize, then: impl IntoIterator<Item = Reported>) -> Vec<Reported> {
    passing().into_iter().take(count).chain(then).collect()
}

fn run(before: State, reports: Vec<Reported>, ending: Ending) -> (Vec<String>, Ended) {
    let mut cycle = Cycle::begin(before, settings(), UnixMillis::new(1_770_976_800_000));
    let mut lines = cycle.take_lines();
    for reported in reports {
        assert_ne!(cycle.next(), Step::Report, "{reported:?} was not asked for");
        cycle.report(reported);
        lines.extend(cycle.take_lines());
    }
    let is_over = cycle.next() == Step::Report;
    assert_eq!(is_over, ending == Ending::Complete, "{:?}", cycle.next());
    let ended = cycle.end(ending);
    lines.extend(ended.lines.clone());
    (lines, ended)
}

fn check(reports: Vec<Reported>, ending: Ending, expected: Expect) {
    let (lines, ended) = run(state(), reports.clone(), ending);
    let kept = ended.state.to_text().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    expected.assert_eq(&format!("{}\n{kept}\n", lines.join("\n")));
    assert_eq!(run(state(), reports, ending), (lines, ended), "the same inputs give the same bytes");
}

#[test]
fn claimed() {
    check(
        passing(),
        Ending::Complete,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED #14 "fix: ..."
            CLAIMED #14 label=in-progress verified=true
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": 14, "last_claimed_issue": 14, "consecutive_failures": 0, "last_failure_code": null, "backoff_seconds": 60 }
        "#]],
    );
}

#[test]
fn no_task() {
    check(
        first(3, [Reported::Selection(None)]),
        Ending::Complete,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
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
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": null, "last_claimed_issue": 1, "consecutive_failures": 0, "last_failure_code": "scheduler.no_tasks", "backoff_seconds": 60 }
        "#]],
    );
}

#[test]
fn governance_failure() {
    check(
        vec![Reported::Governance(Err(Violated { rule: Rule::Immutability, count: 2 }))],
        Ending::Complete,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=false rule=immutability
            ENV_VALID=skipped
            TASK_SELECTED none
            CLAIMED none
            ## Governance Compliance Report
            - governance_compliant: false
            - violations_detected: 2
            - enforcement_actions: task_rejected
            - failure_code: scheduler.governance_failed
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": null, "last_claimed_issue": 1, "consecutive_failures": 1, "last_failure_code": "scheduler.governance_failed", "backoff_seconds": 60 }
        "#]],
    );
}

#[test]
fn gate_refusal() {
    check(
        first(4, [Reported::Gate(violated(Rule::AllowedActions))]),
        Ending::Complete,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED #14 "fix: ..."
            GATE_VALID=false rule=allowed_actions
            CLAIMED none
            ## Governance Compliance Report
            - governance_compliant: false
            - violations_detected: 1
            - enforcement_actions: task_rejected
            - failure_code: scheduler.governance_failed
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": 14, "last_claimed_issue": 1, "consecutive_failures": 1, "last_failure_code": "scheduler.governance_failed", "backoff_seconds": 60 }
        "#]],
    );
}

#[test]
fn the_gate_may_still_refuse_while_the_claim_is_made() {
    let late = run(state(), first(5, [Reported::Gate(violated(Rule::AllowedActions))]), Ending::Complete);
    let early = run(state(), first(4, [Reported::Gate(violated(Rule::AllowedActions))]), Ending::Complete);
    assert_eq!(late, early);
}

#[test]
fn environment_failure() {
    let failures = ["environment.gitea.unreachable".to_owned(), "environment.labels.missing".to_owned()];
    check(
        first(1, [Reported::Environment(failures.to_vec())]),
        Ending::Complete,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=false failure=environment.gitea.unreachable,environment.labels.missing
            TASK_SELECTED none
            CLAIMED none
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            - failure_code: scheduler.environment_failed
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": null, "last_claimed_issue": 1, "consecutive_failures": 1, "last_failure_code": "scheduler.environment_failed", "backoff_seconds": 60 }
        "#]],
    );
}

#[test]
fn claim_failure() {
    check(
        first(5, [Reported::Claim { verified: false }]),
        Ending::Complete,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED #14 "fix: ..."
            CLAIMED #14 label=in-progress verified=false
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            - failure_code: scheduler.claim_failed
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": 14, "last_claimed_issue": 1, "consecutive_failures": 1, "last_failure_code": "scheduler.claim_failed", "backoff_seconds": 60 }
        "#]],
    );
}

#[test]
fn runtime_exceeded_and_exception() {
    check(
        first(3, []),
        Ending::RuntimeExceeded,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED none
            CLAIMED none
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            - failure_code: scheduler.runtime_exceeded
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": null, "last_claimed_issue": 1, "consecutive_failures": 1, "last_failure_code": "scheduler.runtime_exceeded", "backoff_seconds": 60 }
        "#]],
    );
    check(
        first(5, []),
        Ending::Exception,
        expect![[r#"
            CYCLE_START count=12 ts=2026-02-13T10:00:00Z
            STATE failures=0 backoff=60s last_claimed=1
            GOVERNANCE_VALID=true
            ENV_VALID=true
            TASK_SELECTED #14 "fix: ..."
            CLAIMED #14 label=in-progress verified=false
            ## Governance Compliance Report
            - governance_compliant: true
            - violations_detected: 0
            - enforcement_actions: none
            - failure_code: scheduler.exception
            SLEEP seconds=60
            { "cycle_count": 12, "last_cycle_utc": "2026-02-13T10:00:00Z", "last_selected_issue": 14, "last_claimed_issue": 1, "consecutive_failures": 1, "last_failure_code": "scheduler.exception", "backoff_seconds": 60 }
        "#]],
    );
}

/// However early it ends, every line is there once, in its order, and what was told stays told.
#[test]
fn all_lines_whenever_it_ends() {
    const HEADS: [&str; 10] = [
        "CYCLE_START ",
        "STATE ",
        "GOVERNANCE_VALID=",
        "ENV_VALID=",
        "TASK_SELECTED ",
        "CLAIMED ",
        "## Governance Compliance Report",
        "- governance_compliant: ",
        "- violations_detected: ",
        "- enforcement_actions: ",
    ];
    for steps in 0..=6 {
        for ending in [Ending::RuntimeExceeded, Ending::Exception] {
            let (lines, ended) = run(state(), first(steps, []), ending);
            assert_eq!(lines.len(), 12, "{lines:?}");
            for (line, head) in lines.iter().zip(HEADS) {
                assert!(line.starts_with(head), "{line}");
            }
            assert_eq!(lines[11], "SLEEP seconds=60");
            assert!(ended.code.is_some_and(FailureCode::is_failure));
            assert_eq!(ended.state.last_claimed_issue, Some(1));
        }
    }
    let (lines, _) = run(state(), Vec::new(), Ending::Exception);
    assert_eq!(lines[2..5], ["GOVERNANCE_VALID=skipped", "ENV_VALID=skipped", "TASK_SELECTED none"]);
}

#[test]
fn the_ladder() {
    let governance = || vec![Reported::Governance(violated(Rule::ContextLoading))];
    let no_task = || first(3, [Reported::Selection(None)]);
    let mut state = State::fresh(45);
    let mut slept = Vec::new();
    for _ in 0..12 {
        let (_, failed) = run(state, governance(), Ending::Complete);
        // A cycle without a task neither escalates nor resets.
        let (lines, idle) = run(failed.state.clone(), no_task(), Ending::Complete);
        assert_eq!(idle.sleep_secs, 60);
        assert_eq!(idle.state.consecutive_failures, failed.state.consecutive_failures);
        assert!(lines[1].ends_with(&format!("backoff={}s last_claimed=none", failed.sleep_secs)));
        slept.push(failed.sleep_secs);
        state = idle.state;
    }
    assert_eq!(slept, [60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 600, 600]);
    let (_, claimed) = run(state, passing(), Ending::Complete);
    assert_eq!((claimed.state.consecutive_failures, claimed.sleep_secs), (0, 60));
    let (_, failed) = run(claimed.state, governance(), Ending::Complete);
    assert_eq!(failed.sleep_secs, 60);
    let worn = State { consecutive_failures: u32::MAX, cycle_count: u64::MAX, ..State::fresh(60) };
    assert_eq!(run(worn, governance(), Ending::Complete).1.sleep_secs, 600);
}

#[test]
fn hostile_titles_stay_on_their_line() {
    for (title, wanted) in [
        ("a\nCLAIMED #1", r"a\nCLAIMED #1"),
        ("\u{1b}[2J\u{202e}", r"\u{1b}[2J\u{202e}"),
        (r#"say "x" \"#, r#"say \"x\" \\"#),
        ("$(rm -rf .) `id`", "$(rm -rf .) `id`"),
        ("a\u{2028}b\u{0}", r"a\u{2028}b\u{0}"),
    ] {
        let reports = first(3, [Reported::Selection(issue(title))]);
        let (lines, _) = run(state(), reports, Ending::Exception);
        assert_eq!(lines[4], format!("TASK_SELECTED #14 \"{wanted}\""));
        assert_eq!(lines.len(), 12);
    }
    let long = "x".repeat(1_000_000);
    let (lines, _) = run(state(), first(3, [Reported::Selection(issue(&long))]), Ending::Exception);
    assert!(lines[4].len() < 1_100);
}

#[test]
#[should_panic(expected = "Environment comes next")]
fn steps_are_taken_in_their_order() {
    let mut cycle = Cycle::begin(state(), settings(), UnixMillis::new(0));
    cycle.report(Reported::Governance(Ok(())));
    cycle.report(Reported::Started);
}

#[test]
fn the_same_for_programs() {
    let (_, ended) =
        run(state(), first(4, [Reported::Gate(violated(Rule::RoleSeparation))]), Ending::Complete);
    expect![[r#"{"count":12,"ts":"2026-02-13T10:00:00Z","state":{"failures":0,"backoffSeconds":60,"lastClaimed":1},"governance":{"valid":true},"environment":{"valid":true},"selected":{"number":14,"title":"fix: ..."},"gate":{"valid":false,"rule":"role_separation"},"report":{"governanceCompliant":false,"violationsDetected":1,"enforcementActions":"task_rejected","failureCode":"scheduler.governance_failed"},"sleepSeconds":60}"#]]
    .assert_eq(&serde_json::to_string(&ended.summary).unwrap_or_default());
}
