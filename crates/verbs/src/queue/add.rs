//! `queue add`: one more entry, pending.

use std::hash::{BuildHasher, RandomState};

use rota_core::Json;
use rota_store::Store;
use rota_store::intents::add::{Add, NewPriority, NewTask};

use super::{Entry, EntryFields};
use crate::Result;
use crate::context::{Context, checked_name, checked_text, task_id};
use crate::create::checked_queue;

/// What to add.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct AddEntry {
    pub id: Option<String>,
    pub queue: String,
    pub run_id: Option<String>,
    pub app: Option<String>,
    pub workflow: Option<String>,
    pub repo: String,
    pub priority: Option<u32>,
    pub note: Option<String>,
}

/// Adds an entry; an id is made up where none is given.
pub async fn add(cx: &Context, input: AddEntry) -> Result<Entry> {
    let fields = EntryFields {
        run_id: checked_name("runId", input.run_id)?,
        app_id: checked_name("app", input.app)?,
        workflow_id: checked_name("workflow", input.workflow)?,
        repo: input.repo,
        note: input.note.filter(|note| !note.is_empty()),
    };
    checked_text("note", fields.note.as_deref().unwrap_or_default(), rota_core::limits::TITLE_BYTES)?;
    checked_text("repo", &fields.repo, rota_core::limits::TITLE_BYTES)?;
    let id = input.id.filter(|id| !id.is_empty()).unwrap_or_else(made_up);
    let named = [&fields.app_id, &fields.workflow_id, &fields.run_id].into_iter().flatten().next();
    let title = fields.note.clone().or_else(|| named.cloned()).unwrap_or_else(|| id.clone());
    let new = NewTask {
        kind: fields.app_id.clone(),
        priority: input.priority.map_or(NewPriority::QueueDefault, NewPriority::Given),
        payload: Some(Json::of(&fields)),
        ..NewTask::new(task_id(&id)?, &checked_queue(&input.queue)?, &title)
    };
    let added = cx.store.perform(&Add { call: cx.call(), tasks: vec![new] }).await?;
    match added.into_iter().next() {
        Some(task) => Ok(Entry::of(task)),
        None => unreachable!("one entry was added"),
    }
}

fn made_up() -> String {
    format!("run-{:016x}", RandomState::new().hash_one(std::process::id()))
}
