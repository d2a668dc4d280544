//! `rota task claim`

use async_trait::async_trait;
use rota_core::glob::Globs;
use rota_core::{Front, Json, Refusal, TaskId};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim as ClaimNext, ClaimById, Grant, Wanted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, checked_name};
use crate::input::{Category, Id, QueueName, Seconds, globs};
use crate::queue::tasks;
use crate::verb::{LeaseChanges, Route, Tool, Verb, read_flattened};
use crate::{Result, TaskPayload};

/// Claim the next task, or one by id
///
/// Exit 2 when nothing is eligible. Example: rota task claim --agent a1 --lease 900
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Option<Id>,
    /// How long the lease lasts [default: the policy's, 600 in tasks]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub lease: Option<Seconds>,
    /// Only this category
    #[arg(long, value_name = "CAT")]
    pub category: Option<Category>,
    /// Only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    pub specs: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ClaimTask {
    type Payload = Claimed;
    const ROUTE: Route = Route::post("task claim", "/claims");
    const TOOL: Option<Tool> = Some(
        Tool::core(
            "Claim a task",
            "Take the next task, or the one named by id, so that no other agent gets it. Keep the leaseId of the answer: \
             rota_task_renew, rota_task_done and rota_task_fail want it. The lease runs out at leaseExpiresAt; renew it \
             before that, or the task goes to somebody else. \"No eligible tasks\" means that there is nothing to do \
             now: stop, or ask rota_why about a task.",
        )
        .with_agent(),
    );

    fn leases(claimed: &Claimed) -> LeaseChanges {
        LeaseChanges { granted: claimed.task.lease().into_iter().collect(), ..LeaseChanges::default() }
    }

    /// A task chosen by id that is not eligible is refused with the reasons.
    async fn run(self, cx: &Context) -> Result<Claimed> {
        let Self { id, lease, category, specs, queue } = self;
        let next = Terms { lease, category, specs, queue }.next_for(cx)?;
        let Some(id) = id else {
            let granted = cx.store.perform(&next).await?.into_iter().next();
            return Ok(granted.map(Claimed::of).ok_or(Refusal::NothingEligible)?);
        };
        let ClaimNext { call, agent, ttl_ms, wanted, host, .. } = next;
        let intent = ClaimById { call, id: id.into_inner(), agent, ttl_ms, wanted, host };
        Ok(Claimed::of(cx.store.perform(&intent).await?))
    }
}

/// The terms of a claim: which tasks qualify, and how long the lease lasts.
pub(crate) struct Terms {
    pub lease: Option<Seconds>,
    pub category: Option<Category>,
    pub specs: Option<String>,
    pub queue: QueueName,
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
    /// The claim of the next task; its agent is also the actor in the journal.
    pub(crate) fn next_for(self, cx: &Context) -> Result<ClaimNext> {
        let wanted = Wanted {
            category: self.category.and_then(Category::into_inner),
            specs: globs(self.specs).as_deref().map(Globs::parse),
        };
        let agent = checked_name("agent", cx.claimant()?)?;
        let call = Call { actor: agent.clone(), ..cx.call() };
        let (ttl_ms, host) = (self.lease.map(lease_ms), cx.host.clone());
        Ok(ClaimNext { call, queue: self.queue.into_inner(), limit: 1, agent, ttl_ms, wanted, host })
    }
}

pub(crate) fn lease_ms(lease: Seconds) -> i64 {
    i64::try_from(lease.get().saturating_mul(1_000)).unwrap_or(i64::MAX)
}
