//! What the bearer of a lease token may do, as far as only the store can tell: whether its lease is current, how another
//! task is related to its own, and how many tasks it has created.

use async_trait::async_trait;
use rota_core::{Caller, LeaseId, Refusal, Status, Task, TaskId, UnixMillis, limits, transition};

use super::add::{NewPriority, NewTask, add_all};
use super::{Call, Cx, write};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Row, Tx};
use rota_core::event::EventKind;

/// Looks up the lease of a token, and how the task that the caller names is related to the task of the lease.
#[derive(Clone, Debug)]
pub struct LeaseLookup {
    /// Where, when, who.
    pub call: Call,
    /// The lease of the token.
    pub lease: LeaseId,
    /// The task that the caller names.
    pub named: Option<TaskId>,
}

/// A lease that is current: neither settled nor reclaimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentLease {
    /// Its task.
    pub task: Task,
    /// When it expires.
    pub expires_at: UnixMillis,
    /// Whether it has expired.
    pub is_expired: bool,
    /// How long a lease of its queue lasts.
    pub ttl_ms: i64,
    /// How the named task is related to its task; none for every other task, whether it exists or not.
    pub kinship: Option<Kinship>,
}

/// How a task is related to the task of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are the relations")]
pub enum Kinship {
    Own,
    Ancestor,
    Blocker,
    Child,
}

#[async_trait]
impl Intent for LeaseLookup {
    type Output = Option<CurrentLease>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Option<CurrentLease>> {
        let cx = Cx::open(tx, &self.call).await?;
        let Some(row) = tx.task(&cx.scope, &self.lease.task).await? else { return Ok(None) };
        let task = row.task;
        let Some(expires_at) = task.lease_expires_at.filter(|_| task.lease().as_ref() == Some(&self.lease))
        else {
            return Ok(None);
        };
        let kinship = match &self.named {
            Some(named) => kinship(tx, &cx, &task, named).await?,
            None => None,
        };
        let (is_expired, ttl_ms) = (task.lease_expired(cx.now), cx.policy(&task.queue).lease_ttl());
        Ok(Some(CurrentLease { task, expires_at, is_expired, ttl_ms, kinship }))
    }
}

async fn kinship<T: Tx>(tx: &mut T, cx: &Cx, own: &Task, named: &TaskId) -> Result<Option<Kinship>, Fault> {
    if *named == own.id {
        return Ok(Some(Kinship::Own));
    }
    let other = tx.tasks(&cx.scope, std::slice::from_ref(named)).await?.pop();
    let Some(other) = other else { return Ok(None) };
    if other.task.parent.as_ref() == Some(&own.id) {
        return Ok(Some(Kinship::Child));
    }
    if tx.blockers(&cx.scope, &own.id).await?.iter().any(|blocker| blocker.id == *named) {
        return Ok(Some(Kinship::Blocker));
    }
    let mut above = own.parent.clone();
    for _ in 0..=limits::DEPTH {
        let Some(parent) = above else { break };
        if parent == *named {
            return Ok(Some(Kinship::Ancestor));
        }
        above = tx.tasks(&cx.scope, &[parent]).await?.pop().and_then(|row| row.task.parent);
    }
    Ok(None)
}

/// Creates a task for the agent that holds a lease: linked to the task of the lease, and counted there.
#[derive(Clone, Debug)]
pub struct CreateLinked {
    /// Where, when, who.
    pub call: Call,
    /// The task to add.
    pub task: NewTask,
    /// The lease of the agent.
    pub lease: LeaseId,
}

#[async_trait]
impl Intent for CreateLinked {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        if !self.task.deps.is_empty() {
            tx.lock_edges(&self.call.scope).await?;
        }
        let cx = Cx::open(tx, &self.call).await?;
        let own = held(tx, &cx, &self.lease).await?;
        if !cx.policy(&self.task.queue).agents_may_create {
            return Err(Refusal::AgentsMayNotCreate { queue: self.task.queue.clone() }.into());
        }
        let (count, limit) = (own.task.filed as usize + 1, limits::TOKEN_TASKS);
        if count > limit {
            let id = own.task.id;
            return Err(Refusal::AgentLimit { id, what: "created tasks", count, limit }.into());
        }
        let mut new = NewTask { discovered_from: Some(own.task.id.clone()), ..self.task.clone() };
        let (default, most_urgent) = (cx.policy(&new.queue).default_priority, own.task.sort_priority());
        if new.priority == NewPriority::QueueDefault && default < most_urgent {
            new.priority = NewPriority::Given(most_urgent);
        }
        let added = add_all(tx, &cx, &[new]).await?.pop();
        let next = Task { filed: own.task.filed + 1, ..own.task.clone() };
        write::save(tx, &cx, &own, write::Change::new(EventKind::Edited, next)).await?;
        match added {
            Some(task) => Ok(task),
            None => unreachable!("one task was added"),
        }
    }
}

/// The task of a lease, if the lease is current.
pub(super) async fn held<T: Tx>(tx: &mut T, cx: &Cx, lease: &LeaseId) -> Outcome<Row> {
    let row = tx.task(&cx.scope, &lease.task).await?;
    let row = row.ok_or_else(|| Refusal::TaskNotFound { id: lease.task.clone() })?;
    if row.task.status != Status::Active {
        return Err(Refusal::NotActive { id: row.task.id, status: row.task.status }.into());
    }
    transition::check_holder(&row.task, &Caller::lease(lease.clone()), cx.policy(&row.task.queue))?;
    Ok(row)
}

/// Refuses children that an agent adds below its loop if there would be too many.
pub(super) async fn check_children<T: Tx>(tx: &mut T, cx: &Cx, parent: &TaskId, added: usize) -> Outcome<()> {
    let (count, limit) = (tx.children(&cx.scope, parent).await?.len() + added, limits::AGENT_CHILDREN);
    if count <= limit {
        return Ok(());
    }
    Err(Refusal::AgentLimit { id: parent.clone(), what: "children", count, limit }.into())
}
