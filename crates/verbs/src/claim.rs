//! `claim`: grants a lease on the next task, or on one chosen by id.

use rota_core::glob::Globs;
use rota_core::{Front, Json, TaskId};
use rota_store::Store;
use rota_store::intents::Call;
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
    /// Which tasks qualify, and for how long.
    pub terms: Terms,
}

/// The terms of a claim: which tasks qualify, and how long the lease lasts.
#[derive(Clone, Debug, Default)]
pub struct Terms {
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

impl Terms {
    /// The claim of the next task for an agent, which is also the actor in the journal.
    pub(crate) fn next_for(self, cx: &Context, agent: Option<String>) -> Result<ClaimNext> {
        let wanted = Wanted {
            category: checked_name("category", self.category)?,
            specs: self.specs.as_deref().map(Globs::parse),
        };
        let agent = checked_name("agent", agent)?;
        let call = Call { actor: agent.clone(), ..cx.call() };
        let (ttl_ms, host) = (self.lease_secs.map(lease_ms), cx.host.clone());
        Ok(ClaimNext { call, queue: self.queue, limit: 1, agent, ttl_ms, wanted, host })
    }
}

/// Grants a lease; none if nothing is eligible. A task chosen by id that is not eligible is refused with the reasons.
pub async fn claim(cx: &Context, input: Claim) -> Result<Option<Claimed>> {
    let next = input.terms.next_for(cx, cx.agent.clone())?;
    let Some(id) = input.id else {
        return Ok(cx.store.perform(&next).await?.into_iter().next().map(Claimed::of));
    };
    let ClaimNext { call, agent, ttl_ms, wanted, host, .. } = next;
    let intent = ClaimById { call, id: task_id(&id)?, agent, ttl_ms, wanted, host };
    Ok(Some(Claimed::of(cx.store.perform(&intent).await?)))
}

pub(crate) fn lease_ms(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}
