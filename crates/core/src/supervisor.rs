//! The supervisor's vocabulary: the words that its cycles, `rota.yml`, the metrics and the notifications share.

use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;

/// A rule of governance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A governance file cannot be read.
    ContextLoading,
    /// The governance files are not those that were pinned.
    Immutability,
    /// The instruction mixes roles.
    RoleSeparation,
    /// The instruction asks for an action that is not allowed.
    AllowedActions,
    /// The instruction is not deterministic.
    DeterministicBehavior,
    /// The expected outcome is missing.
    PreComputation,
}

impl Rule {
    /// The word in lines and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ContextLoading => "context_loading",
            Self::Immutability => "immutability",
            Self::RoleSeparation => "role_separation",
            Self::AllowedActions => "allowed_actions",
            Self::DeterministicBehavior => "deterministic_behavior",
            Self::PreComputation => "pre_computation",
        }
    }
}

/// How a cycle ended without a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureCode {
    /// The governance files or the instruction violate a rule.
    GovernanceFailed,
    /// The environment is invalid.
    EnvironmentFailed,
    /// There is nothing to select; not a failure.
    NoTasks,
    /// The claim could not be verified.
    ClaimFailed,
    /// The cycle took too long.
    RuntimeExceeded,
    /// Any other failure.
    Exception,
}

impl FailureCode {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::GovernanceFailed,
        Self::EnvironmentFailed,
        Self::NoTasks,
        Self::ClaimFailed,
        Self::RuntimeExceeded,
        Self::Exception,
    ];

    /// The word in lines and in the state file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::GovernanceFailed => "scheduler.governance_failed",
            Self::EnvironmentFailed => "scheduler.environment_failed",
            Self::NoTasks => "scheduler.no_tasks",
            Self::ClaimFailed => "scheduler.claim_failed",
            Self::RuntimeExceeded => "scheduler.runtime_exceeded",
            Self::Exception => "scheduler.exception",
        }
    }

    /// Parses the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.word() == word)
    }

    /// Whether the backoff grows with it.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::NoTasks)
    }
}

/// Where a supervisor's cycles stand, for people and programs that ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the state file")]
pub struct Standing {
    pub cycle_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cycle_at: Option<UnixMillis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_claimed_issue: Option<u64>,
    pub consecutive_failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_code: Option<String>,
    pub backoff_seconds: u64,
    /// Whether a process holds the lock of the state file.
    pub running: bool,
}

impl Standing {
    /// One line for a person.
    pub fn in_words(&self) -> String {
        let state = if self.running { "runs" } else { "does not run" };
        let cycles = if self.cycle_count == 1 { "cycle" } else { "cycles" };
        let mut text = format!("supervisor {state}: {} {cycles}", self.cycle_count);
        if let Some(at) = self.last_cycle_at {
            text.push_str(&format!(", the last at {}", at.to_seconds_text()));
        }
        if let Some(number) = self.last_claimed_issue {
            text.push_str(&format!(", last claimed #{number}"));
        }
        if let Some(code) = &self.last_failure_code {
            text.push_str(&format!(", {code}"));
        }
        if self.consecutive_failures > 0 {
            let (count, wait) = (self.consecutive_failures, self.backoff_seconds);
            text.push_str(&format!(", {count} failed in a row, waits {wait} s"));
        }
        text
    }
}
