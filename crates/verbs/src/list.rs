//! `rota task list`

use async_trait::async_trait;
use rota_core::Status;
use rota_store::Store;
use rota_store::intents::read::List;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, bad_value};
use crate::input::{QueueName, TaskStatuses};
use crate::payload::TaskList;
use crate::queue::tasks;
use crate::verb::{Route, Verb};
use crate::{Result, TaskPayload};

/// List tasks in the order they would run
///
/// Example: rota task list --status open,active
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTasks {
    /// Only these states, comma-separated
    #[arg(long, value_name = "csv")]
    pub status: Option<TaskStatuses>,
    /// Deleted ones too
    #[arg(long)]
    #[serde(default)]
    pub all: bool,
    /// Only this holder's
    #[arg(long, value_name = "AGENT")]
    pub assignee: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ListTasks {
    type Payload = TaskList;
    const ROUTE: Route = Route::get("task list", "/tasks");

    /// Leaves deleted tasks out unless asked.
    async fn run(self, cx: &Context) -> Result<TaskList> {
        let statuses = match self.status.map(TaskStatuses::into_inner) {
            Some(_) if self.all => {
                return Err(bad_value("--all and --status are mutually exclusive".into()).into());
            }
            Some(statuses) => statuses,
            None if self.all => Vec::new(),
            None => Status::ALL.into_iter().filter(|status| *status != Status::Deleted).collect(),
        };
        let assignee = self.assignee.filter(|name| !name.is_empty());
        let views = cx
            .store
            .perform(&List { call: cx.call(), queue: self.queue.into_inner(), statuses, assignee })
            .await?;
        Ok(TaskList::new(views.into_iter().map(TaskPayload::of_view).collect()))
    }
}
