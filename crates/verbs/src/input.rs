//! Reads what callers write as text, so that every interface refuses the same thing in the same words.

use std::str::FromStr;

use rota_core::UnixMillis;
use rota_core::text::escaped;
use serde_json::Value;

use crate::Result;
use crate::context::bad_value;

/// A whole number from 0, in the words of `rota task`.
pub fn count<T: FromStr>(name: &str, text: &str) -> Result<T> {
    let problem = || format!("{name} must be a non-negative integer, got: {}", escaped(text));
    Ok(digits(text).ok_or_else(|| bad_value(problem()))?)
}

/// The same in the words of `rota queue` and `rota sched`.
pub fn number<T: FromStr>(flag: &str, text: &str) -> Result<T> {
    Ok(digits(text).ok_or_else(|| bad_value(not_a_number(flag, text)))?)
}

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

    fn said<T: std::fmt::Debug>(result: Result<T>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn numbers_in_both_words() {
        for (text, task, sched) in [
            ("0", "0", "0"),
            ("42", "42", "42"),
            (
                "-1",
                "--lease must be a non-negative integer, got: -1",
                "Invalid --limit \"-1\": expected a number (e.g. --limit 4)",
            ),
            (
                "+1",
                "--lease must be a non-negative integer, got: +1",
                "Invalid --limit \"+1\": expected a number (e.g. --limit 4)",
            ),
            (
                "",
                "--lease must be a non-negative integer, got: ",
                "Invalid --limit \"\": expected a number (e.g. --limit 4)",
            ),
            (
                "4294967296",
                "--lease must be a non-negative integer, got: 4294967296",
                "Invalid --limit \"4294967296\": expected a number (e.g. --limit 4)",
            ),
        ] {
            assert_eq!(said(count::<u32>("--lease", text)), task);
            assert_eq!(said(number::<u32>("limit", text)), sched);
        }
    }

    #[test]
    fn blank_globs_are_none() {
        assert_eq!(globs(Some(" ".into())), None);
        assert_eq!(globs(Some("a*".into())), Some("a*".into()));
    }
}
