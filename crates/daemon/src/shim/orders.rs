//! Orders from a daemon to a shim, and the shim's answers. A daemon sends lines on the shim's socket, or writes them into
//! the run's record if it took the run over. The shim answers each by the number of the last ping that it read.
//!
//! A lease is renewed only after its shim has answered a ping: an agent of the same user can stop its shim, and a shim that
//! is stopped cannot end the agent in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Tenure;
use crate::boot::BootTime;
use crate::runner::terminate::{GRACE, Urgency};
use crate::tenure::{HeldLease, Renewal};

/// The longest line.
pub const LINE_BYTES: usize = 4 * 1_024;
/// How long a ping may be unanswered before the agent is ended without its shim, once its lease is no longer renewed.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Retry interval of a renewal whose ping was sent a moment ago, and of one whose shim has been silent for longer.
const RETRY_FAST: Duration = Duration::from_millis(50);
const RETRY_SLOW: Duration = Duration::from_secs(1);
/// `answered` while no shim is in charge: before it starts and after it ended, the daemon itself holds the lease.
const NO_SHIM: u64 = u64::MAX;

/// All that a shim is told; what was told last counts, and nothing is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Orders {
    /// How long the run may go on.
    pub until: Tenure,
    /// Whether it should end, and how.
    pub end: Option<Urgency>,
    /// Counts pings; the shim answers with this number.
    #[serde(default)]
    pub ping: u64,
}

impl Orders {
    /// What counts after both.
    pub fn and(self, later: Self) -> Self {
        let until = if later.until.stop_at > self.until.stop_at { later.until } else { self.until };
        Self { until, end: self.end.max(later.end), ping: self.ping.max(later.ping) }
    }

    /// As a line.
    pub fn line(&self) -> std::io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self).map_err(std::io::Error::other)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The answer to all pings up to a number, as a line on the shim's socket.
pub fn answer(ping: u64) -> String {
    format!("heard {ping}\n")
}

/// Reads a line that [`answer`] made.
pub fn read_answer(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line).ok()?.strip_prefix("heard ")?.trim_end().parse().ok()
}

/// The half that the owner of a lease keeps.
pub struct OrderSender {
    orders: watch::Sender<Orders>,
    answered: Arc<AtomicU64>,
    /// When the ping for the next renewal was sent.
    pinged_at: Option<Instant>,
    is_silent: bool,
}

/// The half that follows the run.
pub struct OrderReceiver {
    orders: watch::Receiver<Orders>,
    answered: Arc<AtomicU64>,
    latest: Orders,
    pinged_at: Instant,
}

/// Both halves.
pub fn channel(orders: Orders) -> (OrderSender, OrderReceiver) {
    let answered = Arc::new(AtomicU64::new(NO_SHIM));
    let (sender, receiver) = watch::channel(orders);
    (
        OrderSender { orders: sender, answered: Arc::clone(&answered), pinged_at: None, is_silent: false },
        OrderReceiver { orders: receiver, answered, latest: orders, pinged_at: Instant::now() },
    )
}

impl OrderSender {
    /// The lease was granted or renewed.
    pub fn extend(&mut self, until: Tenure) {
        self.pinged_at = None;
        self.orders.send_modify(|orders| orders.until = until);
    }

    /// The run should end.
    pub fn end(&self, urgency: Urgency) {
        self.orders.send_modify(|orders| {
            orders.end = orders.end.max(Some(urgency));
            orders.ping += 1;
        });
    }

    /// When the lease needs a ping or a renewal next.
    pub fn next_step_at(&self, lease: &HeldLease) -> Instant {
        if self.pinged_at.is_some() { lease.renew_at } else { lease.ping_at.min(lease.renew_at) }
    }

    /// Takes the next step towards a renewal: sends the ping when it is due, and says whether the lease may be renewed now.
    pub fn renewal(&mut self, lease: &mut HeldLease, now: Instant) -> Renewal {
        if now < self.next_step_at(lease) {
            return Renewal::NotYet;
        }
        let pinged_at = *self.pinged_at.get_or_insert_with(|| {
            self.orders.send_modify(|orders| orders.ping += 1);
            now
        });
        if now < lease.renew_at {
            return Renewal::NotYet;
        }
        if self.answered.load(Ordering::Relaxed) >= self.orders.borrow().ping {
            self.pinged_at = None;
            self.is_silent = false;
            return Renewal::Due;
        }
        let waited = now.saturating_duration_since(pinged_at);
        lease.renew_at = now + if waited < RETRY_SLOW { RETRY_FAST } else { RETRY_SLOW };
        if waited < RETRY_SLOW || std::mem::replace(&mut self.is_silent, true) {
            return Renewal::NotYet;
        }
        Renewal::Silent
    }
}

impl OrderReceiver {
    /// The latest orders. `changed` reports only what comes after them.
    pub fn latest(&mut self) -> Orders {
        let latest = *self.orders.borrow_and_update();
        if latest.ping > self.latest.ping {
            self.pinged_at = Instant::now();
        }
        self.latest = latest;
        latest
    }

    /// From now on the shim must answer.
    pub(super) fn hand_over(&self) {
        // An answer that came already stays one.
        let handed_over = |answered| (answered == NO_SHIM).then_some(self.latest.ping);
        let _unchanged = self.answered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, handed_over);
    }

    /// Waits for orders that were not seen; fails when the sender is gone.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.orders.changed().await
    }

    /// Has the present orders reported again.
    pub(super) fn mark_changed(&mut self) {
        self.orders.mark_changed();
    }

    /// The shim answered.
    pub(super) fn answered(&self, ping: u64) {
        self.answered.store(ping.min(self.latest.ping), Ordering::Relaxed);
    }

    /// How long an answer has been outstanding.
    pub(super) fn outstanding(&self) -> Option<Duration> {
        let is_answered = self.answered.load(Ordering::Relaxed) >= self.latest.ping;
        (!is_answered).then(|| self.pinged_at.elapsed())
    }

    /// When the run must be ended without its shim, unless the shim answers before: a shim that was told to end the run
    /// has the grace that it would give the agent, any other until it should have ended the agent by itself.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        self.outstanding()?;
        if self.latest.end.is_some() {
            return Some(self.pinged_at + GRACE);
        }
        let stop_at = Instant::now() + BootTime::now().until(self.latest.until.stop_at);
        Some(stop_at.max(self.pinged_at + ANSWER_WITHIN))
    }

    /// Waits as long again before the run is ended once more.
    pub(super) fn wait_again(&mut self) {
        self.pinged_at = Instant::now();
    }
}

impl Drop for OrderReceiver {
    fn drop(&mut self) {
        self.answered.store(NO_SHIM, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenure::Sent;

    #[test]
    fn nothing_is_taken_back() {
        let lease = |secs| {
            Tenure::since(BootTime::default().after(Duration::from_secs(secs)), Duration::from_secs(10))
        };
        let of = |secs, end| Orders { until: lease(secs), end, ping: secs };
        for (told, later, wanted) in [
            (of(0, None), of(3, None), of(3, None)),
            (of(3, None), of(0, None), of(3, None)),
            (of(0, Some(Urgency::Ask)), of(3, None), of(3, Some(Urgency::Ask))),
            (of(0, Some(Urgency::Tell)), of(0, Some(Urgency::Ask)), of(0, Some(Urgency::Tell))),
        ] {
            assert_eq!(told.and(later), wanted);
        }
    }

    #[test]
    fn a_lease_is_renewed_only_after_its_shim_answered() {
        let sent = Sent::now();
        let at = |secs| sent.at + Duration::from_secs(secs);
        let lease_from = |secs| HeldLease::lasting(Duration::from_secs(12), Sent { at: at(secs), ..sent });
        let mut lease = lease_from(0);
        let (mut sender, mut receiver) = channel(Orders { until: lease.tenure, ..Orders::default() });
        assert_eq!(sender.renewal(&mut lease, at(0)), Renewal::NotYet);
        assert_eq!(sender.renewal(&mut lease, at(4)), Renewal::Due, "no shim is in charge yet");
        lease = lease_from(4);
        sender.extend(lease.tenure);
        receiver.latest();
        receiver.hand_over();
        assert_eq!(sender.renewal(&mut lease, at(7)), Renewal::NotYet, "pinged");
        assert_eq!(sender.renewal(&mut lease, at(8)), Renewal::Silent);
        assert_eq!(sender.renewal(&mut lease, at(9)), Renewal::NotYet, "said once");
        let ping = receiver.latest().ping;
        assert!(receiver.outstanding().is_some() && receiver.overdue_at().is_some());
        receiver.answered(ping);
        assert!(receiver.outstanding().is_none() && receiver.overdue_at().is_none());
        assert_eq!(sender.renewal(&mut lease, at(10)), Renewal::Due, "a late answer counts");
        sender.end(Urgency::Ask);
        receiver.latest();
        assert!(receiver.overdue_at().is_some(), "a shim must hear that it should end the run");
        drop(receiver);
        sender.renewal(&mut lease, at(11));
        assert_eq!(sender.renewal(&mut lease, at(11)), Renewal::Due, "over, but not settled yet");
    }

    #[test]
    fn answers_are_read_as_written() {
        assert_eq!(read_answer(answer(7).as_bytes()), Some(7));
        for other in ["heard", "heard x", "cannot fork: heard 7"] {
            assert_eq!(read_answer(other.as_bytes()), None, "{other}");
        }
    }
}
