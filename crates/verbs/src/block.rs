//! `rota task block` and `unblock`: edges between tasks.

use async_trait::async_trait;
use rota_core::TaskId;
use rota_store::Store;
use rota_store::intents::edges;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::Id;
use crate::verb::{Route, Verb};

/// An edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// Who waits.
    pub id: TaskId,
    /// For whom.
    pub by: TaskId,
}

/// Make a task wait for another
///
/// Example: rota task block fix-login --by setup-db
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// The task that comes first
    #[arg(long, value_name = "ID")]
    pub by: Id,
}

#[async_trait]
impl Verb for BlockTask {
    type Payload = Edge;
    const ROUTE: Route = Route::put("task block", "/tasks/{id}/blockers/{by}");

    /// Adding an edge twice is fine; a cycle is refused with its path.
    async fn run(self, cx: &Context) -> Result<Edge> {
        let edge = Edge { id: self.id.into_inner(), by: self.by.into_inner() };
        let intent = edges::Block { call: cx.call(), task: edge.id.clone(), by: edge.by.clone() };
        cx.store.perform(&intent).await?;
        Ok(edge)
    }
}

/// Remove such an edge
///
/// Example: rota task unblock fix-login --by setup-db
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnblockTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// The task that comes first
    #[arg(long, value_name = "ID")]
    pub by: Id,
}

#[async_trait]
impl Verb for UnblockTask {
    type Payload = Edge;
    const ROUTE: Route = Route::delete("task unblock", "/tasks/{id}/blockers/{by}");

    async fn run(self, cx: &Context) -> Result<Edge> {
        let edge = Edge { id: self.id.into_inner(), by: self.by.into_inner() };
        let intent = edges::Unblock { call: cx.call(), task: edge.id.clone(), by: edge.by.clone() };
        cx.store.perform(&intent).await?;
        Ok(edge)
    }
}
