//! Steps of the state machine on tasks that exist: settle, renew, park, pause, reset, delete and the rest.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::transition::{Command, Verb};
use rota_core::{Json, LeaseId, Outcome as AttemptOutcome, Refusal, Status, Task, TaskId};

use super::batch::{BatchAnswer, BatchCall};
use super::claim::{Claim, Grant, grant_next};
use super::read::{self, TaskView};
use super::write::{self, Change};
use super::{Call, Cx, find_queue};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, EventFilter, Filter, ListFilter, Prefetch, Row, Tx};

/// One step on one task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The task.
    pub id: TaskId,
    /// What is done to it.
    pub command: Command,
}

/// Takes steps, many in one transaction, and grants the caller's next lease in the same one if it asks. Each step is
/// accepted or refused by itself: one late worker does not undo the acknowledged results of the others.
#[derive(Clone, Debug)]
pub struct Settle {
    /// Where, when, who.
    pub call: Call,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What to claim afterwards. Nothing is claimed if a step is refused: its caller has to learn first that its work
    /// does not count.
    pub then: Option<Claim>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Each step's task, or why it was refused.
    pub steps: Vec<Result<Task, Refusal>>,
    /// The leases granted afterwards.
    pub granted: Vec<Grant>,
}

impl Settle {
    /// The tasks of its steps, each once.
    pub(super) fn ids(&self) -> Vec<TaskId> {
        let ids: BTreeSet<&TaskId> = self.steps.iter().map(|step| &step.id).collect();
        ids.into_iter().cloned().collect()
    }

    /// One step and nothing else.
    pub fn one(call: Call, id: TaskId, command: Command) -> Self {
        Self { call, steps: vec![Step { id, command }], then: None }
    }
}

#[async_trait]
impl Intent for Settle {
    type Output = Settled;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Settled> {
        let ids = self.ids();
        let claim = self.then.as_ref().filter(|claim| claim.call.now.is_none());
        let claim = claim.map(Claim::reads);
        tx.prefetch(&Prefetch { scope: &self.call.scope, settle: &ids, claim, ..Prefetch::default() })
            .await?;
        self.run_in(tx).await
    }

    fn batched(&self) -> Option<BatchCall> {
        self.is_by_the_clock().then(|| BatchCall::Settle(self.clone()))
    }

    fn answered(&self, answer: BatchAnswer) -> Option<Settled> {
        if let BatchAnswer::Settled(settled) = answer { Some(settled) } else { None }
    }
}

impl Settle {
    fn is_by_the_clock(&self) -> bool {
        self.call.now.is_none() && self.then.as_ref().is_none_or(|claim| claim.call.now.is_none())
    }

    /// Carries it out inside a transaction that has read ahead.
    pub(super) async fn run_in<T: Tx>(&self, tx: &mut T) -> Outcome<Settled> {
        let ids = self.ids();
        let (cx, queue) = match &self.then {
            Some(claim) => Cx::open_for_grant(tx, &self.call, &claim.queue).await?,
            None => (Cx::open(tx, &self.call).await?, None),
        };
        let steps = take_all(tx, &cx, &ids, &self.steps).await?;
        let granted = match &self.then {
            Some(claim) if steps.iter().all(Result::is_ok) => {
                let cx = Cx { actor: claim.call.actor.clone(), ..cx };
                grant_next(tx, &cx, claim, queue).await?
            }
            _ => Vec::new(),
        };
        Ok(Settled { steps, granted })
    }
}

/// One step on one task, which is shown afterwards, and the next lease in the same transaction if it is asked for. A
/// step that is refused is the refusal of the whole call.
#[derive(Clone, Debug)]
pub struct StepAndView {
    /// Where, when, who.
    pub call: Call,
    /// The step.
    pub step: Step,
    /// What to claim afterwards.
    pub then: Option<Claim>,
}

#[async_trait]
impl Intent for StepAndView {
    type Output = (TaskView, Option<Grant>);

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let claim = self.then.as_ref().filter(|claim| claim.call.now.is_none()).map(Claim::reads);
        let settle = std::slice::from_ref(&self.step.id);
        tx.prefetch(&Prefetch { scope: &self.call.scope, settle, claim, ..Prefetch::default() }).await?;
        self.run_in(tx).await
    }

    fn batched(&self) -> Option<BatchCall> {
        let by_the_clock = self.then.as_ref().is_none_or(|claim| claim.call.now.is_none());
        (self.call.now.is_none() && by_the_clock).then(|| BatchCall::Step(self.clone()))
    }

    fn answered(&self, answer: BatchAnswer) -> Option<Self::Output> {
        if let BatchAnswer::Stepped(stepped) = answer { Some(*stepped) } else { None }
    }
}

impl StepAndView {
    /// Carries it out inside a transaction that has read ahead.
    pub(super) async fn run_in<T: Tx>(&self, tx: &mut T) -> Outcome<(TaskView, Option<Grant>)> {
        let (cx, queue) = match &self.then {
            Some(claim) => Cx::open_for_grant(tx, &self.call, &claim.queue).await?,
            None => (Cx::open(tx, &self.call).await?, None),
        };
        let steps = std::slice::from_ref(&self.step);
        let Some(taken) = take_all(tx, &cx, std::slice::from_ref(&self.step.id), steps).await?.pop() else {
            unreachable!("one step has one outcome")
        };
        let task = taken?;
        let view = read::view(tx, &cx, task).await?;
        let granted = match &self.then {
            Some(claim) => {
                let cx = Cx { actor: claim.call.actor.clone(), ..cx };
                grant_next(tx, &cx, claim, queue).await?.into_iter().next()
            }
            None => None,
        };
        Ok((view, granted))
    }
}

/// Takes steps in order. Those on tasks without links are written together; the others one by one, because each may
/// change what the next one meets.
pub(super) async fn take_all<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    ids: &[TaskId],
    steps: &[Step],
) -> Result<Vec<Result<Task, Refusal>>, Fault> {
    let rows = tx.settlement_rows(&cx.scope, ids).await?.into_iter();
    let unlinked = rows.filter(|found| !found.is_linked).map(|found| (found.row.task.id.clone(), found.row));
    let mut unlinked: BTreeMap<TaskId, Row> = unlinked.collect();
    let mut results: Vec<Option<Result<Task, Refusal>>> = steps.iter().map(|_| None).collect();
    let mut together: Vec<(usize, Row, Change)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let Some(row) = unlinked.remove(&step.id) else {
            save_together(tx, cx, &mut together, &mut results).await?;
            results[index] = Some(take(tx, cx, step).await?);
            // It may have changed how many blockers the others wait for, so they are read again.
            unlinked.clear();
            continue;
        };
        match write::judge(cx, &row, &step.command) {
            Ok(change) => together.push((index, row, change)),
            Err(refusal) => {
                results[index] = Some(Err(explained(tx, cx, &row.task, &step.command, refusal).await?));
            }
        }
    }
    save_together(tx, cx, &mut together, &mut results).await?;
    Ok(results.into_iter().flatten().collect())
}

async fn save_together<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    together: &mut Vec<(usize, Row, Change)>,
    results: &mut [Option<Result<Task, Refusal>>],
) -> Result<(), Fault> {
    let mut places = Vec::with_capacity(together.len());
    let mut rows = Vec::with_capacity(together.len());
    let mut changes = Vec::with_capacity(together.len());
    for (place, row, change) in together.drain(..) {
        places.push(place);
        rows.push(row);
        changes.push(change);
    }
    let saved = write::save_unlinked(tx, cx, rows.iter().zip(changes).collect()).await?;
    for (place, task) in places.into_iter().zip(saved) {
        results[place] = Some(Ok(task));
    }
    Ok(())
}

pub(super) async fn take<T: Tx>(tx: &mut T, cx: &Cx, step: &Step) -> Result<Result<Task, Refusal>, Fault> {
    match tx.task(&cx.scope, &step.id).await? {
        Some(row) => match write::step(tx, cx, &row, &step.command).await? {
            Ok(row) => Ok(Ok(row.task)),
            Err(refusal) => Ok(Err(explained(tx, cx, &row.task, &step.command, refusal).await?)),
        },
        None => Ok(Err(Refusal::TaskNotFound { id: step.id.clone() })),
    }
}

/// The refusal as its caller is told it: a late worker that was not replaced is told that its lease expired.
async fn explained<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    task: &Task,
    command: &Command,
    refusal: Refusal,
) -> Result<Refusal, Fault> {
    match refusal {
        Refusal::NotActive { .. } => Ok(lost_lease(tx, cx, task, command).await?.unwrap_or(refusal)),
        other => Ok(other),
    }
}

/// The refusal of a worker whose lease, the last one of the task, expired and was reclaimed; none if that is not what
/// ended it, or if the caller names another lease or agent.
async fn lost_lease<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    task: &Task,
    command: &Command,
) -> Result<Option<Refusal>, Fault> {
    let Some(caller) = command.caller() else { return Ok(None) };
    let lease = LeaseId { task: task.id.clone(), fence: task.fence };
    if caller.lease.as_ref().is_some_and(|named| *named != lease) {
        return Ok(None);
    }
    let filter = EventFilter { task: Some(task.id.clone()), ..EventFilter::default() };
    let (mut agent, mut expired_at, mut outcome) = (None, None, None);
    for event in tx.events(&cx.scope, &filter).await? {
        if event.fence != Some(task.fence) {
            continue;
        }
        let changed = |name: &str| event.data.changes.get(name).map(Json::as_str);
        let text =
            |name: &str| changed(name).and_then(|json| serde_json::from_str::<Option<String>>(json).ok());
        if event.kind == EventKind::Step(Verb::Claim) {
            agent = text("assignee").flatten();
        }
        let expiry = changed("leaseExpiresAt").and_then(|json| serde_json::from_str(json).ok());
        expired_at = expiry.or(expired_at);
        outcome = event.data.outcome.or(outcome);
    }
    if caller.agent.is_some() && agent.is_some() && caller.agent != agent {
        return Ok(None);
    }
    let refusal =
        |expired_at| Refusal::LeaseLost { id: task.id.clone(), status: task.status, lease, expired_at };
    Ok(expired_at.filter(|_| outcome == Some(AttemptOutcome::Lost)).map(refusal))
}

/// Deletes every task of a queue that a filter names; returns how many.
#[derive(Clone, Debug)]
pub struct DeleteMany {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// In which states; empty for all.
    pub statuses: Vec<Status>,
    /// Only of this spec.
    pub spec: Option<String>,
    /// Only of this category.
    pub category: Option<String>,
}

#[async_trait]
impl Intent for DeleteMany {
    type Output = usize;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<usize> {
        tx.lock_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(0) };
        let filter = ListFilter {
            queue: Some(queue.key),
            statuses: self.statuses.clone(),
            assignee: None,
            filter: Filter {
                category: self.category.clone(),
                specs: self.spec.clone().map(|spec| vec![spec]),
            },
        };
        let mut rows = tx.list(&cx.scope, &filter).await?;
        rows.retain(|row| row.task.status != Status::Deleted);
        rows.sort_by(|left, right| left.task.id.cmp(&right.task.id));
        let mut deleted = 0;
        for row in rows {
            // A row may have changed since it was listed: deleting a blocker readies its dependents.
            let Some(row) = tx.task(&cx.scope, &row.task.id).await? else { continue };
            write::step_or_refuse(tx, &cx, &row, &Command::Delete).await?;
            deleted += 1;
        }
        Ok(deleted)
    }
}
