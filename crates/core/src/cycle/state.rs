//! What the supervisor keeps between cycles: the seven fields of its state file, and nothing else.

use serde::{Deserialize, Serialize};

use super::FailureCode;
use crate::time::UnixMillis;

/// The state file. A field that is missing, unknown or of another type makes the whole file unreadable: it is never
/// guessed at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Cycles that have ended.
    pub cycle_count: u64,
    /// When the last one began.
    pub last_cycle_utc: Option<UnixMillis>,
    /// What it selected.
    pub last_selected_issue: Option<u64>,
    /// What was claimed last.
    pub last_claimed_issue: Option<u64>,
    /// Failures in a row.
    pub consecutive_failures: u32,
    /// Why the last cycle claimed nothing.
    pub last_failure_code: Option<FailureCode>,
    /// How long it slept.
    pub backoff_seconds: u64,
}

/// A text that is no state.
#[derive(Debug, thiserror::Error)]
pub enum BadState {
    /// It is not JSON, or has other fields.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A time that is none.
    #[error("last_cycle_utc: {0}")]
    Time(#[from] crate::time::BadTime),
    /// A failure code that there is not.
    #[error("last_failure_code: unknown code '{given}'")]
    UnknownCode {
        /// What it says.
        given: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    cycle_count: u64,
    #[serde(deserialize_with = "required")]
    last_cycle_utc: Option<String>,
    #[serde(deserialize_with = "required")]
    last_selected_issue: Option<u64>,
    #[serde(deserialize_with = "required")]
    last_claimed_issue: Option<u64>,
    consecutive_failures: u32,
    #[serde(deserialize_with = "required")]
    last_failure_code: Option<String>,
    backoff_seconds: u64,
}

/// Null is a value; a field that is not there is a mistake.
fn required<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

impl State {
    /// Before the first cycle.
    pub const fn fresh(interval_secs: u64) -> Self {
        Self {
            cycle_count: 0,
            last_cycle_utc: None,
            last_selected_issue: None,
            last_claimed_issue: None,
            consecutive_failures: 0,
            last_failure_code: None,
            backoff_seconds: interval_secs,
        }
    }

    /// Reads a state file.
    pub fn parse(text: &str) -> Result<Self, BadState> {
        let written: Written = serde_json::from_str(text)?;
        let time = |text: String| text.parse::<UnixMillis>();
        let code = |given: String| {
            FailureCode::from_word(&given).ok_or_else(|| BadState::UnknownCode {
                given: crate::text::escaped(&given).chars().take(80).collect(),
            })
        };
        Ok(Self {
            cycle_count: written.cycle_count,
            last_cycle_utc: written.last_cycle_utc.map(time).transpose()?,
            last_selected_issue: written.last_selected_issue,
            last_claimed_issue: written.last_claimed_issue,
            consecutive_failures: written.consecutive_failures,
            last_failure_code: written.last_failure_code.map(code).transpose()?,
            backoff_seconds: written.backoff_seconds,
        })
    }

    /// The text of the state file.
    pub fn to_text(&self) -> String {
        let written = Written {
            cycle_count: self.cycle_count,
            last_cycle_utc: self.last_cycle_utc.map(UnixMillis::to_seconds_text),
            last_selected_issue: self.last_selected_issue,
            last_claimed_issue: self.last_claimed_issue,
            consecutive_failures: self.consecutive_failures,
            last_failure_code: self.last_failure_code.map(|code| code.word().to_owned()),
            backoff_seconds: self.backoff_seconds,
        };
        match serde_json::to_string_pretty(&written) {
            Ok(text) => text + "\n",
            Err(error) => panic!("a state is not JSON: {error}"),
        }
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
    /// What a state file and its lock say.
    pub fn of(state: &State, running: bool) -> Self {
        Self {
            cycle_count: state.cycle_count,
            last_cycle_at: state.last_cycle_utc,
            last_claimed_issue: state.last_claimed_issue,
            consecutive_failures: state.consecutive_failures,
            last_failure_code: state.last_failure_code.map(|code| code.word().to_owned()),
            backoff_seconds: state.backoff_seconds,
            running,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standings_in_words() {
        let fresh = Standing::of(&State::fresh(60), false);
        assert_eq!(fresh.in_words(), "supervisor does not run: 0 cycles");
        let state = State {
            cycle_count: 1,
            last_cycle_utc: Some(UnixMillis::new(1_770_976_800_000)),
            last_selected_issue: None,
            last_claimed_issue: Some(14),
            consecutive_failures: 2,
            last_failure_code: Some(FailureCode::ClaimFailed),
            backoff_seconds: 120,
        };
        assert_eq!(
            Standing::of(&state, true).in_words(),
            "supervisor runs: 1 cycle, the last at 2026-02-13T10:00:00Z, last claimed #14, scheduler.claim_failed, \
             2 failed in a row, waits 120 s"
        );
    }

    #[test]
    fn states_read_back_and_nothing_else_is_read() {
        let state = State {
            cycle_count: 12,
            last_cycle_utc: Some(UnixMillis::new(1_770_976_800_000)),
            last_selected_issue: Some(14),
            last_claimed_issue: None,
            consecutive_failures: 3,
            last_failure_code: Some(FailureCode::ClaimFailed),
            backoff_seconds: 180,
        };
        let text = state.to_text();
        assert_eq!(
            text,
            "{\n  \"cycle_count\": 12,\n  \"last_cycle_utc\": \"2026-02-13T10:00:00Z\",\n  \
             \"last_selected_issue\": 14,\n  \"last_claimed_issue\": null,\n  \"consecutive_failures\": 3,\n  \
             \"last_failure_code\": \"scheduler.claim_failed\",\n  \"backoff_seconds\": 180\n}\n"
        );
        assert_eq!(State::parse(&text).ok().as_ref(), Some(&state));
        let fresh = State::fresh(60);
        assert_eq!(State::parse(&fresh.to_text()).ok().as_ref(), Some(&fresh));
        for (from, to) in [
            ("12", "-1"),
            ("\"cycle_count\": 12,", ""),
            ("\"last_claimed_issue\": null,", ""),
            ("null", "\"x\""),
            ("2026-02-13T10:00:00Z", "yesterday"),
            ("claim_failed", "tired"),
            ("180\n}", "180,\n  \"more\": 1\n}"),
            ("180\n}\n", "180"),
            ("180", "1e999"),
        ] {
            let bad = text.replacen(from, to, 1);
            assert_ne!(bad, text, "{from}");
            assert!(State::parse(&bad).is_err(), "{bad}");
        }
        assert!(State::parse("").is_err());
    }
}
