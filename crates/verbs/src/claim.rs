//! `claim`: grants a lease on the next task, or on one chosen by id.

use rota_core::glob::Globs;
use rota_core::{Front, Json, TaskId};
use rota_store::Store;
use rota_store::intents::claim::{Claim as ClaimNext, ClaimById, Grant, Wanted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, checked_name, task_id};
use crate::verb::read_flattened;
use crate::{Result, TaskPayload};

/// What to claim.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// This one; none for the next.
    pub id: Option<String>,
    /// From which queue.
    pub queue: String,
    /// How long; none for as long as the policy says.
    pub lease_secs: Option<u64>,
    /// Only this category.
    pub category: Option<String>,
    /// Globs on the spec.
    pub specs: Option<String>,
}

/// A granted task with what its blockers left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claimed {
    /// The task.
    #[serde(flatten)]
    pub task: TaskPayload,
    /// Results of its blockers, those that have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocker_results: Vec<BlockerResult>,
}

read_flattened!(Claimed { ..task, #[serde(default)] blocker_results: Vec<BlockerResult> });

/// What a blocker left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockerResult {
    /// The blocker.
    pub id: TaskId,
    /// Its result.
    pub result: Json,
}

impl Claimed {
    /// As every interface shows a grant.
    pub fn of(grant: Grant) -> Self {
        let deps = grant.blockers.iter().map(|blocker| blocker.id.clone()).collect();
        let results = grant.blockers.into_iter();
        let results =
            results.filter_map(|blocker| Some(BlockerResult { id: blocker.id, result: blocker.result? }));
        Self {
            task: TaskPayload::new(grant.task, deps, None, Front::Task),
            blocker_results: results.collect(),
        }
    }
}

/// Grants a lease; none if nothing is eligible. A task chosen by id that is not eligible is refused with the reasons.
pub async fn claim(cx: &Context, input: Claim) -> Result<Option<Claimed>> {
    let wanted = Wanted {
        category: checked_name("category", input.category)?,
        specs: input.specs.as_deref().map(Globs::parse),
    };
    let agent = checked_name("agent", cx.agent.clone())?;
    let ttl_ms = input.lease_secs.map(lease_ms);
    let (call, host) = (cx.call(), cx.host.clone());
    if let Some(id) = input.id {
        let intent = ClaimById { call, id: task_id(&id)?, agent, ttl_ms, wanted, host };
        return Ok(Some(Claimed::of(cx.store.perform(&intent).await?)));
    }
    let intent = ClaimNext { call, queue: input.queue, limit: 1, agent, ttl_ms, wanted, host };
    Ok(cx.store.perform(&intent).await?.into_iter().next().map(Claimed::of))
}

pub(crate) fn lease_ms(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}
