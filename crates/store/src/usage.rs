//! Usage of models, per task and day, as stores keep it.

/// What a task used of a model on one day, in UTC.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageRow {
    /// Namespace.
    pub scope: String,
    /// Who; empty for a caller without a task.
    pub task: String,
    /// Days since 1970-01-01.
    pub day: i64,
    /// Of which API.
    pub upstream: String,
    /// Of which model; empty where none was named.
    pub model: String,
    /// Calls that were let through.
    pub requests: u64,
    /// Tokens read, without those from the provider's cache.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens read from the provider's cache.
    pub cache_read_tokens: u64,
    /// How long calls waited at the gate, together.
    pub wait_ms: u64,
    /// What it cost, in billionths of a dollar.
    pub spend_nanos: u64,
}

/// The largest figure that a store keeps; sums stay there.
const MOST: u64 = i64::MAX as u64;

impl UsageRow {
    /// With no figure above what a store can keep.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.each(&Self::default(), |own, _| *own = (*own).min(MOST));
        self
    }

    /// Adds the figures of another row; what is too much stays at the largest figure.
    pub fn add(&mut self, other: &Self) {
        self.each(other, |own, more| *own = own.saturating_add(more).min(MOST));
    }

    fn each(&mut self, other: &Self, change: impl Fn(&mut u64, u64)) {
        change(&mut self.requests, other.requests);
        change(&mut self.input_tokens, other.input_tokens);
        change(&mut self.output_tokens, other.output_tokens);
        change(&mut self.cache_read_tokens, other.cache_read_tokens);
        change(&mut self.wait_ms, other.wait_ms);
        change(&mut self.spend_nanos, other.spend_nanos);
    }
}

/// Which usage to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageFilter {
    /// Only this scope's.
    pub scope: Option<String>,
    /// Only this task's.
    pub task: Option<String>,
    /// Only this day's.
    pub day: Option<i64>,
}
