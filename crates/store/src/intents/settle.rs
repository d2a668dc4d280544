//! Steps of the state machine on tasks that exist: settle, renew, park, pause, reset, delete and the rest.

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::transition::{self, Command, Verb};
use rota_core::{Json, LeaseId, Outcome as AttemptOutcome, Refusal, Status, Task, TaskId};

use super::claim::{Claim, Grant, grant_next};
use super::write::{self, Change};
use super::{Call, Cx, find_queue};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, EventFilter, Filter, ListFilter, Tx};

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
    /// One step and nothing else.
    pub fn one(call: Call, id: TaskId, command: Command) -> Self {
        Self { call, steps: vec![Step { id, command }], then: None }
    }
}

#[async_trait]
impl Intent for Settle {
    type Output = Settled;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Settled> {
        // Every writer takes locks in this order: the scope's edges, the queue's row, task rows.
        tx.share_edges(&self.call.scope).await?;
        let (cx, queue) = match &self.then {
            Some(claim) => Cx::open_for_grant(tx, &self.call, &claim.queue).await?,
            None => (Cx::open(tx, &self.call).await?, None),
        };
        let steps = match take_alone(tx, &cx, &self.steps).await? {
            Some(steps) => steps,
            None => take_each(tx, &cx, &self.steps).await?,
        };
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

/// Takes many steps in one go, if each finishes a task of its own, and what happens to it means nothing for others.
async fn take_alone<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    steps: &[Step],
) -> Result<Option<Vec<Result<Task, Refusal>>>, Fault> {
    let plain = steps.len() > 1 && steps.iter().all(|step| matches!(step.command, Command::Done { .. }));
    if !plain {
        return Ok(None);
    }
    let ids: Vec<&TaskId> = steps.iter().map(|step| &step.id).collect();
    let Some(rows) = tx.lone_tasks(&cx.scope, &ids).await? else { return Ok(None) };
    let mut refused = Vec::with_capacity(steps.len());
    let mut changes = Vec::with_capacity(steps.len());
    for (row, Step { command, .. }) in rows.iter().zip(steps) {
        match transition::apply(&row.task, command, cx.policy(&row.task.queue), cx.now) {
            Ok(applied) => {
                changes.push((row, Change::of(applied, command)));
                refused.push(None);
            }
            Err(refusal) => refused.push(Some(explained(tx, cx, &row.task, command, refusal).await?)),
        }
    }
    let mut settled = write::save_lone(tx, cx, changes).await?;
    let taken = refused.into_iter().filter_map(|refusal| match refusal {
        Some(refusal) => Some(Err(refusal)),
        None => settled.next().map(Ok),
    });
    Ok(Some(taken.collect()))
}

async fn take_each<T: Tx>(tx: &mut T, cx: &Cx, steps: &[Step]) -> Result<Vec<Result<Task, Refusal>>, Fault> {
    let mut each = Vec::with_capacity(steps.len());
    for step in steps {
        each.push(take(tx, cx, step).await?);
    }
    Ok(each)
}

async fn take<T: Tx>(tx: &mut T, cx: &Cx, step: &Step) -> Result<Result<Task, Refusal>, Fault> {
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
