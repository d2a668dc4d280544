//! Steps that need nothing but an id: `reset`, `pause`, `resume`, `undelete`, and the shared way to take any step.

use async_trait::async_trait;
use rota_core::TaskId;
use rota_core::transition::Command;
use rota_store::intents::claim::{Claim, Grant};
use rota_store::intents::read::{Show, TaskView};
use rota_store::intents::settle::{Step, StepAndView};
use rota_store::{AnyTx, Intent, Outcome, Store};

use crate::context::{Context, task_id};
use crate::{Result, TaskPayload};

/// Carries out an intent on one task and shows the task afterwards, in one transaction.
pub(crate) async fn perform_and_show<I: Intent>(cx: &Context, id: TaskId, intent: I) -> Result<TaskPayload> {
    let show = Show { call: cx.call(), id };
    Ok(TaskPayload::of_view(cx.store.perform(&AndShow { intent, show }).await?))
}

struct AndShow<I> {
    intent: I,
    show: Show,
}

#[async_trait]
impl<I: Intent> Intent for AndShow<I> {
    type Output = TaskView;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<TaskView> {
        self.intent.run(tx).await?;
        let (view, _) = self.show.run(tx).await?;
        Ok(view)
    }
}

/// Takes one step on one task and shows it afterwards.
pub(crate) async fn step(cx: &Context, id: TaskId, command: Command) -> Result<TaskPayload> {
    Ok(TaskPayload::of_view(step_view(cx, id, command).await?))
}

/// The same, for fronts that show it in words of their own.
pub(crate) async fn step_view(cx: &Context, id: TaskId, command: Command) -> Result<TaskView> {
    let (_, view) = step_and_claim(cx, id, command, None).await?;
    Ok(view)
}

/// Takes one step on one task and then claims, in one transaction. A refusal of either leaves everything as it was.
pub(crate) async fn step_and_claim(
    cx: &Context,
    id: TaskId,
    command: Command,
    then: Option<Claim>,
) -> Result<(Option<Grant>, TaskView)> {
    let step = Step { id, command };
    let (view, granted) = cx.store.perform(&StepAndView { call: cx.call(), step, then }).await?;
    Ok((granted, view))
}

/// Opens a parked, failed or invalidated task with its attempts forgotten.
pub async fn reset(cx: &Context, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Reset).await
}

/// Holds a task back; a lease on it ends.
pub async fn pause(cx: &Context, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Pause).await
}

/// Lets a paused task go on.
pub async fn resume(cx: &Context, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Resume).await
}

/// Opens a deleted task again.
pub async fn undelete(cx: &Context, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Undelete).await
}
