//! `rota sched lease`

use async_trait::async_trait;
use rota_core::{LeaseId, Task, UnixMillis};
use rota_store::Store;
use rota_store::intents::sched::Lease;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, checked_name};
use crate::input::{EntryLimit, QueueName};
use crate::queue::runs;
use crate::verb::{ErrorStyle, LeaseChanges, LeaseSpan, Route, Tool, Verb};

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

/// Grant leases, up to the ceiling
///
/// Example: rota sched lease --limit 1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantLeases {
    /// How many at most [default: up to the ceiling; without one, 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<EntryLimit>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for GrantLeases {
    type Payload = Leases;
    const ROUTE: Route = Route::post("sched lease", "/queues/{queue}/leases");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Grant leases",
        "Grant leases on the most urgent entries, never more than the ceiling allows. Run each granted entry \
         and end its lease with rota_sched_complete or rota_sched_release. None granted is no error.",
    ).with_agent());

    fn leases(granted: &Leases) -> LeaseChanges {
        let lease = |lease: &LeasePayload| {
            let until = lease.lease_expires_at.unwrap_or(granted.now);
            let lasts_ms = until.get().saturating_sub(granted.now.get());
            Some(LeaseSpan { id: LeaseId::parse(&lease.lease_id).ok()?, lasts_ms })
        };
        LeaseChanges { granted: granted.leases.iter().filter_map(lease).collect(), ..LeaseChanges::default() }
    }

    /// In one transaction. Without a limit up to the ceiling, on a queue without one a single lease.
    async fn run(self, cx: &Context) -> Result<Leases> {
        let intent = Lease {
            call: cx.call(),
            queue: self.queue.into_inner(),
            limit: self.limit.map(EntryLimit::get),
            agent: checked_name("agent", cx.agent.clone())?,
            host: cx.host.clone(),
        };
        let leased = cx.store.perform(&intent).await?;
        let leases: Vec<LeasePayload> =
            leased.granted.iter().map(|grant| LeasePayload::of(&grant.task)).collect();
        Ok(Leases { now: leased.now, granted: leases.len(), leases })
    }
}
