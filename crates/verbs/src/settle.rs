//! How an attempt ends: `done`, `fail`, `release`, `park`. Each names its lease or agent, and a late one is refused.

use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Json, TaskId, limits};
use rota_store::Store;
use rota_store::intents::claim::Claim;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::intents::read::Show;
use schemars::JsonSchema;
use serde::Serialize;

use crate::claim::{Claimed, Terms};
use crate::context::{Context, bad_value, checked_text, task_id};
use crate::step::{step, step_and_claim};
use crate::table::tasks_queue;
use crate::verb::read_flattened;
use crate::{Result, TaskPayload, input};

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

/// The options of `done` that are about the next claim. All but `next` are refused without it.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the command line")]
pub struct NextOptions {
    pub next: bool,
    pub lease_secs: Option<u64>,
    pub category: Option<String>,
    pub specs: Option<String>,
    pub queue: Option<String>,
}

impl NextOptions {
    /// The claim that follows, for an agent; none without `next`.
    pub fn claim_for(self, cx: &Context, agent: Option<String>) -> Result<Option<Claim>> {
        let Self { next, lease_secs, category, specs, queue } = self;
        if next {
            let (queue, specs) = (queue.unwrap_or_else(tasks_queue), input::globs(specs));
            return Terms { queue, lease_secs, category, specs }.next_for(cx, agent).map(Some);
        }
        let given = [
            ("--lease", lease_secs.is_some()),
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

/// Settles as done, with a result that must be a JSON object, and have a `commit` where the queue's policy says so. Then
/// claims, if asked, in the same transaction: a refused `done` claims nothing, and a refused claim (of an unknown queue)
/// settles nothing.
pub async fn done(cx: &Context, id: &str, result: Option<&str>, next: Option<Claim>) -> Result<Finished> {
    let id = task_id(id)?;
    let result = result.map(object).transpose()?;
    if result.as_ref().is_some_and(|result| !has_commit(result)) && requires_commit(cx, &id).await? {
        return Err(bad_value("result JSON must include a 'commit' key".into()).into());
    }
    let command = Command::Done { caller: cx.caller(&id)?, result };
    let (granted, view) = step_and_claim(cx, id, command, next).await?;
    Ok(Finished { task: TaskPayload::of_view(view), next: granted.map(Claimed::of) })
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

/// A result as `done` takes it: an object.
pub fn object(text: &str) -> Result<Json> {
    checked_text("result", text, limits::TEXT_BYTES)?;
    let json = Json::parse(text).map_err(|error| bad_value(format!("--result is not JSON: {error}")))?;
    if !json.is_object() {
        return Err(bad_value("result JSON must be an object".into()).into());
    }
    Ok(json)
}

/// Settles as failed: an attempt is counted, the policy says what follows.
pub async fn fail(cx: &Context, id: &str, reason: Option<String>) -> Result<TaskPayload> {
    let id = task_id(id)?;
    let reason = reason.filter(|reason| !reason.is_empty());
    if let Some(reason) = &reason {
        checked_text("reason", reason, limits::TEXT_BYTES)?;
    }
    let command = Command::Fail { caller: cx.caller(&id)?, reason, default_reason: FAILED_REASON };
    step(cx, id, command).await
}

/// Gives a task back; nothing is counted.
pub async fn release(cx: &Context, id: &str) -> Result<TaskPayload> {
    let id = task_id(id)?;
    let command = Command::Release { caller: cx.caller(&id)? };
    step(cx, id, command).await
}

/// Says that a person must look at it.
pub async fn park(cx: &Context, id: &str, reason: String) -> Result<TaskPayload> {
    let id = task_id(id)?;
    checked_text("reason", &reason, limits::TEXT_BYTES)?;
    let command = Command::Park { caller: cx.caller(&id)?, reason };
    step(cx, id, command).await
}
