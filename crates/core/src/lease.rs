//! Fences, lease ids, and the identity of a caller.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::TaskId;

/// The number of a grant. Incremented by each grant, never reused, and checked by every later command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(u64);

impl Fence {
    /// Never granted.
    pub const NONE: Self = Self(0);

    /// From a stored number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of the next grant.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `lease-<task id>-<fence>`: unique for ever.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LeaseId {
    /// The task it was granted on.
    pub task: TaskId,
    /// The fence of the grant.
    pub fence: Fence,
}

/// The text is not a lease id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a lease id (lease-<task id>-<number>)")]
pub struct BadLeaseId {
    /// The given text, escaped.
    pub given: String,
}

impl LeaseId {
    /// Parses `lease-<task id>-<fence>`; the task id may itself contain dashes.
    pub fn parse(text: &str) -> Result<Self, BadLeaseId> {
        let bad = || BadLeaseId { given: crate::text::escaped(text).into_owned() };
        let (task, fence) =
            text.strip_prefix("lease-").and_then(|rest| rest.rsplit_once('-')).ok_or_else(bad)?;
        let canonical = fence.bytes().all(|byte| byte.is_ascii_digit()) && !fence.starts_with('0');
        let number = fence.parse::<u64>().ok().filter(|_| canonical).ok_or_else(bad)?;
        Ok(Self { task: TaskId::new(task).map_err(|_| bad())?, fence: Fence(number) })
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease-{}-{}", self.task, self.fence)
    }
}

impl From<LeaseId> for String {
    fn from(lease: LeaseId) -> Self {
        lease.to_string()
    }
}

impl TryFrom<String> for LeaseId {
    type Error = BadLeaseId;

    fn try_from(text: String) -> Result<Self, BadLeaseId> {
        Self::parse(&text)
    }
}

/// The identity that a caller claims. Naming neither agent nor lease is allowed; naming another's never is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// The agent's name.
    pub agent: Option<String>,
    /// The lease it works under.
    pub lease: Option<LeaseId>,
}

impl Caller {
    /// A caller that names only an agent.
    pub fn agent(name: &str) -> Self {
        Self { agent: Some(name.to_owned()), lease: None }
    }

    /// A caller that names only a lease.
    pub fn lease(lease: LeaseId) -> Self {
        Self { agent: None, lease: Some(lease) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_read_back() {
        for (task, fence) in [("a", 1), ("a-b-3", 12), ("lease-x-1", 7), ("x-", 1)] {
            let lease = LeaseId { task: TaskId::from_stored(task.into()), fence: Fence::new(fence) };
            assert_eq!(LeaseId::parse(&lease.to_string()), Ok(lease));
        }
        for bad in [
            "",
            "lease-",
            "lease-a",
            "lease-a-",
            "lease-a-x",
            "lease-a-01",
            "lease--1",
            "lease-a-+1",
            "a-1",
            "lease-a-99999999999999999999",
        ] {
            assert!(LeaseId::parse(bad).is_err(), "{bad}");
        }
    }
}
