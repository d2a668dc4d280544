//! What follows an iteration: done with children, the next one, or one of the other ends.

use rota_core::explain::reason_in_words;
use rota_core::obstacle::Reason;
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Refusal, Status, Task};
use rota_store::intents::add::NewTask;
use rota_store::intents::blocks::{EndLimited, NotedLimit, QUOTA};
use rota_store::intents::iterate::Complete;
use rota_store::intents::not_passed::GaveWay;
use rota_store::intents::sync_leases::{EndOf, IterationEnd, IterationEnded};
use rota_store::intents::upstreams::block_of;

use super::happening::Happening;
use super::{Manager, QUEUE, Report};
use crate::children;
use crate::companion::Held;
use crate::files::off_runtime;
use crate::iteration::{Iteration, Verdict};
use crate::lease_holder::Lease;
use crate::tenure::Sent;

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

/// An iteration that has ended and is not settled yet.
pub(super) struct EndedIteration {
    report: Report,
    /// The children of one that passed.
    children: Vec<NewTask>,
}

impl Manager<'_> {
    /// Notes that an iteration has ended; the next request settles it.
    pub(super) async fn ended(&mut self, mut report: Report) {
        (self.has_news, self.is_idle) = (true, None);
        let lease = report.iteration.lease.clone();
        if !self.holder.get_mut(&lease).is_some_and(|run| run.is_held) {
            self.must_look = true;
            if self.forget(&lease).is_some() {
                self.tell_end(&report.iteration, "lapsed", None);
            }
            return self.put_away_run(report).await;
        }
        let mut children = Vec::new();
        match &report.finished.verdict {
            Verdict::Passed => match report.iteration.children(QUEUE).await {
                Ok(found) => children = found,
                Err(problem) => report = not_passed(report, problem).await,
            },
            Verdict::LeaseLost => {
                let why = "it was not renewed in time, and the agent was ended".to_owned();
                self.tell(Happening::Lapsed { id: lease.task.to_string(), why });
            }
            _ => {}
        }
        if let Some(run) = self.holder.get_mut(&lease) {
            run.end = Some(EndedIteration { report, children });
        }
    }

    /// A completion was refused because of its children. That is feedback like any other.
    pub(super) async fn children_refused(&mut self, lease: &LeaseId, refusal: &Refusal) {
        let Some(ended) = self.holder.get_mut(lease).and_then(|run| run.end.take()) else { return };
        let report = not_passed(ended.report, format!("{}: {refusal}", children::FILE)).await;
        if let Some(run) = self.holder.get_mut(lease) {
            run.end = Some(EndedIteration { report, children: Vec::new() });
        }
    }

    /// How an iteration is settled. A loop that was ended with its lease may still have it for a moment, and gives it back.
    pub(super) fn end_of(&self, ended: &EndedIteration) -> IterationEnd {
        let iteration = &ended.report.iteration;
        let (call, lease) = (self.setup.call.clone(), iteration.lease.clone());
        let caller = Caller::lease(lease.clone());
        let verdict = &ended.report.finished.verdict;
        let how = match verdict {
            Verdict::Passed => EndOf::Complete(Box::new(Complete {
                call,
                lease: lease.clone(),
                result: None,
                upstream: Some(upstream_of(iteration)),
                children: ended.children.clone(),
                artifacts: Some(self.artifact_check()),
                then: None,
            })),
            Verdict::NotPassed { why } => match out_of_tries(iteration, why) {
                Some(reason) => EndOf::Step(Command::Exhaust { caller, reason }),
                None if self.holder.stopping().is_some() => {
                    EndOf::Step(Command::Yield { caller, reason: why.clone() })
                }
                None => EndOf::NotPassed { reason: why.clone() },
            },
            Verdict::RateLimited { retry_after_secs } => {
                let millis = |secs: u64| i64::try_from(secs.saturating_mul(1_000)).unwrap_or(i64::MAX);
                let retry_after_ms = retry_after_secs.map(millis);
                let upstream = upstream_of(iteration);
                EndOf::Limited(EndLimited { call, lease: lease.clone(), upstream, retry_after_ms })
            }
            Verdict::NeedsPerson { reason } => EndOf::Step(Command::Park { caller, reason: reason.clone() }),
            Verdict::Failed { reason } => {
                let reason = Some(reason.clone());
                EndOf::Step(Command::Fail { caller, reason, default_reason: FAILED_REASON })
            }
            Verdict::LeaseLost | Verdict::Stopped => EndOf::Step(Command::Interrupt { caller }),
        };
        // An iteration whose model calls a spent budget refused says nothing about its loop.
        let may_be_excused = matches!(verdict, Verdict::NotPassed { .. } | Verdict::Failed { .. });
        let excused_by_budget_of = iteration.kind.uses_api.clone().filter(|_| may_be_excused);
        IterationEnd { lease, how, excused_by_budget_of }
    }

    /// The store has answered: the end was accepted, or refused because the lease is gone.
    pub(super) async fn settled(
        &mut self,
        lease: &LeaseId,
        answer: Result<IterationEnded, Refusal>,
        sent: Sent,
        started_over: Option<String>,
    ) {
        let Some(EndedIteration { report, children }) = self.forget(lease).and_then(|run| run.end) else {
            return;
        };
        let iteration = &report.iteration;
        if let (Verdict::NotPassed { why }, false) =
            (&report.finished.verdict, matches!(answer, Ok(IterationEnded::BudgetSpent(..))))
            && out_of_tries(iteration, why).is_none()
        {
            let (id, iteration) = (lease.task.to_string(), iteration.task.iteration);
            self.tell(Happening::NotPassed { id, iteration, why: why.clone() });
        }
        match answer {
            Err(refusal) => self.tell_end(iteration, "lapsed", Some(refusal.to_string())),
            Ok(IterationEnded::BudgetSpent(_, wait)) => {
                self.tell_end(iteration, "interrupted", Some(reason_in_words(&Reason::Wait(wait))));
            }
            Ok(IterationEnded::Limited(task, noted)) => self.rate_limited(iteration, task, &noted),
            Ok(IterationEnded::NotPassed(task, None)) => self.start(task, sent, started_over),
            // It keeps its worktree for the next time.
            Ok(IterationEnded::NotPassed(task, Some(gave_way))) => {
                let (id, kind) = (task.id.to_string(), task.kind.unwrap_or_default());
                let detail = Some(in_words(&gave_way));
                self.tell(Happening::Ended { id, kind, outcome: "gave way", detail });
            }
            Ok(IterationEnded::Settled(_)) => self.tell_settled(&report, children.len()),
        }
        self.put_away_run(report).await;
    }

    fn tell_settled(&mut self, report: &Report, children: usize) {
        let iteration = &report.iteration;
        let (outcome, detail) = match &report.finished.verdict {
            Verdict::Passed => ("complete", None),
            Verdict::NotPassed { why } => match out_of_tries(iteration, why) {
                Some(reason) => ("failed for good", Some(reason)),
                None => ("interrupted", None),
            },
            Verdict::NeedsPerson { reason } => ("parked", Some(reason.clone())),
            Verdict::Failed { reason } => ("failed", Some(reason.clone())),
            Verdict::RateLimited { .. } | Verdict::LeaseLost | Verdict::Stopped => ("interrupted", None),
        };
        self.tell_end(iteration, outcome, detail);
        if children > 0 {
            self.tell(Happening::Spawned { id: iteration.task.id.to_string(), children });
        }
    }

    /// The upstream is blocked for everybody; this loop waits at least as long, and nothing is counted.
    fn rate_limited(&mut self, iteration: &Iteration, task: Task, noted: &NotedLimit) {
        let upstream = upstream_of(iteration);
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
        match task.status {
            Status::Parked => self.tell_end(iteration, "parked", task.parked_reason),
            _ => self.tell_end(iteration, "rate limited", None),
        }
    }

    /// Gives up the ends that this process can settle no longer. The records of their runs stay: if a lease is still ours
    /// then, the next daemon settles it.
    pub(super) fn give_up_ends(&mut self) {
        let is_given_up = |lease: &LeaseId| self.failed.is_some() || !self.holder.is_worth_waiting(lease);
        let ended = self.holder.iter().filter(|(lease, run)| run.end.is_some() && is_given_up(lease));
        let given_up: Vec<LeaseId> = ended.map(|(lease, _)| lease.clone()).collect();
        for lease in given_up {
            let why = "the store is away, and its end could not be settled".to_owned();
            self.tell(Happening::Lapsed { id: lease.task.to_string(), why });
            self.forget(&lease);
        }
    }

    /// A lease is not used here any more.
    fn forget(&mut self, lease: &LeaseId) -> Option<Lease<Held, EndedIteration>> {
        let run = self.holder.remove(lease)?;
        self.setup.companions.iter().for_each(|companion| companion.ended(&run.run));
        Some(run)
    }

    /// Only a settled run is put away: a daemon that is killed before settles it again, and is refused.
    async fn put_away_run(&mut self, report: Report) {
        let Some((record, taken)) = report.finished.run else { return };
        let path = record.path().to_owned();
        if let Err(error) = off_runtime(move || record.put_away(taken)).await {
            self.tell(Happening::Trouble { problem: format!("{}: {error}", path.display()) });
        }
    }

    fn tell_end(&mut self, iteration: &Iteration, outcome: &'static str, detail: Option<String>) {
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
}

/// The reason of a loop that did not pass and has no iterations left.
fn out_of_tries(iteration: &Iteration, why: &str) -> Option<String> {
    let most = iteration.kind.max_iterations;
    (iteration.task.tries >= most).then(|| format!("not passed after {most} iterations: {why}"))
}

/// The report of an iteration that had passed by itself and did not pass after all.
async fn not_passed(mut report: Report, why: String) -> Report {
    report.iteration.note_refused(why.clone()).await;
    report.finished.verdict = Verdict::NotPassed { why };
    report
}
