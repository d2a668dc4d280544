//! Everything that a process which holds leases wants from the store at one moment, in one transaction: renewals,
//! settlements and new leases; for a loop manager also the ends of iterations, and news about its queue.
//!
//! Each step and each end is accepted or refused by itself. A completion that is refused after it has written something (a
//! child that cannot be added) undoes the whole transaction and is named ([`LeasesSynced::undone_by`]): the caller settles
//! that loop in another way, and sends the rest again.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rota_core::obstacle::Wait;
use rota_core::select::WorktreeLimit;
use rota_core::transition::Command;
use rota_core::{Caller, LeaseId, Refusal, Status, Task, TaskId};

use super::batch::{BatchAnswer, BatchCall};
use super::blocks::{self, EndLimited, NotedLimit};
use super::claim::{Claim, Grant, grant_with_room};
use super::iterate::{BacklogCounts, Begin, Complete, count_backlog, note_artifacts};
use super::loops::why_started_over;
use super::not_passed::{AfterIteration, GaveWay, NotPassed};
use super::read::LOOPS;
use super::settle::{Settle, Settled, Step, take, take_all};
use super::{Call, Cx};
use crate::fault::{Error, Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Prefetch, Published, QueueRow, Tx};

/// One request of a lease holder.
#[derive(Clone, Debug)]
pub struct SyncLeases {
    /// Renewals and settlements, and tasks to claim.
    pub settle: Settle,
    /// The part of a loop manager.
    pub loops: Option<SyncLoops>,
}

/// What only a loop manager asks for.
#[derive(Clone, Debug)]
pub struct SyncLoops {
    /// Iterations that have ended.
    pub ends: Vec<IterationEnd>,
    /// Leases of which it wants to know whether they are still held.
    pub watched: Vec<LeaseId>,
    /// Tasks whose artifact was seen.
    pub triggered: Vec<TaskId>,
    /// Tasks whose artifact it is going to look for.
    pub awaiting: Option<Awaiting>,
    /// Whether to count the backlog, as it is before anything is granted.
    pub counts: bool,
    /// The loops that may begin. The claim's limit is the number of places that are free before any of the ends.
    pub begin: Begin,
}

/// A page of the open tasks that wait for an artifact, in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaiting {
    /// Only those added after this one.
    pub after_seq: u64,
    /// At most so many.
    pub limit: usize,
}

/// The end of an iteration.
#[derive(Clone, Debug)]
pub struct IterationEnd {
    /// The loop's lease.
    pub lease: LeaseId,
    /// How it ended.
    pub how: EndOf,
    /// The upstream whose spent budget excuses the end: then the loop is interrupted instead, and nothing is counted.
    pub excused_by_budget_of: Option<String>,
}

/// How an iteration ended.
#[derive(Clone, Debug)]
pub enum EndOf {
    /// It passed. Its `then` is not used here.
    Complete(Box<Complete>),
    /// It did not pass: the next iteration follows, or the loop gives way.
    NotPassed {
        /// Why, for the journal.
        reason: String,
    },
    /// It met the limit of an upstream.
    Limited(EndLimited),
    /// Any other step of the state machine.
    Step(Command),
}

/// What came of an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IterationEnded {
    /// The step was taken.
    Settled(Task),
    /// A spent budget excused it.
    BudgetSpent(Task, Wait),
    /// The limit was noted.
    Limited(Task, NotedLimit),
    /// The loop goes on under its lease, or gave it back.
    NotPassed(Task, Option<GaveWay>),
}

/// The answer to [`SyncLeases`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasesSynced {
    /// Each step's task or refusal, and the leases that were granted.
    pub settled: Settled,
    /// The answer to a loop manager.
    pub loops: Option<LoopsSynced>,
    /// The end, by its index, that was refused after it had written something. Nothing of the request happened.
    pub undone_by: Option<(usize, Refusal)>,
}

/// The answer to [`SyncLoops`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopsSynced {
    /// The policy in force.
    pub policy: Arc<Published>,
    /// What came of each end.
    pub ends: Vec<Result<IterationEnded, Refusal>>,
    /// The watched leases that are held no longer, with the task's status; none for a task that is gone.
    pub lapsed: Vec<(LeaseId, Option<Status>)>,
    /// Tasks that wait for an artifact, each with its parent.
    pub awaiting: Vec<(Task, Option<Task>)>,
    /// The backlog, if it was counted.
    pub counts: Option<BacklogCounts>,
    /// The limits that held before the choice, each with its upstream; none if nothing could be chosen.
    pub held_back: Option<Vec<(String, Wait)>>,
    /// Why loops that were granted or go on were started over, by task.
    pub started_over: BTreeMap<TaskId, String>,
}

#[async_trait]
impl Intent for SyncLeases {
    type Output = LeasesSynced;

    fn access(&self) -> Access {
        let writes =
            |loops: &SyncLoops| !loops.ends.is_empty() || !loops.triggered.is_empty() || loops.may_grant();
        let is_reading = self.settle.steps.is_empty()
            && self.settle.then.is_none()
            && !self.loops.as_ref().is_none_or(writes);
        if is_reading { Access::Read } else { Access::Write }
    }

    fn is_kept(&self, ran: &Outcome<LeasesSynced>) -> bool {
        ran.as_ref().is_ok_and(|synced| synced.undone_by.is_none())
    }

    fn batched(&self) -> Option<BatchCall> {
        if self.loops.is_none() { self.settle.batched() } else { None }
    }

    fn answered(&self, answer: BatchAnswer) -> Option<LeasesSynced> {
        let settled = self.settle.answered(answer)?;
        Some(LeasesSynced { settled, loops: None, undone_by: None })
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<LeasesSynced> {
        match &self.loops {
            Some(loops) => loops.run(tx, &self.settle).await,
            None => {
                let settled = self.settle.run(tx).await?;
                Ok(LeasesSynced { settled, loops: None, undone_by: None })
            }
        }
    }
}

impl SyncLoops {
    /// Nothing but a look, at no leases.
    pub fn looking(begin: Begin) -> Self {
        Self {
            ends: Vec::new(),
            watched: Vec::new(),
            triggered: Vec::new(),
            awaiting: None,
            counts: false,
            begin,
        }
    }

    /// Whether loops may be chosen, so that the queue's row is locked.
    fn may_grant(&self) -> bool {
        let gives_way = |end: &IterationEnd| matches!(end.how, EndOf::NotPassed { .. });
        let has_places = self.begin.claim.limit > 0 || !self.ends.is_empty();
        (has_places && !self.begin.kinds.is_empty()) || self.ends.iter().any(gives_way)
    }

    async fn run(&self, tx: &mut AnyTx, settle: &Settle) -> Outcome<LeasesSynced> {
        self.lock_edges(tx, &settle.call).await?;
        // Before the queue's row is locked.
        let (awaiting, counts) = self.look(tx, &settle.call).await?;
        self.prefetch(tx, settle).await?;
        let (cx, queue) = if self.may_grant() {
            Cx::open_for_grant(tx, &settle.call, LOOPS).await?
        } else {
            (Cx::open(tx, &settle.call).await?, None)
        };
        let steps = match settle.steps.as_slice() {
            [] => Vec::new(),
            steps => take_all(tx, &cx, &settle.ids(), steps).await?,
        };
        let lapsed = self.lapsed(tx, &cx).await?;
        note_artifacts(tx, &cx, &self.triggered).await?;
        let mut ending = Ending::new(&self.begin);
        let mut ends: BTreeMap<usize, Result<IterationEnded, Refusal>> = BTreeMap::new();
        // The others first: a loop that did not pass may give way to loops that begin in their places.
        let order = |(_, end): &(usize, &IterationEnd)| matches!(end.how, EndOf::NotPassed { .. });
        let mut in_order: Vec<(usize, &IterationEnd)> = self.ends.iter().enumerate().collect();
        in_order.sort_by_key(order);
        for (index, end) in in_order {
            match ending.end(tx, &cx, queue.as_ref(), end).await {
                Ok(ended) => drop(ends.insert(index, ended)),
                Err(Error::Refused(refusal)) => {
                    let settled = Settled { steps: Vec::new(), granted: Vec::new() };
                    return Ok(LeasesSynced { settled, loops: None, undone_by: Some((index, refusal)) });
                }
                Err(fault) => return Err(fault),
            }
        }
        let held_back = ending.begin(tx, &cx, queue).await?;
        let ends: Vec<Result<IterationEnded, Refusal>> = ends.into_values().collect();
        let started_over = started_over(tx, &cx, &ends, &ending.granted).await?;
        let policy = Arc::clone(&cx.published);
        let loops = LoopsSynced { policy, ends, lapsed, awaiting, counts, held_back, started_over };
        let settled = Settled { steps, granted: ending.granted };
        Ok(LeasesSynced { settled, loops: Some(loops), undone_by: None })
    }

    async fn lock_edges<T: Tx>(&self, tx: &mut T, call: &Call) -> Result<(), Fault> {
        let writes_edges =
            |end: &IterationEnd| matches!(&end.how, EndOf::Complete(complete) if complete.writes_edges());
        if self.ends.iter().any(writes_edges) {
            tx.lock_edges(&call.scope).await
        } else if self.ends.is_empty() && self.triggered.is_empty() {
            Ok(())
        } else {
            tx.share_edges(&call.scope).await
        }
    }

    /// The tasks that wait for an artifact with their parents, and the backlog.
    async fn look<T: Tx>(&self, tx: &mut T, call: &Call) -> Outcome<Looked> {
        if self.awaiting.is_none() && !self.counts {
            return Ok((Vec::new(), None));
        }
        let cx = Cx::open(tx, call).await?;
        let Some(queue) = tx.queue(&cx.scope, LOOPS, false).await? else {
            return Ok((Vec::new(), self.counts.then(BacklogCounts::default)));
        };
        let mut awaiting = match self.awaiting {
            Some(page) => tx.awaiting_artifact(queue.key, page.after_seq, page.limit).await?,
            None => Vec::new(),
        };
        awaiting.retain(|row| !self.triggered.contains(&row.task.id));
        let mut ids: Vec<TaskId> = awaiting.iter().filter_map(|row| row.task.parent.clone()).collect();
        ids.sort();
        ids.dedup();
        let parents = if ids.is_empty() { Vec::new() } else { tx.tasks(&cx.scope, &ids).await? };
        let parents: BTreeMap<TaskId, Task> =
            parents.into_iter().map(|row| (row.task.id.clone(), row.task)).collect();
        let with_parent = |task: Task| {
            let parent = task.parent.as_ref().and_then(|parent| parents.get(parent)).cloned();
            (task, parent)
        };
        let awaiting = awaiting.into_iter().map(|row| with_parent(row.task)).collect();
        let counts = match self.counts {
            true => Some(count_backlog(tx, queue.key, cx.now, false).await?),
            false => None,
        };
        Ok((awaiting, counts))
    }

    async fn prefetch<T: Tx>(&self, tx: &mut T, settle: &Settle) -> Result<(), Fault> {
        let mut ids = settle.ids();
        ids.extend(self.ends.iter().map(|end| end.lease.task.clone()));
        ids.sort();
        ids.dedup();
        let look: Vec<TaskId> = self.watched.iter().map(|lease| lease.task.clone()).collect();
        let mut claim = self.begin.reads();
        claim.limit += self.ends.len();
        let claim = Some(claim).filter(|_| self.may_grant() && settle.call.now.is_none());
        let scope = &settle.call.scope;
        tx.prefetch(&Prefetch { scope, settle: &ids, look: &look, claim, ..Prefetch::default() }).await
    }

    async fn lapsed<T: Tx>(&self, tx: &mut T, cx: &Cx) -> Result<Vec<(LeaseId, Option<Status>)>, Fault> {
        let ids: Vec<TaskId> = self.watched.iter().map(|lease| lease.task.clone()).collect();
        let rows = if ids.is_empty() { Vec::new() } else { tx.tasks(&cx.scope, &ids).await? };
        let tasks: BTreeMap<TaskId, Task> =
            rows.into_iter().map(|row| (row.task.id.clone(), row.task)).collect();
        let lapsed = |lease: &LeaseId| {
            let task = tasks.get(&lease.task);
            let is_held = task.and_then(Task::lease).as_ref() == Some(lease);
            (!is_held).then(|| (lease.clone(), task.map(|task| task.status)))
        };
        Ok(self.watched.iter().filter_map(lapsed).collect())
    }
}

type Looked = (Vec<(Task, Option<Task>)>, Option<BacklogCounts>);

/// The ends of a request, one after the other, and the places that they free.
struct Ending<'a> {
    begin: &'a Begin,
    free: usize,
    worktrees: Option<WorktreeLimit>,
    granted: Vec<Grant>,
}

impl<'a> Ending<'a> {
    fn new(begin: &'a Begin) -> Self {
        Self { begin, free: begin.claim.limit, worktrees: begin.worktrees.clone(), granted: Vec::new() }
    }

    /// Carries out one end. The inner refusal has changed nothing; after an outer one nothing may be committed.
    async fn end<T: Tx>(
        &mut self,
        tx: &mut T,
        cx: &Cx,
        queue: Option<&QueueRow>,
        end: &IterationEnd,
    ) -> Outcome<Result<IterationEnded, Refusal>> {
        let step = |command| Step { id: end.lease.task.clone(), command };
        let ended = if let Some(wait) = excuse(tx, cx, end).await? {
            let interrupt = Command::Interrupt { caller: Caller::lease(end.lease.clone()) };
            take(tx, cx, &step(interrupt)).await?.map(|task| IterationEnded::BudgetSpent(task, wait))
        } else {
            match &end.how {
                EndOf::NotPassed { reason } => return self.not_passed(tx, cx, queue, end, reason).await,
                EndOf::Complete(complete) => {
                    complete.run_in(tx, cx).await?.map(|(task, _)| IterationEnded::Settled(task))
                }
                EndOf::Limited(limited) => refused_inside(limited.run_in(tx, cx).await)?
                    .map(|(task, noted)| IterationEnded::Limited(task, noted)),
                EndOf::Step(command) => {
                    take(tx, cx, &step(command.clone())).await?.map(IterationEnded::Settled)
                }
            }
        };
        self.free += usize::from(ended.is_ok());
        Ok(ended)
    }

    async fn not_passed<T: Tx>(
        &mut self,
        tx: &mut T,
        cx: &Cx,
        queue: Option<&QueueRow>,
        end: &IterationEnd,
        reason: &str,
    ) -> Outcome<Result<IterationEnded, Refusal>> {
        let not_passed = NotPassed {
            call: self.begin.claim.call.clone(),
            lease: end.lease.clone(),
            reason: reason.to_owned(),
            begin: self.next(self.free + 1),
        };
        let after = match refused_inside(not_passed.run_in(tx, cx, queue).await)? {
            Ok(after) => after,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let AfterIteration { task, gave_way, granted } = after;
        let goes_on = gave_way.is_none();
        self.free = (self.free + 1).saturating_sub(granted.len() + usize::from(goes_on));
        if let Some(limit) = self.worktrees.as_mut().filter(|limit| uses(limit, &task) && !goes_on) {
            limit.left += 1;
        }
        self.grant(granted);
        Ok(Ok(IterationEnded::NotPassed(task, gave_way)))
    }

    /// What may begin next, up to a limit.
    fn next(&self, limit: usize) -> Begin {
        let claim = Claim { limit, ..self.begin.claim.clone() };
        Begin { claim, worktrees: self.worktrees.clone(), ..self.begin.clone() }
    }

    fn grant(&mut self, granted: Vec<Grant>) {
        if let Some(limit) = &mut self.worktrees {
            let used = granted.iter().filter(|grant| uses(limit, &grant.task)).count();
            limit.left = limit.left.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX));
        }
        self.granted.extend(granted);
    }

    /// Fills the free places; returns the limits that held, unless nothing could be chosen.
    async fn begin<T: Tx>(
        &mut self,
        tx: &mut T,
        cx: &Cx,
        queue: Option<QueueRow>,
    ) -> Outcome<Option<Vec<(String, Wait)>>> {
        if self.free == 0 || self.begin.kinds.is_empty() {
            return Ok(None);
        }
        let next = self.next(self.free);
        let (granted, room) = grant_with_room(tx, cx, &next.claim, queue, &next.how()).await?;
        self.grant(granted);
        Ok(Some(room.all_upstream_waits()))
    }
}

fn uses(limit: &WorktreeLimit, task: &Task) -> bool {
    task.kind.as_ref().is_some_and(|kind| limit.kinds.contains(kind))
}

/// The spent budget that excuses an end, if there is one.
async fn excuse<T: Tx>(tx: &mut T, cx: &Cx, end: &IterationEnd) -> Result<Option<Wait>, Fault> {
    let Some(upstream) = &end.excused_by_budget_of else { return Ok(None) };
    let waits = blocks::waits_of(tx, upstream, cx.now).await?;
    Ok(waits.into_iter().find(|wait| matches!(wait, Wait::BudgetSpent { .. })))
}

/// The refusal of something that refuses before it writes.
fn refused_inside<T>(outcome: Outcome<T>) -> Result<Result<T, Refusal>, Fault> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Refused(refusal)) => Ok(Err(refusal)),
        Err(Error::Fault(fault)) => Err(fault),
    }
}

/// A loop that was not started over has as many tries as iterations.
async fn started_over<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    ends: &[Result<IterationEnded, Refusal>],
    granted: &[Grant],
) -> Result<BTreeMap<TaskId, String>, Fault> {
    let goes_on = ends.iter().filter_map(|ended| match ended {
        Ok(IterationEnded::NotPassed(task, None)) => Some(task),
        _ => None,
    });
    let mut reasons = BTreeMap::new();
    for task in granted.iter().map(|grant| &grant.task).chain(goes_on) {
        if task.iteration != task.tries
            && let Some(reason) = why_started_over(tx, cx, &task.id).await?
        {
            reasons.insert(task.id.clone(), reason);
        }
    }
    Ok(reasons)
}
