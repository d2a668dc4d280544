//! `rota.yml`, typed: what every command and the daemon go by.
//!
//! Read key by key: what is not known, has the wrong type, lies outside of its range or is said twice in different
//! words is refused with its path, and nothing of the file counts. The keys that are policy in other words
//! (`scheduler.priority`, `concurrency`, `rate_limit`) are kept as what the file names: the published policy decides,
//! and [`Config::apply_to`] says what it would be with them.

mod gateway;
mod parse;
mod policy_words;
mod settings;
mod supervisor;
mod template;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rota_core::Policy;
use rota_core::policy::PolicyError;
use rota_store::Secret;
use rota_store::intents::read::Runners;

pub use gateway::GatewaySection;
pub use policy_words::PolicyWords;
pub use settings::Setting;
pub use supervisor::{
    DispatchConfig, FilterConfig, GovernanceConfig, SourceConfig, SupervisorConfig, TokenPlace,
    TrackerConfig, TrackerKind,
};
pub use template::TEMPLATE;
pub use walk::{ConfigError, KeyError};

/// The largest file that is read.
const FILE_BYTES: u64 = 1_024 * 1_024;

/// A whole configuration, with the defaults where the file is silent.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Namespace.
    pub scope: Option<String>,
    /// Where the store is, as written; it may hold a password.
    pub store: Option<Secret>,
    /// How long the daemon waits to be told something before it looks by itself.
    pub poll_interval: Duration,
    /// Worktrees at once.
    pub max_worktrees: u32,
    /// Below this much free space no new loop starts.
    pub disk_min_free_bytes: u64,
    /// Whether the folders of loops are seen by every host.
    pub shared_folder: bool,
    /// The user that agents run as, if it is not the daemon's own.
    pub agents: Option<AgentsConfig>,
    /// What to run, by kind.
    pub loops: BTreeMap<String, LoopKind>,
    /// The variables that `rota work` passes on to commands; a name may end in `*`.
    pub work_pass_env: Vec<String>,
    /// What it says about the policy.
    pub policy: PolicyWords,
    /// What the supervisor goes by, if the file says so.
    pub supervisor: Option<SupervisorConfig>,
    /// The section of the gateway; none if there is no such section.
    pub gateway: Option<GatewaySection>,
    /// The section of notifications, as it stands.
    pub notify: Option<serde_json::Value>,
    /// The dotted paths that the file names.
    named: BTreeSet<String>,
}

impl Config {
    /// Reads a file that must be there.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        use std::io::Read;
        let failed = |error| ConfigError::Read { file: path.to_owned(), source: error };
        let mut text = String::new();
        let file = rota_store::open_regular(path).map_err(failed)?;
        file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > FILE_BYTES {
            return Err(ConfigError::TooLong { file: path.to_owned(), limit: FILE_BYTES });
        }
        Self::parse(&text).map_err(|source| ConfigError::Wrong { file: path.to_owned(), source })
    }

    /// Reads a file; none if there is none.
    pub fn read_if_there(path: &Path) -> Result<Option<Self>, ConfigError> {
        match Self::read(path) {
            Err(ConfigError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Reads a document; what it does not name has its default.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse::document(text)
    }

    /// The policy with what the file names changed; an error if the two do not go together.
    pub fn apply_to(&self, policy: &Policy) -> Result<Policy, PolicyError> {
        self.policy.apply_to(policy)
    }

    /// The kinds that can be run, each with the upstream it calls. A file that says nothing about loops leaves it open
    /// who runs them.
    pub fn runners(&self) -> Runners {
        let runs = self.loops.iter().filter(|(_, kind)| kind.run.is_some());
        let kinds = runs.map(|(name, kind)| (name.clone(), kind.uses_api.clone())).collect();
        Runners {
            kinds: (!self.loops.is_empty()).then_some(kinds),
            bounds_loops: self.gateway.is_none(),
            ..Runners::default()
        }
    }

    /// The names of the variables that hold secrets: the keys of upstreams, of notifications and of the tracker.
    pub fn secret_variables(&self) -> Vec<String> {
        let upstreams = self.gateway.iter().flat_map(|section| section.config.upstreams.values());
        let hooks = self.notify.as_ref().and_then(|section| section.as_array()).into_iter().flatten();
        let fields = hooks.filter_map(|hook| hook.as_object()).flatten();
        let in_hooks =
            fields.filter(|(name, _)| name.ends_with("_env")).filter_map(|(_, value)| value.as_str());
        let tracker = match self.supervisor.as_ref().map(|supervisor| &supervisor.source) {
            Some(SourceConfig::Tracker(TrackerConfig { token: TokenPlace::Variable(name), .. })) => {
                Some(name.clone())
            }
            _ => None,
        };
        let keys = upstreams.filter_map(|upstream| upstream.key_env.clone());
        keys.chain(in_hooks.map(str::to_owned)).chain(tracker).collect()
    }

    /// How loops of a kind are run; the defaults for a kind the file does not name.
    pub fn kind(&self, kind: &str) -> LoopKind {
        self.loops.get(kind).cloned().unwrap_or_default()
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scope, loops, policy, named, .. } = self;
        let mut shown = f.debug_struct("Config");
        shown.field("scope", scope).field("loops", loops).field("policy", policy).field("named", named);
        shown.finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scope: None,
            store: None,
            poll_interval: Duration::from_secs(1),
            max_worktrees: 50,
            disk_min_free_bytes: 5 * 1_000_000_000,
            shared_folder: false,
            agents: None,
            loops: BTreeMap::new(),
            work_pass_env: default_pass_env(),
            policy: PolicyWords::default(),
            supervisor: None,
            gateway: None,
            notify: None,
            named: BTreeSet::new(),
        }
    }
}

/// The user that agents run as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentsConfig {
    /// Its name.
    pub user: String,
    /// Where its loops and worktrees are: a folder that this user may enter.
    pub folder: PathBuf,
}

/// How loops of one kind are run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopKind {
    /// The agent; a kind without one is not started.
    pub run: Option<Program>,
    /// What says whether an iteration passed; without it the agent's exit code 0 is enough.
    pub validate: Option<Program>,
    /// Tries before the loop has failed.
    pub max_iterations: u32,
    /// How long one run of the agent may take.
    pub timeout: Option<Duration>,
    /// Whether each loop gets a git worktree of its own.
    pub worktree: bool,
    /// Whether the worktree of a loop that failed stays.
    pub keep_worktree_on_failure: bool,
    /// The upstream it calls.
    pub uses_api: Option<String>,
    /// Set for the agent.
    pub env: BTreeMap<String, String>,
    /// Passed on to the agent; a name may end in `*`.
    pub pass_env: Vec<String>,
    /// Whether the result of an issue's loop is accepted without a commit.
    pub commits_are_optional: bool,
}

impl Default for LoopKind {
    fn default() -> Self {
        Self {
            run: None,
            validate: None,
            max_iterations: 100,
            timeout: Some(Duration::from_secs(3_600)),
            worktree: false,
            keep_worktree_on_failure: false,
            uses_api: None,
            env: BTreeMap::new(),
            pass_env: default_pass_env(),
            commits_are_optional: false,
        }
    }
}

/// The variables that commands see where the configuration names none: no secret is among them.
fn default_pass_env() -> Vec<String> {
    let passed = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "TZ"];
    passed.map(str::to_owned).to_vec()
}

/// Something to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// A program and its arguments; `{prompt}`, `{task}` and `{artifacts}` are replaced in them.
    Argv(Vec<String>),
    /// A line for `sh -c`, taken as it is.
    Shell(String),
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests;
