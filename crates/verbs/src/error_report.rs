//! How a verb that did not do it says so: the same message, hint and codes on every interface.

use rota_core::text::escaped;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Word};

/// What kind of thing is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Nature {
    /// Declined, and nothing was changed.
    Refusal,
    /// There is nothing to do, or not yet: an answer rather than a mistake.
    Answer,
    /// The world failed.
    Fault,
}

/// What is told about a refusal or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// One line, control characters escaped.
    pub message: String,
    /// More than the one line, where there is more.
    pub hint: Option<String>,
    /// A stable word.
    pub code: Word,
    /// How a program ends with it.
    pub exit_code: u8,
    /// Declined, answered, or failed.
    pub nature: Nature,
}

impl Said {
    /// About an error.
    pub fn of(error: &Error) -> Self {
        let message = escaped(&error.to_string()).into_owned();
        match error {
            Error::Refused(refusal) => Self {
                message,
                hint: refusal.hint().map(|hint| escaped(&hint).into_owned()),
                code: refusal.code().into(),
                exit_code: refusal.exit_code(),
                nature: if refusal.is_answer() { Nature::Answer } else { Nature::Refusal },
            },
            Error::Fault(fault) => {
                let (code, exit_code) = (fault.code().into(), fault.exit_code());
                Self { message, hint: None, code, exit_code, nature: Nature::Fault }
            }
        }
    }

    /// As `queue` and `sched` say it: one line, and every refusal is exit code 1. A store that fails keeps its code.
    pub fn in_one_line(error: &Error) -> Self {
        let said = Self::of(error);
        let exit_code = if matches!(error, Error::Refused(_)) { 1 } else { said.exit_code };
        Self { hint: None, exit_code, ..said }
    }

    /// Whether the world failed.
    pub fn is_fault(&self) -> bool {
        self.nature == Nature::Fault
    }

    /// The message, and the hint on a line of its own.
    pub fn lines(&self) -> String {
        let hint = self.hint.as_ref().map_or(String::new(), |hint| format!("  {hint}\n"));
        format!("{}\n{hint}", self.message)
    }
}
