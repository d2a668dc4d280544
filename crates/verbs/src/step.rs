//! Steps that need nothing but an id: `reset`, `pause`, `resume`, `undelete`, and the shared way to take any step.

use rota_core::transition::Command;
use rota_core::{Front, TaskId};
use rota_store::Store;
use rota_store::intents::settle::Settle;

use crate::context::{Context, task_id};
use crate::{Result, TaskPayload};

/// Takes one step on one task and shows it afterwards.
pub(crate) async fn step<S: Store>(cx: &Context<S>, id: TaskId, command: Command) -> Result<TaskPayload> {
    let settled = cx.store.perform(&Settle::one(cx.call(), id, command)).await?;
    match settled.steps.into_iter().next() {
        Some(taken) => Ok(TaskPayload::new(taken?, Vec::new(), None, Front::Task)),
        None => unreachable!("one step was taken"),
    }
}

/// Opens a parked, failed or invalidated task with its attempts forgotten.
pub async fn reset<S: Store>(cx: &Context<S>, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Reset).await
}

/// Holds a task back; a lease on it ends.
pub async fn pause<S: Store>(cx: &Context<S>, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Pause).await
}

/// Lets a paused task go on.
pub async fn resume<S: Store>(cx: &Context<S>, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Resume).await
}

/// Opens a deleted task again.
pub async fn undelete<S: Store>(cx: &Context<S>, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Undelete).await
}
