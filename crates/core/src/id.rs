//! Names of tasks, scopes and queues, validated at the boundary.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::text::Text;

/// Why a name is invalid; the message names the field and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The name is empty.
    #[error("{field} is empty")]
    Empty {
        /// The name's field.
        field: &'static str,
    },
    /// Longer than its limit.
    #[error("{field} is {bytes} bytes long, at most {limit} are allowed")]
    TooLong {
        /// The name's field.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest allowed length.
        limit: usize,
    },
    /// A control character, shown escaped.
    #[error("{field} has the control character {character} in '{given}'")]
    Control {
        /// The name's field.
        field: &'static str,
        /// The character, escaped.
        character: String,
        /// The whole name, escaped.
        given: String,
    },
    /// Would lead out of a folder, as a path.
    #[error("{field} '{given}' has the path step '..'")]
    PathStep {
        /// The name's field.
        field: &'static str,
        /// The name, escaped.
        given: String,
    },
    /// Would be read as a flag.
    #[error("{field} '{given}' begins with '-'")]
    Dash {
        /// The name's field.
        field: &'static str,
        /// The name, escaped.
        given: String,
    },
}

fn check(field: &'static str, text: &str, limit: usize) -> Result<(), BadName> {
    if text.is_empty() {
        return Err(BadName::Empty { field });
    }
    if text.len() > limit {
        return Err(BadName::TooLong { field, bytes: text.len(), limit });
    }
    if let Some(character) = text.chars().find(|character| character.is_control()) {
        let given = crate::text::escaped(text).into_owned();
        return Err(BadName::Control { field, character: character.escape_default().to_string(), given });
    }
    Ok(())
}

/// Validates a user-defined name: a category, an agent, a queue, a scope.
pub fn check_name(field: &'static str, text: &str) -> Result<(), BadName> {
    check(field, text, limits::NAME_BYTES)?;
    if text.starts_with('-') {
        return Err(BadName::Dash { field, given: crate::text::escaped(text).into_owned() });
    }
    Ok(())
}

/// The id of a task, unique within its scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct TaskId(Text);

impl TaskId {
    /// Validates an id from a user.
    pub fn new(text: &str) -> Result<Self, BadName> {
        const FIELD: &str = "task id";
        check(FIELD, text, limits::ID_BYTES)?;
        if text.starts_with('-') {
            return Err(BadName::Dash { field: FIELD, given: text.to_owned() });
        }
        if text.contains('/') && text.split('/').any(|step| step == "..") {
            return Err(BadName::PathStep { field: FIELD, given: crate::text::escaped(text).into_owned() });
        }
        Ok(Self(Text::from(text)))
    }

    /// Restores an id that was validated when it was stored.
    pub fn from_stored(text: Text) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        let long = "x".repeat(256);
        for good in ["a", "a..b", "..", "a/..b", "ü/ß", "a b", ".", long.as_str()] {
            assert!(TaskId::new(good).is_ok(), "{good}");
        }
        for (bad, message) in [
            ("", "task id is empty"),
            ("-x", "task id '-x' begins with '-'"),
            ("../etc", "task id '../etc' has the path step '..'"),
            ("a/../b", "task id 'a/../b' has the path step '..'"),
            ("a/..", "task id 'a/..' has the path step '..'"),
            ("a\nb", r"task id has the control character \n in 'a\nb'"),
            ("a\u{1b}[2J", r"task id has the control character \u{1b} in 'a\u{1b}[2J'"),
            ("a\0", r"task id has the control character \u{0} in 'a\u{0}'"),
        ] {
            assert_eq!(TaskId::new(bad).map_err(|error| error.to_string()), Err(message.to_owned()));
        }
        let error = TaskId::new(&"x".repeat(10_000)).map_err(|error| error.to_string());
        assert_eq!(error, Err("task id is 10000 bytes long, at most 256 are allowed".to_owned()));
    }
}
