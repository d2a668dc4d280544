//! Running loops: granting one with its first iteration, completing one with its children, artifacts that appear.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::transition::{self, Command};
use rota_core::{Caller, Json, LeaseId, Refusal, Status, Task, TaskId, UnixMillis};

use super::add::{NewPriority, NewTask, add_all};
use super::claim::{Claim, Grant, How, grant_by};
use super::{Call, Cx, edges, find_queue, find_task, write};
use crate::fault::{Error, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Filter, QueueRow, Row, Tx};

/// Grants loops and begins their first iteration, in one transaction: a crash before it returns leaves all of it or
/// nothing, so that a number is never used twice.
#[derive(Clone, Debug)]
pub struct Begin {
    /// What to claim.
    pub claim: Claim,
    /// The kinds that can be run now.
    pub kinds: Vec<String>,
    /// Whether a loop that was never run stays with the claim's host: its folders will be there.
    pub binds_host: bool,
}

impl Begin {
    async fn grant<T: Tx>(&self, tx: &mut T, cx: &Cx, queue: Option<QueueRow>) -> Outcome<Vec<Grant>> {
        let host = self.claim.host.clone().filter(|_| self.binds_host);
        let command = Command::Begin { agent: self.claim.agent.clone(), host };
        grant_by(tx, cx, &self.claim, queue, &How { command, only_kinds: Some(&self.kinds) }).await
    }
}

#[async_trait]
impl Intent for Begin {
    type Output = Vec<Grant>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Grant>> {
        let (cx, queue) = Cx::open_for_grant(tx, &self.claim.call, &self.claim.queue).await?;
        self.grant(tx, &cx, queue).await
    }
}

/// Completes a loop: done, its children added, its artifacts noted, and the next loops begun, in one transaction. If
/// the lease is gone or a child cannot be added, nothing of it happens.
#[derive(Clone, Debug)]
pub struct Complete {
    /// Where, when, who.
    pub call: Call,
    /// Which loop, by its lease.
    pub lease: LeaseId,
    /// What came out.
    pub result: Option<Json>,
    /// What it leaves to be done. One that exists as invalidated under the same parent is revived.
    pub children: Vec<NewTask>,
    /// Children that waited for an artifact which is there now.
    pub triggered: Vec<TaskId>,
    /// What to begin afterwards.
    pub then: Option<Begin>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The loop.
    pub task: Task,
    /// Its children, in the order given.
    pub children: Vec<Task>,
    /// What was begun.
    pub granted: Vec<Grant>,
}

#[async_trait]
impl Intent for Complete {
    type Output = Completed;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Completed> {
        if self.children.iter().any(|child| !child.deps.is_empty()) {
            tx.lock_edges(&self.call.scope).await?;
        } else {
            tx.share_edges(&self.call.scope).await?;
        }
        let (cx, queue) = match &self.then {
            Some(begin) => Cx::open_for_grant(tx, &self.call, &begin.claim.queue).await?,
            None => (Cx::open(tx, &self.call).await?, None),
        };
        let parent = find_task(tx, &cx, &self.lease.task).await?;
        let caller = Caller { agent: None, lease: Some(self.lease.clone()) };
        let done = Command::Done { caller, result: self.result.clone() };
        let task = write::step_or_refuse(tx, &cx, &parent, &done).await?.task;
        let children = self.add_children(tx, &cx).await?;
        note_artifacts(tx, &cx, &self.triggered).await?;
        let granted = match &self.then {
            Some(begin) => begin.grant(tx, &cx, queue).await?,
            None => Vec::new(),
        };
        Ok(Completed { task, children, granted })
    }
}

impl Complete {
    async fn add_children<T: Tx>(&self, tx: &mut T, cx: &Cx) -> Outcome<Vec<Task>> {
        let ids: Vec<TaskId> = self.children.iter().map(|child| child.id.clone()).collect();
        let revivable = |row: &Row| is_revivable(row, &self.lease.task);
        let rows = tx.lock_tasks(&cx.scope, &ids).await?.into_iter().filter(revivable);
        let old: BTreeMap<TaskId, Row> = rows.map(|row| (row.task.id.clone(), row)).collect();
        let new: Vec<NewTask> =
            self.children.iter().filter(|child| !old.contains_key(&child.id)).cloned().collect();
        let mut written: BTreeMap<TaskId, Task> = BTreeMap::new();
        let revived: Vec<&NewTask> =
            self.children.iter().filter(|child| old.contains_key(&child.id)).collect();
        for child in &revived {
            let task = revive(tx, cx, &old[&child.id], child).await?;
            written.insert(task.id.clone(), task);
        }
        for task in add_all(tx, cx, &new).await? {
            written.insert(task.id.clone(), task);
        }
        for child in revived {
            let task = replace_edges(tx, cx, child).await?;
            written.insert(task.id.clone(), task);
        }
        Ok(ids.into_iter().filter_map(|id| written.remove(&id)).collect())
    }
}

/// Whether a task is a child of an earlier iteration that was left behind.
pub(super) fn is_revivable(row: &Row, parent: &TaskId) -> bool {
    row.task.status == Status::Invalidated && row.task.parent.as_ref() == Some(parent)
}

/// A child of an earlier iteration that the new one has again: open, its tries forgotten, its fence kept.
pub(super) async fn revive<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, child: &NewTask) -> Outcome<Task> {
    let policy = cx.policy(&row.task.queue);
    let open = transition::apply(&row.task, &Command::Reset, policy, cx.now)?.task;
    let priority = match child.priority {
        NewPriority::Given(priority) => Some(priority),
        NewPriority::QueueDefault => Some(policy.default_priority),
        NewPriority::Unset => None,
    };
    let next = Task {
        title: (&child.title).into(),
        kind: child.kind.clone(),
        priority,
        triggered_by: child.triggered_by.clone(),
        parent_iteration: child.parent_iteration,
        artifact_present: child.artifact_present,
        description: child.description.as_ref().map(Into::into),
        category: child.category.as_ref().map(Into::into),
        steps: child.steps.clone(),
        spec_ref: child.spec_ref.clone(),
        reference: child.reference.clone(),
        payload: child.payload.clone(),
        ..open
    };
    let change = write::Change::new(EventKind::Revived, next);
    Ok(write::save(tx, cx, row, change).await?.task)
}

/// Gives a revived child the blockers that it has now.
async fn replace_edges<T: Tx>(tx: &mut T, cx: &Cx, child: &NewTask) -> Outcome<Task> {
    let mut row = find_task(tx, cx, &child.id).await?;
    let wanted: BTreeSet<&TaskId> = child.deps.iter().collect();
    let had = tx.edges(&cx.scope, std::slice::from_ref(&child.id)).await?;
    for (_, blocker) in had.iter().filter(|(_, blocker)| !wanted.contains(blocker)) {
        let blocker = find_task(tx, cx, blocker).await?;
        if let Some(freed) = edges::remove(tx, cx, row.clone(), &blocker).await? {
            row = freed;
        }
    }
    for dep in &child.deps {
        let found = tx.task(&cx.scope, dep).await?;
        let missing = || Refusal::UnknownDependency { id: child.id.clone(), dep: dep.clone() };
        row = edges::add(tx, cx, row, &found.ok_or_else(missing)?).await?;
    }
    edges::refuse_cycle(tx, cx, std::slice::from_ref(&child.id)).await?;
    Ok(row.task)
}

/// Notes that artifacts are there which tasks waited for.
#[derive(Clone, Debug)]
pub struct NoteArtifacts {
    /// Where, when, who.
    pub call: Call,
    /// The tasks.
    pub triggered: Vec<TaskId>,
}

#[async_trait]
impl Intent for NoteArtifacts {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        note_artifacts(tx, &cx, &self.triggered).await
    }
}

async fn note_artifacts<T: Tx>(tx: &mut T, cx: &Cx, triggered: &[TaskId]) -> Outcome<()> {
    for row in tx.lock_tasks(&cx.scope, triggered).await? {
        if row.task.artifact_present || row.task.status != Status::Open {
            continue;
        }
        let mut next = row.task.clone();
        next.artifact_present = true;
        next.open_since = next.open_since.max(cx.now);
        write::save(tx, cx, &row, write::Change::new(EventKind::Readied, next))
            .await
            .map_err(Error::Fault)?;
    }
    Ok(())
}

/// Open tasks that wait for an artifact, in the order they were added.
#[derive(Clone, Debug)]
pub struct AwaitingArtifact {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// Only those added after this one.
    pub after_seq: u64,
    /// At most so many.
    pub limit: usize,
}

#[async_trait]
impl Intent for AwaitingArtifact {
    type Output = Vec<Task>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Task>> {
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Vec::new()) };
        let rows = tx.awaiting_artifact(queue.key, self.after_seq, self.limit).await?;
        Ok(rows.into_iter().map(|row| row.task).collect())
    }
}

/// The children of a loop that wait for an artifact of it.
#[derive(Clone, Debug)]
pub struct ChildrenAwaiting {
    /// Where, when, who.
    pub call: Call,
    /// The loop.
    pub parent: TaskId,
}

#[async_trait]
impl Intent for ChildrenAwaiting {
    type Output = Vec<Task>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Task>> {
        let rows = tx.children(&self.call.scope, &self.parent).await?.into_iter();
        let waits = |task: &Task| task.triggered_by.is_some() && !task.artifact_present;
        Ok(rows.map(|row| row.task).filter(waits).collect())
    }
}

/// Those of some leases that are held no longer: expired and granted again, settled, paused, cancelled, deleted.
#[derive(Clone, Debug)]
pub struct Lapsed {
    /// Where, when, who.
    pub call: Call,
    /// The leases.
    pub leases: Vec<LeaseId>,
}

#[async_trait]
impl Intent for Lapsed {
    type Output = Vec<(LeaseId, Option<Status>)>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let ids: Vec<TaskId> = self.leases.iter().map(|lease| lease.task.clone()).collect();
        let rows = tx.tasks(&self.call.scope, &ids).await?;
        let tasks: BTreeMap<TaskId, Task> =
            rows.into_iter().map(|row| (row.task.id.clone(), row.task)).collect();
        let mut lapsed = Vec::new();
        for lease in &self.leases {
            let task = tasks.get(&lease.task);
            if task.and_then(Task::lease).as_ref() != Some(lease) {
                lapsed.push((lease.clone(), task.map(|task| task.status)));
            }
        }
        Ok(lapsed)
    }
}

/// How many loops there are, for people: those that are open, and those of them that nothing holds back.
#[derive(Clone, Debug)]
pub struct Backlog {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// Whether to count by state too, which looks at every task of the queue.
    pub whole: bool,
}

#[async_trait]
impl Intent for Backlog {
    type Output = BacklogCounts;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<BacklogCounts> {
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else {
            return Ok(BacklogCounts::default());
        };
        let mut by_status: BTreeMap<Status, u64> = BTreeMap::new();
        if self.whole {
            for count in tx.count(queue.key, &Filter::default()).await? {
                *by_status.entry(count.status).or_default() += count.count;
            }
        }
        let active = tx.active_by_kind(queue.key).await?;
        let runnable = tx.ready_count(queue.key, cx.now).await?;
        let cooling_until = tx.next_due(queue.key).await?;
        Ok(BacklogCounts { by_status, active, runnable, cooling_until })
    }
}

/// What [`Backlog`] counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BacklogCounts {
    /// By state, where that was asked for.
    pub by_status: BTreeMap<Status, u64>,
    /// Unsettled leases by kind.
    pub active: BTreeMap<String, u32>,
    /// Open, and nothing holds them back.
    pub runnable: u64,
    /// When the next one that only waits for a time may run.
    pub cooling_until: Option<UnixMillis>,
}

impl BacklogCounts {
    /// How many are in a state.
    pub fn of(&self, status: Status) -> u64 {
        self.by_status.get(&status).copied().unwrap_or(0)
    }
}
