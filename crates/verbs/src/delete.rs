//! `rota task delete`: soft-deletes one task, or all that a filter names.

use async_trait::async_trait;
use rota_core::Status;
use rota_core::transition::Command;
use rota_store::Store;
use rota_store::intents::settle::DeleteMany;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value};
use crate::input::{Category, Id, QueueName, SpecRef, TaskStatuses};
use crate::queue::tasks;
use crate::step::step;
use crate::verb::{Route, Verb};
use crate::{Result, TaskPayload};

/// Delete one task
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteTask {
    /// The task
    pub id: Id,
}

#[async_trait]
impl Verb for DeleteTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::delete("task delete", "/tasks/{id}");

    /// A lease on the task ends.
    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        step(cx, self.id.into_inner(), Command::Delete).await
    }
}

/// Delete many tasks
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteTasks {
    /// All in these states, comma-separated
    #[arg(long, value_name = "csv")]
    pub status: Option<TaskStatuses>,
    /// All
    #[arg(long)]
    #[serde(default)]
    pub all: bool,
    /// Of those, only this spec's
    #[arg(long, value_name = "SPEC")]
    pub spec: Option<SpecRef>,
    /// Of those, only this category's
    #[arg(long, value_name = "CAT")]
    pub category: Option<Category>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
}

/// How many were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// So many.
    pub deleted: usize,
}

#[async_trait]
impl Verb for DeleteTasks {
    type Payload = Deleted;
    const ROUTE: Route = Route::delete("task delete-many", "/tasks");

    async fn run(self, cx: &Context) -> Result<Deleted> {
        if self.all == self.status.is_some() {
            return Err(bad_value("either --all or --status is wanted".into()).into());
        }
        let statuses = self.status.map(TaskStatuses::into_inner).unwrap_or_default();
        if statuses.contains(&Status::Deleted) {
            return Err(bad_value("--status deleted: they are deleted already".into()).into());
        }
        let intent = DeleteMany {
            call: cx.call(),
            queue: self.queue.into_inner(),
            statuses,
            spec: self.spec.and_then(SpecRef::into_inner),
            category: self.category.and_then(Category::into_inner),
        };
        Ok(Deleted { deleted: cx.store.perform(&intent).await? })
    }
}
