//! What follows an iteration: done with children, the next one, or one of the other ends.

use std::time::Duration;

use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Refusal, Task};
use rota_store::intents::blocks::{NoteLimit, NoteSuccess};
use rota_store::intents::iterate::{ChildrenAwaiting, Complete, Lapsed};
use rota_store::intents::settle::Settle;
use rota_store::{Error, Intent};
use tokio::time::Instant;

use super::happening::Happening;
use super::{Manager, QUEUE, Report};
use crate::children;
use crate::iteration::{Iteration, Verdict};
use crate::runner::terminate::Urgency;
use crate::tenure::Sent;
use crate::worktree;

/// How long until a store that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a daemon that is stopping goes on asking; the next one settles what it leaves.
const PARTING: Duration = Duration::from_secs(10);

/// An iteration that has ended while the store was away.
pub(super) struct Unsettled {
    report: Report,
    since: Instant,
}

impl Manager<'_> {
    /// Settles an iteration, or keeps it until the store answers again. A tick follows, unless the free place was filled
    /// in the same transaction.
    pub(super) async fn settle(&mut self, report: Report) {
        self.settle_since(report, Instant::now()).await;
    }

    /// Tries again what could not be settled.
    pub(super) async fn settle_again(&mut self) {
        self.is_away = false;
        for Unsettled { report, since } in std::mem::take(&mut self.unsettled) {
            self.settle_since(report, since).await;
        }
    }

    /// When to try again.
    pub(super) fn next_settlement(&self) -> Option<Instant> {
        (!self.unsettled.is_empty()).then_some(self.ask_again_at)
    }

    async fn settle_since(&mut self, report: Report, since: Instant) {
        self.has_news = true;
        // Once it did not answer, the others wait too: each would be told the same after a while.
        let filled = if self.is_away { None } else { self.follow_up(&report).await };
        let lease = &report.iteration.lease;
        let Some(is_filled) = filled else {
            if self.is_worth_waiting(lease, since) {
                self.ask_again_at = Instant::now() + ASK_AGAIN;
                self.unsettled.push(Unsettled { report, since });
                return;
            }
            // What is written down about the run stays: if the lease is still ours then, the next daemon settles it.
            let why = "the store is away, and its end could not be settled".to_owned();
            self.tell(Happening::Lapsed { id: lease.task.to_string(), why });
            self.forget(&report.iteration.lease);
            return;
        };
        self.must_look |= !is_filled;
        // Only what is settled is put away: a daemon that is killed before settles it again, and is refused.
        if let Some((record, taken)) = report.finished.run
            && let Err(error) = record.put_away(taken)
        {
            self.tell(Happening::Trouble { problem: format!("{}: {error}", record.path().display()) });
        }
    }

    fn is_worth_waiting(&self, lease: &LeaseId, since: Instant) -> bool {
        let now = Instant::now();
        let is_ours = self.running.get(lease).is_some_and(|run| run.lease.expires_at > now);
        let is_patient = match self.stopping {
            None => true,
            Some(Urgency::Ask) => now < since + PARTING,
            Some(Urgency::Tell) => false,
        };
        is_ours && is_patient && self.failed.is_none()
    }

    /// A lease is not used here any more.
    fn forget(&mut self, lease: &LeaseId) {
        if let Some(run) = self.running.remove(lease) {
            self.setup.companions.iter().for_each(|companion| companion.ended(&run.held));
        }
    }

    /// What follows, and whether the free place was filled with it; none while the store is away.
    async fn follow_up(&mut self, report: &Report) -> Option<bool> {
        let iteration = &report.iteration;
        let lease = iteration.lease.clone();
        let Some(run) = self.running.get(&lease) else { return Some(false) };
        if run.is_lapsed {
            self.forget(&lease);
            self.ended(iteration, "lapsed", None).await;
            return Some(false);
        }
        let caller = Caller::lease(lease.clone());
        match report.finished.verdict.clone() {
            Verdict::Passed => return self.complete(iteration).await,
            Verdict::NotPassed { why } => self.go_on(iteration, why).await?,
            Verdict::RateLimited => self.rate_limited(iteration).await?,
            Verdict::NeedsPerson { reason } => {
                let park = Command::Park { caller, reason: reason.clone() };
                self.end_as(iteration, park, "parked", Some(reason)).await?;
            }
            Verdict::Failed { reason } => {
                let fail =
                    Command::Fail { caller, reason: Some(reason.clone()), default_reason: FAILED_REASON };
                self.end_as(iteration, fail, "failed", Some(reason)).await?;
            }
            Verdict::LeaseLost => {
                let why = "it was not renewed in time, and the agent was ended".to_owned();
                self.tell(Happening::Lapsed { id: lease.task.to_string(), why });
                // It may still be ours for a moment, and be given back.
                self.end_as(iteration, Command::Interrupt { caller }, "interrupted", None).await?;
            }
            Verdict::Stopped => {
                self.end_as(iteration, Command::Interrupt { caller }, "interrupted", None).await?;
            }
        }
        Some(false)
    }

    /// Done, with its children, and the next loops begun in the same transaction: whether there were any.
    async fn complete(&mut self, iteration: &Iteration) -> Option<bool> {
        let artifacts = iteration.artifacts();
        let from_loop = iteration.artifacts_from_loop();
        let parent = children::Parent {
            id: &iteration.task.id,
            iteration: iteration.task.iteration,
            queue: QUEUE,
            artifacts: &artifacts,
            artifacts_from_loop: &from_loop,
        };
        let children = match children::read(&parent) {
            Ok(children) => children,
            Err(problem) => return self.bad_children(iteration, problem).await,
        };
        let count = children.len();
        let sent = Sent::now();
        let then = self.next(1);
        let awaiting = ChildrenAwaiting { call: self.setup.call.clone(), parent: iteration.task.id.clone() };
        // A parent that is gone has none, and is told so by what follows.
        let awaiting = self.ask(awaiting).await?.unwrap_or_else(|_| Vec::new());
        let there = |task: &&Task| self.folders.has_artifact(task);
        let complete = Complete {
            call: self.setup.call.clone(),
            lease: iteration.lease.clone(),
            result: None,
            children,
            triggered: awaiting.iter().filter(there).map(|task| task.id.clone()).collect(),
            then,
        };
        let completed = match self.ask(complete).await? {
            Ok(completed) => completed,
            Err(refusal) if self.is_held(&iteration.lease).await => {
                return self.bad_children(iteration, format!("{}: {refusal}", children::FILE)).await;
            }
            Err(refusal) => {
                self.forget(&iteration.lease);
                self.ended(iteration, "lapsed", Some(refusal.to_string())).await;
                return Some(false);
            }
        };
        self.forget(&iteration.lease);
        if let Some(upstream) = iteration.kind.uses_api.clone() {
            let began_at = iteration.task.started_at;
            let note = NoteSuccess { call: self.setup.call.clone(), upstream, began_at };
            if let Err(error) = self.desk.perform(note).await {
                self.trouble(error);
            }
        }
        self.ended(iteration, "complete", None).await;
        if count > 0 {
            self.tell(Happening::Spawned { id: iteration.task.id.to_string(), children: count });
        }
        let is_filled = !completed.granted.is_empty();
        self.begin(completed.granted, sent);
        Some(is_filled)
    }

    async fn is_held(&mut self, lease: &LeaseId) -> bool {
        let look = Lapsed { call: self.setup.call.clone(), leases: vec![lease.clone()] };
        self.desk.perform(look).await.is_ok_and(|lapsed| lapsed.is_empty())
    }

    /// What is wrong with the children is feedback like any other.
    async fn bad_children(&mut self, iteration: &Iteration, problem: String) -> Option<bool> {
        iteration.note_feedback(&problem, "");
        self.go_on(iteration, problem).await?;
        Some(false)
    }

    /// The next iteration under the same lease, or the end of the tries.
    async fn go_on(&mut self, iteration: &Iteration, why: String) -> Option<()> {
        let (tries, most) = (iteration.task.tries, iteration.kind.max_iterations);
        let caller = Caller::lease(iteration.lease.clone());
        if tries >= most {
            let reason = format!("not passed after {most} iterations: {why}");
            let exhaust = Command::Exhaust { caller, reason: reason.clone() };
            return self.end_as(iteration, exhaust, "failed for good", Some(reason)).await;
        }
        let (id, number) = (iteration.task.id.to_string(), iteration.task.iteration);
        if self.stopping.is_some() {
            self.tell(Happening::NotPassed { id, iteration: number, why });
            return self.end_as(iteration, Command::Interrupt { caller }, "interrupted", None).await;
        }
        let sent = Sent::now();
        let next = self.step(iteration, Command::Iterate { caller }).await?;
        self.forget(&iteration.lease);
        self.tell(Happening::NotPassed { id, iteration: number, why });
        match next {
            Ok(task) => self.start(task, sent),
            Err(why) => self.ended(iteration, "lapsed", Some(why)).await,
        }
        Some(())
    }

    /// The upstream is blocked for everybody; this loop waits at least as long, without a strike.
    async fn rate_limited(&mut self, iteration: &Iteration) -> Option<()> {
        let mut blocked_until = None;
        if let Some(upstream) = iteration.kind.uses_api.clone() {
            let began_at = iteration.task.started_at;
            let note = NoteLimit { call: self.setup.call.clone(), upstream: upstream.clone(), began_at };
            if let Ok(block) = self.ask(note).await? {
                blocked_until = block.blocked_until;
                // What completes before the next tick must not begin others of them.
                let config = std::sync::Arc::clone(&self.config);
                self.kinds.retain(|kind| config.kind(kind).uses_api.as_ref() != Some(&upstream));
                let ends = block.blocked_until.map_or(0, |until| until.get() - block.updated_at.get());
                self.tell(Happening::RateLimited {
                    upstream,
                    retry_after_secs: ends.max(0) / 1_000,
                    consecutive_hits: block.hits,
                });
            }
        }
        let command = Command::RateLimit { caller: Caller::lease(iteration.lease.clone()), blocked_until };
        self.end_as(iteration, command, "rate limited", None).await
    }

    async fn end_as(
        &mut self,
        iteration: &Iteration,
        command: Command,
        outcome: &'static str,
        detail: Option<String>,
    ) -> Option<()> {
        let settled = self.step(iteration, command).await?;
        self.forget(&iteration.lease);
        match settled {
            Ok(_) => self.ended(iteration, outcome, detail).await,
            Err(why) => self.ended(iteration, "lapsed", Some(why)).await,
        }
        Some(())
    }

    /// One step on the iteration's task; the inner error is a refusal, in words.
    async fn step(&mut self, iteration: &Iteration, command: Command) -> Option<Result<Task, String>> {
        let settle = Settle::one(self.setup.call.clone(), iteration.task.id.clone(), command);
        Some(match self.ask(settle).await? {
            Ok(settled) => match settled.steps.into_iter().next() {
                Some(step) => step.map_err(|refusal| refusal.to_string()),
                None => Err("the store has no answer".to_owned()),
            },
            Err(refusal) => Err(refusal.to_string()),
        })
    }

    async fn ended(&mut self, iteration: &Iteration, outcome: &'static str, detail: Option<String>) {
        let id = iteration.task.id.to_string();
        let kind = iteration.task.kind.clone().unwrap_or_default();
        self.tell(Happening::Ended { id: id.clone(), kind, outcome, detail });
        let goes_on = matches!(outcome, "interrupted" | "rate limited" | "lapsed" | "failed" | "parked");
        if !iteration.kind.worktree || goes_on {
            return;
        }
        let is_good = outcome == "complete";
        if !is_good && iteration.kind.keep_worktree_on_failure {
            return;
        }
        if let Err(error) = worktree::remove(&self.folders, &iteration.task.id, !is_good).await {
            self.tell(Happening::WorktreeKept { id, why: error.to_string() });
        }
    }

    /// Asks the store; none while it is away. What is neither an answer nor a refusal ends the daemon.
    async fn ask<I>(&mut self, intent: I) -> Option<Result<I::Output, Refusal>>
    where
        I: Intent + Send + 'static,
        I::Output: 'static,
    {
        match self.desk.perform(intent).await {
            Ok(output) => Some(Ok(output)),
            Err(Error::Refused(refusal)) => Some(Err(refusal)),
            Err(error) => {
                self.is_away = true;
                self.trouble(error);
                None
            }
        }
    }
}
