//! `rota task plan-status`

use async_trait::async_trait;
use rota_core::Status;
use rota_core::glob::Globs;
use rota_store::intents::claim::Wanted;
use rota_store::intents::read::PlanStatus as PlanStatusIntent;
use rota_store::{StatusCount, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::{QueueName, globs};
use crate::queue::tasks;
use crate::verb::{Route, Verb};

/// Counts; open and active ones that have an unresolved blocker are under `blocked` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are the states")]
pub struct PlanStatus {
    pub open: u64,
    pub active: u64,
    pub done: u64,
    pub blocked: u64,
    pub deleted: u64,
    pub parked: u64,
    pub failed: u64,
    pub paused: u64,
    pub invalidated: u64,
}

/// Count tasks by state
///
/// Example: rota task plan-status --specs 'specs/*.md'
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CountTasks {
    /// Only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    pub specs: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for CountTasks {
    type Payload = PlanStatus;
    const ROUTE: Route = Route::get("task plan-status", "/queues/{queue}/plan-status");

    async fn run(self, cx: &Context) -> Result<PlanStatus> {
        let wanted = Wanted { category: None, specs: globs(self.specs).as_deref().map(Globs::parse) };
        let intent = PlanStatusIntent { call: cx.call(), queue: self.queue.into_inner(), wanted };
        let mut status = PlanStatus::default();
        for count in cx.store.perform(&intent).await? {
            *status.place(count) += count.count;
        }
        Ok(status)
    }
}

impl PlanStatus {
    fn place(&mut self, count: StatusCount) -> &mut u64 {
        match count.status {
            Status::Open | Status::Active if count.blocked => &mut self.blocked,
            Status::Open => &mut self.open,
            Status::Active => &mut self.active,
            Status::Done => &mut self.done,
            Status::Deleted => &mut self.deleted,
            Status::Parked => &mut self.parked,
            Status::Failed => &mut self.failed,
            Status::Paused => &mut self.paused,
            Status::Invalidated => &mut self.invalidated,
        }
    }
}
