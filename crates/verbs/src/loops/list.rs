//! `rota loop list`

use async_trait::async_trait;
use rota_core::Status;
use rota_store::Store;
use rota_store::intents::read::List;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LOOPS, LoopPayload};
use crate::Result;
use crate::context::Context;
use crate::input::LoopStatuses;
use crate::verb::{Route, Verb};

/// List loops in the order they would run
///
/// Example: rota loop list --status pending,running --kind ralph
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListLoops {
    /// Only these states, comma-separated
    #[arg(long, value_name = "csv")]
    pub status: Option<LoopStatuses>,
    /// Only these kinds, comma-separated
    #[arg(long, value_name = "csv")]
    pub kind: Option<String>,
}

#[async_trait]
impl Verb for ListLoops {
    type Payload = Loops;
    const ROUTE: Route = Route::get("loop list", "/loops");

    /// Leaves deleted loops out unless asked.
    async fn run(self, cx: &Context) -> Result<Loops> {
        let all = || Status::ALL.into_iter().filter(|status| *status != Status::Deleted).collect();
        let statuses = self.status.map_or_else(all, LoopStatuses::into_inner);
        let intent = List { call: cx.call(), queue: LOOPS.to_owned(), statuses, assignee: None };
        let mut views = cx.store.perform(&intent).await?;
        if let Some(kinds) = &self.kind {
            let kinds: Vec<&str> = kinds.split(',').map(str::trim).collect();
            views.retain(|view| view.task.kind.as_deref().is_some_and(|kind| kinds.contains(&kind)));
        }
        let loops: Vec<LoopPayload> = views.into_iter().map(LoopPayload::of_view).collect();
        Ok(Loops { total: loops.len(), loops })
    }
}

/// A list of loops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loops {
    /// How many.
    pub total: usize,
    /// In order.
    pub loops: Vec<LoopPayload>,
}
