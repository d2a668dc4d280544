//! Running loops: granting one with its first iteration, completing one with its children, artifacts that appear.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::obstacle::Wait;
use rota_core::select::WorktreeLimit;
use rota_core::transition::{self, Command};
use rota_core::{Caller, Json, LeaseId, Refusal, Status, Task, TaskId, UnixMillis};

use super::add::{NewTask, add_all, inheriting};
use super::claim::{ArtifactCheck, Claim, Grant, How, grant_by, grant_with_room};
use super::upstreams::Upstreams;
use super::{Call, Cx, blocks, edges, find_queue, find_task, lease_token, write};
use crate::fault::{Error, Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, ClaimReads, Filter, Prefetch, Row, Tx};

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
    /// The upstreams that the kinds use.
    pub upstreams: Upstreams,
    /// Looks for the artifacts of what is chosen.
    pub artifacts: Option<ArtifactCheck>,
    /// How many more loops with a worktree the claim's host takes; none for any number.
    pub worktrees: Option<WorktreeLimit>,
}

/// What [`Begin`] granted, and what held others back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The loops, each with its iteration.
    pub granted: Vec<Grant>,
    /// The limits that held before the choice, each with its upstream.
    pub held_back: Vec<(String, Wait)>,
}

impl Begin {
    /// Loops of these kinds, whatever upstreams they use, without a look at their artifacts.
    pub fn new(claim: Claim, kinds: Vec<String>, binds_host: bool) -> Self {
        Self { claim, kinds, binds_host, upstreams: Upstreams::default(), artifacts: None, worktrees: None }
    }

    pub(super) fn how(&self) -> How<'_> {
        let host = self.claim.host.clone().filter(|_| self.binds_host);
        How {
            command: Command::Begin { agent: self.claim.agent.clone(), host },
            only_kinds: Some(&self.kinds),
            upstreams: Some(&self.upstreams),
            artifacts: self.artifacts.as_ref(),
            worktrees: self.worktrees.as_ref(),
        }
    }

    /// The reads that it makes after the queue's row is locked.
    pub(super) fn reads(&self) -> ClaimReads<'_> {
        ClaimReads { only_kinds: Some(&self.kinds), blocks: true, ..self.claim.reads() }
    }
}

#[async_trait]
impl Intent for Begin {
    type Output = Begun;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Begun> {
        if self.claim.call.now.is_none() {
            let claim = Some(self.reads());
            tx.prefetch(&Prefetch { scope: &self.claim.call.scope, claim, ..Prefetch::default() }).await?;
        }
        let (cx, queue) = Cx::open_for_grant(tx, &self.claim.call, &self.claim.queue).await?;
        let (granted, room) = grant_with_room(tx, &cx, &self.claim, queue, &self.how()).await?;
        Ok(Begun { granted, held_back: room.all_upstream_waits() })
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
    /// The upstream that it used successfully.
    pub upstream: Option<String>,
    /// What it leaves to be done. One that exists as invalidated under the same parent is revived.
    pub children: Vec<NewTask>,
    /// Looks for the artifacts that its children wait for.
    pub artifacts: Option<ArtifactCheck>,
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
        self.lock_edges(tx).await?;
        let (cx, queue) = match &self.then {
            Some(begin) => Cx::open_for_grant(tx, &self.call, &begin.claim.queue).await?,
            None => (Cx::open(tx, &self.call).await?, None),
        };
        let (task, children) = self.run_in(tx, &cx).await??;
        let granted = match &self.then {
            Some(begin) => grant_by(tx, &cx, &begin.claim, queue, &begin.how()).await?,
            None => Vec::new(),
        };
        Ok(Completed { task, children, granted })
    }
}

impl Complete {
    /// Takes the lock on edges that its children need.
    async fn lock_edges<T: Tx>(&self, tx: &mut T) -> Result<(), Fault> {
        if self.writes_edges() {
            tx.lock_edges(&self.call.scope).await
        } else {
            tx.share_edges(&self.call.scope).await
        }
    }

    /// Whether its children have blockers.
    pub(super) fn writes_edges(&self) -> bool {
        self.children.iter().any(|child| !child.deps.is_empty())
    }

    /// Completes the loop and adds its children, inside a transaction that has the lock on edges. The inner refusal has
    /// changed nothing. After an outer one the transaction must not be committed.
    pub(super) async fn run_in<T: Tx>(
        &self,
        tx: &mut T,
        cx: &Cx,
    ) -> Outcome<Result<(Task, Vec<Task>), Refusal>> {
        let Some(parent) = tx.task(&cx.scope, &self.lease.task).await? else {
            return Ok(Err(Refusal::TaskNotFound { id: self.lease.task.clone() }));
        };
        let done = Command::Done { caller: Caller::lease(self.lease.clone()), result: self.result.clone() };
        let task = match write::step(tx, cx, &parent, &done).await? {
            Ok(row) => row.task,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Some(upstream) = &self.upstream {
            blocks::note_success(tx, cx, upstream, task.started_at).await?;
        }
        let children = self.add_children(tx, cx, &task).await?;
        if let Some(check) = &self.artifacts {
            let rows = tx.children(&cx.scope, &task.id).await?;
            let awaiting = rows.into_iter().map(|row| row.task).filter(awaits_artifact);
            let found: Vec<TaskId> =
                awaiting.filter(|child| check.is_there(child, Some(&task))).map(|child| child.id).collect();
            note_artifacts(tx, cx, &found).await?;
        }
        Ok(Ok((task, children)))
    }
}

/// Whether a task waits for an artifact that was not seen yet.
fn awaits_artifact(task: &Task) -> bool {
    task.triggered_by.is_some() && !task.artifact_present
}

impl Complete {
    /// Adds children. One that an earlier iteration had is kept if it is done and was made from the same, else it is revived.
    async fn add_children<T: Tx>(&self, tx: &mut T, cx: &Cx, parent: &Task) -> Outcome<Vec<Task>> {
        let ids: Vec<TaskId> = self.children.iter().map(|child| child.id.clone()).collect();
        let is_earlier = |row: &Row| is_earlier_child(row, parent);
        let rows = tx.lock_tasks(&cx.scope, &ids).await?.into_iter().filter(is_earlier);
        let old: BTreeMap<TaskId, Row> = rows.map(|row| (row.task.id.clone(), row)).collect();
        let (again, new): (Vec<&NewTask>, Vec<&NewTask>) =
            self.children.iter().partition(|child| old.contains_key(&child.id));
        let (kept, revived): (Vec<&NewTask>, Vec<&NewTask>) =
            again.into_iter().partition(|child| is_same(&old[&child.id].task, child));
        let mut written: BTreeMap<TaskId, Task> = BTreeMap::new();
        for child in kept {
            let task = keep(tx, cx, &old[&child.id], child, &parent.id).await?;
            written.insert(task.id.clone(), task);
        }
        for child in &revived {
            let task = revive(tx, cx, &old[&child.id], child, parent.priority).await?;
            written.insert(task.id.clone(), task);
        }
        let new: Vec<NewTask> = new.into_iter().cloned().collect();
        if !new.is_empty() {
            lease_token::check_children(tx, cx, &parent.id, new.len()).await?;
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

/// Whether a task is a finished child of an earlier iteration of a parent.
pub(super) fn is_earlier_child(row: &Row, parent: &Task) -> bool {
    let task = &row.task;
    let is_earlier = task.parent_iteration.is_some_and(|from| from < parent.iteration);
    // A child that a person added came out of no iteration, and is the plan's only once it was invalidated.
    let is_left = task.status == Status::Invalidated;
    task.parent.as_ref() == Some(&parent.id) && task.status.is_finished() && (is_earlier || is_left)
}

/// Whether a child that is done was made from the same line and the same bytes of its artifact.
fn is_same(task: &Task, child: &NewTask) -> bool {
    task.status == Status::Done && task.trigger_hash.is_some() && task.trigger_hash == child.trigger_hash
}

/// Keeps a child that is done: it belongs to the new iteration, and what was invalidated below it when the parent was
/// started over goes on.
async fn keep<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, child: &NewTask, parent: &TaskId) -> Outcome<Task> {
    let next = Task {
        parent_iteration: child.parent_iteration,
        triggered_by: child.triggered_by.clone(),
        artifact_present: child.artifact_present,
        ..row.task.clone()
    };
    let kept = write::save(tx, cx, row, write::Change::new(EventKind::Kept, next)).await?.task;
    let reason = started_over(parent);
    let mut above = vec![kept.id.clone()];
    while let Some(id) = above.pop() {
        for row in tx.children(&cx.scope, &id).await? {
            let was_ended =
                row.task.status == Status::Invalidated && row.task.fail_reason.as_ref() == Some(&reason);
            if was_ended {
                let open =
                    transition::apply(&row.task, &Command::Reset, cx.policy(&row.task.queue), cx.now)?.task;
                write::save(tx, cx, &row, write::Change::new(EventKind::Revived, open)).await?;
            } else if row.task.status == Status::Done {
                above.push(row.task.id);
            }
        }
    }
    Ok(kept)
}

/// Why those below a loop that was started over were invalidated.
pub(super) fn started_over(parent: &TaskId) -> String {
    format!("'{parent}', above it, was started over")
}

/// A child of an earlier iteration that the new one has again: open, its tries forgotten, its fence kept.
pub(super) async fn revive<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: &Row,
    child: &NewTask,
    inherited: Option<u32>,
) -> Outcome<Task> {
    let policy = cx.policy(&row.task.queue);
    let command = match row.task.status {
        Status::Done => Command::Reiterate,
        Status::Deleted => Command::Undelete,
        _ => Command::Reset,
    };
    let open = transition::apply(&row.task, &command, policy, cx.now)?.task;
    let Task { kind, priority, payload, .. } = child.at_root(&cx.scope, policy, cx.now);
    let next = Task {
        title: (&child.title).into(),
        kind,
        priority,
        priority_inherited: false,
        triggered_by: child.triggered_by.clone(),
        parent_iteration: child.parent_iteration,
        artifact_present: child.artifact_present,
        trigger_hash: child.trigger_hash.clone(),
        description: child.description.as_ref().map(Into::into),
        category: child.category.as_ref().map(Into::into),
        steps: child.steps.clone(),
        spec_ref: child.spec_ref.clone(),
        reference: child.reference.clone(),
        payload,
        attempts: 0,
        tries: 0,
        fail_reason: None,
        result: None,
        ..open
    };
    let change = write::Change::new(EventKind::Revived, inheriting(next, inherited));
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
pub(super) async fn note_artifacts<T: Tx>(tx: &mut T, cx: &Cx, triggered: &[TaskId]) -> Outcome<()> {
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

/// Some tasks as they are; an id that is not there is left out.
#[derive(Clone, Debug)]
pub struct Tasks {
    /// Where, when, who.
    pub call: Call,
    /// The tasks.
    pub ids: Vec<TaskId>,
}

#[async_trait]
impl Intent for Tasks {
    type Output = Vec<Task>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Task>> {
        let rows = tx.tasks(&self.call.scope, &self.ids).await?;
        Ok(rows.into_iter().map(|row| row.task).collect())
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
        match find_queue(tx, &cx, &self.queue).await? {
            Some(queue) => Ok(count_backlog(tx, queue.key, cx.now, self.whole).await?),
            None => Ok(BacklogCounts::default()),
        }
    }
}

/// Counts the tasks of a queue, by state too if that is asked for.
pub(super) async fn count_backlog<T: Tx>(
    tx: &mut T,
    queue: i64,
    now: UnixMillis,
    whole: bool,
) -> Result<BacklogCounts, Fault> {
    let mut by_status: BTreeMap<Status, u64> = BTreeMap::new();
    if whole {
        for count in tx.count(queue, &Filter::default()).await? {
            *by_status.entry(count.status).or_default() += count.count;
        }
    }
    let active = tx.active_by_kind(queue).await?;
    let runnable = tx.ready_count(queue, now).await?;
    let cooling_until = tx.next_due(queue).await?;
    Ok(BacklogCounts { by_status, active, runnable, cooling_until })
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
