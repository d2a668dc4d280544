//! `block` and `unblock`: edges between tasks.

use rota_core::TaskId;
use rota_store::Store;
use rota_store::intents::edges;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, task_id};

/// An edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// Who waits.
    pub id: TaskId,
    /// For whom.
    pub by: TaskId,
}

/// Adds an edge; twice is fine, a cycle is refused with its path.
pub async fn block(cx: &Context, id: &str, by: &str) -> Result<Edge> {
    let edge = Edge { id: task_id(id)?, by: task_id(by)? };
    cx.store.perform(&edges::Block { call: cx.call(), task: edge.id.clone(), by: edge.by.clone() }).await?;
    Ok(edge)
}

/// Removes an edge.
pub async fn unblock(cx: &Context, id: &str, by: &str) -> Result<Edge> {
    let edge = Edge { id: task_id(id)?, by: task_id(by)? };
    cx.store.perform(&edges::Unblock { call: cx.call(), task: edge.id.clone(), by: edge.by.clone() }).await?;
    Ok(edge)
}
