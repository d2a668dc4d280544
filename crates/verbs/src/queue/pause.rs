//! `rota queue pause` and `resume`

use async_trait::async_trait;
use rota_store::Store;
use rota_store::intents::policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::QueueName;
use crate::verb::{ErrorStyle, Route, Verb};

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueState {
    /// Its name.
    pub queue: String,
    /// Held back by a person.
    pub paused: bool,
}

/// Grant nothing from a queue until it is resumed
///
/// Example: rota queue pause runs
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseQueue {
    /// Which queue
    #[arg(value_name = "queue")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for PauseQueue {
    type Payload = QueueState;
    const ROUTE: Route = Route::post("queue pause", "/queues/{queue}/pause");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;

    /// Leases that are held go on.
    async fn run(self, cx: &Context) -> Result<QueueState> {
        set(cx, self.queue, true).await
    }
}

/// Let a paused queue go on
///
/// Example: rota queue resume runs
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeQueue {
    /// Which queue
    #[arg(value_name = "queue")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ResumeQueue {
    type Payload = QueueState;
    const ROUTE: Route = Route::post("queue resume", "/queues/{queue}/resume");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;

    async fn run(self, cx: &Context) -> Result<QueueState> {
        set(cx, self.queue, false).await
    }
}

async fn set(cx: &Context, queue: QueueName, paused: bool) -> Result<QueueState> {
    let row =
        cx.store.perform(&policy::PauseQueue { call: cx.call(), queue: queue.into_inner(), paused }).await?;
    Ok(QueueState { queue: row.name, paused: row.paused })
}
