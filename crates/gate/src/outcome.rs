//! How a request ended, what follows from it, and why one was refused.

use std::fmt;
use std::time::Duration;

/// Tokens a response reported. Input counts what the provider counts (not what it read from its cache).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The upstream answered; what it reported goes into the token windows.
    Success(Usage),
    /// The upstream said 429. Blocks the gate; above [`QUOTA_ABOVE`](crate::QUOTA_ABOVE) it is a quota.
    RateLimited {
        /// What the answer's `Retry-After` said, if anything.
        retry_after: Option<Duration>,
    },
    /// A spend cap or quota is used up. Blocks the gate until the reset, or until it is unblocked.
    Quota {
        /// Time until the quota is renewed, where it is known.
        resets_in: Option<Duration>,
    },
    /// The upstream is overloaded (529, 503). Does not block; slows the gate down for a while.
    Overloaded {
        /// How many overloads in a row this call has met before this one.
        earlier: u32,
    },
    /// Anything else went wrong. Says nothing about the upstream's limits.
    Failed,
}

/// What the caller should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: the request is over.
    Done,
    /// Ask the gate again; it lets no one through before the block is over.
    AskAgain {
        /// Time left of the block.
        blocked_for: Duration,
    },
    /// Wait this long, then ask the gate again. Concerns this call alone.
    RetryIn(Duration),
    /// Give up: the quota is used up. Tell the operator.
    Stop {
        /// Time until the quota is renewed; `None` until the gate is unblocked.
        resets_in: Option<Duration>,
    },
}

/// Why `try_acquire` turned a request away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// A request of this name has a slot.
    AlreadyRunning,
    /// A request of this name waits for one.
    AlreadyQueued,
    /// The gate was closed.
    Closed,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            RejectReason::AlreadyRunning => "Already running",
            RejectReason::AlreadyQueued => "Already queued",
            RejectReason::Closed => "Gate closed",
        })
    }
}

/// Why a request got no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name is in use, or the gate is closed.
    #[error("{0}")]
    Rejected(RejectReason),
    /// The quota is used up; waiting would not help.
    #[error("Quota used up")]
    Quota {
        /// Time until the quota is renewed; `None` until the gate is unblocked.
        resets_in: Option<Duration>,
    },
    /// Someone took the request out of the queue.
    #[error("Cancelled")]
    Cancelled,
}

/// No request of this name has a slot. Nothing was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such request is running")]
pub struct NotRunning;

/// Why a request could not be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// No request of this name is known.
    #[error("no such request is queued")]
    Unknown,
    /// Its caller holds a permit; only the caller can end it.
    #[error("the request is already running")]
    Running,
}
