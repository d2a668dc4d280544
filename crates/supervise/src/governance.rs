//! The governance files and what follows from them. They are read, hashed and compared with the pin; never written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::cycle::{Rule, Violated, instruction};
use regex::Regex;
use rota_core::UnixMillis;
use serde::Serialize;
use serde_json::json;
use sha2::Digest;

use rota_daemon::config::GovernanceConfig;
use rota_daemon::files::read_beneath;

/// No governance file is longer.
const FILE_BYTES: u64 = 16 * 1_024 * 1_024;

/// The governance files, by path, with their SHA-256.
pub type Files = BTreeMap<String, String>;

/// One violation, as it is logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What happened, in a line.
    pub message: String,
    /// What it happened to.
    pub context: serde_json::Value,
}

/// One line of the log; the keys are in their order.
#[derive(Serialize)]
struct Line<'a> {
    context: &'a serde_json::Value,
    message: &'a str,
    rule: Rule,
    severity: &'static str,
    timestamp: String,
}

/// Reads the governance files, every one of them a regular file that no link leads to.
pub fn load(folder: &Path, config: &GovernanceConfig) -> Result<Files, Vec<Violation>> {
    let (mut files, mut violations) = (Files::new(), Vec::new());
    for path in &config.files {
        match read_beneath(folder, path, FILE_BYTES) {
            Ok(bytes) => drop(files.insert(path.clone(), hash(&bytes))),
            Err(error) => violations.push(Violation {
                rule: Rule::ContextLoading,
                message: format!("governance file '{path}' cannot be read: {}", in_words(&error)),
                context: json!({ "file": path }),
            }),
        }
    }
    if violations.is_empty() { Ok(files) } else { Err(violations) }
}

fn in_words(error: &io::Error) -> String {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::LOOP) => "it is a link".to_owned(),
        Some(rustix::io::Errno::NOTDIR) => "a part of its path is a link or no folder".to_owned(),
        _ => error.to_string(),
    }
}

/// How the files differ from the pin.
pub fn compare(pin: &Files, found: &Files) -> Vec<Violation> {
    let violation = |path: &String, message: String| Violation {
        rule: Rule::Immutability,
        message,
        context: json!({ "file": path, "pinned": pin.get(path), "found": found.get(path) }),
    };
    let changed = pin.iter().filter_map(|(path, hash)| match found.get(path) {
        Some(other) if other == hash => None,
        Some(_) => Some(violation(path, format!("governance file '{path}' is not the one that was pinned"))),
        None => Some(violation(path, format!("governance file '{path}' was pinned and is no longer named"))),
    });
    let added = found.keys().filter(|path| !pin.contains_key(*path));
    let added = added.map(|path| violation(path, format!("governance file '{path}' was never pinned")));
    changed.chain(added).collect()
}

/// No pin is there, and the configuration does not let a cycle set one.
pub fn not_pinned() -> Violation {
    Violation {
        rule: Rule::Immutability,
        message: "no governance file is pinned, and governance.pin is required: run rota supervise pin"
            .to_owned(),
        context: json!({ "pin": null }),
    }
}

/// One hash for all files.
pub fn hash_of_all(files: &Files) -> String {
    let lines: String = files.iter().map(|(path, hash)| format!("{hash}  {path}\n")).collect();
    hash(lines.as_bytes())
}

fn hash(bytes: &[u8]) -> String {
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What an instruction must not say, ready to be looked for.
pub struct Rules(Vec<(Rule, Regex)>);

impl Rules {
    /// The patterns were checked when the configuration was read.
    pub fn new(config: &GovernanceConfig) -> Result<Self, regex::Error> {
        let compiled = config.rules.iter().map(|(rule, pattern)| Ok((*rule, Regex::new(pattern)?)));
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// What an issue violates if it is handed over.
    pub fn check(&self, number: u64, title: &str, body: &str) -> Vec<Violation> {
        let text = format!("{title}\n\n{body}");
        let found = self.0.iter().filter(|(_, pattern)| pattern.is_match(&text));
        let mut violations: Vec<Violation> = found
            .map(|(rule, pattern)| Violation {
                rule: *rule,
                message: format!("issue #{number} says what {} does not allow", rule.word()),
                context: json!({ "issue": number, "pattern": pattern.as_str() }),
            })
            .collect();
        if instruction::outcome(title, body).is_empty() {
            violations.push(Violation {
                rule: Rule::PreComputation,
                message: format!("issue #{number} states no intended outcome"),
                context: json!({ "issue": number }),
            });
        }
        violations
    }
}

/// What a cycle is told of violations.
pub fn verdict(violations: &[Violation]) -> Result<(), Violated> {
    match violations.first() {
        None => Ok(()),
        Some(first) => {
            Err(Violated { rule: first.rule, count: u32::try_from(violations.len()).unwrap_or(u32::MAX) })
        }
    }
}

/// Appends to the log, a line each, all of them or none.
pub fn log(file: &Path, violations: &[Violation], now: UnixMillis) -> io::Result<()> {
    let mut text = String::new();
    for Violation { rule, message, context } in violations {
        let timestamp = now.to_seconds_text();
        let line = Line { context, message, rule: *rule, severity: "critical", timestamp };
        text.push_str(&serde_json::to_string(&line).map_err(io::Error::other)?);
        text.push('\n');
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut log = rota_store::open_own(File::options().create(true).append(true), file)?;
    log.write_all(text.as_bytes())?;
    log.sync_data()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    #[test]
    fn every_way_a_file_can_differ() {
        let folder = tempfile::tempdir().unwrap();
        let config = GovernanceConfig { files: vec!["docs/g.md".into(), "b".into()], ..Default::default() };
        let (docs, file) = (folder.path().join("docs"), folder.path().join("docs/g.md"));
        std::fs::create_dir(&docs).unwrap();
        std::fs::write(&file, "rules\n").unwrap();
        std::fs::write(folder.path().join("b"), "more\n").unwrap();
        let pin = load(folder.path(), &config).unwrap();
        assert_eq!(compare(&pin, &load(folder.path(), &config).unwrap()), []);
        let rule = |violations: Vec<Violation>| verdict(&violations).unwrap_err().rule;
        std::fs::write(&file, "rules \n").unwrap();
        assert_eq!(rule(compare(&pin, &load(folder.path(), &config).unwrap())), Rule::Immutability);
        let fewer = GovernanceConfig { files: vec!["b".into()], ..config.clone() };
        assert_eq!(rule(compare(&pin, &load(folder.path(), &fewer).unwrap())), Rule::Immutability);
        let only: Files = [("b".to_owned(), pin["b"].clone())].into();
        assert_eq!(rule(compare(&only, &pin)), Rule::Immutability);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(rule(load(folder.path(), &config).unwrap_err()), Rule::ContextLoading);
        std::fs::write(folder.path().join("same"), "rules\n").unwrap();
        std::os::unix::fs::symlink("../same", &file).unwrap();
        assert_eq!(rule(load(folder.path(), &config).unwrap_err()), Rule::ContextLoading);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_eq!(rule(load(folder.path(), &config).unwrap_err()), Rule::ContextLoading);
        std::fs::remove_dir(&file).unwrap();
        std::fs::rename(&docs, folder.path().join("elsewhere")).unwrap();
        std::fs::write(folder.path().join("elsewhere/g.md"), "rules\n").unwrap();
        std::os::unix::fs::symlink("elsewhere", &docs).unwrap();
        assert_eq!(rule(load(folder.path(), &config).unwrap_err()), Rule::ContextLoading);
    }

    #[test]
    fn instructions_are_judged_by_the_rules_of_the_configuration() {
        let rule = |rule, pattern: &str| (rule, pattern.to_owned());
        let config = GovernanceConfig {
            rules: vec![
                rule(Rule::RoleSeparation, r"(?i)approve your own"),
                rule(Rule::AllowedActions, r"(?i)\bforce.push\b"),
            ],
            ..Default::default()
        };
        let rules = Rules::new(&config).unwrap();
        let found = |title: &str, body: &str| {
            rules.check(7, title, body).into_iter().map(|violation| violation.rule).collect::<Vec<_>>()
        };
        assert_eq!(found("fix", "all is well"), []);
        assert_eq!(found("fix", "then FORCE-PUSH it"), [Rule::AllowedActions]);
        assert_eq!(
            found("approve your own change", "force push"),
            [Rule::RoleSeparation, Rule::AllowedActions]
        );
        assert_eq!(found(" ", ""), [Rule::PreComputation]);
        assert_eq!(found(" ", "## Outcome\nworks"), []);
    }

    #[test]
    fn violations_are_logged_with_their_keys_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logs/violations.log");
        let violation = Violation {
            rule: Rule::Immutability,
            message: "line\nbreak".into(),
            context: json!({"file": "docs/g.md"}),
        };
        for _ in 0..2 {
            log(&file, std::slice::from_ref(&violation), UnixMillis::new(0)).unwrap();
        }
        let line = "{\"context\":{\"file\":\"docs/g.md\"},\"message\":\"line\\nbreak\",\"rule\":\"immutability\",\
                    \"severity\":\"critical\",\"timestamp\":\"1970-01-01T00:00:00Z\"}\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), line.repeat(2));
    }
}
