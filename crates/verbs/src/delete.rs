//! `delete`: soft-deletes one task, or all that a filter names.

use rota_core::Status;
use rota_core::transition::Command;
use rota_store::Store;
use rota_store::intents::settle::DeleteMany as DeleteManyIntent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value, task_id};
use crate::step::step;
use crate::{Result, TaskPayload};

/// Deletes one task; a lease on it ends.
pub async fn delete(cx: &Context, id: &str) -> Result<TaskPayload> {
    step(cx, task_id(id)?, Command::Delete).await
}

/// Which tasks to delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteMany {
    /// Which queue.
    pub queue: String,
    /// In which states; none for all.
    pub statuses: Option<Vec<Status>>,
    /// Only of this spec.
    pub spec: Option<String>,
    /// Only of this category.
    pub category: Option<String>,
}

/// How many were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// So many.
    pub deleted: usize,
}

/// Deletes many tasks in one transaction.
pub async fn delete_many(cx: &Context, input: DeleteMany) -> Result<Deleted> {
    let statuses = input.statuses.unwrap_or_default();
    if statuses.contains(&Status::Deleted) {
        return Err(bad_value("--status deleted: they are deleted already".into()).into());
    }
    let intent = DeleteManyIntent {
        call: cx.call(),
        queue: input.queue,
        statuses,
        spec: input.spec,
        category: input.category,
    };
    Ok(Deleted { deleted: cx.store.perform(&intent).await? })
}
