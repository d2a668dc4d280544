//! What the end of a command means for its task.

use rota_core::transition::{Command, FAILED_REASON, RateLimit};
use rota_core::{Caller, Json, LeaseId, Outcome};

use super::job::{Ended, JobEnd};
use crate::iteration::SHIM_STOPPED;
use crate::runner::process::{Meaning, in_words};

/// The word for a failure.
pub const FAILED: &str = "failed";
/// The word for an outcome that nobody wants any more.
pub const LATE: &str = "late";
const PARKED: &str = "parked";

/// An outcome: its name, what to say of it, and the step that settles the task.
pub struct Verdict {
    pub outcome: &'static str,
    pub detail: Option<String>,
    pub command: Command,
}

/// The word for what the journal says.
pub fn word(outcome: Outcome) -> &'static str {
    if outcome == Outcome::NeedsPerson { PARKED } else { outcome.word() }
}

impl Verdict {
    /// By the contract's table of exit codes.
    pub fn of(lease: &LeaseId, end: JobEnd) -> Self {
        let caller = Caller::lease(lease.clone());
        let said = end.last_error_line.as_deref();
        let status = match end.ended {
            Ok(Ended::Exited(status)) => status,
            Ok(Ended::Stopped) => return Self::interrupted(lease),
            Ok(Ended::ShimStopped) => return Self::failed(lease, SHIM_STOPPED.to_owned()),
            Ok(Ended::Lost) => return Self::failed(lease, "its shim was killed".to_owned()),
            Err(error) => return Self::failed(lease, format!("cannot be run: {error}")),
        };
        match Meaning::of(status) {
            Meaning::Done => {
                let line = end.last_line.as_deref();
                let result = line.and_then(|line| Json::parse(line).ok()).filter(Json::is_object);
                Self { outcome: "done", detail: None, command: Command::Done { caller, result } }
            }
            Meaning::RateLimited => {
                let command = Command::RateLimit { caller, limit: RateLimit::default() };
                Self { outcome: "rate_limited", detail: None, command }
            }
            Meaning::NeedsPerson => {
                Self::parked(lease, said.unwrap_or("the command asks for a person (exit code 77)").to_owned())
            }
            Meaning::Failed => {
                let words = in_words(status);
                Self::failed(lease, said.map_or(words.clone(), |line| format!("{words}: {line}")))
            }
        }
    }

    /// It goes back as if it had not been begun.
    pub fn interrupted(lease: &LeaseId) -> Self {
        let command = Command::Interrupt { caller: Caller::lease(lease.clone()) };
        Self { outcome: "interrupted", detail: None, command }
    }

    /// The same failure once too often.
    pub fn given_up(lease: &LeaseId, count: u32, last: &str) -> Self {
        Self::parked(lease, format!("failed {count} times under one rota work, last: {last}"))
    }

    fn failed(lease: &LeaseId, reason: String) -> Self {
        let caller = Caller::lease(lease.clone());
        let detail = Some(reason.clone());
        let command = Command::Fail { caller, reason: Some(reason), default_reason: FAILED_REASON };
        Self { outcome: FAILED, detail, command }
    }

    fn parked(lease: &LeaseId, reason: String) -> Self {
        let caller = Caller::lease(lease.clone());
        let detail = Some(reason.clone());
        Self { outcome: PARKED, detail, command: Command::Park { caller, reason } }
    }
}
