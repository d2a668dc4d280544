//! `rota supervise check` and `rota supervise pin`: looks at a supervisor, or sets its pin, without a cycle.
#![allow(missing_docs, reason = "the names say it")]

use rota_store::intents::Call;
use rota_store::intents::issues::{PinGovernance, ReadRecord};
use rota_store::{Error, Store};
use serde::Serialize;

use crate::environment::{self, Check};
use crate::sources::Source;
use crate::{Shared, governance};

/// Whether a cycle would get past its validations.
#[derive(Serialize)]
pub struct CheckReport {
    pub valid: bool,
    pub failures: Vec<String>,
    pub governance: GovernanceCheck,
    pub checks: Vec<Check>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GovernanceCheck {
    pub valid: bool,
    pub is_pinned: bool,
    pub violations: Vec<RuleViolation>,
}

#[derive(Serialize)]
pub struct RuleViolation {
    pub rule: &'static str,
    pub message: String,
}

/// Validates governance files and surroundings; changes nothing.
pub async fn check<S: Source>(shared: &Shared<S>) -> CheckReport {
    let record = ReadRecord { call: shared.call.clone(), source: shared.source.key() };
    let record = shared.store.perform(&record).await;
    let pin = record.ok().flatten().and_then(|record| record.pin);
    let violations = match governance::load(&shared.folder, &shared.config.governance) {
        Ok(found) => pin.as_ref().map_or(Vec::new(), |pin| governance::compare(pin, &found)),
        Err(violations) => violations,
    };
    let violations = violations
        .into_iter()
        .map(|violation| RuleViolation { rule: violation.rule.word(), message: violation.message });
    let violations: Vec<RuleViolation> = violations.collect();
    let governance = GovernanceCheck { valid: violations.is_empty(), is_pinned: pin.is_some(), violations };
    let checks = environment::validate(shared).await;
    let valid = governance.valid && checks.iter().all(|check| check.ok);
    CheckReport { valid, failures: environment::codes(&checks), governance, checks }
}

/// The governance files as pinned.
#[derive(Serialize)]
pub struct Pinned {
    pub governance: String,
    pub files: Vec<PinnedFile>,
}

#[derive(Serialize)]
pub struct PinnedFile {
    pub path: String,
    pub sha256: String,
}

/// Why the governance files were not pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("nothing was pinned: {0}")]
    Governance(String),
    #[error(transparent)]
    Store(#[from] Error),
}

/// Pins the governance files as they are now, in place of an earlier pin.
pub async fn pin<S: Source>(shared: &Shared<S>, actor: Option<String>) -> Result<Pinned, PinError> {
    let files = governance::load(&shared.folder, &shared.config.governance).map_err(|violations| {
        let problems: Vec<String> = violations.into_iter().map(|violation| violation.message).collect();
        PinError::Governance(problems.join("; "))
    })?;
    let pin = PinGovernance {
        call: Call { actor, ..shared.call.clone() },
        source: shared.source.key(),
        files,
        only_first: false,
        reason: "rota supervise pin".to_owned(),
    };
    let files = shared.store.perform(&pin).await?.files;
    Ok(Pinned {
        governance: governance::hash_of_all(&files),
        files: files.into_iter().map(|(path, sha256)| PinnedFile { path, sha256 }).collect(),
    })
}
