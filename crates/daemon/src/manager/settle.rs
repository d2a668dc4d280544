//! What follows an iteration: done with children, the next one, or one of the other ends.

use std::collections::BTreeMap;
use std::time::Duration;

use rota_core::explain::reason_in_words;
use rota_core::obstacle::{Reason, Wait};
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Refusal, Status, Task};
use rota_store::intents::blocks::{EndLimited, QUOTA, UpstreamWaits};
use rota_store::intents::iterate::{ChildrenAwaiting, Complete, Lapsed};
use rota_store::intents::not_passed::{AfterIteration, GaveWay, NotPassed};
use rota_store::intents::settle::Settle;
use rota_store::intents::upstreams::block_of;
use rota_store::{Error, Intent, Store};
use tokio::time::Instant;

use super::happening::Happening;
use super::{Manager, QUEUE, Report};
use crate::children;
use crate::files::off_runtime;
use crate::iteration::{Iteration, Verdict};
use crate::runner::terminate::Urgency;
use crate::tenure::Sent;

/// How long until a store that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a daemon that is stopping goes on asking; the next one settles what it leaves.
const PARTING: Duration = Duration::from_secs(10);

/// The name of the block that a limit of this loop belongs to.
fn upstream_of(iteration: &Iteration) -> String {
    block_of(iteration.task.kind.as_deref().unwrap_or_default(), iteration.kind.uses_api.as_deref())
}

/// Why a loop gave its lease back, in a line.
fn in_words(gave_way: &GaveWay) -> String {
    match gave_way {
        GaveWay::QueuePaused => "the queue is paused".to_owned(),
        GaveWay::CoolsDown { until } => {
            format!("it failed fast too often and cools down until {}", until.to_seconds_text())
        }
        GaveWay::HeldBack(wait) => reason_in_words(&Reason::Wait(wait.clone())),
        GaveWay::Outranked { by } => format!("'{by}' goes first"),
    }
}

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
        if let Some((record, taken)) = report.finished.run {
            let path = record.path().to_owned();
            if let Err(error) = off_runtime(move || record.put_away(taken)).await {
                self.tell(Happening::Trouble { problem: format!("{}: {error}", path.display()) });
            }
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
        let verdict = report.finished.verdict.clone();
        if matches!(verdict, Verdict::NotPassed { .. } | Verdict::Failed { .. })
            && let Some(spent) = self.spent_budget(iteration).await?
        {
            let interrupt = Command::Interrupt { caller };
            self.end_as(iteration, interrupt, "interrupted", Some(spent)).await?;
            return Some(false);
        }
        match verdict {
            Verdict::Passed => return self.complete(iteration).await,
            Verdict::NotPassed { why } => return self.go_on(iteration, why).await,
            Verdict::RateLimited { retry_after_secs } => {
                self.rate_limited(iteration, retry_after_secs).await?;
            }
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

    /// The spent budget that the model calls of an iteration were refused for, in words. Such an iteration says nothing
    /// about the loop, so it does not count; the loop waits for the budget as others do.
    async fn spent_budget(&mut self, iteration: &Iteration) -> Option<Option<String>> {
        let Some(upstream) = iteration.kind.uses_api.clone() else { return Some(None) };
        let waits = UpstreamWaits { call: self.setup.call.clone(), upstreams: vec![upstream] };
        let waits = self.ask(waits).await?.unwrap_or_default().into_iter().map(|(_, wait)| wait);
        let spent = waits.into_iter().find(|wait| matches!(wait, Wait::BudgetSpent { .. }));
        Some(spent.map(|wait| reason_in_words(&Reason::Wait(wait))))
    }

    /// Done, with its children, and the next loops begun in the same transaction: whether there were any.
    async fn complete(&mut self, iteration: &Iteration) -> Option<bool> {
        let children = match iteration.children(QUEUE).await {
            Ok(children) => children,
            Err(problem) => return self.bad_children(iteration, problem).await,
        };
        let count = children.len();
        let sent = Sent::now();
        let then = self.next(1);
        let awaiting = ChildrenAwaiting { call: self.setup.call.clone(), parent: iteration.task.id.clone() };
        // A parent that is gone has none, and is told so by what follows.
        let awaiting = self.ask(awaiting).await?.unwrap_or_else(|_| Vec::new());
        let triggered = self
            .with_artifact(awaiting, BTreeMap::from([(iteration.task.id.clone(), iteration.place())]))
            .await;
        let complete = Complete {
            call: self.setup.call.clone(),
            lease: iteration.lease.clone(),
            result: None,
            upstream: Some(upstream_of(iteration)),
            children,
            triggered,
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
        self.ended(iteration, "complete", None).await;
        if count > 0 {
            self.tell(Happening::Spawned { id: iteration.task.id.to_string(), children: count });
        }
        let granted = completed.granted.len();
        let is_filled = granted > 0 && !self.is_capped(granted);
        self.begin(completed.granted, sent).await;
        Some(is_filled)
    }

    async fn is_held(&mut self, lease: &LeaseId) -> bool {
        let look = Lapsed { call: self.setup.call.clone(), leases: vec![lease.clone()] };
        self.store.perform(&look).await.is_ok_and(|lapsed| lapsed.is_empty())
    }

    /// What is wrong with the children is feedback like any other.
    async fn bad_children(&mut self, iteration: &Iteration, problem: String) -> Option<bool> {
        iteration.note_refused(problem.clone()).await;
        self.go_on(iteration, problem).await
    }

    /// The next iteration under the same lease, a loop that goes first, or the end of the tries; whether another loop has
    /// its place now.
    async fn go_on(&mut self, iteration: &Iteration, why: String) -> Option<bool> {
        let (tries, most) = (iteration.task.tries, iteration.kind.max_iterations);
        let caller = Caller::lease(iteration.lease.clone());
        if tries >= most {
            let reason = format!("not passed after {most} iterations: {why}");
            let exhaust = Command::Exhaust { caller, reason: reason.clone() };
            self.end_as(iteration, exhaust, "failed for good", Some(reason)).await?;
            return Some(false);
        }
        let (id, number) = (iteration.task.id.to_string(), iteration.task.iteration);
        if self.stopping.is_some() {
            self.tell(Happening::NotPassed { id, iteration: number, why: why.clone() });
            let yields = Command::Yield { caller, reason: why };
            self.end_as(iteration, yields, "interrupted", None).await?;
            return Some(false);
        }
        let sent = Sent::now();
        let ended = NotPassed {
            call: self.setup.call.clone(),
            lease: iteration.lease.clone(),
            reason: why.clone(),
            begin: self.next_beside(iteration),
        };
        let after = self.ask(ended).await?;
        self.forget(&iteration.lease);
        self.tell(Happening::NotPassed { id: id.clone(), iteration: number, why });
        let AfterIteration { task, gave_way, granted } = match after {
            Ok(after) => after,
            Err(refusal) => {
                self.ended(iteration, "lapsed", Some(refusal.to_string())).await;
                return Some(false);
            }
        };
        match gave_way {
            None => self.start(task, sent).await,
            // It keeps its worktree for the next time.
            Some(gave_way) => {
                let kind = task.kind.unwrap_or_default();
                let detail = Some(in_words(&gave_way));
                self.tell(Happening::Ended { id, kind, outcome: "gave way", detail });
            }
        }
        let is_filled = !granted.is_empty() && !self.is_capped(granted.len());
        self.begin(granted, sent).await;
        Some(is_filled)
    }

    /// The upstream is blocked for everybody; this loop waits at least as long, and nothing is counted.
    async fn rate_limited(&mut self, iteration: &Iteration, retry_after_secs: Option<u64>) -> Option<()> {
        let upstream = upstream_of(iteration);
        let millis = |secs: u64| i64::try_from(secs.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let end = EndLimited {
            call: self.setup.call.clone(),
            lease: iteration.lease.clone(),
            upstream: upstream.clone(),
            retry_after_ms: retry_after_secs.map(millis),
        };
        let ended = self.ask(end).await?;
        self.forget(&iteration.lease);
        let (task, noted) = match ended {
            Ok(ended) => ended,
            Err(refusal) => {
                self.ended(iteration, "lapsed", Some(refusal.to_string())).await;
                return Some(());
            }
        };
        if noted.is_hit {
            let block = &noted.block;
            let ends = block.blocked_until.map_or(0, |until| until.get() - block.updated_at.get());
            self.tell(Happening::RateLimited {
                upstream: upstream.clone(),
                retry_after_secs: ends.max(0) / 1_000,
                consecutive_hits: block.hits,
            });
            if block.reason.as_deref() == Some(QUOTA) {
                let until = block.blocked_until.map(|until| until.to_seconds_text()).unwrap_or_default();
                let problem =
                    format!("{upstream}: its quota is used up, no loop that uses it starts until {until}");
                self.tell(Happening::Trouble { problem });
            }
        }
        let (outcome, detail) = match task.status {
            Status::Parked => ("parked", task.parked_reason),
            _ => ("rate limited", None),
        };
        self.ended(iteration, outcome, detail).await;
        Some(())
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
        self.tell(Happening::Ended { id, kind, outcome, detail });
        let goes_on = matches!(outcome, "interrupted" | "rate limited" | "lapsed" | "failed" | "parked");
        if !iteration.kind.worktree || goes_on {
            return;
        }
        let is_good = outcome == "complete";
        if !is_good && iteration.kind.keep_worktree_on_failure {
            return;
        }
        self.remove_worktree(iteration);
    }

    /// Asks the store; none while it is away. What is neither an answer nor a refusal ends the daemon.
    async fn ask<I>(&mut self, intent: I) -> Option<Result<I::Output, Refusal>>
    where
        I: Intent + Send + 'static,
        I::Output: 'static,
    {
        match self.store.perform(&intent).await {
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
