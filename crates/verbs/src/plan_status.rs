//! `plan-status`: how many tasks stand where.

use rota_core::Status;
use rota_core::glob::Globs;
use rota_store::intents::claim::Wanted;
use rota_store::intents::read::PlanStatus as PlanStatusIntent;
use rota_store::{StatusCount, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;

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

/// Counts the tasks of a queue, of specs that match.
pub async fn plan_status(cx: &Context, queue: String, specs: Option<&str>) -> Result<PlanStatus> {
    let wanted = Wanted { category: None, specs: specs.map(Globs::parse) };
    let counts = cx.store.perform(&PlanStatusIntent { call: cx.call(), queue, wanted }).await?;
    let mut status = PlanStatus::default();
    for count in counts {
        *status.place(count) += count.count;
    }
    Ok(status)
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
