//! How an attempt ends: `rota task done`, `fail`, `release`, `park`. A call that names another lease or agent is refused.

use async_trait::async_trait;
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Json, TaskId, limits};
use rota_store::Store;
use rota_store::intents::claim::Claim;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::intents::read::Show;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::claim::{Claimed, Terms};
use crate::context::{Context, bad_value, checked_text};
use crate::input::{Category, Id, QueueName, Reason, ResultObject, Seconds};
use crate::lease_token::{On, Right};
use crate::queue::tasks;
use crate::step::{step, step_and_claim};
use crate::verb::{Access, LeaseChanges, LeaseSpan, Route, Tool, Verb, read_flattened};
use crate::{Result, TaskPayload};

/// Settle a task as done; --next also claims the next one
///
/// With --next, prints the claim after the settlement; exit 0 also when nothing is eligible. Example: rota task done
/// fix-login --agent a1 --result '{"commit":"3f2c1a"}' --next
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("anyOf" = serde_json::json!([
    {"required": ["next"], "properties": {"next": {"const": true}}},
    {"properties": {"lease": {"type": "null"}, "category": {"type": "null"}, "specs": {"type": "null"},
                    "queue": {"type": "null"}}},
])))]
pub struct FinishTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// A JSON object with a `commit` key
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub result: Option<ResultObject>,
    /// Claim the next task in the same transaction
    #[arg(long)]
    #[serde(default)]
    pub next: bool,
    /// With --next: how long its lease lasts [default: the policy's, 600 in tasks]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub lease: Option<Seconds>,
    /// With --next: only this category
    #[arg(long, value_name = "CAT")]
    pub category: Option<Category>,
    /// With --next: only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    pub specs: Option<String>,
    /// With --next: which queue [default: tasks]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
}

/// A finished task, and the task that its agent claimed with the same call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finished {
    /// The finished task.
    #[serde(flatten)]
    pub task: TaskPayload,
    /// The claim that followed; absent if none was asked for, or nothing was eligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Claimed>,
}

read_flattened!(Finished { ..task, #[serde(default)] next: Option<Claimed> });

#[async_trait]
impl Verb for FinishTask {
    type Payload = Finished;
    const ROUTE: Route = Route::post("task done", "/tasks/{id}/done");
    const NAMES_LEASE: bool = true;
    const ACCESS: Access = Access::LeaseToken(Right {
        without: &["next", "lease", "category", "specs", "queue"],
        after_expiry: true,
        bound: "no `--next`: a lease token claims nothing",
        ..Right::on(On::Own)
    });
    const TOOL: Option<Tool> = Some(
        Tool::core(
            "Finish a task",
            "Say that a task you claimed is finished; tasks that waited for it become claimable. With next: true you also \
             claim the next task, in the same call: it is `next` in the answer, with its leaseId; no `next` means that \
             there is nothing to do now. If it is refused, somebody else holds the task now, your work does not count, \
             and nothing was claimed.",
        )
        .with_lease(),
    );

    fn leases(finished: &Finished) -> LeaseChanges {
        let granted: Vec<LeaseSpan> = finished.next.iter().filter_map(|next| next.task.lease()).collect();
        LeaseChanges { granted, ..LeaseChanges::ending(&finished.task.id) }
    }

    /// A refused `done` claims nothing, and a refused claim (of an unknown queue) settles nothing.
    async fn run(self, cx: &Context) -> Result<Finished> {
        let (id, result) = (self.id.clone().into_inner(), self.result.clone().map(ResultObject::into_inner));
        let next = self.next_claim(cx)?;
        if result.as_ref().is_some_and(|result| !has_commit(result)) && requires_commit(cx, &id).await? {
            return Err(bad_value("result JSON must include a 'commit' key".into()).into());
        }
        let command = Command::Done { caller: cx.caller(&id)?, result };
        let (granted, view) = step_and_claim(cx, id, command, next).await?;
        Ok(Finished { task: TaskPayload::of_view(view), next: granted.map(Claimed::of) })
    }
}

impl FinishTask {
    /// The claim that follows; none without `next`, and then its options are refused.
    fn next_claim(self, cx: &Context) -> Result<Option<Claim>> {
        let Self { next, lease, category, specs, queue, .. } = self;
        if next {
            let queue = queue.unwrap_or_else(tasks);
            return Terms { lease, category, specs, queue }.next_for(cx).map(Some);
        }
        let given = [
            ("--lease", lease.is_some()),
            ("--category", category.is_some()),
            ("--specs", specs.is_some()),
            ("--queue", queue.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                Err(bad_value(format!("{flag} needs --next, which claims the next task")).into())
            }
            None => Ok(None),
        }
    }
}

/// Whether there is a commit, and not `null` in its place.
fn has_commit(result: &Json) -> bool {
    let members = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(result.as_str());
    members.is_ok_and(|members| members.get("commit").is_some_and(|commit| !commit.is_null()))
}

async fn requires_commit(cx: &Context, id: &TaskId) -> Result<bool> {
    let (view, _) = cx.store.perform(&Show { call: cx.call(), id: id.clone() }).await?;
    let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
    Ok(published.policy.queue(&view.task.queue).require_commit)
}

/// Settle a task as failed: an attempt is counted
///
/// Example: rota task fail fix-login --agent a1 --reason "tests do not pass"
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// Why
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
}

#[async_trait]
impl Verb for FailTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task fail", "/tasks/{id}/fail");
    const NAMES_LEASE: bool = true;
    const ACCESS: Access = Access::LeaseToken(Right { after_expiry: true, ..Right::on(On::Own) });
    const TOOL: Option<Tool> = Some(
        Tool::core(
            "Give up on a task",
            "Say that this attempt at a task you claimed failed, and why. The attempt is counted, and the policy decides \
             when it is tried again. The next agent sees the reason.",
        )
        .with_lease(),
    );

    fn leases(task: &TaskPayload) -> LeaseChanges {
        LeaseChanges::ending(&task.id)
    }

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        let id = self.id.into_inner();
        let reason = self.reason.filter(|reason| !reason.is_empty());
        if let Some(reason) = &reason {
            checked_text("reason", reason, limits::TEXT_BYTES)?;
        }
        let command = Command::Fail { caller: cx.caller(&id)?, reason, default_reason: FAILED_REASON };
        step(cx, id, command).await
    }
}

/// Give a task back; nothing is counted
///
/// Example: rota task release fix-login --agent a1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
}

#[async_trait]
impl Verb for ReleaseTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task release", "/tasks/{id}/release");
    const NAMES_LEASE: bool = true;
    const ACCESS: Access = Access::LeaseToken(Right { after_expiry: true, ..Right::on(On::Own) });
    const TOOL: Option<Tool> = Some(
        Tool::core(
            "Give a task back",
            "Give back a task you claimed and will not work on. Nothing is counted; the next agent can claim it at once.",
        )
        .with_lease(),
    );

    fn leases(task: &TaskPayload) -> LeaseChanges {
        LeaseChanges::ending(&task.id)
    }

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        let id = self.id.into_inner();
        let command = Command::Release { caller: cx.caller(&id)? };
        step(cx, id, command).await
    }
}

/// Releases a lease that was granted to a caller that has gone.
pub async fn release_granted(cx: &Context, lease: &LeaseSpan) -> Result<TaskPayload> {
    let cx = Context { lease: Some(lease.id.to_string()), agent: None, ..cx.clone() };
    ReleaseTask { id: lease.id.task.clone().into() }.run(&cx).await
}

/// Park a task for a person
///
/// Example: rota task park fix-login --reason "needs a key"
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParkTask {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// Why
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Reason,
}

#[async_trait]
impl Verb for ParkTask {
    type Payload = TaskPayload;
    const ROUTE: Route = Route::post("task park", "/tasks/{id}/park");
    const NAMES_LEASE: bool = true;
    const ACCESS: Access = Access::LeaseToken(Right::on(On::Own));

    async fn run(self, cx: &Context) -> Result<TaskPayload> {
        let (id, reason) = (self.id.into_inner(), self.reason.into_inner());
        let command = Command::Park { caller: cx.caller(&id)?, reason };
        step(cx, id, command).await
    }
}
