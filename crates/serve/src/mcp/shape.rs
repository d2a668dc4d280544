//! What tools answer, as JSON Schemas. Clients check every answer against them, so they are as open as the payloads:
//! more keys may come.

use serde_json::{Map, Value, json};

/// An object and its keys.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl Shape {
    /// A payload: every one has its version.
    fn payload() -> Self {
        Self::default().always(["schemaVersion"], &whole())
    }

    fn always<const N: usize>(mut self, names: [&str; N], kind: &Value) -> Self {
        self.required.extend(names.map(Value::from));
        self.maybe(names, kind)
    }

    fn maybe<const N: usize>(mut self, names: [&str; N], kind: &Value) -> Self {
        self.properties.extend(names.map(|name| (name.to_owned(), kind.clone())));
        self
    }

    /// As a schema.
    pub fn schema(self) -> Map<String, Value> {
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), self.properties.into());
        schema.insert("required".into(), self.required.into());
        schema
    }
}

fn text() -> Value {
    json!({"type": "string"})
}

fn whole() -> Value {
    json!({"type": "integer"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// What a user gave; the verbs take only objects.
fn any_object() -> Value {
    json!({"type": "object"})
}

fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

fn object(shape: Shape) -> Value {
    Value::Object(shape.schema())
}

fn with_task_fields(shape: Shape) -> Shape {
    shape
        .always(["id", "scope", "queue", "title", "status"], &text())
        .always(["fence", "attempts"], &whole())
        .always(["createdAt", "updatedAt"], &time())
        .maybe(["kind", "category", "spec", "ref", "description", "parent", "assignee", "leaseId"], &text())
        .maybe(["failReason", "parkedReason"], &text())
        .maybe(["priority", "depth", "iteration", "tries"], &whole())
        .maybe(["leaseExpiresAt", "nextEligibleAt", "readyAt", "startedAt", "finishedAt"], &time())
        .maybe(["steps", "deps"], &list(text()))
        .maybe(["result"], &any_object())
}

/// One task.
pub fn task() -> Shape {
    with_task_fields(Shape::payload())
}

/// Tasks in order.
pub fn tasks() -> Shape {
    let task = object(with_task_fields(Shape::default()));
    Shape::payload().always(["total"], &whole()).always(["tasks"], &list(task))
}

/// A granted task with what its blockers left behind.
pub fn claimed() -> Shape {
    with_blocker_results(task())
}

fn with_blocker_results(shape: Shape) -> Shape {
    let result = object(Shape::default().always(["id"], &text()).always(["result"], &any_object()));
    shape.maybe(["blockerResults"], &list(result))
}

/// A finished task, and the task that was claimed with it.
pub fn finished() -> Shape {
    let next = with_blocker_results(with_task_fields(Shape::default()));
    task().maybe(["next"], &object(next))
}

/// A task and its blockers.
pub fn shown() -> Shape {
    let blocker =
        Shape::default().always(["id", "status", "title"], &text()).maybe(["result"], &any_object());
    task().maybe(["blockers"], &list(object(blocker)))
}

/// What a plan changed.
pub fn synced() -> Shape {
    let counts = ["inserted", "updated", "deleted", "skippedDone"];
    Shape::payload().always(counts, &whole()).maybe(["unknownKeys"], &list(text()))
}

/// Why a task runs, or not.
pub fn explanation() -> Shape {
    let check = Shape::default()
        .always(["check"], &text())
        .always(["ok"], &flag())
        .maybe(["detail"], &text())
        .maybe(["endsAt"], &time());
    let reason = Shape::default().always(["reason"], &text());
    let term = Shape::default().always(["name"], &text()).always(["value"], &whole());
    let score = Shape::default().always(["total"], &whole()).always(["terms"], &list(object(term)));
    Shape::payload()
        .always(["id", "queue", "status"], &text())
        .always(["runnable"], &flag())
        .always(["checks"], &list(object(check)))
        .always(["obstacles", "waits"], &list(object(reason)))
        .maybe(["score"], &object(score))
        .maybe(["position"], &whole())
        .maybe(["ahead"], &list(text()))
        .maybe(["freedBy"], &text())
        .maybe(["earliest"], &time())
}

fn with_entry_fields(shape: Shape) -> Shape {
    shape
        .always(["id", "repo", "status"], &text())
        .always(["priority", "attempts"], &whole())
        .always(["enqueuedAt"], &time())
        .maybe(["runId", "appId", "workflowId", "note", "leaseId", "parkedReason"], &text())
        .maybe(["leaseExpiresAt", "nextEligibleAt", "drainedAt"], &time())
}

/// One entry of a queue.
pub fn entry() -> Shape {
    with_entry_fields(Shape::payload())
}

/// Entries in order.
pub fn entries() -> Shape {
    Shape::payload().always(["total"], &whole()).always(["entries"], &list(object(entry())))
}

/// What was drained.
pub fn drained() -> Shape {
    Shape::payload().always(["drained"], &list(object(entry()))).always(["remaining"], &whole())
}

fn lease() -> Value {
    let shape = Shape::default()
        .always(["id", "leaseId"], &text())
        .always(["attempts", "priority"], &whole())
        .maybe(["leaseExpiresAt"], &time());
    object(shape)
}

/// What would be granted.
pub fn plan() -> Shape {
    let skipped = Shape::default().always(["id", "reason"], &text());
    Shape::payload()
        .always(["now"], &time())
        .always(["inFlight"], &whole())
        .maybe(["maxConcurrent", "available", "skippedTotal"], &whole())
        .always(["leases"], &list(lease()))
        .always(["skipped"], &list(object(skipped)))
}

/// What was granted.
pub fn leases() -> Shape {
    Shape::payload().always(["now"], &time()).always(["granted"], &whole()).always(["leases"], &list(lease()))
}

/// A renewed lease.
pub fn renewed() -> Shape {
    Shape::payload().always(["renewed"], &text()).maybe(["leaseExpiresAt"], &time())
}

/// A completed lease.
pub fn completed() -> Shape {
    Shape::payload().always(["completed"], &text())
}

/// A released lease.
pub fn released() -> Shape {
    Shape::payload().always(["released"], &text()).always(["failed"], &flag())
}

/// Leases that were taken back.
pub fn reclaimed() -> Shape {
    Shape::payload().always(["now"], &time()).always(["reclaimed"], &list(text()))
}

/// An entry that was reset.
pub fn reset() -> Shape {
    Shape::payload().always(["reset"], &text())
}

/// The rules of queue `runs`.
pub fn policy() -> Shape {
    let rules = Shape::default()
        .always(["leaseTtlMs"], &whole())
        .maybe(["maxConcurrent", "maxAttempts", "backoffBaseMs", "backoffCapMs"], &whole())
        .maybe(["backoffFactor"], &json!({"type": "number"}));
    Shape::payload().always(["policy"], &object(rules)).always(["source"], &text())
}
