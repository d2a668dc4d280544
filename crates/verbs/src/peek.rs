//! `rota task peek`

use async_trait::async_trait;
use rota_core::glob::Globs;
use rota_store::Store;
use rota_store::intents::claim::Wanted;
use rota_store::intents::read::{Peek, TaskView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::{Count, QueueName, globs};
use crate::payload::TaskList;
use crate::queue::tasks;
use crate::verb::{Route, Tool, Verb};
use crate::{Result, TaskPayload};

/// Show the top claimable tasks, then all active ones; reads only
///
/// Example: rota task peek -n 3
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeekTasks {
    /// How many claimable tasks
    #[arg(short = 'n', long, value_name = "N", default_value = "5", allow_hyphen_values = true)]
    #[serde(default)]
    pub limit: Count,
    /// Only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    pub specs: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for PeekTasks {
    type Payload = TaskList;
    const ROUTE: Route = Route::get("task peek", "/queues/{queue}/peek");
    const TOOL: Option<Tool> = Some(Tool::core(
        "Look at the backlog",
        "List the next tasks that can be claimed, most urgent first, then all tasks that somebody is working on. Changes \
         nothing. Use it to see what there is before claiming.",
    ));

    async fn run(self, cx: &Context) -> Result<TaskList> {
        let wanted = Wanted { category: None, specs: globs(self.specs).as_deref().map(Globs::parse) };
        let (queue, limit) = (self.queue.into_inner(), self.limit.get());
        let seen =
            cx.store.perform(&Peek { call: cx.call(), queue, limit, wanted, host: cx.host.clone() }).await?;
        let tasks =
            seen.claimable.into_iter().chain(seen.active).map(|view: TaskView| TaskPayload::of_view(view));
        Ok(TaskList::new(tasks.collect()))
    }
}
