//! `sched lease`: grants up to the ceiling.

use rota_core::{Task, UnixMillis};
use rota_store::Store;
use rota_store::intents::sched::Lease;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, checked_name};

/// One lease, granted or planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct LeasePayload {
    pub id: String,
    pub lease_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<UnixMillis>,
    pub attempts: u32,
    pub priority: u32,
}

impl LeasePayload {
    pub(super) fn of(task: &Task) -> Self {
        Self {
            id: task.id.to_string(),
            lease_id: task.lease().map_or(String::new(), |lease| lease.to_string()),
            lease_expires_at: task.lease_expires_at,
            attempts: task.attempts,
            priority: task.sort_priority(),
        }
    }
}

/// What was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leases {
    /// The decision's now.
    pub now: UnixMillis,
    /// How many.
    pub granted: usize,
    /// In order.
    pub leases: Vec<LeasePayload>,
}

/// Grants leases in one transaction: without a limit up to the ceiling, on a queue without one a single lease.
pub async fn lease(cx: &Context, queue: &str, limit: Option<usize>) -> Result<Leases> {
    let intent = Lease {
        call: cx.call(),
        queue: queue.to_owned(),
        limit,
        agent: checked_name("agent", cx.agent.clone())?,
        host: cx.host.clone(),
    };
    let leased = cx.store.perform(&intent).await?;
    let leases: Vec<LeasePayload> =
        leased.granted.iter().map(|grant| LeasePayload::of(&grant.task)).collect();
    Ok(Leases { now: leased.now, granted: leases.len(), leases })
}
