//! One exchange with the store: outcomes, renewals and new tasks in one transaction, and what follows from its answer.

use std::time::Duration;

use rota_core::{LeaseId, Outcome as AttemptOutcome, Refusal, Status, Task};
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::read::Journal;
use rota_store::intents::settle::{Settle, Step};
use rota_store::intents::sync_leases::{LeasesSynced, SyncLeases};
use rota_store::{Error, EventFilter, Outcome, Store};
use tokio::time::Instant;

use super::verdict::{self, Verdict};
use super::{Progress, Worker};
use crate::lease_holder::{Due, Request, renewal_of};
use crate::runner::terminate::Urgency;
use crate::tenure::Sent;

impl Worker<'_> {
    /// Asks for everything that is due, if anything is.
    pub(super) fn send_due(&mut self) {
        if !self.holder.may_send() {
            return;
        }
        let sent = Sent::now();
        if self.cooling.values().any(|due| *due <= sent.at) {
            self.cooling.retain(|_, due| *due > sent.at);
            self.look = true;
        }
        let due = self.due_steps(sent);
        let room = if self.look || !due.is_empty() { self.room() } else { 0 };
        if due.is_empty() && room == 0 {
            return;
        }
        let (leases, steps) = due.into_iter().unzip();
        let then = (room > 0).then(|| self.claim(room));
        let settle = Settle { call: self.work.call.clone(), steps, then };
        self.holder.send(sent, leases, SyncLeases { settle, loops: None });
        (self.look, self.claimed) = (false, room);
    }

    /// Outcomes, and renewals of the leases whose shims answer. A lease that was not renewed in time is left to its shim,
    /// which has ended the command and reports it.
    fn due_steps(&mut self, now: Sent) -> Vec<(LeaseId, Step)> {
        let Due { renewals, silent, stale: _ } = self.holder.due(now);
        for lease in silent {
            (self.tell)(Progress::Silent { lease });
        }
        let ended = self.holder.iter().filter_map(|(lease, job)| {
            let command = job.end.as_ref()?.command.clone();
            Some((lease.clone(), Step { id: lease.task.clone(), command }))
        });
        ended.chain(renewals.iter().map(|lease| (lease.clone(), renewal_of(lease)))).collect()
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

    /// Goes by the answer to a request.
    pub(super) async fn heard(&mut self, request: Request, answer: Outcome<LeasesSynced>) {
        let settled = match answer {
            Ok(synced) => synced.settled,
            Err(error) => return self.trouble(error),
        };
        // A refused step claims nothing, so that says nothing about the backlog.
        let was_refused = settled.steps.iter().any(Result::is_err);
        for (lease, step) in request.leases.into_iter().zip(settled.steps) {
            match step {
                Ok(task) => self.accepted(lease, &task, request.sent),
                Err(refusal) => self.refused(lease, &refusal).await,
            }
        }
        let granted = settled.granted.len();
        settled.granted.into_iter().for_each(|grant| self.start(grant, request.sent));
        self.look |= self.claimed > 0 && (was_refused || granted == self.claimed);
        if self.holder.is_empty() && self.holder.stopping().is_none() {
            (self.tell)(Progress::Idle);
        }
    }

    fn accepted(&mut self, lease: LeaseId, task: &Task, sent: Sent) {
        let Some(job) = self.holder.get_mut(&lease) else { return };
        // A lease may have been renewed while its command ended.
        let settled_as = job.end.take_if(|_| task.status != Status::Active);
        let Some(Verdict { outcome, detail, .. }) = settled_as else {
            return self.holder.renewed(&lease, task, sent);
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
        let stopping = self.holder.stopping();
        let Some(job) = self.holder.get_mut(&lease) else { return };
        job.is_held = false;
        if job.end.is_some() {
            let is_counted = job.end.as_ref().is_some_and(|verdict| verdict.outcome == verdict::FAILED);
            if outcome == Some(AttemptOutcome::Failed) && !is_counted {
                *self.failures.entry(lease.task.clone()).or_default() += 1;
            }
            self.forget(&lease);
        } else if outcome != Some(AttemptOutcome::Done) {
            job.orders.end(stopping.unwrap_or(Urgency::Ask));
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

    /// A fault that may pass is reported and the store asked again; any other error ends the work.
    fn trouble(&mut self, error: Error) {
        let may_pass = matches!(&error, Error::Fault(fault) if fault.exit_code() == 75);
        let is_patient = self.holder.stopping().is_none()
            || self.holder.iter().any(|(lease, _)| self.holder.is_worth_waiting(lease));
        if may_pass && is_patient {
            self.look |= self.claimed > 0;
            return (self.tell)(Progress::Trouble { problem: error.to_string() });
        }
        // What has ended stays unsettled: the leases run out, and the tasks are granted again.
        let ended = self.holder.iter().filter(|(_, job)| job.end.is_some());
        let ended: Vec<LeaseId> = ended.map(|(lease, _)| lease.clone()).collect();
        ended.iter().for_each(|lease| self.forget(lease));
        self.failed.get_or_insert(error);
        self.wind_down(Urgency::Ask);
    }
}
