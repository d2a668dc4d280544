//! The one JSON of a task, and the envelope around every payload.

use rota_core::{Front, Json, Task, TaskId, UnixMillis};
use rota_store::intents::read::TaskView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Word;

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
        serde_json::to_string(self).unwrap_or_else(|error| panic!("a payload is not JSON: {error}"))
    }
}

/// The JSON of a value of ours, two spaces per level, with a newline at the end.
pub fn indented_json<T: Serialize>(value: &T) -> String {
    let compact =
        serde_json::to_string(value).unwrap_or_else(|error| panic!("a payload is not JSON: {error}"));
    let mut text = indented(&compact);
    text.push('\n');
    text
}

/// Compact JSON with line breaks and two spaces per level. Works on the text, so that results which users gave keep
/// their numbers and their order, and are indented like the rest.
fn indented(compact: &str) -> String {
    let mut text = String::with_capacity(compact.len() * 2);
    let (mut level, mut in_string, mut escaped) = (0_usize, false, false);
    let mut characters = compact.chars().peekable();
    let line_break = |text: &mut String, level: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", level));
    };
    while let Some(character) = characters.next() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            text.push(character);
            continue;
        }
        match character {
            '{' | '[' if matches!(characters.peek(), Some('}' | ']')) => {
                text.push(character);
                text.extend(characters.next());
            }
            '{' | '[' => {
                level += 1;
                text.push(character);
                line_break(&mut text, level);
            }
            '}' | ']' => {
                level = level.saturating_sub(1);
                line_break(&mut text, level);
                text.push(character);
            }
            ',' => {
                text.push(character);
                line_break(&mut text, level);
            }
            ':' => text.push_str(": "),
            other => {
                in_string = other == '"';
                text.push(other);
            }
        }
    }
    text
}

/// A task as every interface shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the task")]
pub struct TaskPayload {
    pub id: TaskId,
    pub scope: String,
    pub queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub title: String,
    pub status: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
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
            scope: task.scope.to_string(),
            queue: task.queue.to_string(),
            kind: task.kind,
            title: task.title.to_string(),
            priority: task.priority,
            category: task.category.map(|text| text.to_string()),
            spec: task.spec_ref,
            reference: task.reference,
            description: task.description.map(|text| text.to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_like_everybody_but_keeps_numbers() {
        let value = serde_json::json!({"a": [1, {"b": "x, {\\\"[", "c": []}], "d": {}, "e": "\\"});
        let wanted = serde_json::to_string_pretty(&value).ok();
        assert_eq!(Some(indented(&value.to_string())), wanted);
        assert_eq!(indented(r#"{"n":1.0e400}"#), "{\n  \"n\": 1.0e400\n}");
    }
}
