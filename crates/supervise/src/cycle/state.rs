//! What the supervisor keeps between cycles: the seven fields of its state file, and nothing else.

use serde::{Deserialize, Serialize};

use rota_core::UnixMillis;
use rota_core::supervisor::{FailureCode, Standing};

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
    Time(#[from] rota_core::time::BadTime),
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
                given: rota_core::text::escaped(&given).chars().take(80).collect(),
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

    /// The state as readers are shown it; `running` tells whether a process holds the file's lock.
    pub fn standing(&self, running: bool) -> Standing {
        Standing {
            cycle_count: self.cycle_count,
            last_cycle_at: self.last_cycle_utc,
            last_claimed_issue: self.last_claimed_issue,
            consecutive_failures: self.consecutive_failures,
            last_failure_code: self.last_failure_code.map(|code| code.word().to_owned()),
            backoff_seconds: self.backoff_seconds,
            running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standings_in_words() {
        let fresh = State::fresh(60).standing(false);
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
            state.standing(true).in_words(),
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
