//! `queue list`, `queue show`, `queue export`.

use std::collections::BTreeMap;

use rota_core::{Status, Task};
use rota_store::Store;
use rota_store::intents::read::{List, Show};
use rota_store::intents::sched::repo_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entry, ListedEntry, not_found};
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
    pub entries: Vec<ListedEntry>,
}

/// Entries with every field that `queue import` kept of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportedEntries {
    /// How many.
    pub total: usize,
    /// In order.
    pub entries: Vec<ExportedEntry>,
}

/// An entry, and behind its own fields those that it was imported with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedEntry {
    schema_version: u32,
    #[serde(flatten)]
    entry: Entry,
    #[serde(flatten)]
    kept: BTreeMap<String, Value>,
}

/// Lists entries by priority, then age; deleted ones are left out unless asked for.
pub async fn list(cx: &Context, input: ListEntries) -> Result<Entries> {
    if let Some(word) = &input.status {
        known_word(word)?;
    }
    let intent = List { call: cx.call(), queue: input.queue, statuses: Vec::new(), assignee: None };
    let views = cx.store.perform(&intent).await?;
    let wanted = |task: &rota_core::Task| input.repo.is_none() || repo_of(task) == input.repo;
    let entries = views.into_iter().filter(|view| wanted(&view.task)).map(|view| ListedEntry::of(view.task));
    let shown = |ListedEntry { entry, .. }: &ListedEntry| match &input.status {
        Some(word) => entry.status == word.as_str(),
        None => entry.status != Status::Deleted.word(),
    };
    let entries: Vec<ListedEntry> = entries.filter(shown).collect();
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
pub async fn export(cx: &Context, queue: String) -> Result<ExportedEntries> {
    let intent = List { call: cx.call(), queue, statuses: Vec::new(), assignee: None };
    let views = cx.store.perform(&intent).await?;
    let entries: Vec<_> = views.into_iter().map(|view| exported(view.task)).collect();
    Ok(ExportedEntries { total: entries.len(), entries })
}

fn exported(task: Task) -> ExportedEntry {
    let payload = task.payload.as_ref().map_or("{}", |payload| payload.as_str());
    let mut kept: BTreeMap<String, Value> = serde_json::from_str(payload).unwrap_or_default();
    for shown in ["runId", "appId", "workflowId", "repo", "note"] {
        kept.remove(shown);
    }
    ExportedEntry { schema_version: 1, entry: Entry::of(task), kept }
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
