//! A turn at the store: outcomes, renewals and new tasks in one transaction, and what follows from its answer.

use std::time::Duration;

use rota_core::transition::Command;
use rota_core::{Caller, LeaseId, Outcome as AttemptOutcome, Refusal, Status, Task};
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::read::Journal;
use rota_store::intents::settle::{Settle, Settled, Step};
use rota_store::{Error, EventFilter, Outcome, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::verdict::{self, Verdict};
use super::{Progress, Worker};
use crate::runner::terminate::Urgency;
use crate::tenure::{HeldLease, Renewal, Sent};

/// The first wait after the store did not answer, doubled up to the longest.
pub const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What was asked, and where the answer will be.
pub struct Turn {
    sent: Sent,
    /// The leases of the steps, in order.
    leases: Vec<LeaseId>,
    room: usize,
    answer: JoinHandle<Outcome<Settled>>,
}

/// Waits for the answer of a turn; for ever if there is none.
pub async fn answer(turn: &mut Option<Turn>) -> Outcome<Settled> {
    match turn {
        Some(turn) => match (&mut turn.answer).await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
        None => std::future::pending().await,
    }
}

impl Worker<'_> {
    /// Asks for whatever is due, if anything is.
    pub(super) fn begin_turn(&mut self) -> Option<Turn> {
        let sent = Sent::now();
        let since = sent.at;
        if since < self.patience.0 {
            return None;
        }
        if self.cooling.values().any(|due| *due <= since) {
            self.cooling.retain(|_, due| *due > since);
            self.look = true;
        }
        let due = self.due_steps(since);
        let room = if self.look || !due.is_empty() { self.room() } else { 0 };
        if due.is_empty() && room == 0 {
            return None;
        }
        let (leases, steps) = due.into_iter().unzip();
        let then = (room > 0).then(|| self.claim(room));
        let settle = Settle { call: self.work.call.clone(), steps, then };
        let store = self.store.clone();
        let answer = tokio::spawn(async move { store.perform(&settle).await });
        self.look = false;
        Some(Turn { sent, leases, room, answer })
    }

    /// Outcomes, and renewals of the leases whose shims answer.
    fn due_steps(&mut self, now: Instant) -> Vec<(LeaseId, Step)> {
        let (mut due, mut silent) = (Vec::new(), Vec::new());
        for (lease, job) in &mut self.running {
            let command = match &job.end {
                Some(verdict) => verdict.command.clone(),
                None if !job.is_held => continue,
                None => match job.orders.renewal(&mut job.lease, now) {
                    Renewal::Due => Command::Renew { caller: Caller::lease(lease.clone()), ttl_ms: None },
                    Renewal::NotYet => continue,
                    Renewal::Silent => {
                        silent.push(lease.clone());
                        continue;
                    }
                },
            };
            due.push((lease.clone(), Step { id: lease.task.clone(), command }));
        }
        for lease in silent {
            (self.tell)(Progress::Silent { lease });
        }
        due
    }

    fn claim(&self, limit: usize) -> Claim {
        Claim {
            call: self.work.call.clone(),
            queue: self.work.queue.clone(),
            limit,
            agent: Some(self.work.agent.clone()),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: self.work.host.clone(),
        }
    }

    /// Goes by the answer of a turn.
    pub(super) async fn heard(&mut self, turn: Turn, answer: Outcome<Settled>) {
        let settled = match answer {
            Ok(settled) => settled,
            Err(error) => return self.trouble(turn, error),
        };
        self.patience = (turn.sent.at, FIRST_WAIT);
        // A refused step claims nothing, so that says nothing about the backlog.
        let was_refused = settled.steps.iter().any(Result::is_err);
        for (lease, step) in turn.leases.into_iter().zip(settled.steps) {
            match step {
                Ok(task) => self.accepted(lease, &task, turn.sent),
                Err(refusal) => self.refused(lease, &refusal).await,
            }
        }
        let granted = settled.granted.len();
        settled.granted.into_iter().for_each(|grant| self.start(grant, turn.sent));
        self.look |= turn.room > 0 && (was_refused || granted == turn.room);
        if self.running.is_empty() && self.stopping.is_none() {
            (self.tell)(Progress::Idle);
        }
    }

    fn accepted(&mut self, lease: LeaseId, task: &Task, sent: Sent) {
        let Some(job) = self.running.get_mut(&lease) else { return };
        // A lease may have been renewed while its command ended.
        let settled_as = job.end.take_if(|_| task.status != Status::Active);
        let Some(Verdict { outcome, detail, .. }) = settled_as else {
            return job.extend(HeldLease::of(task, sent));
        };
        let took = job.started.elapsed();
        self.forget(&lease);
        if let Some(due) = task.next_eligible_at {
            let wait = due.get().saturating_sub(task.updated_at.get()).max(0).unsigned_abs();
            // From after the answer, and a millisecond more: asked too early, the store would say that nothing is left.
            let wait = Duration::from_millis(wait.saturating_add(1));
            self.cooling.insert(lease.task.clone(), Instant::now() + wait);
        }
        if outcome != verdict::FAILED {
            self.failures.remove(&lease.task);
        }
        self.count(outcome);
        (self.tell)(Progress::Settled { lease, outcome, detail, took });
    }

    /// The lease is gone. If the task was settled as done under it, the command did so itself, and may finish what it is
    /// at; a command whose lease was taken away is stopped.
    async fn refused(&mut self, lease: LeaseId, refusal: &Refusal) {
        let outcome = match self.journalled(&lease).await {
            Ok(Some(AttemptOutcome::Lost) | None) => None,
            Ok(Some(outcome)) => Some(outcome),
            // Not knowing how it ended changes nothing: it is not ours any more.
            Err(_) => None,
        };
        let Some(job) = self.running.get_mut(&lease) else { return };
        job.is_held = false;
        if job.end.is_some() {
            let is_counted = job.end.as_ref().is_some_and(|verdict| verdict.outcome == verdict::FAILED);
            if outcome == Some(AttemptOutcome::Failed) && !is_counted {
                *self.failures.entry(lease.task.clone()).or_default() += 1;
            }
            self.forget(&lease);
        } else if outcome != Some(AttemptOutcome::Done) {
            job.stop(self.stopping.unwrap_or(Urgency::Ask));
        }
        match outcome {
            Some(outcome) => {
                let outcome = verdict::word(outcome);
                self.count(outcome);
                (self.tell)(Progress::SettledElsewhere { lease, outcome });
            }
            None => {
                self.count(verdict::LATE);
                (self.tell)(Progress::Late { lease, refusal: refusal.to_string() });
            }
        }
    }

    /// How the journal says that a lease ended.
    async fn journalled(&self, lease: &LeaseId) -> Outcome<Option<AttemptOutcome>> {
        let filter = EventFilter { task: Some(lease.task.clone()), ..EventFilter::default() };
        let events = self.store.perform(&Journal { call: self.work.call.clone(), filter }).await?;
        let end = events
            .into_iter()
            .find(|event| event.data.outcome.is_some() && event.lease().is_some_and(|ended| ended == *lease));
        Ok(end.and_then(|event| event.data.outcome))
    }

    /// What may pass is told and asked again; anything else ends the work.
    fn trouble(&mut self, turn: Turn, error: Error) {
        let may_pass = matches!(&error, Error::Fault(fault) if fault.exit_code() == 75);
        let is_patient = match self.stopping {
            None => true,
            Some(Urgency::Ask) => {
                let now = Instant::now();
                self.stop_by.is_none_or(|at| now < at)
                    && self.running.values().any(|job| job.lease.expires_at > now)
            }
            Some(Urgency::Tell) => false,
        };
        let wait = self.patience.1;
        self.patience = (Instant::now() + wait, (wait * 2).min(LONGEST_WAIT));
        if may_pass && is_patient {
            self.look |= turn.room > 0;
            return (self.tell)(Progress::Trouble { problem: error.to_string() });
        }
        // What has ended stays unsettled: the leases run out, and the tasks are granted again.
        self.running.retain(|_, job| job.end.is_none());
        self.failed.get_or_insert(error);
        self.wind_down(Urgency::Ask);
    }
}
