//! Steps that need nothing but an id: `rota task reset`, `pause`, `resume`, `undelete`, and the shared way to take any step.

use async_trait::async_trait;
use rota_core::TaskId;
use rota_core::transition::Command;
use rota_store::intents::claim::{Claim, Grant};
use rota_store::intents::read::{Show, TaskView};
use rota_store::intents::settle::{Step, StepAndView};
use rota_store::{AnyTx, Intent, Outcome, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb};
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

/// Open a parked, failed or invalidated task with its attempts forgotten
///
/// Example: rota task reset fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResetTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ResetTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task reset", "/tasks/{id}/reset");

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        step(cx, self.id.into_inner(), Command::Reset).await
    }
}

/// Hold a task back; a lease on it ends
///
/// Example: rota task pause fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for PauseTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task pause", "/tasks/{id}/pause");

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        step(cx, self.id.into_inner(), Command::Pause).await
    }
}

/// Let a paused task go on
///
/// Example: rota task resume fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ResumeTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task resume", "/tasks/{id}/resume");

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        step(cx, self.id.into_inner(), Command::Resume).await
    }
}

/// Open a deleted task again
///
/// Example: rota task undelete fix-login
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UndeleteTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for UndeleteTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task undelete", "/tasks/{id}/undelete");

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        step(cx, self.id.into_inner(), Command::Undelete).await
    }
}
