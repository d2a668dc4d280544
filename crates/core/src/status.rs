//! The states of a task, the words each front shows for them, and the ways an attempt can end.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a task. One enum for tasks, runs, loops and issues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Not held; may be granted if it has no obstacle.
    Open,
    /// Granted; a lease is held until it is settled or reclaimed.
    Active,
    /// Paused by a person.
    Paused,
    /// Finished successfully.
    Done,
    /// Failed for good: out of iterations, or its parent was deleted.
    Failed,
    /// Out of attempts, or needs a person.
    Parked,
    /// Cancelled, or its parent started another iteration.
    Invalidated,
    /// Soft-deleted.
    Deleted,
}

/// The vocabulary in which a status is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Front {
    /// `rota task`
    Task,
    /// `rota sched` and `rota queue`
    Sched,
    /// `rota loop`
    Loop,
}

impl Status {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Open,
        Self::Active,
        Self::Paused,
        Self::Done,
        Self::Failed,
        Self::Parked,
        Self::Invalidated,
        Self::Deleted,
    ];

    /// The word of `rota task`, which is also the stored one.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Parked => "parked",
            Self::Invalidated => "invalidated",
            Self::Deleted => "deleted",
        }
    }

    /// The word of a front; `was_leased` distinguishes the scheduler's `ready` from its `pending`.
    pub const fn word_for(self, front: Front, was_leased: bool) -> &'static str {
        match (front, self) {
            (Front::Sched, Self::Open) if was_leased => "ready",
            (Front::Sched | Front::Loop, Self::Open) => "pending",
            (Front::Sched, Self::Active) => "leased",
            (Front::Sched, Self::Done) => "drained",
            (Front::Loop, Self::Active) => "running",
            (Front::Loop, Self::Done) => "complete",
            _ => self.word(),
        }
    }

    /// Parses the stored word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// Whether an edge to a task in this state no longer blocks.
    pub const fn satisfies_edge(self) -> bool {
        matches!(self, Self::Done | Self::Deleted)
    }

    /// Whether only an explicit action leads out of it.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Invalidated | Self::Deleted)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How an attempt ended. The policy decides what follows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Finished successfully.
    Done,
    /// Reported as failed.
    Failed,
    /// The lease expired and was reclaimed.
    Lost,
    /// The API was rate limited.
    RateLimited,
    /// The daemon stopped.
    Interrupted,
    /// The holder returned the lease.
    Released,
    /// A person must look at it.
    NeedsPerson,
}

impl Outcome {
    /// All seven.
    pub const ALL: [Self; 7] = [
        Self::Done,
        Self::Failed,
        Self::Lost,
        Self::RateLimited,
        Self::Interrupted,
        Self::Released,
        Self::NeedsPerson,
    ];

    /// The word in the journal and in payloads.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::RateLimited => "rate_limited",
            Self::Interrupted => "interrupted",
            Self::Released => "released",
            Self::NeedsPerson => "needs_person",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_front_has_its_words() {
        let words = |front, leased| Status::ALL.map(|status| status.word_for(front, leased));
        assert_eq!(
            words(Front::Task, true),
            ["open", "active", "paused", "done", "failed", "parked", "invalidated", "deleted"]
        );
        assert_eq!(
            words(Front::Sched, false),
            ["pending", "leased", "paused", "drained", "failed", "parked", "invalidated", "deleted"]
        );
        assert_eq!(words(Front::Sched, true)[0], "ready");
        assert_eq!(
            words(Front::Loop, true),
            ["pending", "running", "paused", "complete", "failed", "parked", "invalidated", "deleted"]
        );
        for status in Status::ALL {
            assert_eq!(Status::from_word(status.word()), Some(status));
        }
    }
}
