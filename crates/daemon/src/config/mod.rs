//! `rota.yml`, typed: the configuration of every command and of the daemon.
//!
//! One table of keys (`keys`) defines the file: the check, the defaults, the JSON Schema and the template are made from
//! it. An unknown key, a wrong type, a value out of range or two keys that contradict each other is rejected with its
//! path, and nothing of the file counts. The keys that are policy (`scheduler.priority`, `concurrency`, `rate_limit`)
//! are kept as what the file names: the published policy decides, and [`Config::apply_to`] returns what it would be
//! with them.

mod gateway;
mod keys;
mod parse;
mod policy_keys;
mod reader;
mod settings;
mod supervisor;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rota_core::Policy;
use rota_core::shape::{FromNode, KeyError, Node, Notation};
use rota_store::Secret;
use rota_store::intents::read::Runners;

pub use gateway::GatewaySection;
pub use policy_keys::PolicyKeys;
pub use reader::{ConfigError, ParseError};
pub use settings::Setting;
pub use supervisor::{
    DispatchConfig, FilterConfig, GovernanceConfig, SourceConfig, SupervisorConfig, TokenPlace,
    TrackerConfig, TrackerKind,
};
pub use template::template;

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
    pub policy: PolicyKeys,
    /// What the supervisor goes by, if the file says so.
    pub supervisor: Option<SupervisorConfig>,
    /// The section of the gateway; none if there is no such section.
    pub gateway: Option<GatewaySection>,
    /// The section of notifications, whose keys were checked.
    pub notify: Option<Node>,
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
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::document(text)
    }

    /// The JSON Schema of the file, for editors.
    pub fn schema() -> serde_json::Value {
        let mut schema = keys::DOCUMENT.schema(Notation::Yaml);
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["title"] = "rota.yml".into();
        schema
    }

    /// The policy with what the file names changed; an error if the two do not go together.
    pub fn apply_to(&self, policy: &Policy) -> Result<Policy, KeyError> {
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
        let hooks = match &self.notify {
            Some(Node::List(hooks)) => hooks.as_slice(),
            _ => &[],
        };
        let in_hooks = hooks.iter().filter_map(|hook| String::from_node(hook.get("secret_env")?));
        let tracker = match self.supervisor.as_ref().map(|supervisor| &supervisor.source) {
            Some(SourceConfig::Tracker(TrackerConfig { token: TokenPlace::Variable(name), .. })) => {
                Some(name.clone())
            }
            _ => None,
        };
        let keys = upstreams.filter_map(|upstream| upstream.key_env.clone());
        keys.chain(in_hooks).chain(tracker).collect()
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
