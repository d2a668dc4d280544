//! How a request ended, the advice that follows, and why a request was refused.

use std::fmt;
use std::time::Duration;

/// Tokens that a response reported. Input as the provider counts it (without what it read from its cache).
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
    /// The upstream answered; the reported tokens count in the token windows.
    Success(Usage),
    /// The upstream answered 429. Blocks the gate; above [`QUOTA_ABOVE`](crate::QUOTA_ABOVE) it is a quota.
    RateLimited {
        /// The response's `Retry-After`, if any.
        retry_after: Option<Duration>,
    },
    /// A spend cap or quota is spent. Blocks the gate until the reset, or until it is unblocked.
    Quota {
        /// Time until the quota is renewed, if known.
        resets_in: Option<Duration>,
    },
    /// The upstream is overloaded (529, 503). Does not block; slows the gate down for a while.
    Overloaded {
        /// The number of consecutive overloads of this call before this one.
        earlier: u32,
    },
    /// Any other failure. It implies nothing about the upstream's limits.
    Failed,
}

/// The advice to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: the request is over.
    Done,
    /// Request a slot again; the gate admits no request before the block is over.
    AskAgain {
        /// Time left of the block.
        blocked_for: Duration,
    },
    /// Wait this long, then request a slot again. Applies to this call alone.
    RetryIn(Duration),
    /// Give up: the quota is spent. Inform the operator.
    Stop {
        /// Time until the quota is renewed; `None` until the gate is unblocked.
        resets_in: Option<Duration>,
    },
}

/// Why `try_acquire` rejected a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// A request with this name has a slot.
    AlreadyRunning,
    /// A request with this name is waiting.
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
    /// The quota is spent; waiting would not help.
    #[error("Quota used up")]
    Quota {
        /// Time until the quota is renewed; `None` until the gate is unblocked.
        resets_in: Option<Duration>,
    },
    /// The request was removed from the queue.
    #[error("Cancelled")]
    Cancelled,
}

/// No request with this name has a slot. Nothing was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such request is running")]
pub struct NotRunning;

/// Why a request could not be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// No request with this name is known.
    #[error("no such request is queued")]
    Unknown,
    /// Its caller holds a permit; only the caller can end it.
    #[error("the request is already running")]
    Running,
}
