//! What a daemon tells of itself, for the terminal, the log and whoever asks.

use std::collections::BTreeMap;

use rota_core::obstacle::Wait;
use rota_store::intents::iterate::BacklogCounts;
use serde::{Deserialize, Serialize};

/// Something happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the log lines")]
pub enum Happening {
    /// A tick; news if it selected something, or its figures have changed.
    Tick { figures: TickFigures, selected: usize, is_news: bool },
    /// A loop was chosen.
    Selected { id: String, kind: String, priority: i64, age_ms: i64 },
    /// An iteration began, or one that an earlier daemon began goes on under this one.
    Began { id: String, kind: String, title: String, iteration: u32, is_adopted: bool },
    /// An iteration did not pass; the next one begins.
    NotPassed { id: String, iteration: u32, why: String },
    /// A loop ended, or waits for its next run.
    Ended { id: String, kind: String, outcome: &'static str, detail: Option<String> },
    /// Children were added.
    Spawned { id: String, children: usize },
    /// An upstream pushed back.
    RateLimited { upstream: String, retry_after_secs: i64, consecutive_hits: u32 },
    /// An upstream that pushed back takes calls again.
    OpenAgain { upstream: String },
    /// Loops that use a blocked upstream wait.
    NotSelecting { upstream: String, until: Option<String> },
    /// Loops that use an upstream wait: its budget is spent.
    BudgetSpent { upstream: String, budget: String, until: String },
    /// Too little space for new loops.
    DiskLow { available_gb: u64 },
    /// Enough again.
    DiskFine,
    /// A lease is gone, and its run is stopped.
    Lapsed { id: String, why: String },
    /// A worktree was not removed.
    WorktreeKept { id: String, why: String },
    /// What was not committed in a worktree was committed to its branch, and the worktree removed.
    WorktreeSaved { id: String, branch: String, commit: String },
    /// The store does not answer, or something else that may pass.
    Trouble { problem: String },
    /// The configuration was read again.
    Reloaded,
    /// The new configuration is wrong; the old one stays.
    NotReloaded { problem: String },
    /// The file says something else about the policy than what is published.
    PolicyDiffers { version: String, changes: String },
    /// No more is begun.
    Stopping,
}

/// How things stood before a tick selected anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the log lines")]
pub struct TickFigures {
    pub pending: u64,
    pub runnable: u64,
    pub running: usize,
    pub slots_available: usize,
}

/// A loop under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct RunningLoop {
    pub id: String,
    pub lease: String,
    pub title: String,
    pub kind: String,
    pub iteration: u32,
    pub running_secs: u64,
}

/// An upstream that takes no calls now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpstreamWait {
    /// Its name.
    pub upstream: String,
    /// Why, and until when.
    pub wait: Wait,
}

/// What is going on, for whoever asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Whether it is stopping.
    pub stopping: bool,
    /// How many loops may run at once.
    pub slots: usize,
    /// What runs here.
    pub running: Vec<RunningLoop>,
    /// What holds upstreams back, and with them the loops that call them.
    #[serde(default)]
    pub waits: Vec<UpstreamWait>,
    /// How many nothing holds back.
    pub runnable: u64,
    /// How many loops are in which state.
    pub counts: BTreeMap<String, u64>,
    /// The worktrees on disk that no running loop uses, by name.
    #[serde(default)]
    pub kept_worktrees: Vec<String>,
}

impl Status {
    /// Puts it together.
    pub fn new(counts: &BacklogCounts, running: Vec<RunningLoop>, slots: usize, stopping: bool) -> Self {
        let word = |status: &rota_core::Status| status.word_for(rota_core::Front::Loop, true).to_owned();
        Self {
            pid: std::process::id(),
            stopping,
            slots,
            running,
            waits: Vec::new(),
            runnable: counts.runnable,
            counts: counts.by_status.iter().map(|(status, count)| (word(status), *count)).collect(),
            kept_worktrees: Vec::new(),
        }
    }
}
