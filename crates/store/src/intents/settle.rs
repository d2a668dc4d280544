//! Steps of the state machine on tasks that exist: settle, renew, park, pause, reset, delete and the rest.

use async_trait::async_trait;
use rota_core::transition::{self, Command};
use rota_core::{Refusal, Status, Task, TaskId};

use super::claim::{Claim, Grant, grant_next};
use super::write::{self, Change};
use super::{Call, Cx, find_queue};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, AtOnce, DoneAtOnce, Filter, ListFilter, Tx};

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
    /// What to claim afterwards.
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

    fn may_be_at_once(&self) -> bool {
        true
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Settled> {
        let at_once = AtOnce { call: &self.call, steps: &self.steps, then: self.then.as_ref() };
        let DoneAtOnce { steps: taken, granted } = tx.at_once(&at_once).await?;
        let then = self.then.as_ref().filter(|_| granted.is_none());
        if taken.len() == self.steps.len() && taken.iter().all(Option::is_some) && then.is_none() {
            let steps = taken.into_iter().flatten().map(Ok).collect();
            return Ok(Settled { steps, granted: granted.unwrap_or_default() });
        }
        // Every writer takes locks in this order: the scope's edges, the queue's turn, task rows.
        tx.share_edges(&self.call.scope).await?;
        let (cx, queue) = match then {
            Some(claim) => Cx::open_for_grant(tx, &self.call, &claim.queue).await?,
            None => (Cx::open(tx, &self.call).await?, None),
        };
        let alone = match taken.iter().all(Option::is_none) {
            true => take_alone(tx, &cx, &self.steps).await?,
            false => None,
        };
        let steps = match alone {
            Some(steps) => steps,
            None => take_each(tx, &cx, &self.steps, taken).await?,
        };
        let granted = match then {
            Some(claim) => grant_next(tx, &cx, claim, queue).await?,
            None => granted.unwrap_or_default(),
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
            Err(refusal) => refused.push(Some(refusal)),
        }
    }
    let mut settled = write::save_lone(tx, cx, changes).await?;
    let taken = refused.into_iter().filter_map(|refusal| match refusal {
        Some(refusal) => Some(Err(refusal)),
        None => settled.next().map(Ok),
    });
    Ok(Some(taken.collect()))
}

/// Takes one step after the other, but for those that were taken before.
async fn take_each<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    steps: &[Step],
    taken: Vec<Option<Task>>,
) -> Result<Vec<Result<Task, Refusal>>, Fault> {
    let mut each = Vec::with_capacity(steps.len());
    let mut taken = taken.into_iter();
    for step in steps {
        each.push(match taken.next().flatten() {
            Some(task) => Ok(task),
            None => take(tx, cx, step).await?,
        });
    }
    Ok(each)
}

async fn take<T: Tx>(tx: &mut T, cx: &Cx, step: &Step) -> Result<Result<Task, Refusal>, Fault> {
    match tx.task(&cx.scope, &step.id).await? {
        Some(row) => Ok(write::step(tx, cx, &row, &step.command).await?.map(|row| row.task)),
        None => Ok(Err(Refusal::TaskNotFound { id: step.id.clone() })),
    }
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
