//! The leases that this process holds, and its requests to the store about them.
//!
//! `rota work` and `rota up` each own a [`LeaseHolder`]. The owner decides what to run and what an end means; the holder
//! knows when leases are due, sends what is due as one transaction ([`SyncLeases`]), and waits longer and longer for a store
//! that is away. Always true:
//!
//! - One request is in flight at most. What becomes due meanwhile goes with the next one.
//! - A lease is counted from before the request that granted or renewed it was sent, so it ends here no later than in the
//!   store.
//! - A lease is renewed only after its shim has answered a ping, and not after its shim has ended the run by itself.
//! - A lease with an end is not renewed. It stays here until the store has accepted or refused the end, or until the owner
//!   gives it up; until then the run's record stays where the next daemon finds it.
//! - A lease that is not held any more is neither renewed nor settled; it stays here until its run has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use rota_core::transition::Command;
use rota_core::{Caller, LeaseId, Task};
use rota_store::intents::settle::Step;
use rota_store::intents::sync_leases::{LeasesSynced, SyncLeases};
use rota_store::{AnyStore, Outcome, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::runner::terminate::Urgency;
use crate::shim::orders::OrderSender;
use crate::signals::PARTING;
use crate::tenure::{HeldLease, Renewal, Sent};

/// The first wait after the store did not answer, doubled up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The shortest wait, for leases that are about to end.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Leases by their id, each with its owner's data about the run and about its end.
pub struct LeaseHolder<R, E> {
    store: AnyStore,
    leases: BTreeMap<LeaseId, Lease<R, E>>,
    in_flight: Option<(Request, JoinHandle<Outcome<LeasesSynced>>)>,
    /// No request before this.
    retry_at: Instant,
    /// The wait after the next failure.
    next_wait: Duration,
    is_away: bool,
    stopping: Option<Urgency>,
    stop_by: Option<Instant>,
}

/// A lease.
pub struct Lease<R, E> {
    /// To its shim.
    pub orders: OrderSender,
    /// When its run began here.
    pub started: Instant,
    /// When it is due.
    pub times: HeldLease,
    /// Whether it is still ours to renew and to settle.
    pub is_held: bool,
    /// The owner's data about the run.
    pub run: R,
    /// How the run ended, once it has.
    pub end: Option<E>,
}

/// What a request was about.
pub struct Request {
    /// Just before it was sent.
    pub sent: Sent,
    /// The leases of its steps, in order.
    pub leases: Vec<LeaseId>,
}

/// Leases that something must be done about.
#[derive(Default)]
pub struct Due {
    /// To be renewed.
    pub renewals: Vec<LeaseId>,
    /// To be renewed, but their shims do not answer. Reported once for each silence.
    pub silent: Vec<LeaseId>,
    /// Their shims have ended the runs by now: this process was stopped or suspended.
    pub stale: Vec<LeaseId>,
}

impl<R, E> LeaseHolder<R, E> {
    /// Holds nothing yet.
    pub fn new(store: AnyStore) -> Self {
        Self {
            store,
            leases: BTreeMap::new(),
            in_flight: None,
            retry_at: Instant::now(),
            next_wait: FIRST_WAIT,
            is_away: false,
            stopping: None,
            stop_by: None,
        }
    }

    /// Holds a lease from now on.
    pub fn insert(&mut self, id: LeaseId, orders: OrderSender, times: HeldLease, run: R, end: Option<E>) {
        self.leases.insert(id, Lease { orders, started: Instant::now(), times, is_held: true, run, end });
    }

    /// Forgets a lease.
    pub fn remove(&mut self, id: &LeaseId) -> Option<Lease<R, E>> {
        self.leases.remove(id)
    }

    /// One lease.
    pub fn get_mut(&mut self, id: &LeaseId) -> Option<&mut Lease<R, E>> {
        self.leases.get_mut(id)
    }

    /// All leases.
    pub fn iter(&self) -> impl Iterator<Item = (&LeaseId, &Lease<R, E>)> {
        self.leases.iter()
    }

    /// How many there are, ended ones included.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Whether no request is in flight.
    pub fn is_free(&self) -> bool {
        self.in_flight.is_none()
    }

    /// Whether a request may be sent now.
    pub fn may_send(&self) -> bool {
        self.is_free() && Instant::now() >= self.retry_at
    }

    /// Whether the store did not answer the last request.
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Whether the runs are being ended, and how.
    pub fn stopping(&self) -> Option<Urgency> {
        self.stopping
    }

    /// Ends every run, and bounds how long a store that is away is waited for.
    pub fn stop(&mut self, urgency: Urgency) {
        self.stopping = self.stopping.max(Some(urgency));
        self.stop_by.get_or_insert_with(|| Instant::now() + PARTING);
        for lease in self.leases.values() {
            lease.orders.end(urgency);
        }
    }

    /// When something is due that no event announces. `has_more` if the owner wants to send a request at once; `other` is
    /// when it wants to at the latest.
    pub fn next_moment(&self, has_more: bool, other: Option<Instant>) -> Option<Instant> {
        let running = self.leases.values().filter(|lease| lease.is_held && lease.end.is_none());
        let due = if has_more || self.leases.values().any(|lease| lease.end.is_some()) {
            Some(self.retry_at)
        } else {
            running.map(|lease| lease.orders.next_step_at(&lease.times)).chain(other).min()
        };
        due.map(|due| due.max(self.retry_at))
    }

    /// The leases that are due. Pings the shims of those that are due soon.
    pub fn due(&mut self, now: Sent) -> Due {
        let mut due = Due::default();
        let running = |lease: &Lease<R, E>| lease.is_held && lease.end.is_none();
        for (id, lease) in self.leases.iter_mut().filter(|(_, lease)| running(lease)) {
            let is_stale = lease.times.is_stale(now) && lease.times.renew_at <= now.at;
            match lease.orders.renewal(&mut lease.times, now.at) {
                _ if is_stale => due.stale.push(id.clone()),
                Renewal::NotYet => {}
                Renewal::Due => due.renewals.push(id.clone()),
                Renewal::Silent => due.silent.push(id.clone()),
            }
        }
        due
    }

    /// Sends a request. `leases` are those of its steps, in order.
    pub fn send(&mut self, sent: Sent, leases: Vec<LeaseId>, sync: SyncLeases) {
        assert!(self.in_flight.is_none(), "one request is in flight at most");
        let store = self.store.clone();
        let answer = tokio::spawn(async move { store.perform(&sync).await });
        self.in_flight = Some((Request { sent, leases }, answer));
    }

    /// Waits for the answer to the request in flight; for ever if there is none.
    pub async fn answer(&mut self) -> (Request, Outcome<LeasesSynced>) {
        let answer = match &mut self.in_flight {
            Some((_, answer)) => answer.await,
            None => std::future::pending().await,
        };
        let Some((request, _)) = self.in_flight.take() else { unreachable!("it was answered") };
        let answer = answer.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.is_away = answer.is_err();
        if self.is_away {
            self.retry_at = Instant::now() + self.wait();
            self.next_wait = (self.next_wait * 2).min(LONGEST_WAIT);
        } else {
            (self.retry_at, self.next_wait) = (request.sent.at, FIRST_WAIT);
        }
        (request, answer)
    }

    /// How long until a store that did not answer is asked again: several times before a lease ends.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let left = |lease: &Lease<R, E>| lease.times.expires_at.saturating_duration_since(now);
        let shortest = self.leases.values().map(left).filter(|left| !left.is_zero()).min();
        shortest.map_or(self.next_wait, |left| self.next_wait.min((left / 8).max(SHORTEST_WAIT)))
    }

    /// The store has renewed a lease.
    pub fn renewed(&mut self, id: &LeaseId, task: &Task, sent: Sent) {
        if let Some(lease) = self.leases.get_mut(id) {
            lease.times = HeldLease::of(task, sent);
            lease.orders.extend(lease.times.tenure);
        }
    }

    /// Whether the end of a run may still be settled by this process: its lease has not ended, and a process that is being
    /// stopped has waited less than it may.
    pub fn is_worth_waiting(&self, id: &LeaseId) -> bool {
        let now = Instant::now();
        let is_patient = match self.stopping {
            None => true,
            Some(Urgency::Ask) => self.stop_by.is_none_or(|at| now < at),
            Some(Urgency::Tell) => false,
        };
        is_patient && self.leases.get(id).is_some_and(|lease| lease.times.expires_at > now)
    }
}

/// The step that renews a lease.
pub fn renewal_of(lease: &LeaseId) -> Step {
    let caller = Caller::lease(lease.clone());
    Step { id: lease.task.clone(), command: Command::Renew { caller, ttl_ms: None } }
}
