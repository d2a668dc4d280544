//! The section `supervisor`: which tracker, how often, under which governance.

use rota_core::shape::{KeyError, Section};
use rota_core::supervisor::Rule;

use super::keys::GOVERNANCE;

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
    /// Which open issues may be selected at all.
    pub filters: FilterConfig,
    /// Refusals of the pre-dispatch gate after which an issue is parked.
    pub gate_attempts: u32,
    /// Whether `rota up` runs the supervisor too.
    pub in_up: bool,
    /// Who works on what was claimed.
    pub dispatch: Option<DispatchConfig>,
}

/// Which open issues may be selected. Names are compared without regard to case.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterConfig {
    /// Labels that an issue must have, all of them.
    pub require: Vec<String>,
    /// Labels of which an issue must have none.
    pub exclude: Vec<String>,
    /// The only authors whose issues are selected; empty for any.
    pub authors: Vec<String>,
    /// The title of the only milestone that is worked on.
    pub milestone: Option<String>,
}

impl FilterConfig {
    /// Whether every open issue may be selected.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an issue with these labels, author and milestone may be selected.
    pub fn admits<'a>(
        &self,
        mut labels: impl Iterator<Item = &'a str> + Clone,
        author: Option<&str>,
        milestone: Option<&str>,
    ) -> bool {
        let has = |name: &String| labels.clone().any(|label| is_same_name(label, name));
        self.require.iter().all(has)
            && !labels.any(|label| self.exclude.iter().any(|name| is_same_name(label, name)))
            && self.trusts(author)
            && self
                .milestone
                .as_deref()
                .is_none_or(|wanted| milestone.is_some_and(|milestone| is_same_name(milestone, wanted)))
    }

    /// Whether the configuration accepts words of this author.
    pub fn trusts(&self, author: Option<&str>) -> bool {
        self.authors.is_empty()
            || author.is_some_and(|author| self.authors.iter().any(|name| is_same_name(author, name)))
    }
}

/// Trackers treat logins, and GitHub labels too, as equal whatever their case.
fn is_same_name(left: &str, right: &str) -> bool {
    left == right || left.to_lowercase() == right.to_lowercase()
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
    /// Whether other users may be able to read the token's file.
    pub allows_shared_token_file: bool,
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
    /// Whether only `rota supervise pin` may pin: a cycle without a pin fails.
    pub requires_pin: bool,
}

impl Default for GovernanceConfig {
    fn default() -> Self {
        governance(&Section::empty(GOVERNANCE)).unwrap_or_else(|error| unreachable!("{error}"))
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

pub(super) fn section(given: &Section<'_>) -> Result<SupervisorConfig, KeyError> {
    let source = source(given)?;
    Ok(SupervisorConfig {
        filters: filters(given, &source)?,
        source,
        cycle_interval_secs: given.value("cycle_interval_seconds"),
        cycle_max_runtime_secs: given.value("cycle_max_runtime_seconds"),
        state_file: given.value("state_file"),
        governance: match given.section("governance") {
            Some(given) => governance(&given)?,
            None => GovernanceConfig::default(),
        },
        claim_label: given.value("claim_label"),
        check_remote: given.value("check_remote"),
        gate_attempts: given.value("gate_attempts"),
        in_up: given.value("in_up"),
        dispatch: given.section("dispatch").map(|given| dispatch(&given)).transpose()?,
    })
}

fn filters(given: &Section<'_>, source: &SourceConfig) -> Result<FilterConfig, KeyError> {
    if given.has("milestone") && *source == SourceConfig::Local {
        return Err(given.error_at("milestone", "local issues have no milestone: this would select nothing"));
    }
    let labels = |key: &str| given.section("labels").map(|labels| labels.value(key)).unwrap_or_default();
    Ok(FilterConfig {
        require: labels("require"),
        exclude: labels("exclude"),
        authors: given.value("authors"),
        milestone: given.get("milestone"),
    })
}

fn source(given: &Section<'_>) -> Result<SourceConfig, KeyError> {
    let words = [("gitea", Some(TrackerKind::Gitea)), ("github", Some(TrackerKind::GitHub)), ("local", None)];
    let Some(kind) = given.word("source", &words) else {
        return Err(given.error("source is missing: gitea, github or local"));
    };
    let insecure = insecure(given)?;
    let api_base = api_base(given, insecure.contains(&Insecure::Http))?;
    let Some(kind) = kind else { return Ok(SourceConfig::Local) };
    let missing = |key: &str| given.error(format!("{key} is missing, which source: {} needs", kind.word()));
    let default_base = (kind == TrackerKind::GitHub).then(|| "https://api.github.com".to_owned());
    let token = match (given.get("token_env"), given.get("token_file")) {
        (Some(name), None) => TokenPlace::Variable(name),
        (None, Some(path)) => TokenPlace::File(path),
        (Some(_), Some(_)) => return Err(given.error("token_env and token_file are mutually exclusive")),
        (None, None) => return Err(missing("token_env (or token_file)")),
    };
    Ok(SourceConfig::Tracker(TrackerConfig {
        kind,
        api_base: api_base.or(default_base).ok_or_else(|| missing("api_base"))?,
        owner: given.get("owner").ok_or_else(|| missing("owner"))?,
        repo: given.get("repo").ok_or_else(|| missing("repo"))?,
        token,
        allows_shared_token_file: insecure.contains(&Insecure::TokenFile),
    }))
}

/// What is refused unless `allow_insecure` names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insecure {
    Http,
    TokenFile,
}

fn insecure(given: &Section<'_>) -> Result<Vec<Insecure>, KeyError> {
    let words: Vec<String> = given.get("allow_insecure").unwrap_or_default();
    let word = |word: String| match word.as_str() {
        "http" => Ok(Insecure::Http),
        "token_file" | "token-file" => Ok(Insecure::TokenFile),
        _ => Err(given.error_at("allow_insecure", "expected a list of http and token_file, got a list")),
    };
    words.into_iter().map(word).collect()
}

/// `http(s)://host[:port][/path]`, without a password, query or fragment.
fn api_base(given: &Section<'_>, allows_http: bool) -> Result<Option<String>, KeyError> {
    let Some(text) = given.get::<String>("api_base") else { return Ok(None) };
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['?', '#', '\\']);
    if host.is_empty() || host.contains('@') || !is_plain {
        let shown = rota_core::text::escaped(&text);
        let problem = format!("expected an address like https://git.example.com/api/v1, got \"{shown}\"");
        return Err(given.error_at("api_base", problem));
    }
    if text.starts_with("http://") && !is_loopback(host) && !allows_http {
        return Err(given.error_at(
            "api_base",
            "plain http would send the token unencrypted: use https, or accept it with allow_insecure: [http]",
        ));
    }
    Ok(Some(text.trim_end_matches('/').to_owned()))
}

/// Whether `host[:port]` is this machine. A name other than `localhost` is not looked up.
fn is_loopback(host: &str) -> bool {
    use std::net::{IpAddr, SocketAddr};
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return ip.is_loopback();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
}

fn governance(given: &Section<'_>) -> Result<GovernanceConfig, KeyError> {
    let files: Vec<String> = given.value("files");
    if files.is_empty() {
        return Err(given.error_at("files", "names no file: without one nothing would be pinned"));
    }
    let is_beneath = |file: &&String| {
        !file.starts_with('/') && file.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    if let Some(file) = files.iter().find(|file| !is_beneath(file)) {
        let shown = rota_core::text::escaped(file);
        let problem = format!("'{shown}' is not a path beneath the folder of rota.yml");
        return Err(given.error_at("files", problem));
    }
    let mut rules = Vec::new();
    for rule in [Rule::RoleSeparation, Rule::AllowedActions, Rule::DeterministicBehavior] {
        let Some(given) = given.section("rules") else { continue };
        for pattern in given.value::<Vec<String>>(rule.word()) {
            check_pattern(&given, rule.word(), &pattern)?;
            rules.push((rule, pattern));
        }
    }
    Ok(GovernanceConfig {
        files,
        environment_file: given.value("environment_file"),
        violation_log: given.value("violation_log"),
        rules,
        requires_pin: given.value::<String>("pin") == "required",
    })
}

fn check_pattern(given: &Section<'_>, key: &str, pattern: &str) -> Result<(), KeyError> {
    regex::Regex::new(pattern).map(drop).map_err(|error| {
        let problem = error.to_string();
        let problem = problem.lines().last().unwrap_or_default().trim();
        let shown = rota_core::text::escaped(pattern);
        given.error_at(key, format!("'{shown}' is not a regular expression: {problem}"))
    })
}

fn dispatch(given: &Section<'_>) -> Result<DispatchConfig, KeyError> {
    let commit_message: Option<String> = given.get("commit_message");
    commit_message.iter().try_for_each(|pattern| check_pattern(given, "commit_message", pattern))?;
    Ok(DispatchConfig {
        kind: given.value("kind"),
        allowed_files: given.value("allowed_files"),
        commit_message,
    })
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
        assert!(config.filters.is_empty() && !config.in_up && !config.governance.requires_pin);
        assert_eq!(config.gate_attempts, 3);
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
            ("{source: local, gate_attempts: 0}".to_owned(), "a whole number from 1 to 1000"),
            ("{source: local, milestone: v1}".to_owned(), "local issues have no milestone"),
            ("{source: local, labels: {requires: [x]}}".to_owned(), "did you mean 'require'?"),
            ("{source: local, authors: alice}".to_owned(), "a list of login names"),
            ("{source: local, governance: {pin: always}}".to_owned(), "one of first_start, required"),
            ("{source: gitea, allow_insecure: [all]}".to_owned(), "a list of http and token_file"),
            (
                "{source: gitea, api_base: 'http://git.example.com/api/v1', token_env: T}".to_owned(),
                "plain http would send the token unencrypted",
            ),
            (
                "{source: gitea, api_base: 'http://127.0.0.1.example.com', token_env: T}".to_owned(),
                "plain http",
            ),
            ("{source: gitea, api_base: 'http://[2001:db8::1]:3000', token_env: T}".to_owned(), "plain http"),
        ] {
            let error = Config::parse(&format!("supervisor: {text}")).map(drop).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_or_on_request() {
        for base in
            ["http://127.0.0.1:3000/api/v1", "http://localhost:3000", "http://[::1]:3000", "http://[::1]"]
        {
            let text = format!("{{source: gitea, api_base: '{base}', owner: o, repo: r, token_env: T}}");
            parsed(&format!("supervisor: {text}"));
        }
        let allowed = parsed(
            "supervisor: {source: gitea, api_base: 'http://git.lan/api/v1', owner: o, repo: r, token_file: t, \
             allow_insecure: [http, token-file]}",
        );
        let SourceConfig::Tracker(tracker) = allowed.source else { panic!("not a tracker") };
        assert!(tracker.allows_shared_token_file && tracker.api_base == "http://git.lan/api/v1");
    }

    #[test]
    fn filters_admit_what_they_name() {
        let filters = |text: &str| {
            let tracker = "source: github, owner: o, repo: r, token_env: T";
            parsed(&format!("supervisor: {{{tracker}, {text}}}")).filters
        };
        let all = "labels: {require: [agent, Ready], exclude: [wip]}, authors: [Alice], milestone: v1";
        let filters = [filters("check_remote: false"), filters("labels: {exclude: [wip]}"), filters(all)];
        assert!(filters[0].is_empty() && !filters[1].is_empty());
        let admitted = |labels: &[&str], author: Option<&str>, milestone: Option<&str>| {
            filters.each_ref().map(|one| one.admits(labels.iter().copied(), author, milestone))
        };
        assert_eq!(admitted(&[], None, None), [true, true, false]);
        assert_eq!(admitted(&["WIP"], None, None), [true, false, false]);
        assert_eq!(admitted(&["Agent", "ready"], Some("alice"), Some("V1")), [true, true, true]);
        assert_eq!(admitted(&["agent"], Some("alice"), Some("v1")), [true, true, false]);
        assert_eq!(admitted(&["agent", "ready"], Some("bob"), Some("v1")), [true, true, false]);
        assert_eq!(admitted(&["agent", "ready"], Some("alice"), Some("v2")), [true, true, false]);
        assert_eq!(admitted(&["agent", "ready", "wip"], Some("alice"), Some("v1")), [true, false, false]);
    }
}
