//! `rota queue drain`

use async_trait::async_trait;
use rota_store::Store;
use rota_store::intents::sched::Drain;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ListedEntry, runs};
use crate::Result;
use crate::context::Context;
use crate::input::{EntryLimit, QueueName};
use crate::verb::{ErrorStyle, Route, Tool, Verb};

/// Mark entries without an obstacle as drained, around the policy
///
/// Example: rota queue drain --limit 5
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainEntries {
    /// How many at most
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true)]
    #[serde(default)]
    pub limit: EntryLimit,
    /// Only this repository
    #[arg(long, value_name = "P")]
    pub repo: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for DrainEntries {
    type Payload = DrainedEntries;
    const ROUTE: Route = Route::post("queue drain", "/queues/{queue}/drain");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Drain entries",
        "Mark the most urgent entries that nothing stands in the way of as drained, without running them and \
         whatever the ceiling. For emptying a queue by hand.",
    ).destructive());

    /// In order, with one shared time.
    async fn run(self, cx: &Context) -> Result<DrainedEntries> {
        let (queue, limit) = (self.queue.into_inner(), self.limit.get());
        let drained = cx.store.perform(&Drain { call: cx.call(), queue, limit, repo: self.repo }).await?;
        let entries = drained.drained.into_iter().map(ListedEntry::of).collect();
        Ok(DrainedEntries { drained: entries, remaining: drained.remaining })
    }
}

/// What was drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainedEntries {
    /// In order.
    pub drained: Vec<ListedEntry>,
    /// Still open.
    pub remaining: usize,
}
