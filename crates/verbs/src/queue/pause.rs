//! `queue pause`, `queue resume`.

use rota_store::Store;
use rota_store::intents::policy::PauseQueue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueState {
    /// Its name.
    pub queue: String,
    /// Held back by a person.
    pub paused: bool,
}

/// Grants nothing from a queue until it is resumed; what is leased goes on.
pub async fn pause(cx: &Context, queue: String) -> Result<QueueState> {
    set(cx, queue, true).await
}

/// Lets a paused queue go on.
pub async fn resume(cx: &Context, queue: String) -> Result<QueueState> {
    set(cx, queue, false).await
}

async fn set(cx: &Context, queue: String, paused: bool) -> Result<QueueState> {
    let row = cx.store.perform(&PauseQueue { call: cx.call(), queue, paused }).await?;
    Ok(QueueState { queue: row.name, paused: row.paused })
}
