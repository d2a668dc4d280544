//! `sched plan`: what `sched lease` would do now. Reads only.

use rota_core::UnixMillis;
use rota_store::Store;
use rota_store::intents::lease_plan::{LISTED, PlanLeases};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LeasePayload;
use crate::context::Context;
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

/// Plans leases for a queue, a policy and a now; the same input gives the same bytes.
pub async fn plan(cx: &Context, queue: &str, limit: Option<usize>) -> Result<Plan> {
    let intent = PlanLeases { call: cx.call(), queue: queue.to_owned(), limit, host: cx.host.clone() };
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
        skipped_total: (plan.skipped_total > LISTED).then_some(plan.skipped_total),
    })
}
