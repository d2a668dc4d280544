//! What happens to a task means something for those below it: they are orphans when it is deleted, stale when it moves on
//! to another iteration, and inherit its priority. All of it is acted on in the transaction that does it, so that no unfinished task ever
//! has a deleted parent or comes from an earlier iteration of it, and nobody has to look for such tasks later.

use rota_core::event::EventKind;
use rota_core::obstacle::{self, Facts, Obstacle};
use rota_core::transition::{self, Command};
use rota_core::{Status, Task, TaskId};

use super::{Cx, write};
use crate::fault::Fault;
use crate::tx::{Row, Tx};

/// Ends those below a task that was written, where its change means that; and the task itself, where its own parent has
/// left it behind.
pub(super) async fn follow<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    before: &Task,
    row: Row,
    facts: &Facts,
) -> Result<Row, Fault> {
    let after = &row.task;
    if after.status == Status::Deleted && before.status != Status::Deleted {
        end_below(tx, cx, &after.id, &orphan(&after.id)).await?;
    } else if after.iteration != before.iteration {
        for child in tx.children(&cx.scope, &after.id).await? {
            if let Some(from) = child.task.parent_iteration.filter(|from| *from != after.iteration) {
                end_tree(tx, cx, child, &stale(&after.id, from, after.iteration)).await?;
            }
        }
    }
    if let Some(priority) = after.priority.filter(|_| after.priority != before.priority) {
        hand_down(tx, cx, &after.id, priority).await?;
    }
    match obstacle::outlived(after, facts).filter(|_| !after.status.is_finished()) {
        Some(Obstacle::Stale { parent_iteration, current }) => {
            let parent = after.parent.clone().unwrap_or_else(|| after.id.clone());
            end_tree(tx, cx, row, &stale(&parent, parent_iteration, current)).await
        }
        Some(Obstacle::ParentNotDone { parent, .. }) => end_tree(tx, cx, row, &orphan(&parent)).await,
        _ => Ok(row),
    }
}

/// Gives a changed priority to all waiting tasks below that inherit it.
async fn hand_down<T: Tx>(tx: &mut T, cx: &Cx, top: &TaskId, priority: u32) -> Result<(), Fault> {
    let mut above = vec![top.clone()];
    while let Some(parent) = above.pop() {
        for child in tx.children(&cx.scope, &parent).await? {
            if !child.task.priority_inherited && child.task.priority.is_some() {
                continue;
            }
            above.push(child.task.id.clone());
            let waits = matches!(child.task.status, Status::Open | Status::Paused | Status::Parked);
            if waits && child.task.priority != Some(priority) {
                let next = Task { priority: Some(priority), priority_inherited: true, ..child.task.clone() };
                write::save_alone(tx, cx, &child, write::Change::new(EventKind::Edited, next)).await?;
            }
        }
    }
    Ok(())
}

fn orphan(ancestor: &TaskId) -> Command {
    Command::Orphan { parent: ancestor.to_string() }
}

fn stale(parent: &TaskId, from: u32, current: u32) -> Command {
    let reason = format!("it came from iteration {from} of '{parent}', which is now at {current}");
    Command::Invalidate { reason }
}

/// Ends a task, if it has not finished, and all below it that have not.
async fn end_tree<T: Tx>(tx: &mut T, cx: &Cx, row: Row, command: &Command) -> Result<Row, Fault> {
    let id = row.task.id.clone();
    let row = end(tx, cx, row, command).await?;
    end_below(tx, cx, &id, command).await?;
    Ok(row)
}

/// Ends all below a task that have not finished, each before its own children; returns their ids.
pub(super) async fn end_below<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    top: &TaskId,
    command: &Command,
) -> Result<Vec<TaskId>, Fault> {
    let mut ended = Vec::new();
    let mut above = vec![top.clone()];
    while let Some(parent) = above.pop() {
        for child in tx.children(&cx.scope, &parent).await? {
            above.push(child.task.id.clone());
            if !child.task.status.is_finished() {
                ended.push(end(tx, cx, child, command).await?.task.id);
            }
        }
    }
    Ok(ended)
}

async fn end<T: Tx>(tx: &mut T, cx: &Cx, row: Row, command: &Command) -> Result<Row, Fault> {
    match transition::apply(&row.task, command, cx.policy(&row.task.queue), cx.now) {
        Ok(applied) => Ok(write::save_alone(tx, cx, &row, write::Change::of(applied, command)).await?.0),
        // Only what has finished cannot be ended, and stays as it is.
        Err(_) => Ok(row),
    }
}
