//! The one JSON of a task, and the envelope around every payload.

use rota_core::text::{Text, json_escaped};
use rota_core::{Front, Json, LeaseId, Task, TaskId, UnixMillis};
use rota_store::intents::read::TaskView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::indented::indented_json;
use crate::verb::{LeaseSpan, Word};

/// `schemaVersion` at the top, then the payload's own keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload<T> {
    schema_version: u32,
    #[serde(flatten)]
    body: T,
}

impl<T: Serialize> Payload<T> {
    /// Around a body.
    pub fn new(body: T) -> Self {
        Self { schema_version: 1, body }
    }

    /// On one line, for streams of payloads.
    pub fn to_line(&self) -> String {
        let mut text = self.compact();
        text.push('\n');
        text
    }

    /// Two spaces of indentation and a newline at the end, the same bytes on every interface.
    pub fn to_text(&self) -> String {
        indented_json(self)
    }

    fn compact(&self) -> String {
        let text = serde_json::to_string(self);
        json_escaped(text.unwrap_or_else(|error| panic!("a payload is not JSON: {error}")))
    }
}

/// A task as every interface shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct TaskPayload {
    pub id: TaskId,
    pub scope: Text,
    pub queue: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub title: Text,
    pub status: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deps: Vec<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iteration: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<UnixMillis>,
    pub fence: u64,
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_eligible_at: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_reason: Option<String>,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<UnixMillis>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl TaskPayload {
    /// In the words of a front.
    pub fn new(task: Task, deps: Vec<TaskId>, ready_at: Option<UnixMillis>, front: Front) -> Self {
        Self {
            lease_id: task.lease().map(|lease| lease.to_string()),
            status: task.status.word_for(front, task.fence.get() > 0).into(),
            id: task.id,
            scope: task.scope,
            queue: task.queue,
            kind: task.kind,
            title: task.title,
            priority: task.priority,
            category: task.category,
            spec: task.spec_ref,
            reference: task.reference,
            description: task.description,
            steps: task.steps,
            deps,
            parent: task.parent,
            depth: task.depth,
            iteration: task.iteration,
            tries: task.tries,
            assignee: task.assignee,
            lease_expires_at: task.lease_expires_at,
            fence: task.fence.get(),
            attempts: task.attempts,
            next_eligible_at: task.next_eligible_at,
            ready_at,
            result: task.result,
            fail_reason: task.fail_reason,
            parked_reason: task.parked_reason,
            created_at: task.created_at,
            updated_at: task.updated_at,
            started_at: task.started_at,
            finished_at: task.finished_at,
        }
    }

    /// Its lease, while it is held.
    pub fn lease(&self) -> Option<LeaseSpan> {
        let id = LeaseId::parse(self.lease_id.as_deref()?).ok()?;
        let until = self.lease_expires_at?;
        Some(LeaseSpan { id, lasts_ms: until.get().saturating_sub(self.updated_at.get()) })
    }

    /// A task seen through `rota task`.
    pub fn of_view(view: TaskView) -> Self {
        Self::new(view.task, view.deps, view.ready_at, Front::Task)
    }
}

/// A list of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskList {
    /// How many.
    pub total: usize,
    /// In order.
    pub tasks: Vec<TaskPayload>,
}

impl TaskList {
    /// Counts them.
    pub fn new(tasks: Vec<TaskPayload>) -> Self {
        Self { total: tasks.len(), tasks }
    }
}
