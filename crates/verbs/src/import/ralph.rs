//! Ralph's `tasks.db`: its tasks of one repository and branch.

use std::collections::{BTreeMap, BTreeSet};

use rota_core::{Fence, Json, Refusal, Status, TaskId, UnixMillis};
use rota_store::intents::add::{NewPriority, NewTask, Past};
use rota_store::sqlite::RalphDatabase;

use super::record::{Incoming, Place, Record};
use crate::context::bad_value;

type Row = BTreeMap<&'static str, String>;

/// `repo@branch`, where the database has them.
fn scope_of(row: &Row) -> Option<String> {
    Some(format!("{}@{}", row.get("scope_repo")?, row.get("scope_branch")?))
}

pub(super) fn read(
    database: &RalphDatabase,
    queue: &str,
    only: Option<&str>,
) -> Result<Vec<Incoming>, Refusal> {
    let scopes: BTreeSet<String> = database.tasks.iter().filter_map(scope_of).collect();
    let listed = scopes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let wanted = match only {
        Some(only) if scopes.contains(only) => Some(only.to_owned()),
        Some(only) => return Err(bad_value(format!("no tasks of '{only}' (known: {listed})"))),
        None if scopes.len() > 1 => {
            return Err(bad_value(format!("tasks of several branches: name one with --only ({listed})")));
        }
        None => None,
    };
    let rows: Vec<&Row> =
        database.tasks.iter().filter(|row| wanted.is_none() || scope_of(row) == wanted).collect();
    let names: BTreeMap<&str, &str> =
        rows.iter().filter_map(|row| Some((row.get("id")?.as_str(), name(row)?))).collect();
    rows.iter().map(|row| task(row, &names, database, queue)).collect()
}

/// Newer databases have a slug, which is what users call the task; older ones only the id.
fn name(row: &Row) -> Option<&str> {
    row.get("slug").or_else(|| row.get("id")).map(String::as_str)
}

fn task(
    row: &Row,
    names: &BTreeMap<&str, &str>,
    database: &RalphDatabase,
    queue: &str,
) -> Result<Incoming, Refusal> {
    let key = row.get("id").map_or("", String::as_str);
    let mut record = Record::of_texts(Place::At(format!("task '{}'", name(row).unwrap_or_default())), row);
    let id = record.task_id(name(row).unwrap_or_default())?;
    let word = record.required("status")?;
    let status = match word.as_str() {
        "open" | "active" => Status::Open,
        "done" => Status::Done,
        "deleted" => Status::Deleted,
        other => {
            let known = "open, active, done, deleted";
            return Err(record
                .place
                .refuse(format_args!("field \"status\" must be one of {known}, got: {other}")));
        }
    };
    let attempts = number(&mut record, "retry_count")?.unwrap_or(0);
    let was_held = word == "active";
    let past = Past {
        created_at: stamp(&mut record, "created_at")?,
        finished_at: stamp(&mut record, "updated_at")?,
        attempts,
        fence: Fence::new(u64::from(attempts) + u64::from(was_held)),
        result: inner_json(&mut record, "result")?,
        fail_reason: record.text("fail_reason")?,
        ..Past::new(status)
    };
    let steps = match inner_json(&mut record, "steps")? {
        Some(steps) => serde_json::from_str(steps.as_str())
            .map_err(|_| record.place.refuse("field \"steps\" must be a list of texts"))?,
        None => Vec::new(),
    };
    let new = NewTask {
        priority: number(&mut record, "priority")?.map_or(NewPriority::QueueDefault, NewPriority::Given),
        description: record.text("description")?,
        category: record.name("category")?,
        spec_ref: record.name("spec_ref")?,
        reference: record.name("ref")?,
        steps,
        deps: deps(&record, key, names, database)?,
        past: Some(past),
        ..NewTask::new(id, queue, &record.required("title")?)
    };
    Ok(Incoming { place: record.place, new, was_held })
}

fn deps(
    record: &Record,
    key: &str,
    names: &BTreeMap<&str, &str>,
    database: &RalphDatabase,
) -> Result<Vec<TaskId>, Refusal> {
    let own = database.deps.iter().filter(|(task, _)| task == key);
    own.map(|(_, blocker)| match names.get(blocker.as_str()) {
        Some(name) => record.task_id(name),
        None => Err(record.place.refuse(format_args!("is blocked by '{blocker}', which is not there"))),
    })
    .collect()
}

/// A number in a column of text.
fn number(record: &mut Record, key: &str) -> Result<Option<u32>, Refusal> {
    let Some(text) = record.text(key)? else { return Ok(None) };
    let wrong =
        |_| record.place.refuse(format_args!("field \"{key}\" must be a non-negative integer, got: {text}"));
    text.parse().map(Some).map_err(wrong)
}

/// SQLite writes `2026-01-01 00:00:00` and means UTC.
fn stamp(record: &mut Record, key: &str) -> Result<Option<UnixMillis>, Refusal> {
    let Some(text) = record.text(key)? else { return Ok(None) };
    let plain = format!("{}Z", text.replacen(' ', "T", 1));
    let read = text.parse::<UnixMillis>().or_else(|error| plain.parse().map_err(|_| error));
    read.map(Some).map_err(|error| record.place.refuse(format_args!("field \"{key}\": {error}")))
}

/// JSON in a column of text.
fn inner_json(record: &mut Record, key: &str) -> Result<Option<Json>, Refusal> {
    let Some(text) = record.text(key)? else { return Ok(None) };
    let wrong = |error| record.place.refuse(format_args!("field \"{key}\" is not JSON: {error}"));
    Json::parse(&text).map(Some).map_err(wrong)
}
