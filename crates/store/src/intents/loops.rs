//! What people and agents do to a tree of loops: add to it, start one over, give it up, hand it to another host, look
//! at it. Each is one transaction on the whole tree.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::event::{Event, EventData, EventKind};
use rota_core::obstacle::{self, Facts, Obstacle, ParentFact};
use rota_core::rank::{self, Rankable, Score};
use rota_core::transition::{self, Command, Verb};
use rota_core::{Caller, LeaseId, Refusal, Status, Task, TaskId};

use super::add::{NewTask, add_all};
use super::read::{Runners, TREE_LINES, TaskView, views};
use super::{Call, Cx, family, find_queue, find_task, iterate, lease_token, write};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, EventFilter, ListFilter, Row, Tx};

/// Adds a loop. Under its parent's lease it comes out of the parent's iteration: it is marked with it, and one of an
/// earlier iteration that was invalidated comes back.
#[derive(Clone, Debug)]
pub struct AddLoop {
    /// Where, when, who.
    pub call: Call,
    /// What.
    pub task: NewTask,
    /// The lease that the caller works under; counts only if it is the parent's.
    pub lease: Option<LeaseId>,
    /// Whether the caller is an agent with a lease token: it may add a bounded number of children.
    pub by_token: bool,
}

#[async_trait]
impl Intent for AddLoop {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let lease = self.lease.as_ref().filter(|lease| Some(&lease.task) == self.task.parent.as_ref());
        let Some(lease) = lease else {
            return one(add_all(tx, &cx, std::slice::from_ref(&self.task)).await?);
        };
        let parent = tx.task(&cx.scope, &lease.task).await?;
        let parent = parent.ok_or_else(|| Refusal::ParentNotFound { id: lease.task.clone() })?;
        let caller = Caller::lease(lease.clone());
        // A renewal that is not written: the holder may speak for the parent, a late one may not.
        let renew = Command::Renew { caller, ttl_ms: None };
        transition::apply(&parent.task, &renew, cx.policy(&parent.task.queue), cx.now)?;
        let child = NewTask { parent_iteration: Some(parent.task.iteration), ..self.task.clone() };
        let old = tx.lock_tasks(&cx.scope, std::slice::from_ref(&child.id)).await?.pop();
        if self.by_token && old.is_none() {
            lease_token::check_children(tx, &cx, &lease.task, 1).await?;
        }
        match old.filter(|row| iterate::is_earlier_child(row, &parent.task)) {
            Some(row) => iterate::revive(tx, &cx, &row, &child, parent.task.priority).await,
            None => one(add_all(tx, &cx, &[child]).await?),
        }
    }
}

fn one(added: Vec<Task>) -> Outcome<Task> {
    match added.into_iter().next() {
        Some(task) => Ok(task),
        None => unreachable!("one task was added"),
    }
}

/// What a change did to a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeChange {
    /// The task that was named.
    pub task: Task,
    /// Those below it that were changed too.
    pub below: Vec<TaskId>,
}

/// Starts a loop over, and invalidates all below it that have not finished: its new iteration makes them anew.
#[derive(Clone, Debug)]
pub struct Reiterate {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
    /// Why, for the journal.
    pub reason: Option<String>,
}

#[async_trait]
impl Intent for Reiterate {
    type Output = TreeChange;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<TreeChange> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let row = find_task(tx, &cx, &self.id).await?;
        let policy = cx.policy(&row.task.queue);
        let applied = transition::apply(&row.task, &Command::Reiterate, policy, cx.now)?;
        let data = EventData { reason: self.reason.clone(), ..EventData::default() };
        let kind = EventKind::Step(applied.verb);
        let change = write::Change { next: applied.task, kind, fence: None, data };
        let task = write::save_if_alive(tx, &cx, &row, change).await??.task;
        let reason = iterate::started_over(&self.id);
        let below = family::end_below(tx, &cx, &self.id, &Command::Invalidate { reason }).await?;
        Ok(TreeChange { task, below })
    }
}

/// How far back the journal of a loop is read for [`why_started_over`]; renewals of its lease are in it too.
const EVENTS: usize = 500;

/// The reason that was given when a loop was last started over, unless it was completed since.
pub(super) async fn why_started_over<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    id: &TaskId,
) -> Result<Option<String>, Fault> {
    let filter =
        EventFilter { task: Some(id.clone()), limit: Some(EVENTS), newest: true, ..EventFilter::default() };
    let events = tx.events(&cx.scope, &filter).await?;
    let is_end =
        |event: &&Event| matches!(event.kind, EventKind::Step(Verb::Reiterate | Verb::Reset | Verb::Done));
    Ok(events.iter().rev().find(is_end).and_then(|event| event.data.reason.clone()))
}

/// Gives up a loop and all below it that have not finished. Refused if none of them is unfinished.
#[derive(Clone, Debug)]
pub struct Cancel {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
}

#[async_trait]
impl Intent for Cancel {
    type Output = TreeChange;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<TreeChange> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let row = find_task(tx, &cx, &self.id).await?;
        let reason = format!("'{}', above it, was cancelled", self.id);
        let below = family::end_below(tx, &cx, &self.id, &Command::Invalidate { reason }).await?;
        if row.task.status.is_finished() && !below.is_empty() {
            return Ok(TreeChange { task: row.task, below });
        }
        let task = write::step_or_refuse(tx, &cx, &row, &Command::Cancel).await?.task;
        Ok(TreeChange { task, below })
    }
}

/// Hands a whole tree to another host. Refused while something of it runs: its folders are in use.
#[derive(Clone, Debug)]
pub struct Move {
    /// Where, when, who.
    pub call: Call,
    /// Any task of the tree.
    pub id: TaskId,
    /// The host that has its folders from now on.
    pub host: String,
}

#[async_trait]
impl Intent for Move {
    type Output = TreeChange;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<TreeChange> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let root = root_of(tx, &cx, &self.id).await?;
        let mut moved = Vec::new();
        let mut named = None;
        let mut rows = vec![find_task(tx, &cx, &root).await?];
        while let Some(row) = rows.pop() {
            if row.task.status == Status::Active {
                return Err(Refusal::TreeRunning { id: self.id.clone(), running: row.task.id }.into());
            }
            rows.extend(tx.children(&cx.scope, &row.task.id).await?);
            let task = if row.task.host.as_ref() == Some(&self.host) {
                row.task
            } else {
                let next = Task { host: Some(self.host.clone()), ..row.task.clone() };
                moved.push(row.task.id.clone());
                write::save(tx, &cx, &row, write::Change::new(EventKind::Edited, next)).await?.task
            };
            if task.id == self.id {
                named = Some(task);
            }
        }
        moved.retain(|id| *id != self.id);
        match named {
            Some(task) => Ok(TreeChange { task, below: moved }),
            None => unreachable!("a task is in its own tree"),
        }
    }
}

/// The task at the top of a tree, as far as its parents are there.
async fn root_of<T: Tx>(tx: &mut T, cx: &Cx, id: &TaskId) -> Outcome<TaskId> {
    let seen = tx.tasks(&cx.scope, std::slice::from_ref(id)).await?.pop();
    let mut top = seen.ok_or_else(|| Refusal::TaskNotFound { id: id.clone() })?.task;
    while let Some(parent) = top.parent.clone() {
        match tx.tasks(&cx.scope, &[parent]).await?.pop() {
            Some(row) => top = row.task,
            None => break,
        }
    }
    Ok(top.id)
}

/// Looks at a tree, or at all trees of a queue.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Where, when, who.
    pub call: Call,
    /// Which queue, where no task is named.
    pub queue: String,
    /// The top; none for every task without a parent.
    pub id: Option<TaskId>,
}

/// One line of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeLine {
    /// 0 for the top.
    pub level: usize,
    /// The task.
    pub task: Task,
}

#[async_trait]
impl Intent for Tree {
    type Output = Vec<TreeLine>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<TreeLine>> {
        let cx = Cx::open(tx, &self.call).await?;
        let mut below: BTreeMap<Option<TaskId>, Vec<Task>> = BTreeMap::new();
        let tops = match &self.id {
            Some(id) => vec![find_task(tx, &cx, id).await?.task],
            None => {
                let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Vec::new()) };
                let filter = ListFilter { queue: Some(queue.key), ..ListFilter::default() };
                for row in tx.list(&cx.scope, &filter).await? {
                    below.entry(row.task.parent.clone()).or_default().push(row.task);
                }
                below.remove(&None).unwrap_or_default()
            }
        };
        let in_order = |mut tasks: Vec<Task>| {
            tasks.sort_by_key(|task| std::cmp::Reverse((task.created_at, task.seq)));
            tasks
        };
        let mut lines = Vec::new();
        let mut stack: Vec<TreeLine> =
            in_order(tops).into_iter().map(|task| TreeLine { level: 0, task }).collect();
        while let Some(line) = stack.pop().filter(|_| lines.len() < TREE_LINES) {
            let children = match &self.id {
                Some(_) => {
                    tx.children(&cx.scope, &line.task.id).await?.into_iter().map(|row| row.task).collect()
                }
                None => below.remove(&Some(line.task.id.clone())).unwrap_or_default(),
            };
            let level = line.level + 1;
            stack.extend(in_order(children).into_iter().map(|task| TreeLine { level, task }));
            lines.push(line);
        }
        Ok(without_deleted(lines, self.id.is_some()))
    }
}

/// Leaves deleted tasks out, but for those above something that is not. Lines come in the order of a tree, so the next
/// line before a child that is one level higher is its parent's.
fn without_deleted(lines: Vec<TreeLine>, is_asked_for: bool) -> Vec<TreeLine> {
    let mut parents = BTreeSet::new();
    let mut kept = Vec::with_capacity(lines.len());
    for line in lines.into_iter().rev() {
        let has_kept_child = parents.remove(&line.level);
        let is_kept = line.task.status != Status::Deleted || (is_asked_for && line.level == 0);
        if is_kept || has_kept_child {
            parents.extend(line.level.checked_sub(1));
            kept.push(line);
        }
    }
    kept.reverse();
    kept
}

/// A loop with its children.
#[derive(Clone, Debug)]
pub struct ShowLoop {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
}

#[async_trait]
impl Intent for ShowLoop {
    type Output = (TaskView, Vec<Task>);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let cx = Cx::open(tx, &self.call).await?;
        let row = find_task(tx, &cx, &self.id).await?;
        let mut children: Vec<Row> = tx.children(&cx.scope, &self.id).await?;
        children.sort_by_key(|row| (row.task.created_at, row.task.seq));
        match views(tx, &cx, vec![row]).await?.pop() {
            Some(view) => Ok((view, children.into_iter().map(|row| row.task).collect())),
            None => unreachable!("one row makes one view"),
        }
    }
}

/// Every open task of a queue with its score and what stands in its way.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// The host that would run them.
    pub host: Option<String>,
    /// What is configured to run them.
    pub runners: Runners,
}

/// What [`Pending`] saw of one task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingTask {
    /// The task.
    pub task: Task,
    /// How old it is.
    pub age_ms: i64,
    /// Its score; none in a queue without scores.
    pub score: Option<Score>,
    /// What stands in its way.
    pub obstacles: Vec<Obstacle>,
}

#[async_trait]
impl Intent for Pending {
    type Output = Vec<PendingTask>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<PendingTask>> {
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Vec::new()) };
        let policy = cx.policy(&self.queue);
        let viewer = self.runners.viewer(&queue, &self.host);
        let filter =
            ListFilter { queue: Some(queue.key), statuses: vec![Status::Open], ..ListFilter::default() };
        let rows = tx.list(&cx.scope, &filter).await?;
        let parents: BTreeSet<&TaskId> = rows.iter().filter_map(|row| row.task.parent.as_ref()).collect();
        let parents: Vec<TaskId> = parents.into_iter().cloned().collect();
        let parents: BTreeMap<TaskId, ParentFact> = tx
            .tasks(&cx.scope, &parents)
            .await?
            .into_iter()
            .map(|row| (row.task.id, ParentFact { status: row.task.status, iteration: row.task.iteration }))
            .collect();
        let mut pending: Vec<PendingTask> = Vec::with_capacity(rows.len());
        for Row { task, open_blockers } in rows {
            let parent = task.parent.as_ref().and_then(|parent| parents.get(parent)).copied();
            let facts = Facts { parent, open_blockers, blocked_by: Vec::new() };
            let mut obstacles = obstacle::obstacles(&task, &facts, cx.now);
            obstacles.extend(obstacle::viewer_obstacles(&task, &viewer));
            let score = rank::score(&task, policy, cx.now);
            pending.push(PendingTask { age_ms: cx.now.age_ms_of(task.created_at), task, score, obstacles });
        }
        pending.sort_by_cached_key(|pending| {
            let total = pending.score.as_ref().map_or(0, |score| score.total);
            let key = rank::key(&Rankable::of(&pending.task, policy), policy, cx.now);
            (std::cmp::Reverse(total), key)
        });
        Ok(pending)
    }
}
