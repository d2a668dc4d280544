//! Adding tasks, many in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::graph;
use rota_core::{Fence, Json, QueuePolicy, Refusal, Status, Task, TaskId, UnixMillis};

use super::batch::{BatchAnswer, BatchCall};
use super::{Call, Cx, edges, write};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, Prefetch, Row, Tx};

/// A task to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct NewTask {
    pub id: TaskId,
    pub queue: String,
    pub title: String,
    pub kind: Option<String>,
    pub priority: NewPriority,
    pub parent: Option<TaskId>,
    pub triggered_by: Option<String>,
    pub parent_iteration: Option<u32>,
    pub artifact_present: bool,
    pub trigger_hash: Option<String>,
    pub description: Option<String>,
    pub category: Option<String>,
    pub steps: Vec<String>,
    pub spec_ref: Option<String>,
    pub reference: Option<String>,
    pub payload: Option<Json>,
    /// The task whose agent created it.
    pub discovered_from: Option<TaskId>,
    pub deps: Vec<TaskId>,
    pub not_before: Option<UnixMillis>,
    /// What it has behind it, if it comes from elsewhere.
    pub past: Option<Past>,
}

/// What a task that was kept elsewhere has behind it. Nobody holds it: leases do not move.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct Past {
    /// Anything but active.
    pub status: Status,
    pub created_at: Option<UnixMillis>,
    pub finished_at: Option<UnixMillis>,
    pub attempts: u32,
    /// The last lease it is known to have had; the next one is another.
    pub fence: Fence,
    pub result: Option<Json>,
    pub fail_reason: Option<String>,
    pub parked_reason: Option<String>,
}

impl Past {
    /// With a status and nothing else.
    pub const fn new(status: Status) -> Self {
        Self {
            status,
            created_at: None,
            finished_at: None,
            attempts: 0,
            fence: Fence::NONE,
            result: None,
            fail_reason: None,
            parked_reason: None,
        }
    }

    fn give(&self, task: &mut Task) {
        task.status = self.status;
        task.created_at = self.created_at.unwrap_or(task.created_at);
        task.open_since = task.created_at;
        task.attempts = self.attempts;
        task.fence = self.fence;
        task.result = self.result.clone().filter(|result| result.as_str() != "null");
        task.fail_reason = self.fail_reason.clone();
        if self.status == Status::Parked {
            task.parked_reason = self.parked_reason.clone();
        }
        if self.status.is_finished() {
            task.finished_at = self.finished_at.or(Some(task.updated_at));
        }
    }
}

/// Which priority a new task gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewPriority {
    /// This one.
    Given(u32),
    /// The queue's default.
    QueueDefault,
    /// None, as only loops may.
    Unset,
}

impl NewTask {
    /// With the queue's defaults and nothing else.
    pub fn new(id: TaskId, queue: &str, title: &str) -> Self {
        Self {
            id,
            queue: queue.to_owned(),
            title: title.to_owned(),
            kind: None,
            priority: NewPriority::QueueDefault,
            parent: None,
            triggered_by: None,
            parent_iteration: None,
            artifact_present: false,
            trigger_hash: None,
            description: None,
            category: None,
            steps: Vec::new(),
            spec_ref: None,
            reference: None,
            payload: None,
            discovered_from: None,
            deps: Vec::new(),
            not_before: None,
            past: None,
        }
    }

    /// The task that it becomes, as if it had no parent.
    pub(crate) fn at_root(&self, scope: &str, policy: &QueuePolicy, now: UnixMillis) -> Task {
        let mut task = Task {
            // Stores keep no kind as an empty one, and the journal says `null` for what is gone.
            kind: self.kind.clone().filter(|kind| !kind.is_empty()),
            priority: match self.priority {
                NewPriority::Given(priority) => Some(priority),
                NewPriority::QueueDefault => Some(policy.default_priority),
                NewPriority::Unset => None,
            },
            parent: self.parent.clone(),
            triggered_by: self.triggered_by.clone(),
            parent_iteration: self.parent_iteration,
            artifact_present: self.artifact_present,
            trigger_hash: self.trigger_hash.clone(),
            description: self.description.as_ref().map(Into::into),
            category: self.category.as_ref().map(Into::into),
            steps: self.steps.clone(),
            spec_ref: self.spec_ref.clone(),
            reference: self.reference.clone(),
            payload: self.payload.clone().filter(|payload| payload.as_str() != "null"),
            discovered_from: self.discovered_from.clone(),
            next_eligible_at: self.not_before,
            ..Task::new(scope, self.id.clone(), &self.queue, &self.title, now)
        };
        if let Some(past) = &self.past {
            past.give(&mut task);
        }
        task
    }

    /// Whether it is added in a state that no longer blocks others.
    fn satisfies_edge(&self) -> bool {
        self.past.as_ref().is_some_and(|past| past.status.satisfies_edge())
    }
}

/// Adds tasks: all of them, or none and the reason. They may depend on each other in any order.
#[derive(Clone, Debug)]
pub struct Add {
    /// Where, when, who.
    pub call: Call,
    /// What.
    pub tasks: Vec<NewTask>,
}

#[async_trait]
impl Intent for Add {
    type Output = Vec<Task>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Task>> {
        let ids: Vec<TaskId> = self.tasks.iter().map(|task| task.id.clone()).collect();
        let add_queue = self.tasks.first().map(|task| task.queue.as_str());
        let reads = Prefetch { scope: &self.call.scope, add: &ids, add_queue, ..Prefetch::default() };
        tx.prefetch(&reads).await?;
        self.run_in(tx).await
    }

    /// Not with dependencies or a parent: those may be refused after some tasks were written.
    fn batched(&self) -> Option<BatchCall> {
        let is_unlinked = |task: &NewTask| task.deps.is_empty() && task.parent.is_none();
        let is_batched = self.call.now.is_none() && self.tasks.iter().all(is_unlinked);
        is_batched.then(|| BatchCall::Add(self.clone()))
    }

    fn answered(&self, answer: BatchAnswer) -> Option<Vec<Task>> {
        if let BatchAnswer::Added(tasks) = answer { Some(tasks) } else { None }
    }
}

impl Add {
    /// Carries it out inside a transaction that has read ahead.
    pub(super) async fn run_in<T: Tx>(&self, tx: &mut T) -> Outcome<Vec<Task>> {
        let cx = Cx::open(tx, &self.call).await?;
        if self.tasks.iter().any(|task| !task.deps.is_empty()) {
            tx.lock_edges(&cx.scope).await?;
        }
        add_all(tx, &cx, &self.tasks).await
    }
}

/// The same inside a transaction that has begun; where there are dependencies it has the turn to write edges.
pub(super) async fn add_all<T: Tx>(tx: &mut T, cx: &Cx, tasks: &[NewTask]) -> Outcome<Vec<Task>> {
    let batch: BTreeSet<&TaskId> = tasks.iter().map(|task| &task.id).collect();
    let mut settled = check(tx, cx, tasks, &batch).await?;
    settled.extend(tasks.iter().filter(|task| task.satisfies_edge()).map(|task| task.id.clone()));
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id.clone()).collect();
    let fences = last_fences(tx, cx, &ids).await?;
    tx.reserve(tasks.len()).await?;
    let mut queues = BTreeMap::new();
    let mut added = Vec::with_capacity(tasks.len());
    for new in tasks {
        let key = match queues.get(&new.queue) {
            Some(key) => *key,
            None => tx.ensure_queue(&cx.scope, &new.queue).await?.key,
        };
        queues.insert(new.queue.clone(), key);
        let open_blockers = new.deps.iter().filter(|dep| !settled.contains(*dep)).count();
        let mut task = build(tx, cx, new).await?;
        task.fence = task.fence.max(fences.get(&new.id).copied().unwrap_or_default());
        let row = Row { task, open_blockers: u32::try_from(open_blockers).unwrap_or(u32::MAX) };
        added.push(write::create(tx, cx, row, key).await?);
    }
    let within_batch = |new: &NewTask| new.deps.iter().any(|dep| batch.contains(dep));
    let mut rows = Vec::with_capacity(added.len());
    for (row, new) in added.into_iter().zip(tasks) {
        rows.push(edges::write_new(tx, cx, row, &new.deps).await?.task);
    }
    if tasks.iter().any(within_batch) {
        edges::refuse_cycle(tx, cx, &ids).await?;
    }
    Ok(rows)
}

/// An id that was pruned goes on from its last fence: no lease of its earlier life can be taken for a new one.
pub(super) async fn last_fences<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    ids: &[TaskId],
) -> Result<BTreeMap<TaskId, Fence>, Fault> {
    Ok(tx.retired(&cx.scope, ids).await?.into_iter().collect())
}

/// Refuses duplicates and unknown dependencies; returns those dependencies that no longer block.
async fn check<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    tasks: &[NewTask],
    batch: &BTreeSet<&TaskId>,
) -> Outcome<BTreeSet<TaskId>> {
    let mut seen = BTreeSet::new();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id.clone()).collect();
    let existing = tx.tasks(&cx.scope, &ids).await?;
    let taken: BTreeSet<&TaskId> = existing.iter().map(|row| &row.task.id).collect();
    if let Some(id) = ids.iter().find(|id| taken.contains(id) || !seen.insert(*id)) {
        return Err(Refusal::DuplicateId { id: id.clone() }.into());
    }
    let named: BTreeSet<&TaskId> = tasks.iter().flat_map(|task| &task.deps).collect();
    let outside: Vec<TaskId> = named.into_iter().filter(|dep| !batch.contains(dep)).cloned().collect();
    // Locked: a blocker that is settled while its dependent is added must not miss it.
    let rows = tx.lock_tasks(&cx.scope, &outside).await?;
    let known: BTreeMap<&TaskId, Status> = rows.iter().map(|row| (&row.task.id, row.task.status)).collect();
    for task in tasks {
        let mut own = BTreeSet::new();
        for dep in &task.deps {
            if *dep == task.id {
                return Err(Refusal::WouldCycle { path: vec![dep.clone(), dep.clone()] }.into());
            }
            if !own.insert(dep) {
                return Err(Refusal::DuplicateDependency { id: task.id.clone(), dep: dep.clone() }.into());
            }
            if !batch.contains(dep) && !known.contains_key(dep) {
                return Err(Refusal::UnknownDependency { id: task.id.clone(), dep: dep.clone() }.into());
            }
        }
    }
    Ok(known.into_iter().filter(|(_, status)| status.satisfies_edge()).map(|(id, _)| id.clone()).collect())
}

/// A task without a priority of its own takes its parent's, which is that of the nearest ancestor with one.
pub(super) fn inheriting(task: Task, parent: Option<u32>) -> Task {
    match (task.priority, parent) {
        (None, Some(_)) => Task { priority: parent, priority_inherited: true, ..task },
        _ => task,
    }
}

async fn build<T: Tx>(tx: &mut T, cx: &Cx, new: &NewTask) -> Outcome<Task> {
    let (depth, host, inherited) = match &new.parent {
        Some(parent) => {
            // Locked for the same reason: a parent that finishes now readies its children.
            let row = tx.task(&cx.scope, parent).await?;
            let row = row.filter(|row| row.task.status != Status::Deleted);
            let row = row.ok_or_else(|| Refusal::ParentNotFound { id: parent.clone() })?;
            (graph::child_depth(&new.id, row.task.depth)?, row.task.host, row.task.priority)
        }
        None => (0, None, None),
    };
    let task = Task { depth, host, ..new.at_root(&cx.scope, cx.policy(&new.queue), cx.now) };
    Ok(inheriting(task, inherited))
}
