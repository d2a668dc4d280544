//! `rota queue`: entries of a queue of runs.

mod add;
mod drain;
mod import;
mod list;
mod pause;

pub use add::AddEntry;
pub use drain::{DrainEntries, DrainedEntries};
pub use import::{ImportEntries, ImportedEntries};
pub use list::{Entries, ExportEntries, ExportedEntries, ListEntries, ShowEntry};
pub use pause::{PauseQueue, QueueState, ResumeQueue};

use rota_core::{Front, Json, Refusal, Task, UnixMillis};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Word;
use crate::input::QueueName;

/// The queue of `rota task`, unless another is named.
pub(crate) fn tasks() -> QueueName {
    QueueName::known("tasks")
}

/// The queue of `rota queue` and `rota sched`, unless another is named.
pub(crate) fn runs() -> QueueName {
    QueueName::known("runs")
}

/// The refusal for an id that names no entry.
pub(crate) fn not_found(id: &str) -> Refusal {
    Refusal::EntryNotFound { problem: format!("Queue entry not found: {id}") }
}

/// What an entry keeps beside the task's own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct EntryFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    #[serde(default)]
    pub repo: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An entry as every interface shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Entry {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    pub repo: String,
    pub priority: u32,
    pub enqueued_at: UnixMillis,
    pub status: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_eligible_at: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<UnixMillis>,
}

/// An entry inside of a list, which has a version of its own as in a `queue.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedEntry {
    schema_version: u32,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}

impl ListedEntry {
    /// A task in the words of a queue.
    pub fn of(task: Task) -> Self {
        Self { schema_version: 1, entry: Entry::of(task) }
    }
}

impl Entry {
    /// A task in the words of a queue.
    pub fn of(task: Task) -> Self {
        let fields = task.payload.as_ref().map(Json::as_str);
        let fields: EntryFields = fields.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let drained = task.status == rota_core::Status::Done;
        Self {
            status: task.status.word_for(Front::Sched, task.fence.get() > 0).into(),
            lease_id: task.lease().map(|lease| lease.to_string()),
            priority: task.sort_priority(),
            drained_at: task.finished_at.filter(|_| drained),
            id: task.id.to_string(),
            run_id: fields.run_id,
            app_id: fields.app_id,
            workflow_id: fields.workflow_id,
            repo: fields.repo,
            enqueued_at: task.created_at,
            note: fields.note,
            attempts: task.attempts,
            lease_expires_at: task.lease_expires_at,
            next_eligible_at: task.next_eligible_at,
            parked_reason: task.parked_reason,
        }
    }
}
