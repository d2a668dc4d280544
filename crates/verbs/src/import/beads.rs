//! Beads' JSONL export: one issue per line.

use rota_core::{Refusal, Status, TaskId};
use rota_store::intents::add::{NewPriority, NewTask, Past};
use serde::Deserialize;

use super::record::{Incoming, Place, Record};

/// Kinds of dependency that hold an issue back. A `parent-child` one does not: an epic is closed after its children,
/// where Rota's children wait for their parent.
const BLOCKING: [&str; 3] = ["blocks", "conditional-blocks", "waits-for"];

#[derive(Deserialize)]
struct Dependency {
    depends_on_id: String,
    #[serde(rename = "type", default)]
    kind: Option<String>,
}

pub(super) fn read(text: &str, queue: &str) -> Result<Vec<Incoming>, Refusal> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(number, line)| issue(Record::parse(Place::Line(number + 1), line)?, queue)).collect()
}

fn issue(mut record: Record, queue: &str) -> Result<Incoming, Refusal> {
    let id = record.id("id")?;
    let title = record.required("title")?;
    let word = record.text("status")?.unwrap_or_else(|| "open".to_owned());
    let dependencies: Vec<Dependency> = record.list("dependencies")?;
    let blocking =
        |dependency: &&Dependency| dependency.kind.as_deref().is_none_or(|kind| BLOCKING.contains(&kind));
    let deps = dependencies.iter().filter(blocking);
    let mut deps: Vec<TaskId> =
        deps.map(|dependency| record.task_id(&dependency.depends_on_id)).collect::<Result<_, _>>()?;
    deps.sort();
    deps.dedup();
    let not_before = record.time("defer_until")?;
    let status = match word.as_str() {
        "open" | "in_progress" | "hooked" => Status::Open,
        "blocked" if !deps.is_empty() => Status::Open,
        "deferred" if not_before.is_some() => Status::Open,
        "blocked" | "deferred" | "pinned" => Status::Paused,
        "closed" => Status::Done,
        "tombstone" => Status::Deleted,
        other => {
            let known = "open, in_progress, blocked, deferred, closed, tombstone, pinned, hooked";
            return Err(record
                .place
                .refuse(format_args!("field \"status\" must be one of {known}, got: {other}")));
        }
    };
    let past = Past {
        created_at: record.time("created_at")?,
        finished_at: record.time("closed_at")?,
        ..Past::new(status)
    };
    let new = NewTask {
        priority: record.whole("priority")?.map_or(NewPriority::QueueDefault, NewPriority::Given),
        description: record.text("description")?,
        category: record.name("issue_type")?,
        reference: record.name("external_ref")?,
        deps,
        not_before,
        past: Some(past),
        ..NewTask::new(id, queue, &title)
    };
    let (place, was_held) = (record.place.clone(), ["in_progress", "hooked"].contains(&word.as_str()));
    // What has no place of its own is kept, with the kinds of dependency that hold nothing back.
    record.keep(
        "dependencies",
        dependencies.iter().filter(|dependency| !blocking(dependency)).map(|dependency| {
            (dependency.depends_on_id.clone(), dependency.kind.clone().unwrap_or_default())
        }),
    );
    Ok(Incoming { place, new: NewTask { payload: record.rest(), ..new }, was_held })
}
