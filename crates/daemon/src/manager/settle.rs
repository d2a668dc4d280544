//! What follows an iteration: done with children, the next one, or one of the other ends.

use std::time::Duration;

use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Task};
use rota_store::intents::blocks::{NoteLimit, NoteSuccess};
use rota_store::intents::iterate::{ChildrenAwaiting, Complete, Lapsed};
use rota_store::intents::settle::Settle;
use rota_store::{Error, Intent, Outcome};
use tokio::time::Instant;

use super::happening::Happening;
use super::{Manager, QUEUE, Report};
use crate::children;
use crate::iteration::{Iteration, Verdict};
use crate::tenure::Sent;
use crate::worktree;

/// The first wait after the store did not answer, and the longest.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

impl Manager<'_> {
    /// A tick follows, unless the free place was filled in the same transaction.
    pub(super) async fn settle(&mut self, report: Report) {
        self.has_news = true;
        let Report { iteration, finished } = report;
        let is_filled = self.follow_up(iteration, finished.verdict).await;
        self.must_look |= !is_filled;
        // Only what is settled is forgotten: a daemon that is killed before settles it again, and is refused.
        if let Some((folder, taken)) = finished.run
            && let Err(error) = folder.remove(taken)
        {
            self.tell(Happening::Trouble { problem: format!("{}: {error}", folder.path().display()) });
        }
    }

    async fn follow_up(&mut self, iteration: Iteration, verdict: Verdict) -> bool {
        let lease = iteration.lease.clone();
        let Some(run) = self.running.remove(&lease) else { return false };
        self.setup.companions.iter().for_each(|companion| companion.ended(&run.held));
        if run.is_lapsed {
            self.ended(&iteration, "lapsed", None).await;
            return false;
        }
        let until = run.lease.expires_at;
        let caller = Caller::lease(lease.clone());
        match verdict {
            Verdict::Passed => return self.complete(iteration, until).await.unwrap_or(false),
            Verdict::NotPassed { why } => self.go_on(iteration, why, until).await,
            Verdict::RateLimited => self.rate_limited(iteration, until).await,
            Verdict::NeedsPerson { reason } => {
                let park = Command::Park { caller, reason: reason.clone() };
                self.end_as(&iteration, park, "parked", Some(reason), until).await;
            }
            Verdict::Failed { reason } => {
                let fail =
                    Command::Fail { caller, reason: Some(reason.clone()), default_reason: FAILED_REASON };
                self.end_as(&iteration, fail, "failed", Some(reason), until).await;
            }
            Verdict::LeaseLost => {
                let why = "it was not renewed in time, and the agent was ended".to_owned();
                self.tell(Happening::Lapsed { id: lease.task.to_string(), why });
                // It may still be ours for a moment, and be given back.
                self.end_as(&iteration, Command::Interrupt { caller }, "interrupted", None, until).await;
            }
            Verdict::Stopped => {
                self.end_as(&iteration, Command::Interrupt { caller }, "interrupted", None, until).await;
            }
        }
        false
    }

    /// Done, with its children, and the next loops begun in the same transaction: whether that was tried, or none if the
    /// loop is not complete.
    async fn complete(&mut self, iteration: Iteration, until: Instant) -> Option<bool> {
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
            Err(problem) => {
                self.bad_children(iteration, problem, until).await;
                return None;
            }
        };
        let count = children.len();
        let sent = Sent::now();
        let then = self.next();
        let fills = then.is_some();
        let awaiting = ChildrenAwaiting { call: self.setup.call.clone(), parent: iteration.task.id.clone() };
        let awaiting = self.patiently(awaiting, until).await?;
        let there = |task: &&Task| self.folders.has_artifact(task);
        let complete = Complete {
            call: self.setup.call.clone(),
            lease: iteration.lease.clone(),
            result: None,
            children,
            triggered: awaiting.iter().filter(there).map(|task| task.id.clone()).collect(),
            then,
        };
        let completed = match self.ask_patiently(complete, until).await {
            Some(Ok(completed)) => completed,
            Some(Err(Error::Refused(refusal))) if self.is_held(&iteration.lease).await => {
                self.bad_children(iteration, format!("{}: {refusal}", children::FILE), until).await;
                return None;
            }
            Some(Err(Error::Refused(refusal))) => {
                self.ended(&iteration, "lapsed", Some(refusal.to_string())).await;
                return None;
            }
            Some(Err(error)) => {
                self.trouble(error);
                return None;
            }
            None => return None,
        };
        if let Some(upstream) = iteration.kind.uses_api.clone() {
            let began_at = iteration.task.started_at;
            let note = NoteSuccess { call: self.setup.call.clone(), upstream, began_at };
            if let Err(error) = self.desk.perform(note).await {
                self.trouble(error);
            }
        }
        self.ended(&iteration, "complete", None).await;
        if count > 0 {
            self.tell(Happening::Spawned { id: iteration.task.id.to_string(), children: count });
        }
        self.begin(completed.granted, sent);
        Some(fills)
    }

    async fn is_held(&mut self, lease: &LeaseId) -> bool {
        let look = Lapsed { call: self.setup.call.clone(), leases: vec![lease.clone()] };
        self.desk.perform(look).await.is_ok_and(|lapsed| lapsed.is_empty())
    }

    /// What is wrong with the children is feedback like any other.
    async fn bad_children(&mut self, iteration: Iteration, problem: String, until: Instant) {
        iteration.note_feedback(&problem, "");
        self.go_on(iteration, problem, until).await;
    }

    /// The next iteration under the same lease, or the end of the tries.
    async fn go_on(&mut self, iteration: Iteration, why: String, until: Instant) {
        let (tries, most) = (iteration.task.tries, iteration.kind.max_iterations);
        let caller = Caller::lease(iteration.lease.clone());
        if tries >= most {
            let reason = format!("not passed after {most} iterations: {why}");
            let exhaust = Command::Exhaust { caller, reason: reason.clone() };
            return self.end_as(&iteration, exhaust, "failed for good", Some(reason), until).await;
        }
        let (id, number) = (iteration.task.id.to_string(), iteration.task.iteration);
        self.tell(Happening::NotPassed { id, iteration: number, why });
        if self.stopping.is_some() {
            return self.end_as(&iteration, Command::Interrupt { caller }, "interrupted", None, until).await;
        }
        let sent = Sent::now();
        match self.step(&iteration, Command::Iterate { caller }, until).await {
            Some(Ok(task)) => self.start(task, sent),
            Some(Err(why)) => self.ended(&iteration, "lapsed", Some(why)).await,
            None => {}
        }
    }

    /// The upstream is blocked for everybody; this loop waits at least as long, without a strike.
    async fn rate_limited(&mut self, iteration: Iteration, until: Instant) {
        let mut blocked_until = None;
        if let Some(upstream) = iteration.kind.uses_api.clone() {
            let began_at = iteration.task.started_at;
            let note = NoteLimit { call: self.setup.call.clone(), upstream: upstream.clone(), began_at };
            let Some(block) = self.patiently(note, until).await else { return };
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
        let command = Command::RateLimit { caller: Caller::lease(iteration.lease.clone()), blocked_until };
        self.end_as(&iteration, command, "rate limited", None, until).await;
    }

    async fn end_as(
        &mut self,
        iteration: &Iteration,
        command: Command,
        outcome: &'static str,
        detail: Option<String>,
        until: Instant,
    ) {
        match self.step(iteration, command, until).await {
            Some(Ok(_)) => self.ended(iteration, outcome, detail).await,
            Some(Err(why)) => self.ended(iteration, "lapsed", Some(why)).await,
            None => {}
        }
    }

    /// One step on the iteration's task; the inner error is a refusal, in words.
    async fn step(
        &mut self,
        iteration: &Iteration,
        command: Command,
        until: Instant,
    ) -> Option<Result<Task, String>> {
        let settle = Settle::one(self.setup.call.clone(), iteration.task.id.clone(), command);
        let settled = self.patiently(settle, until).await?;
        settled.steps.into_iter().next().map(|step| step.map_err(|refusal| refusal.to_string()))
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

    /// Asks again while the store is away, as long as the lease could still be ours. A refusal here is a bug or a
    /// damaged store, and is told.
    async fn patiently<I>(&mut self, intent: I, until: Instant) -> Option<I::Output>
    where
        I: Intent + Clone + Send + 'static,
        I::Output: 'static,
    {
        match self.ask_patiently(intent, until).await? {
            Ok(output) => Some(output),
            Err(error) => {
                self.trouble(error);
                None
            }
        }
    }

    async fn ask_patiently<I>(&mut self, intent: I, until: Instant) -> Option<Outcome<I::Output>>
    where
        I: Intent + Clone + Send + 'static,
        I::Output: 'static,
    {
        let mut wait = PATIENCE.0;
        loop {
            match self.desk.perform(intent.clone()).await {
                Err(Error::Fault(fault)) if fault.exit_code() == 75 => {
                    self.tell(Happening::Trouble { problem: fault.to_string() });
                    if Instant::now() + wait >= until {
                        return None;
                    }
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(PATIENCE.1);
                }
                answer => return Some(answer),
            }
        }
    }
}
