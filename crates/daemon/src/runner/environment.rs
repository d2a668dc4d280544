//! What a program sees of our environment: an allow list, what the configuration sets, and Rota's own words.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables that agents and their tools read their keys from.
const WELL_KNOWN_KEYS: [&str; 19] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CURSOR_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
];

/// A whole environment.
pub type Environment = BTreeMap<OsString, OsString>;

/// Those of our variables that an allow list names. A name may end in `*`.
pub fn passed(allowed: &[String], ours: impl Iterator<Item = (OsString, OsString)>) -> Environment {
    let admits = |name: &str| {
        allowed.iter().any(|rule| match rule.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => rule == name,
        })
    };
    ours.filter(|(name, _)| name.to_str().is_some_and(admits)).collect()
}

/// The well-known keys that are set here and not passed on: a command that needs one would fail for no visible reason.
pub fn dropped_keys(
    passed: &Environment,
    ours: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<&'static str> {
    let ours: Environment = ours.filter(|(_, value)| !value.is_empty()).collect();
    let is_dropped = |name: &&str| {
        let name = std::ffi::OsStr::new(name);
        ours.contains_key(name) && !passed.contains_key(name)
    };
    WELL_KNOWN_KEYS.into_iter().filter(is_dropped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_passes() {
        let ours =
            [("PATH", "/bin"), ("LC_ALL", "C"), ("ANTHROPIC_API_KEY", "k"), ("LC", "x"), ("PATHS", "y")];
        let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let seen = passed(&["PATH".into(), "LC_*".into()], ours.into_iter());
        let names: Vec<&str> = seen.keys().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn keys_that_are_set_and_not_passed_are_named() {
        let variables = |given: &[(&str, &str)]| -> Environment {
            given.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let ours =
            variables(&[("OPENAI_API_KEY", "k"), ("GH_TOKEN", ""), ("XAI_API_KEY", "k"), ("PATH", "p")]);
        let passed = variables(&[("PATH", "p"), ("XAI_API_KEY", "k")]);
        assert_eq!(dropped_keys(&passed, ours.into_iter()), ["OPENAI_API_KEY"]);
    }
}
