//! `rota.yml`, typed: what every command and the daemon go by.

use std::collections::BTreeMap;
use std::time::Duration;

/// A whole configuration, with the defaults where the file is silent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Namespace.
    pub scope: Option<String>,
    /// Where the store is, as written.
    pub store: Option<String>,
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
