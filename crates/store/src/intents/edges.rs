//! Blocker edges: written one scope at a time, never into a circle.

use std::collections::BTreeSet;

use async_trait::async_trait;
use rota_core::event::{Event, EventData, EventKind};
use rota_core::graph::{self, Edges};
use rota_core::{Refusal, TaskId};

use super::{Call, Cx, find_task, write};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, Row, Tx};

/// Adds an edge. Adding it twice is fine; one that would close a circle is refused with its path.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where, when, who.
    pub call: Call,
    /// Who waits.
    pub task: TaskId,
    /// For whom.
    pub by: TaskId,
}

#[async_trait]
impl Intent for Block {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        let cx = Cx::open(tx, &self.call).await?;
        tx.lock_edges(&cx.scope).await?;
        // The blocker first: whoever settles it locks it before those that wait for it.
        let blocker = tx.task(&cx.scope, &self.by).await?;
        let row = find_task(tx, &cx, &self.task).await?;
        let blocker = blocker.ok_or_else(|| Refusal::BlockerNotFound { id: self.by.clone() })?;
        if self.task == self.by {
            return Err(Refusal::WouldCycle { path: vec![self.by.clone(), self.by.clone()] }.into());
        }
        add(tx, &cx, row, &blocker).await?;
        refuse_cycle(tx, &cx, std::slice::from_ref(&self.task)).await
    }
}

/// Removes an edge.
#[derive(Clone, Debug)]
pub struct Unblock {
    /// Where, when, who.
    pub call: Call,
    /// Who waits.
    pub task: TaskId,
    /// For whom.
    pub by: TaskId,
}

#[async_trait]
impl Intent for Unblock {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        let cx = Cx::open(tx, &self.call).await?;
        tx.lock_edges(&cx.scope).await?;
        // The blocker first: whoever settles it locks it before those that wait for it.
        let blocker = tx.task(&cx.scope, &self.by).await?;
        let row = find_task(tx, &cx, &self.task).await?;
        let blocker = blocker.ok_or_else(|| Refusal::BlockerNotFound { id: self.by.clone() })?;
        let removed = remove(tx, &cx, row, &blocker).await?;
        removed.map(|_| ()).ok_or_else(|| Refusal::EdgeNotFound.into())
    }
}

/// Adds one edge of an existing task, unless it is there.
pub(super) async fn add<T: Tx>(tx: &mut T, cx: &Cx, row: Row, blocker: &Row) -> Result<Row, Fault> {
    if !tx.add_edge(&cx.scope, &row.task.id, &blocker.task.id).await? {
        return Ok(row);
    }
    let blocks = u32::from(!blocker.task.status.satisfies_edge());
    let counted = Row { open_blockers: row.open_blockers + blocks, task: row.task };
    record(tx, cx, counted, EventKind::Blocked, &blocker.task.id).await
}

/// Removes one edge; none if there is none. A task that nothing else holds back is runnable since now.
pub(super) async fn remove<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: Row,
    blocker: &Row,
) -> Result<Option<Row>, Fault> {
    if !tx.remove_edge(&cx.scope, &row.task.id, &blocker.task.id).await? {
        return Ok(None);
    }
    let blocked = u32::from(!blocker.task.status.satisfies_edge());
    let counted = Row { open_blockers: row.open_blockers.saturating_sub(blocked), task: row.task };
    let freed = blocked == 1 && counted.open_blockers == 0;
    let row = record(tx, cx, counted, EventKind::Unblocked, &blocker.task.id).await?;
    if freed { Ok(write::restand(tx, cx, vec![row]).await?.pop()) } else { Ok(Some(row)) }
}

async fn record<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: Row,
    kind: EventKind,
    blocker: &TaskId,
) -> Result<Row, Fault> {
    let data = EventData { blocker: Some(blocker.clone()), ..EventData::default() };
    let change = write::Change { data, ..write::Change::new(kind, row.task.clone()) };
    write::save(tx, cx, &row, change).await
}

/// Writes the edges of a task that was just created; its count of open blockers is right already.
pub(super) async fn write_new<T: Tx>(tx: &mut T, cx: &Cx, row: Row, deps: &[TaskId]) -> Result<Row, Fault> {
    let mut row = row;
    if deps.is_empty() {
        return Ok(row);
    }
    let old = row.task.clone();
    for dep in deps {
        tx.add_new_edge(&cx.scope, &row.task.id, dep).await?;
        row.task.events += 1;
        let mut event = Event::of_change(EventKind::Blocked, Some(&row.task), &row.task);
        event.data.blocker = Some(dep.clone());
        write::append(tx, cx, event).await?;
    }
    let standing = write::standing(tx, cx, &row).await?;
    tx.update(&old, &row.task, &standing).await?;
    Ok(row)
}

/// Refuses if any of the tasks whose edges were written now stands in a circle. Looks only at what can be reached
/// from them.
pub(super) async fn refuse_cycle<T: Tx>(tx: &mut T, cx: &Cx, changed: &[TaskId]) -> Outcome<()> {
    let mut edges = Edges::new();
    let mut seen: BTreeSet<TaskId> = changed.iter().cloned().collect();
    let mut frontier: Vec<TaskId> = changed.to_vec();
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (task, blocker) in tx.edges(&cx.scope, &frontier).await? {
            if seen.insert(blocker.clone()) {
                next.push(blocker.clone());
            }
            edges.entry(task).or_default().push(blocker);
        }
        frontier = next;
    }
    match graph::find_cycle(&edges) {
        Some(path) => Err(Refusal::WouldCycle { path }.into()),
        None => Ok(()),
    }
}
