//! Task Master's `tasks.json`: lists of tasks under tags, or one list of old.
//!
//! A task with subtasks is finished after them, so it waits for them; they wait for what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use rota_core::{Json, Refusal, Status};
use rota_store::intents::add::{NewPriority, NewTask, Past};
use serde::Deserialize;

use super::record::{Incoming, Place, Record};
use crate::context::bad_value;

/// The tag that everybody has; its tasks keep their bare ids.
const MAIN_TAG: &str = "master";

/// Numbers and texts are both in use.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
}

impl Id {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The tags of a document with their tasks; none if it is something else.
pub(super) fn tags(text: &str) -> Option<BTreeMap<String, Vec<Json>>> {
    #[derive(Deserialize)]
    struct Tag {
        tasks: Vec<Json>,
    }
    if let Ok(Tag { tasks }) = serde_json::from_str(text) {
        return Some([(MAIN_TAG.to_owned(), tasks)].into());
    }
    let tags: BTreeMap<String, Tag> = serde_json::from_str(text).ok()?;
    (!tags.is_empty()).then(|| tags.into_iter().map(|(name, tag)| (name, tag.tasks)).collect())
}

pub(super) fn read(text: &str, queue: &str, only: Option<&str>) -> Result<Vec<Incoming>, Refusal> {
    if let Err(error) = serde_json::from_str::<Json>(text) {
        return Err(bad_value(format!("not JSON: {error}")));
    }
    let tags = tags(text).ok_or_else(|| {
        bad_value("no tasks.json of Task Master: expected \"tasks\", or tags with \"tasks\" each".into())
    })?;
    if let Some(only) = only.filter(|only| !tags.contains_key(*only)) {
        let known: Vec<&str> = tags.keys().map(String::as_str).collect();
        return Err(bad_value(format!("no tag '{only}' (known: {})", known.join(", "))));
    }
    let mut incoming = Vec::new();
    for (tag, tasks) in tags.iter().filter(|(tag, _)| only.is_none_or(|only| only == *tag)) {
        for (number, task) in tasks.iter().enumerate() {
            let place = Place::At(format!("{tag}.tasks[{number}]"));
            read_task(&mut incoming, &Surroundings { tag, queue, above: None }, place, task)?;
        }
    }
    Ok(incoming)
}

/// What a task stands in.
struct Surroundings<'a> {
    tag: &'a str,
    queue: &'a str,
    /// The task above a subtask.
    above: Option<Above<'a>>,
}

struct Above<'a> {
    id: &'a str,
    siblings: &'a BTreeSet<String>,
    deps: &'a [String],
}

impl Surroundings<'_> {
    /// A full id as Rota has it.
    fn named(&self, id: &str) -> String {
        if self.tag == MAIN_TAG { id.to_owned() } else { format!("{}/{id}", self.tag) }
    }

    /// What a dependency means here: among subtasks a bare number is a sibling, if there is one.
    fn dependency(&self, given: &Id) -> String {
        let text = given.text();
        match &self.above {
            Some(above) if above.siblings.contains(&text) => format!("{}.{text}", above.id),
            _ => text,
        }
    }
}

fn read_task(
    into: &mut Vec<Incoming>,
    here: &Surroundings<'_>,
    place: Place,
    task: &Json,
) -> Result<(), Refusal> {
    let mut record = Record::parse(place, task.as_str())?;
    let own = record.one::<Id>("id")?.map(|id| id.text());
    let own = own.ok_or_else(|| record.place.refuse("field \"id\" is missing or empty"))?;
    let own = here.above.as_ref().map_or_else(|| own.clone(), |above| format!("{}.{own}", above.id));
    let mut deps: Vec<String> =
        record.list::<Id>("dependencies")?.iter().map(|dep| here.dependency(dep)).collect();
    deps.extend(here.above.iter().flat_map(|above| above.deps.iter().cloned()));
    deps.sort();
    deps.dedup();
    let subtasks: Vec<Json> = record.list("subtasks")?;
    let place = record.place.clone();
    let siblings = subtask_ids(&place, &subtasks)?;
    let above = Above { id: &own, siblings: &siblings, deps: &deps };
    let below = Surroundings { above: Some(above), ..*here };
    for (number, subtask) in subtasks.iter().enumerate() {
        read_task(into, &below, Place::At(format!("{place}.subtasks[{number}]")), subtask)?;
    }
    let children = siblings.iter().map(|id| format!("{own}.{id}"));
    let all: Vec<String> = deps.iter().cloned().chain(children).collect();
    into.push(one(record, here, &own, &all)?);
    Ok(())
}

fn subtask_ids(place: &Place, subtasks: &[Json]) -> Result<BTreeSet<String>, Refusal> {
    #[derive(Deserialize)]
    struct Named {
        id: Id,
    }
    let id = |(number, subtask): (usize, &Json)| match serde_json::from_str::<Named>(subtask.as_str()) {
        Ok(named) => Ok(named.id.text()),
        Err(error) => Err(place.refuse(format_args!("subtasks[{number}]: {error}"))),
    };
    subtasks.iter().enumerate().map(id).collect()
}

fn one(mut record: Record, here: &Surroundings<'_>, own: &str, deps: &[String]) -> Result<Incoming, Refusal> {
    let title = record.required("title")?;
    let word = record.text("status")?.unwrap_or_else(|| "pending".to_owned());
    let status = match word.as_str() {
        "pending" | "in-progress" => Status::Open,
        "blocked" if !deps.is_empty() => Status::Open,
        "blocked" | "deferred" | "review" => Status::Paused,
        "done" | "completed" => Status::Done,
        "cancelled" => Status::Deleted,
        other => {
            let known = "pending, in-progress, review, done, blocked, deferred, cancelled";
            return Err(record
                .place
                .refuse(format_args!("field \"status\" must be one of {known}, got: {other}")));
        }
    };
    let priority = match record.text("priority")?.as_deref() {
        Some("critical") => NewPriority::Given(0),
        Some("high") => NewPriority::Given(1),
        Some("medium") => NewPriority::Given(2),
        Some("low") => NewPriority::Given(3),
        None => NewPriority::QueueDefault,
        Some(other) => {
            let known = "critical, high, medium, low";
            return Err(record
                .place
                .refuse(format_args!("field \"priority\" must be one of {known}, got: {other}")));
        }
    };
    let parts = [record.text("description")?, record.text("details")?, record.text("testStrategy")?];
    let description = parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    let id = record.task_id(&here.named(own))?;
    let deps = deps.iter().map(|dep| record.task_id(&here.named(dep))).collect::<Result<_, _>>()?;
    let new = NewTask {
        priority,
        description: Some(description).filter(|text| !text.is_empty()),
        category: Some(here.tag.to_owned()),
        deps,
        past: Some(Past::new(status)),
        ..NewTask::new(id, here.queue, &title)
    };
    let (place, was_held) = (record.place.clone(), word == "in-progress");
    Ok(Incoming { place, new: NewTask { payload: record.rest(), ..new }, was_held })
}
