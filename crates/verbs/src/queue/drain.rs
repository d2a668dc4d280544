//! `queue drain`: marks what has no obstacle as drained, around the policy.

use rota_store::Store;
use rota_store::intents::sched::Drain;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ListedEntry;
use crate::Result;
use crate::context::Context;

/// What to drain.
#[derive(Clone, Debug)]
pub struct DrainQueue {
    /// Which queue.
    pub queue: String,
    /// How many at most.
    pub limit: usize,
    /// Only of this repository.
    pub repo: Option<String>,
}

/// What was drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainedEntries {
    /// In order.
    pub drained: Vec<ListedEntry>,
    /// Still open.
    pub remaining: usize,
}

/// Drains in order, with one shared time.
pub async fn drain(cx: &Context, input: DrainQueue) -> Result<DrainedEntries> {
    let intent = Drain { call: cx.call(), queue: input.queue, limit: input.limit, repo: input.repo };
    let drained = cx.store.perform(&intent).await?;
    let entries = drained.drained.into_iter().map(ListedEntry::of).collect();
    Ok(DrainedEntries { drained: entries, remaining: drained.remaining })
}
