//! The values that verbs take. Each type has its bounds, and one message for a value outside of them. The command line
//! parses it with [`FromStr`], HTTP and MCP deserialize it, and its JSON Schema states the bounds: so every interface
//! refuses the same values in the same words.

mod number;
mod text;

pub use number::{Count, EntryLimit, EntryPriority, LoopPriority, Priority, Seconds};
pub(crate) use text::description;
pub use text::{
    AgentId, App, Category, EntryId, EntryStatus, Host, Id, IdOrNone, Ids, IssueNumber, JournalCursor, Kind,
    LEASE, Label, LeaseName, LoopStatuses, Path, QueueName, Reason, Reference, ResultObject, Rule, RunId,
    SpecRef, Steps, TaskStatus, TaskStatuses, Time, Title, TitleOrNone, Workflow,
};

use std::cell::RefCell;
use std::str::FromStr;

use rota_core::id::BadName;
use rota_core::text::escaped;
use rota_core::{Refusal, UnixMillis};
use serde::Deserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

use crate::context::bad_value;
use crate::{Error, Result};

/// Why a value was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BadInput {
    /// It is not of its type: on the command line, a usage error.
    #[error("{0}")]
    Malformed(String),
    /// It is of its type, but outside of its bounds.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

impl From<Refusal> for BadInput {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<BadName> for BadInput {
    fn from(bad: BadName) -> Self {
        Refusal::from(bad).into()
    }
}

impl From<BadInput> for Refusal {
    fn from(bad: BadInput) -> Self {
        match bad {
            BadInput::Malformed(problem) => bad_value(problem),
            BadInput::Refused(refusal) => *refusal,
        }
    }
}

impl From<BadInput> for Error {
    fn from(bad: BadInput) -> Self {
        Refusal::from(bad).into()
    }
}

/// Why no input was read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// A field is missing, unknown, or of another JSON type.
    #[error(transparent)]
    Shape(serde_json::Error),
    /// A value was not accepted.
    #[error(transparent)]
    Refused(Error),
}

thread_local! {
    /// serde errors carry only text, so the refusal that caused one is kept here until [`read`] takes it.
    static REFUSED: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// Reads an input from JSON.
pub fn read<V: DeserializeOwned>(json: &str) -> std::result::Result<V, Unread> {
    REFUSED.take();
    serde_json::from_str(json).map_err(|error| match REFUSED.take() {
        Some(refusal) => Unread::Refused(refusal.into()),
        None => Unread::Shape(error),
    })
}

/// Fails a deserialization with a refusal that [`read`] reports.
fn refuse<E: serde::de::Error>(bad: BadInput) -> E {
    let error = E::custom(&bad);
    REFUSED.set(Some(bad.into()));
    error
}

/// Deserializes a JSON string by the type's [`FromStr`].
fn deserialize_text<'de, T, D>(deserializer: D) -> std::result::Result<T, D::Error>
where
    T: FromStr<Err = BadInput>,
    D: Deserializer<'de>,
{
    let text: String = serde::Deserialize::deserialize(deserializer)?;
    if text.contains('\0') {
        return Err(D::Error::custom("a text contains a NUL character"));
    }
    text.parse().map_err(refuse)
}

/// A whole number from 0, in the words of `rota task`.
pub fn count<T: FromStr>(name: &str, text: &str) -> std::result::Result<T, BadInput> {
    digits(text).ok_or_else(|| BadInput::Malformed(not_an_integer(name, text)))
}

fn not_an_integer(name: &str, text: &str) -> String {
    format!("{name} must be a non-negative integer, got: {}", escaped(text))
}

/// The same in the words of `rota queue` and `rota sched`.
pub(crate) fn not_a_number(flag: &str, text: &str) -> String {
    format!("Invalid --{flag} \"{}\": expected a number (e.g. --{flag} 4)", escaped(text))
}

/// No sign, no blanks: only what `parse` takes and a person would write.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// The time that replaces the store's clock.
pub fn now(text: &str) -> Result<UnixMillis> {
    Ok(text.parse().map_err(|error| bad_value(format!("--now: {error}")))?)
}

/// Globs on specs; a blank list is none given.
pub fn globs(text: Option<String>) -> Option<String> {
    text.filter(|globs| !globs.trim().is_empty())
}

/// Refuses a text, or a list of texts, that contains NUL: PostgreSQL has no place for it, and no store takes what another
/// one cannot. Objects are kept as JSON, where it is an escape like any other.
pub fn without_nul(name: &str, value: &Value) -> Result<()> {
    let has_nul = |value: &Value| value.as_str().is_some_and(|text| text.contains('\0'));
    let found = match value {
        Value::Array(values) => values.iter().any(has_nul),
        value => has_nul(value),
    };
    if found {
        return Err(bad_value(format!("{} contains a NUL character", escaped(name))).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<T: FromStr<Err = BadInput> + std::fmt::Debug>(text: &str) -> String {
        text.parse::<T>().map_or_else(|bad| bad.to_string(), |value| format!("{value:?}"))
    }

    #[test]
    fn numbers_on_the_command_line() {
        for text in ["-1", "+1", "", "x", "1.5", " 1", "99999999999999999999"] {
            assert_eq!(told::<Seconds>(text), format!("--lease must be a non-negative integer, got: {text}"));
            let sched = format!("Invalid --limit \"{text}\": expected a number (e.g. --limit 4)");
            assert_eq!(told::<EntryLimit>(text), sched);
        }
        assert_eq!(
            told::<Priority>("4294967296"),
            "-p (priority) must be a non-negative integer, got: 4294967296"
        );
        assert_eq!(told::<Seconds>("42"), "Seconds(42)");
    }

    #[test]
    fn numbers_in_json() {
        let read = |json: &str| match read::<Seconds>(json) {
            Ok(seconds) => seconds.get().to_string(),
            Err(Unread::Refused(error)) => error.to_string(),
            Err(Unread::Shape(error)) => format!("shape: {error}"),
        };
        for (json, expected) in [
            ("60", "60"),
            ("60.0", "60"),
            ("-1", "--lease must be a non-negative integer, got: -1"),
            ("1.5", "--lease must be a non-negative integer, got: 1.5"),
            ("\"x\"", "--lease must be a non-negative integer, got: x"),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
        assert!(read("true").starts_with("shape: "));
    }

    #[test]
    fn a_refusal_keeps_its_code() {
        let code = |json: &str| match read::<Id>(json) {
            Err(Unread::Refused(Error::Refused(refusal))) => refusal.code(),
            _ => "none",
        };
        assert_eq!(code("\"-x\""), "bad_name");
        assert_eq!(code("\"x\""), "none");
    }

    #[test]
    fn blank_globs_are_none() {
        assert_eq!(globs(Some(" ".into())), None);
        assert_eq!(globs(Some("a*".into())), Some("a*".into()));
    }
}
