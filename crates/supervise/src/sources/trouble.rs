//! How a tracker fails, and what that means. Never a token, never a body.

use std::time::Duration;

/// A call to a tracker that did not do what it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Trouble {
    /// No connection, or it broke.
    #[error("{what}: no answer: {problem}")]
    Unreachable {
        /// Which call.
        what: String,
        /// What the system said.
        problem: String,
    },
    /// No answer in time.
    #[error("{what}: no answer within {} s", .waited.as_secs_f32())]
    TimedOut {
        /// Which call.
        what: String,
        /// How long we waited.
        waited: Duration,
    },
    /// 401, 403: the token is wrong, or may not do this.
    #[error("{what}: {status}: the token is not accepted, or may not do this")]
    Forbidden {
        /// Which call.
        what: String,
        /// The status.
        status: u16,
    },
    /// 404, 410: it is not there, or not for this token to see.
    #[error("{what}: {status}: there is no such thing, or this token may not see it")]
    NotFound {
        /// Which call.
        what: String,
        /// The status.
        status: u16,
    },
    /// 409, 412: somebody else changed it at the same time.
    #[error("{what}: {status}: somebody else changed it at the same time")]
    Conflict {
        /// Which call.
        what: String,
        /// The status.
        status: u16,
    },
    /// 400, 422: the tracker does not take what we sent.
    #[error("{what}: {status}: the tracker does not accept what was sent")]
    Refused {
        /// Which call.
        what: String,
        /// The status.
        status: u16,
    },
    /// 423, or a repository that is archived: nothing can be changed.
    #[error("{what}: the repository is archived or locked: nothing can be changed in it")]
    Locked {
        /// Which call.
        what: String,
    },
    /// 429, or 403 with nothing left: the tracker wants to be left alone.
    #[error("{what}: rate limited by the tracker for {} s", .wait.as_secs())]
    RateLimited {
        /// Which call.
        what: String,
        /// How long from now.
        wait: Duration,
    },
    /// 5xx.
    #[error("{what}: {status}: the tracker failed")]
    Failed {
        /// Which call.
        what: String,
        /// The status.
        status: u16,
    },
    /// Something else than the tracker's JSON: a proxy's page, a redirection.
    #[error("{what}: {problem}")]
    Odd {
        /// Which call.
        what: String,
        /// What came.
        problem: String,
    },
    /// The store, where it is the tracker.
    #[error("{what}: {problem}")]
    Store {
        /// Which call.
        what: String,
        /// What the store said.
        problem: String,
    },
}

impl Trouble {
    /// Whether the same call may succeed a moment later.
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TimedOut { .. }
                | Self::Conflict { .. }
                | Self::Failed { .. }
                | Self::Odd { .. }
        )
    }

    /// Whether it says something about the tracker as a whole, and nothing about the issue at hand.
    pub const fn is_general(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { .. } | Self::Locked { .. } | Self::RateLimited { .. } | Self::Store { .. }
        )
    }

    /// The last word of the environment's code.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::RateLimited { .. }
            | Self::Failed { .. }
            | Self::Store { .. } => "unreachable",
            Self::Forbidden { .. } | Self::NotFound { .. } | Self::Locked { .. } => "auth_failed",
            Self::Conflict { .. } | Self::Refused { .. } | Self::Odd { .. } => "invalid_response",
        }
    }
}
