//! `rota sched plan`

use async_trait::async_trait;
use rota_core::UnixMillis;
use rota_store::Store;
use rota_store::intents::lease_plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LeasePayload;
use crate::context::Context;
use crate::input::{EntryLimit, QueueName};
use crate::queue::runs;
use crate::verb::{ErrorStyle, Route, Tool, Verb};
use crate::{Result, Word};

/// The plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Plan {
    pub now: UnixMillis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    pub in_flight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    pub leases: Vec<LeasePayload>,
    pub skipped: Vec<SkippedEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_total: Option<usize>,
}

/// An entry that would not be granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedEntry {
    /// Which.
    pub id: String,
    /// Why.
    pub reason: Word,
}

/// Show what would be granted now, and why not the rest; reads only
///
/// Example: rota sched plan --now 2026-01-01T00:00:00Z
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanLeases {
    /// How many at most [default: up to the ceiling; without one, 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<EntryLimit>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for PlanLeases {
    type Payload = Plan;
    const ROUTE: Route = Route::get("sched plan", "/queues/{queue}/plan");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Plan leases",
        "Show which entries rota_sched_lease would grant now, and why not the others. Changes nothing; the \
         same now gives the same answer.",
    ));

    /// The same queue, policy and now give the same bytes.
    async fn run(self, cx: &Context) -> Result<Plan> {
        let (queue, limit) = (self.queue.into_inner(), self.limit.map(EntryLimit::get));
        let intent = lease_plan::PlanLeases { call: cx.call(), queue, limit, host: cx.host.clone() };
        let plan = cx.store.perform(&intent).await?;
        let skipped = plan.skipped.into_iter();
        Ok(Plan {
            now: plan.now,
            max_concurrent: plan.ceiling,
            in_flight: plan.in_flight,
            available: plan.ceiling.map(|ceiling| ceiling.saturating_sub(plan.in_flight)),
            leases: plan.leases.iter().map(LeasePayload::of).collect(),
            skipped: skipped
                .map(|(id, skip)| SkippedEntry { id: id.to_string(), reason: skip.word().into() })
                .collect(),
            skipped_total: (plan.skipped_total > lease_plan::LISTED).then_some(plan.skipped_total),
        })
    }
}
