//! `import` of what people have: Ralph's `tasks.db`, Beads' JSONL export, Task Master's `tasks.json`. All of it in one
//! transaction, or nothing and the record that is wrong. A dry run does the same and undoes it.

mod beads;
mod ralph;
pub(crate) mod record;
mod taskmaster;

use std::path::{Path, PathBuf};

use rota_core::{Refusal, TaskId};
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::rehearse::Rehearse;
use rota_store::sqlite::{Foreign, look_into};
use rota_store::{Fault, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, bad_value};
use crate::input::QueueName;
use record::Incoming;

/// Whose file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the variants are the programs")]
pub enum Format {
    Rota,
    Ralph,
    Beads,
    TaskMaster,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rota, Self::Ralph, Self::Beads, Self::TaskMaster];

    /// The word of `--from`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rota => "rota",
            Self::Ralph => "ralph",
            Self::Beads => "beads",
            Self::TaskMaster => "taskmaster",
        }
    }

    /// Reads the word of `--from`.
    pub fn from_word(word: &str) -> Result<Self> {
        let known = Self::ALL.map(Self::word);
        let found = Self::ALL.into_iter().find(|format| format.word() == word);
        let shown = rota_core::text::escaped(word);
        let problem = format!("unknown format '{shown}' for --from (known: {})", known.join(", "));
        found.ok_or_else(|| bad_value(problem).into())
    }

    /// Whose a file is, by how it begins and what it holds.
    pub fn of(file: &Path) -> Result<Self> {
        let bytes = read(file)?;
        if bytes.starts_with(b"SQLite format 3\0") {
            return Ok(Self::Ralph);
        }
        let text = String::from_utf8_lossy(&bytes);
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let has = |line: &str, key: &str| rota_core::Json::parse(line).is_ok_and(|json| json.has_key(key));
        if has(first, "export") {
            return Ok(Self::Rota);
        }
        if has(first, "id") && has(first, "title") {
            return Ok(Self::Beads);
        }
        if taskmaster::tags(&text).is_some() {
            return Ok(Self::TaskMaster);
        }
        let known = Self::ALL.map(Self::word).join(", ");
        let name = file.display();
        let problem = if has(&text, "entries") {
            format!("{name} is a run queue: use `rota queue import {name}`")
        } else {
            format!("{name} is nothing that can be recognised: name what it is with --from ({known})")
        };
        Err(bad_value(problem).into())
    }
}

/// What to take in, and how.
#[derive(Clone, Debug)]
pub struct ImportForeign {
    /// Where from.
    pub file: PathBuf,
    /// Whose it is.
    pub format: Format,
    /// Into which queue.
    pub queue: String,
    /// Only this tag, or this `repo@branch`.
    pub only: Option<String>,
    /// Show what would come in, and keep nothing.
    pub dry_run: bool,
}

/// What came in, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// From which file.
    pub file: PathBuf,
    /// Whose it was.
    pub format: Format,
    /// Whether nothing was kept.
    pub dry_run: bool,
    /// How many tasks.
    pub total: usize,
    /// How many edges between them.
    pub edges: usize,
    /// Each of them, in the order they came in.
    pub tasks: Vec<ImportedTask>,
    /// Those that somebody was at: they come in as open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<TaskId>,
}

/// One task that came in, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of a task")]
pub struct ImportedTask {
    pub id: TaskId,
    pub title: String,
    pub status: rota_core::Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deps: Vec<TaskId>,
}

/// Takes a file in.
pub async fn import_foreign(cx: &Context, input: ImportForeign) -> Result<Imported> {
    let queue = input.queue.parse::<QueueName>()?.into_inner();
    let only = input.only.as_deref();
    let incoming = match input.format {
        Format::Ralph => match look_into(&input.file)? {
            Foreign::Ralph(database) => ralph::read(&database, &queue, only)?,
            Foreign::Rota => {
                let file = input.file.display();
                return Err(bad_value(format!(
                    "{file} is a store of Rota: use it with --store sqlite:{file}"
                ))
                .into());
            }
            Foreign::Unknown => {
                return Err(bad_value(format!("{} is no tasks.db of Ralph", input.file.display())).into());
            }
        },
        Format::Beads => beads::read(&text(&input.file)?, &queue)?,
        Format::TaskMaster => taskmaster::read(&text(&input.file)?, &queue, only)?,
        Format::Rota => return Err(bad_value("an export of Rota is no foreign file".into()).into()),
    };
    record::check(&incoming)?;
    let held = incoming.iter().filter(|incoming| incoming.was_held).map(|incoming| incoming.new.id.clone());
    let held = held.collect();
    let added = bring_in(cx, incoming, input.dry_run).await?;
    let tasks: Vec<ImportedTask> = added
        .into_iter()
        .map(|(task, deps)| ImportedTask {
            id: task.id,
            title: task.title.to_string(),
            status: task.status,
            priority: task.priority,
            deps,
        })
        .collect();
    let edges = tasks.iter().map(|task| task.deps.len()).sum();
    let ImportForeign { file, format, dry_run, .. } = input;
    Ok(Imported { file, format, dry_run, total: tasks.len(), edges, tasks, held })
}

/// Adds everything in one transaction; a dry run undoes it.
pub(crate) async fn bring_in(
    cx: &Context,
    incoming: Vec<Incoming>,
    dry_run: bool,
) -> Result<Vec<(rota_core::Task, Vec<TaskId>)>> {
    let tasks: Vec<NewTask> = incoming.into_iter().map(|incoming| incoming.new).collect();
    let deps: Vec<Vec<TaskId>> = tasks.iter().map(|new| new.deps.clone()).collect();
    let add = Add { call: cx.call(), tasks };
    let added =
        if dry_run { cx.store.perform(&Rehearse(&add)).await? } else { cx.store.perform(&add).await? };
    Ok(added.into_iter().zip(deps).collect())
}

pub(crate) fn read(file: &Path) -> std::result::Result<Vec<u8>, Fault> {
    std::fs::read(file).map_err(|source| Fault::Io { path: file.to_owned(), source })
}

/// A file as text; a byte that is none is no reason to guess.
/// The text of a file.
pub fn text(file: &Path) -> Result<String> {
    let bytes = read(file)?;
    let text = String::from_utf8(bytes);
    text.map_err(|error| Refusal::BadValue { problem: format!("{}: {error}", file.display()) }.into())
}
