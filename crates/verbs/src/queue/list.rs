//! `queue list`, `queue show`, `queue export`.

use rota_core::Status;
use rota_store::Store;
use rota_store::intents::read::{List, Show};
use rota_store::intents::sched::repo_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, not_found};
use crate::Result;
use crate::context::{Context, bad_value, task_id};

/// Which entries.
#[derive(Clone, Debug, Default)]
pub struct ListEntries {
    /// Which queue.
    pub queue: String,
    /// In which state, in the words of a queue.
    pub status: Option<String>,
    /// Only of this repository.
    pub repo: Option<String>,
}

/// Entries in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entries {
    /// How many.
    pub total: usize,
    /// In order.
    pub entries: Vec<Entry>,
}

/// Lists entries by priority, then age; deleted ones are left out unless asked for.
pub async fn list(cx: &Context, input: ListEntries) -> Result<Entries> {
    if let Some(word) = &input.status {
        known_word(word)?;
    }
    let intent = List { call: cx.call(), queue: input.queue, statuses: Vec::new(), assignee: None };
    let views = cx.store.perform(&intent).await?;
    let wanted = |task: &rota_core::Task| input.repo.is_none() || repo_of(task) == input.repo;
    let entries = views.into_iter().filter(|view| wanted(&view.task)).map(|view| Entry::of(view.task));
    let shown = |entry: &Entry| match &input.status {
        Some(word) => entry.status == word.as_str(),
        None => entry.status != Status::Deleted.word(),
    };
    let entries: Vec<Entry> = entries.filter(shown).collect();
    Ok(Entries { total: entries.len(), entries })
}

fn known_word(word: &str) -> Result<()> {
    const WORDS: [&str; 9] =
        ["pending", "ready", "leased", "paused", "drained", "failed", "parked", "invalidated", "deleted"];
    if WORDS.contains(&word) {
        return Ok(());
    }
    let shown = rota_core::text::escaped(word);
    Err(bad_value(format!("Unknown --status \"{shown}\": expected one of {}", WORDS.join(", "))).into())
}

/// Every entry, deleted ones too.
pub async fn export(cx: &Context, queue: String) -> Result<Entries> {
    let intent = List { call: cx.call(), queue, statuses: Vec::new(), assignee: None };
    let entries: Vec<Entry> =
        cx.store.perform(&intent).await?.into_iter().map(|view| Entry::of(view.task)).collect();
    Ok(Entries { total: entries.len(), entries })
}

/// One entry.
pub async fn show(cx: &Context, id: &str) -> Result<Entry> {
    let shown = cx.store.perform(&Show { call: cx.call(), id: task_id(id)? }).await;
    match shown {
        Ok((view, _)) => Ok(Entry::of(view.task)),
        Err(crate::Error::Refused(rota_core::Refusal::TaskNotFound { .. })) => Err(not_found(id).into()),
        Err(other) => Err(other),
    }
}
