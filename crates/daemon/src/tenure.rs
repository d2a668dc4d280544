//! How long a lease of ours surely is ours: counted from before it was asked for.

use std::time::Duration;

use rota_core::Task;
use tokio::time::Instant;

use crate::boot::BootTime;
use crate::shim::record::Tenure;

/// When a request was sent, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// For what this process waits for.
    pub at: Instant,
    /// For what must hold through suspend, and in other processes.
    pub boot: BootTime,
}

impl Sent {
    /// Now.
    pub fn now() -> Self {
        Self { at: Instant::now(), boot: BootTime::now() }
    }
}

/// Whether a lease may be renewed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// Not due, or its shim has not answered yet.
    NotYet,
    /// Due, and its shim has answered.
    Due,
    /// Due, but its shim does not answer. Reported once for each silence.
    Silent,
}

/// A lease that was granted or renewed.
#[derive(Clone, Copy, Debug)]
pub struct HeldLease {
    /// When to ping its shim, so that the answer is there by the renewal.
    pub ping_at: Instant,
    /// When to renew it.
    pub renew_at: Instant,
    /// When it ends.
    pub expires_at: Instant,
    /// The same, for a shim.
    pub tenure: Tenure,
}

impl HeldLease {
    /// As the answer to a request says. It is renewed every third of its length.
    pub fn of(task: &Task, sent: Sent) -> Self {
        let until = task.lease_expires_at.unwrap_or(task.updated_at);
        let length = until.get().saturating_sub(task.updated_at.get()).max(0).unsigned_abs();
        Self::lasting(Duration::from_millis(length), sent)
    }

    /// For so long.
    pub fn lasting(length: Duration, sent: Sent) -> Self {
        Self {
            ping_at: sent.at + length / 4,
            renew_at: sent.at + (length / 3).max(Duration::from_millis(10)),
            expires_at: sent.at + length,
            tenure: Tenure::since(sent.boot, length),
        }
    }

    /// Whether it is too late to say anything about it: we may have been stopped or suspended.
    pub fn is_stale(&self, now: Sent) -> bool {
        now.boot >= self.tenure.stop_at
    }
}
