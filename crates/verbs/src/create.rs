//! `create`: adds an open task.

use rota_core::{Refusal, TaskId, UnixMillis, limits};
use rota_store::Store;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::lease_token::CreateLinked;
use rota_store::intents::read::TaskView;

use crate::context::{Context, bad_value, checked_name, checked_text, task_id};
use crate::step::perform_and_show;
use crate::{Result, TaskPayload};

/// What to add.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct Create {
    pub id: String,
    pub title: String,
    pub queue: String,
    pub priority: Option<u32>,
    pub category: Option<String>,
    pub description: Option<String>,
    pub steps: Vec<String>,
    pub spec: Option<String>,
    pub reference: Option<String>,
    pub deps: Vec<String>,
    pub after: Option<UnixMillis>,
}

/// Adds an open task. A duplicate id or an unknown dependency is refused.
pub async fn create(cx: &Context, input: Create) -> Result<TaskPayload> {
    let new = NewTask {
        priority: input.priority.map_or(NewPriority::QueueDefault, NewPriority::Given),
        category: checked_name("category", input.category)?,
        description: checked_description(input.description)?,
        steps: checked_steps(input.steps)?,
        spec_ref: checked_name("spec", input.spec)?,
        reference: checked_name("ref", input.reference)?,
        deps: input.deps.iter().map(|dep| task_id(dep)).collect::<Result<Vec<TaskId>>>()?,
        not_before: input.after,
        ..NewTask::new(task_id(&input.id)?, &checked_queue(&input.queue)?, &checked_title(&input.title)?)
    };
    let id = new.id.clone();
    match &cx.token {
        Some(lease) => {
            let intent = CreateLinked { call: cx.call(), task: new, lease: lease.clone() };
            perform_and_show(cx, id, intent).await
        }
        None if new.deps.is_empty() => {
            let added = cx.store.perform(&Add { call: cx.call(), tasks: vec![new] }).await?.pop();
            let Some(task) = added else { unreachable!("one task was added") };
            Ok(TaskPayload::of_view(TaskView::of_unlinked(task)))
        }
        None => perform_and_show(cx, id, Add { call: cx.call(), tasks: vec![new] }).await,
    }
}

pub(crate) fn checked_title(title: &str) -> Result<String> {
    if title.trim().is_empty() {
        return Err(bad_value("title is empty".into()).into());
    }
    checked_text("title", title, limits::TITLE_BYTES)?;
    Ok(title.to_owned())
}

pub(crate) fn checked_description(text: Option<String>) -> Result<Option<String>> {
    if let Some(text) = &text {
        checked_text("description", text, limits::TEXT_BYTES)?;
    }
    Ok(text.filter(|text| !text.is_empty()))
}

pub(crate) fn checked_steps(steps: Vec<String>) -> Result<Vec<String>> {
    if steps.len() > limits::STEPS {
        return Err(bad_value(format!("{} steps, at most {} are allowed", steps.len(), limits::STEPS)).into());
    }
    steps.iter().try_for_each(|step| checked_text("step", step, limits::TEXT_BYTES))?;
    Ok(steps)
}

pub(crate) fn checked_queue(queue: &str) -> Result<String> {
    rota_core::id::check_name("queue name", queue).map_err(Refusal::from)?;
    Ok(queue.to_owned())
}
