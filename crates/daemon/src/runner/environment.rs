//! What a program sees of our environment: an allow list, what the configuration sets, and Rota's own words.

use std::collections::BTreeMap;
use std::ffi::OsString;

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
}
