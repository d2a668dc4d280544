//! The lines of a cycle, and the same as data.

use serde::Serialize;

use super::{Cycle, FailureCode, Rule, State};

/// Titles are cut after so many characters.
const TITLE_CHARS: usize = 1_000;

/// One cycle for programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the lines")]
pub struct Summary {
    pub count: u64,
    pub ts: String,
    pub state: StateBefore,
    pub governance: Validity,
    pub environment: Validity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected: Option<SelectedIssue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Validity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<ClaimedIssue>,
    pub report: Compliance,
    pub sleep_seconds: u64,
}

/// As the cycle found it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the line")]
pub struct StateBefore {
    pub failures: u32,
    pub backoff_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_claimed: Option<u64>,
}

/// What a validation came to; without `valid` it was not reached.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the fields are those of the lines")]
pub struct Validity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// What was selected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[allow(missing_docs, reason = "the fields are those of the line")]
pub struct SelectedIssue {
    pub number: u64,
    pub title: String,
}

/// What came of the claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[allow(missing_docs, reason = "the fields are those of the line")]
pub struct ClaimedIssue {
    pub number: u64,
    pub label: String,
    pub verified: bool,
}

/// The compliance report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the block")]
pub struct Compliance {
    pub governance_compliant: bool,
    pub violations_detected: u32,
    pub enforcement_actions: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<&'static str>,
}

/// The lines up to the first step that nobody has reported.
pub(super) fn certain(cycle: &Cycle) -> Vec<String> {
    let mut lines = opening(cycle);
    let Some(governance) = cycle.governance else { return lines };
    lines.push(governance_line(Some(governance)));
    let Some(failures) = &cycle.environment else { return lines };
    lines.push(environment_line(Some(failures)));
    let Some(_) = &cycle.selection else { return lines };
    lines.push(selection_line(cycle));
    lines.extend(gate_line(cycle));
    if cycle.claim.is_some() {
        lines.push(claim_line(cycle));
    }
    lines
}

/// Every line of a cycle that has ended.
pub(super) fn all(cycle: &Cycle, code: Option<FailureCode>, sleep_secs: u64) -> Vec<String> {
    let mut lines = opening(cycle);
    lines.push(governance_line(cycle.governance));
    lines.push(environment_line(cycle.environment.as_deref()));
    lines.push(selection_line(cycle));
    lines.extend(gate_line(cycle));
    lines.push(claim_line(cycle));
    let report = compliance(cycle, code);
    lines.push("## Governance Compliance Report".to_owned());
    lines.push(format!("- governance_compliant: {}", report.governance_compliant));
    lines.push(format!("- violations_detected: {}", report.violations_detected));
    lines.push(format!("- enforcement_actions: {}", report.enforcement_actions));
    lines.extend(report.failure_code.map(|code| format!("- failure_code: {code}")));
    lines.push(format!("SLEEP seconds={sleep_secs}"));
    lines
}

pub(super) fn summary(cycle: &Cycle, code: Option<FailureCode>, sleep_secs: u64) -> Summary {
    let verdict = |verdict: Option<Result<(), super::Violated>>| Validity {
        valid: verdict.map(|verdict| verdict.is_ok()),
        rule: verdict.and_then(Result::err).map(|violated| violated.rule),
        failures: Vec::new(),
    };
    Summary {
        count: cycle.before.cycle_count.saturating_add(1),
        ts: cycle.started_at.to_seconds_text(),
        state: StateBefore {
            failures: cycle.before.consecutive_failures,
            backoff_seconds: cycle.before.backoff_seconds,
            last_claimed: cycle.before.last_claimed_issue,
        },
        governance: verdict(cycle.governance),
        environment: Validity {
            valid: cycle.environment.as_ref().map(Vec::is_empty),
            rule: None,
            failures: cycle.environment.clone().unwrap_or_default(),
        },
        selected: cycle
            .selected()
            .map(|issue| SelectedIssue { number: issue.number, title: cut(&issue.title) }),
        gate: cycle.gate.map(|gate| verdict(Some(gate))),
        claimed: claimed(cycle).map(|(number, verified)| ClaimedIssue {
            number,
            label: cycle.settings.claim_label.clone(),
            verified,
        }),
        report: compliance(cycle, code),
        sleep_seconds: sleep_secs,
    }
}

fn opening(cycle: &Cycle) -> Vec<String> {
    let State { cycle_count, consecutive_failures, backoff_seconds, last_claimed_issue, .. } = &cycle.before;
    let last_claimed = last_claimed_issue.map_or("none".to_owned(), |number| number.to_string());
    vec![
        format!(
            "CYCLE_START count={} ts={}",
            cycle_count.saturating_add(1),
            cycle.started_at.to_seconds_text()
        ),
        format!(
            "STATE failures={consecutive_failures} backoff={backoff_seconds}s last_claimed={last_claimed}"
        ),
    ]
}

fn governance_line(verdict: Option<Result<(), super::Violated>>) -> String {
    match verdict {
        None => "GOVERNANCE_VALID=skipped".to_owned(),
        Some(Ok(())) => "GOVERNANCE_VALID=true".to_owned(),
        Some(Err(violated)) => format!("GOVERNANCE_VALID=false rule={}", violated.rule.word()),
    }
}

fn environment_line(failures: Option<&[String]>) -> String {
    match failures {
        None => "ENV_VALID=skipped".to_owned(),
        Some([]) => "ENV_VALID=true".to_owned(),
        Some(failures) => format!("ENV_VALID=false failure={}", failures.join(",")),
    }
}

fn selection_line(cycle: &Cycle) -> String {
    cycle.selected().map_or("TASK_SELECTED none".to_owned(), |issue| {
        format!("TASK_SELECTED #{} \"{}\"", issue.number, quoted(&issue.title))
    })
}

fn gate_line(cycle: &Cycle) -> Option<String> {
    let violated = cycle.gate?.err()?;
    Some(format!("GATE_VALID=false rule={}", violated.rule.word()))
}

fn claim_line(cycle: &Cycle) -> String {
    claimed(cycle).map_or("CLAIMED none".to_owned(), |(number, verified)| {
        format!("CLAIMED #{number} label={} verified={verified}", shown_label(&cycle.settings.claim_label))
    })
}

/// A claim that was begun and not finished is not verified.
fn claimed(cycle: &Cycle) -> Option<(u64, bool)> {
    let issue = cycle.selected()?;
    matches!(cycle.gate, Some(Ok(()))).then_some((issue.number, cycle.claim == Some(true)))
}

fn compliance(cycle: &Cycle, code: Option<FailureCode>) -> Compliance {
    let violated = cycle.violated();
    Compliance {
        governance_compliant: cycle.governance == Some(Ok(())) && violated.is_none(),
        violations_detected: violated.map_or(0, |violated| violated.count),
        enforcement_actions: if violated.is_some() { "task_rejected" } else { "none" },
        failure_code: code.map(FailureCode::word),
    }
}

fn cut(title: &str) -> String {
    match title.char_indices().nth(TITLE_CHARS) {
        Some((end, _)) => format!("{}…", &title[..end]),
        None => title.to_owned(),
    }
}

/// One line between quotes that nothing in it can end.
fn quoted(title: &str) -> String {
    let marked = cut(title).replace('\\', "\\\\").replace('"', "\\\"");
    rota_core::text::escaped(&marked).into_owned()
}

fn shown_label(label: &str) -> String {
    rota_core::text::escaped(label).into_owned()
}
