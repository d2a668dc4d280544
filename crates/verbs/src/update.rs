//! `update`: changes fields, and the state by a person's hand.

use rota_core::{Refusal, Status};
use rota_store::intents::edit::Edit;

use crate::context::{Context, bad_value, task_id};
use crate::create::{checked_description, checked_steps, checked_title};
use crate::step::perform_and_show;
use crate::{Result, TaskPayload};

/// What to change; what is none stays.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct Update {
    pub id: String,
    pub title: Option<String>,
    pub priority: Option<u32>,
    pub description: Option<String>,
    pub steps: Option<Vec<String>>,
    pub status: Option<Status>,
    /// A person's override of the lease on the task.
    pub force: bool,
}

/// Changes a task that is not done. The state of a held task is changed by its holder, or by a person's override, which
/// is refused to a caller that works under a lease.
pub async fn update(cx: &Context, input: Update) -> Result<TaskPayload> {
    let description = match input.description {
        Some(text) => Some(checked_description(Some(text))?.unwrap_or_default()),
        None => None,
    };
    let id = task_id(&input.id)?;
    let under_lease = cx.token.is_some() || cx.lease.is_some() || cx.ambient_lease.is_some();
    if input.force && under_lease {
        return Err(Refusal::ForceUnderLease.into());
    }
    if input.force && input.status.is_none() {
        return Err(bad_value("--force goes with --status".into()).into());
    }
    let intent = Edit {
        call: cx.call(),
        id: id.clone(),
        title: input.title.as_deref().map(checked_title).transpose()?,
        priority: input.priority,
        description,
        steps: input.steps.map(checked_steps).transpose()?,
        status: input.status,
        caller: cx.caller(&id)?,
        force: input.force,
    };
    perform_and_show(cx, id, intent).await
}
