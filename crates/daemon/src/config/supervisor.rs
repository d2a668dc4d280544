//! The section `supervisor`: which tracker, how often, under which governance.

use rota_core::supervisor::Rule;

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
        Self {
            files: vec!["docs/governance.md".to_owned()],
            environment_file: "agents/state/environment.json".to_owned(),
            violation_log: "logs/governance_violations.log".to_owned(),
            rules: Vec::new(),
            requires_pin: false,
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
    let filters = filters(&mut section, &source)?;
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
        filters,
        gate_attempts: match section.take("gate_attempts") {
            Some(field) => super::policy_words::narrow(field.whole(&(1..=1_000))?),
            None => 3,
        },
        in_up: section.take("in_up").map_or(Ok(false), |field| field.boolean())?,
        dispatch: section.take("dispatch").map(|field| dispatch(field.section()?)).transpose()?,
    };
    section.finish()?;
    Ok(config)
}

fn filters(section: &mut Section<'_>, source: &SourceConfig) -> Result<FilterConfig, KeyError> {
    let names = |field: Option<Field<'_>>, wanted: &str| match field {
        Some(field) => texts(&field, wanted),
        None => Ok(Vec::new()),
    };
    let mut labels = section.section("labels")?;
    let require = names(labels.take("require"), "a list of labels")?;
    let exclude = names(labels.take("exclude"), "a list of labels")?;
    labels.finish()?;
    let authors = names(section.take("authors"), "a list of login names")?;
    let milestone = section.take("milestone");
    if let (Some(field), SourceConfig::Local) = (&milestone, source) {
        return Err(field.error("local issues have no milestone: this would select nothing"));
    }
    let milestone = milestone.map(|field| name(&field)).transpose()?;
    Ok(FilterConfig { require, exclude, authors, milestone })
}

fn source(whole: &Field<'_>, section: &mut Section<'_>) -> Result<SourceConfig, KeyError> {
    let words = [("gitea", Some(TrackerKind::Gitea)), ("github", Some(TrackerKind::GitHub)), ("local", None)];
    let Some(field) = section.take("source") else {
        return Err(whole.error("source is missing: gitea, github or local"));
    };
    let kind = field.word(&words)?;
    let insecure = match section.take("allow_insecure") {
        Some(field) => insecure(&field)?,
        None => Vec::new(),
    };
    let allows_http = insecure.contains(&Insecure::Http);
    let api_base = section.take("api_base").map(|field| api_base(&field, allows_http)).transpose()?;
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
        allows_shared_token_file: insecure.contains(&Insecure::TokenFile),
    }))
}

/// What is refused unless `allow_insecure` names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Insecure {
    Http,
    TokenFile,
}

fn insecure(field: &Field<'_>) -> Result<Vec<Insecure>, KeyError> {
    let word = |word: String| match word.as_str() {
        "http" => Ok(Insecure::Http),
        "token_file" | "token-file" => Ok(Insecure::TokenFile),
        _ => Err(field.wrong("a list of http and token_file")),
    };
    texts(field, "a list of http and token_file")?.into_iter().map(word).collect()
}

/// `http(s)://host[:port][/path]`, without a password, query or fragment.
fn api_base(field: &Field<'_>, allows_http: bool) -> Result<String, KeyError> {
    let text = field.text()?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['?', '#', '\\']);
    if host.is_empty() || host.contains('@') || !is_plain {
        return Err(field.wrong("an address like https://git.example.com/api/v1"));
    }
    if text.starts_with("http://") && !is_loopback(host) && !allows_http {
        return Err(field.error(
            "plain http would send the token unencrypted: use https, or accept it with allow_insecure: [http]",
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
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
        requires_pin: match section.take("pin") {
            Some(field) => field.word(&[("first_start", false), ("required", true)])?,
            None => false,
        },
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
