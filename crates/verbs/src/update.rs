//! `update`: changes fields, and the state by a person's hand.

use rota_core::Status;
use rota_store::intents::edit::Edit;

use crate::context::{Context, task_id};
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
}

/// Changes a task that is not done.
pub async fn update(cx: &Context, input: Update) -> Result<TaskPayload> {
    let description = match input.description {
        Some(text) => Some(checked_description(Some(text))?.unwrap_or_default()),
        None => None,
    };
    let id = task_id(&input.id)?;
    let intent = Edit {
        call: cx.call(),
        id: id.clone(),
        title: input.title.as_deref().map(checked_title).transpose()?,
        priority: input.priority,
        description,
        steps: input.steps.map(checked_steps).transpose()?,
        status: input.status,
    };
    perform_and_show(cx, id, intent).await
}
