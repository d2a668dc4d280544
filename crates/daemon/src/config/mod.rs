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
use std::path::Path;
use std::time::Duration;

use rota_core::Policy;
use rota_core::policy::PolicyError;
use rota_store::Secret;
use rota_store::intents::read::Runners;

pub use gateway::GatewaySection;
pub use policy_words::PolicyWords;
pub use settings::Setting;
pub use supervisor::{
    DispatchConfig, GovernanceConfig, SourceConfig, SupervisorConfig, TokenPlace, TrackerConfig, TrackerKind,
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
    /// What to run, by kind.
    pub loops: BTreeMap<String, LoopKind>,
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
        let file = std::fs::File::open(path).map_err(failed)?;
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
        Runners { kinds: (!self.loops.is_empty()).then_some(kinds), ..Runners::default() }
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
            loops: BTreeMap::new(),
            policy: PolicyWords::default(),
            supervisor: None,
            gateway: None,
            notify: None,
            named: BTreeSet::new(),
        }
    }
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
}

impl Default for LoopKind {
    fn default() -> Self {
        let passed = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "TZ"];
        Self {
            run: None,
            validate: None,
            max_iterations: 100,
            timeout: Some(Duration::from_secs(3_600)),
            worktree: false,
            keep_worktree_on_failure: false,
            uses_api: None,
            env: BTreeMap::new(),
            pass_env: passed.map(str::to_owned).to_vec(),
        }
    }
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
