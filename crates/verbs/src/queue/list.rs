//! `rota queue list`, `show` and `export`

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::{Status, Task};
use rota_store::Store;
use rota_store::intents::read::{List, Show, TaskView};
use rota_store::intents::sched::repo_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entry, ListedEntry, not_found, runs};
use crate::Result;
use crate::context::{Context, task_id};
use crate::input::{EntryId, EntryStatus, QueueName};
use crate::verb::{ErrorStyle, Route, Tool, Verb};

/// List entries by priority, then age
///
/// Example: rota queue list --status parked --json
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListEntries {
    /// Only this state
    #[arg(long, value_name = "S")]
    pub status: Option<EntryStatus>,
    /// Only this repository
    #[arg(long, value_name = "P")]
    pub repo: Option<String>,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ListEntries {
    type Payload = Entries;
    const ROUTE: Route = Route::get("queue list", "/entries");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "List entries",
        "List the entries of a queue of runs by priority, then age. Changes nothing.",
    ));

    /// Deleted entries are left out unless asked for.
    async fn run(self, cx: &Context) -> Result<Entries> {
        let status = self.status.map(EntryStatus::into_inner);
        let wanted = |task: &Task| self.repo.is_none() || repo_of(task) == self.repo;
        let views = every(cx, self.queue).await?.into_iter();
        let entries = views.filter(|view| wanted(&view.task)).map(|view| ListedEntry::of(view.task));
        let shown = |ListedEntry { entry, .. }: &ListedEntry| match &status {
            Some(word) => entry.status == word.as_str(),
            None => entry.status != Status::Deleted.word(),
        };
        let entries: Vec<ListedEntry> = entries.filter(shown).collect();
        Ok(Entries { total: entries.len(), entries })
    }
}

async fn every(cx: &Context, queue: QueueName) -> Result<Vec<TaskView>> {
    let queue = queue.into_inner();
    cx.store.perform(&List { call: cx.call(), queue, statuses: Vec::new(), assignee: None }).await
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

/// Print every entry as JSON
///
/// Example: rota queue export > queue.json
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportEntries {
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ExportEntries {
    type Payload = ExportedEntries;
    const ROUTE: Route = Route::get("queue export", "/queues/{queue}/export");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;

    /// Deleted entries too.
    async fn run(self, cx: &Context) -> Result<ExportedEntries> {
        let views = every(cx, self.queue).await?;
        let entries: Vec<_> = views.into_iter().map(|view| exported(view.task)).collect();
        Ok(ExportedEntries { total: entries.len(), entries })
    }
}

fn exported(task: Task) -> ExportedEntry {
    let payload = task.payload.as_ref().map_or("{}", |payload| payload.as_str());
    let mut kept: BTreeMap<String, Value> = serde_json::from_str(payload).unwrap_or_default();
    for shown in ["runId", "appId", "workflowId", "repo", "note"] {
        kept.remove(shown);
    }
    ExportedEntry { schema_version: 1, entry: Entry::of(task), kept }
}

/// Show one entry
///
/// Example: rota queue show run-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowEntry {
    /// The entry
    #[arg(value_name = "id")]
    pub id: EntryId,
}

#[async_trait]
impl Verb for ShowEntry {
    type Payload = Entry;
    const ROUTE: Route = Route::get("queue show", "/entries/{id}");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> =
        Some(Tool::extra("Show an entry", "Show one entry of a queue of runs. Changes nothing."));

    async fn run(self, cx: &Context) -> Result<Entry> {
        let id = self.id.into_inner();
        let shown = cx.store.perform(&Show { call: cx.call(), id: task_id(&id)? }).await;
        match shown {
            Ok((view, _)) => Ok(Entry::of(view.task)),
            Err(crate::Error::Refused(rota_core::Refusal::TaskNotFound { .. })) => Err(not_found(&id).into()),
            Err(other) => Err(other),
        }
    }
}
