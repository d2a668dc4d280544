//! The section `supervisor`: which tracker, how often, under which governance.

use rota_core::cycle::Rule;

use super::walk::{Field, KeyError, Section};

/// What the supervisor goes by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupervisorConfig {
    /// Where issues come from.
    pub source: SourceConfig,
    /// The sleep between cycles.
    pub cycle_interval_secs: u64,
    /// How long a cycle may take.
    pub cycle_max_runtime_secs: u64,
    /// Where the state is kept, from the file's folder.
    pub state_file: String,
    /// What must hold before anything is claimed.
    pub governance: GovernanceConfig,
    /// The label that says an issue is taken.
    pub claim_label: String,
    /// Whether the repository's remote must answer too.
    pub check_remote: bool,
    /// Who works on what was claimed.
    pub dispatch: Option<DispatchConfig>,
}

/// Where issues come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceConfig {
    /// The store itself.
    Local,
    /// A server.
    Tracker(TrackerConfig),
}

/// A server with an issue tracker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackerConfig {
    /// What it speaks.
    pub kind: TrackerKind,
    /// Where its API is, without a slash at the end.
    pub api_base: String,
    /// Whose repository.
    pub owner: String,
    /// Which repository.
    pub repo: String,
    /// Where the token is.
    pub token: TokenPlace,
}

/// What a tracker speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackerKind {
    /// Gitea and Forgejo.
    Gitea,
    /// GitHub.
    GitHub,
}

impl TrackerKind {
    /// The word in the configuration and in codes.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::GitHub => "github",
        }
    }
}

/// Where a token is kept; never the token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenPlace {
    /// In this variable.
    Variable(String),
    /// In this file, from the configuration's folder.
    File(String),
}

/// What must hold before anything is claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GovernanceConfig {
    /// The files that are pinned, from the configuration's folder.
    pub files: Vec<String>,
    /// A JSON object that describes the surroundings.
    pub environment_file: String,
    /// Where violations are written.
    pub violation_log: String,
    /// What an instruction must not say.
    pub rules: Vec<(Rule, String)>,
}

impl Default for GovernanceConfig {
    fn default() -> Self {
        Self {
            files: vec!["docs/governance.md".to_owned()],
            environment_file: "agents/state/environment.json".to_owned(),
            violation_log: "logs/governance_violations.log".to_owned(),
            rules: Vec::new(),
        }
    }
}

/// Who works on what was claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DispatchConfig {
    /// The kind of loop.
    pub kind: String,
    /// The only files it may change; empty for any.
    pub allowed_files: Vec<String>,
    /// What the message of every commit must match.
    pub commit_message: Option<String>,
}

/// Seconds that make sense.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=86_400;

pub(super) fn section(field: &Field<'_>) -> Result<SupervisorConfig, KeyError> {
    let mut section = field.section()?;
    let source = source(field, &mut section)?;
    let seconds = |field: Option<Field<'_>>, default: u64| match field {
        Some(field) => field.whole(&SECONDS),
        None => Ok(default),
    };
    let config = SupervisorConfig {
        source,
        cycle_interval_secs: seconds(section.take("cycle_interval_seconds"), 60)?,
        cycle_max_runtime_secs: seconds(section.take("cycle_max_runtime_seconds"), 90)?,
        state_file: path(section.take("state_file"), "agents/state/scheduler_state.json")?,
        governance: match section.take("governance") {
            Some(field) => governance(field.section()?)?,
            None => GovernanceConfig::default(),
        },
        claim_label: match section.take("claim_label") {
            Some(field) => name(&field)?,
            None => "in-progress".to_owned(),
        },
        check_remote: section.take("check_remote").map_or(Ok(false), |field| field.boolean())?,
        dispatch: section.take("dispatch").map(|field| dispatch(field.section()?)).transpose()?,
    };
    section.finish()?;
    Ok(config)
}

fn source(whole: &Field<'_>, section: &mut Section<'_>) -> Result<SourceConfig, KeyError> {
    let words = [("gitea", Some(TrackerKind::Gitea)), ("github", Some(TrackerKind::GitHub)), ("local", None)];
    let Some(field) = section.take("source") else {
        return Err(whole.error("source is missing: gitea, github or local"));
    };
    let kind = field.word(&words)?;
    let api_base = section.take("api_base").map(|field| api_base(&field)).transpose()?;
    let owner = section.take("owner").map(|field| name(&field)).transpose()?;
    let repo = section.take("repo").map(|field| name(&field)).transpose()?;
    let variable = section.take("token_env").map(|field| name(&field)).transpose()?;
    let file = section.take("token_file").map(|field| name(&field)).transpose()?;
    let Some(kind) = kind else { return Ok(SourceConfig::Local) };
    let missing = |key: &str| whole.error(format!("{key} is missing, which source: {} needs", kind.word()));
    let default_base = (kind == TrackerKind::GitHub).then(|| "https://api.github.com".to_owned());
    let token = match (variable, file) {
        (Some(name), None) => TokenPlace::Variable(name),
        (None, Some(path)) => TokenPlace::File(path),
        (Some(_), Some(_)) => return Err(whole.error("token_env and token_file are mutually exclusive")),
        (None, None) => return Err(missing("token_env (or token_file)")),
    };
    Ok(SourceConfig::Tracker(TrackerConfig {
        kind,
        api_base: api_base.or(default_base).ok_or_else(|| missing("api_base"))?,
        owner: owner.ok_or_else(|| missing("owner"))?,
        repo: repo.ok_or_else(|| missing("repo"))?,
        token,
    }))
}

/// `http(s)://host[:port][/path]`, without a password, query or fragment.
fn api_base(field: &Field<'_>) -> Result<String, KeyError> {
    let text = field.text()?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['?', '#', '\\']);
    if host.is_empty() || host.contains('@') || !is_plain {
        return Err(field.wrong("an address like https://git.example.com/api/v1"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn name(field: &Field<'_>) -> Result<String, KeyError> {
    let text = field.text()?;
    rota_core::id::check_name("name", text).map_err(|error| field.error(error.to_string()))?;
    Ok(text.to_owned())
}

fn path(field: Option<Field<'_>>, default: &str) -> Result<String, KeyError> {
    match field {
        Some(field) => name(&field),
        None => Ok(default.to_owned()),
    }
}

fn texts(field: &Field<'_>, wanted: &str) -> Result<Vec<String>, KeyError> {
    let list = field.list()?.ok_or_else(|| field.wrong(wanted))?;
    Ok(list.into_iter().map(str::to_owned).collect())
}

fn governance(mut section: Section<'_>) -> Result<GovernanceConfig, KeyError> {
    let default = GovernanceConfig::default();
    let files = match section.take("files") {
        Some(field) => {
            let files = texts(&field, "a list of paths")?;
            if files.is_empty() {
                return Err(field.error("names no file: without one nothing would be pinned"));
            }
            let is_beneath = |file: &&String| {
                !file.starts_with('/') && file.split('/').all(|part| !matches!(part, "" | "." | ".."))
            };
            if let Some(file) = files.iter().find(|file| !is_beneath(file)) {
                let shown = rota_core::text::escaped(file).into_owned();
                return Err(field.error(format!("'{shown}' is not a path beneath the folder of rota.yml")));
            }
            files
        }
        None => default.files,
    };
    let mut rules = Vec::new();
    let mut section_of_rules = section.section("rules")?;
    for rule in [Rule::RoleSeparation, Rule::AllowedActions, Rule::DeterministicBehavior] {
        let Some(field) = section_of_rules.take(rule.word()) else { continue };
        for pattern in texts(&field, "a list of regular expressions")? {
            check_pattern(&field, &pattern)?;
            rules.push((rule, pattern));
        }
    }
    section_of_rules.finish()?;
    let config = GovernanceConfig {
        files,
        environment_file: path(section.take("environment_file"), &default.environment_file)?,
        violation_log: path(section.take("violation_log"), &default.violation_log)?,
        rules,
    };
    section.finish()?;
    Ok(config)
}

fn check_pattern(field: &Field<'_>, pattern: &str) -> Result<(), KeyError> {
    regex::Regex::new(pattern).map(drop).map_err(|error| {
        let problem = error.to_string();
        let problem = problem.lines().last().unwrap_or_default().trim();
        field.error(format!("'{}' is not a regular expression: {problem}", rota_core::text::escaped(pattern)))
    })
}

fn dispatch(mut section: Section<'_>) -> Result<DispatchConfig, KeyError> {
    let config = DispatchConfig {
        kind: match section.take("kind") {
            Some(field) => name(&field)?,
            None => "ralph".to_owned(),
        },
        allowed_files: match section.take("allowed_files") {
            Some(field) => texts(&field, "a list of globs")?,
            None => Vec::new(),
        },
        commit_message: match section.take("commit_message") {
            Some(field) => {
                let pattern = field.text()?.to_owned();
                check_pattern(&field, &pattern)?;
                Some(pattern)
            }
            None => None,
        },
    };
    section.finish()?;
    Ok(config)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parsed(text: &str) -> SupervisorConfig {
        Config::parse(text).unwrap_or_else(|error| panic!("{error}")).supervisor.unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let config = parsed("supervisor: {source: local}");
        assert_eq!(config.source, SourceConfig::Local);
        assert_eq!((config.cycle_interval_secs, config.cycle_max_runtime_secs), (60, 90));
        assert_eq!(config.state_file, "agents/state/scheduler_state.json");
        assert_eq!(config.governance, GovernanceConfig::default());
        assert_eq!((config.claim_label.as_str(), config.check_remote), ("in-progress", false));
        assert_eq!(config.dispatch, None);
        let dispatch = parsed("supervisor: {source: local, dispatch: {}}").dispatch.unwrap();
        assert_eq!((dispatch.kind.as_str(), dispatch.allowed_files.len()), ("ralph", 0));
        let github = parsed("supervisor: {source: github, owner: o, repo: r, token-env: T}");
        let SourceConfig::Tracker(github) = github.source else { panic!("not a tracker") };
        assert_eq!(github.api_base, "https://api.github.com");
        assert_eq!(github.token, TokenPlace::Variable("T".into()));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_path() {
        let gitea = "api_base: 'https://g/api/v1/', owner: o, repo: r";
        for (text, wanted) in [
            ("{}".to_owned(), "supervisor: source is missing: gitea, github or local"),
            ("{source: jira}".to_owned(), "supervisor.source: expected one of gitea, github, local"),
            (
                "{source: local, cycle_interval_second: 5}".to_owned(),
                "did you mean 'cycle_interval_seconds'?",
            ),
            ("{source: local, cycle_interval_seconds: 0}".to_owned(), "a whole number from 1 to 86400"),
            (format!("{{source: gitea, {gitea}}}"), "token_env (or token_file) is missing"),
            (format!("{{source: gitea, {gitea}, token_env: A, token_file: b}}"), "mutually exclusive"),
            ("{source: gitea, owner: o, repo: r, token_env: T}".to_owned(), "api_base is missing"),
            ("{source: gitea, api_base: 'https://u:p@g', token_env: T}".to_owned(), "an address like"),
            ("{source: gitea, api_base: 'ftp://g', token_env: T}".to_owned(), "an address like"),
            ("{source: local, governance: {files: []}}".to_owned(), "names no file"),
            ("{source: local, governance: {files: [../x]}}".to_owned(), "'../x' is not a path beneath"),
            (
                "{source: local, governance: {rules: {allowed_actions: ['(']}}}".to_owned(),
                "'(' is not a regular",
            ),
            ("{source: local, governance: {rules: {allowed_action: []}}}".to_owned(), "'allowed_actions'?"),
            ("{source: local, dispatch: {kinds: x}}".to_owned(), "did you mean 'kind'?"),
        ] {
            let error = Config::parse(&format!("supervisor: {text}")).map(drop).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
