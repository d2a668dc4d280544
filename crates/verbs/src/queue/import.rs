//! `rota queue import`: a `queue.json` of any age, whole or not at all.

use std::path::PathBuf;

use async_trait::async_trait;
use rota_core::{Fence, Json, LeaseId, Refusal, Status};
use rota_store::intents::add::{NewPriority, NewTask, Past};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ListedEntry, runs};
use crate::Result;
use crate::context::{Context, bad_value};
use crate::import::bring_in;
use crate::import::record::{Incoming, Place, Record, check};
use crate::input::QueueName;
use crate::verb::{ErrorStyle, Route, Verb};

/// Take in a queue.json: all of it, or nothing
///
/// Example: rota queue import queue.json --dry-run
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportEntries {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: String,
    /// The text of the file
    #[arg(skip)]
    pub text: String,
    /// Show what would come in and keep nothing
    #[arg(long)]
    #[serde(default)]
    pub dry_run: bool,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ImportEntries {
    type Payload = ImportedEntries;
    const ROUTE: Route = Route::post("queue import", "/queues/{queue}/import");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;

    /// In one transaction.
    async fn run(self, cx: &Context) -> Result<ImportedEntries> {
        let incoming = read_entries(&self.text, &self.queue.into_inner())?;
        check(&incoming)?;
        let leased = incoming.iter().filter(|entry| entry.was_held).map(|entry| entry.new.id.to_string());
        let (leased, dry_run) = (leased.collect(), self.dry_run);
        let added = bring_in(cx, incoming, dry_run).await?;
        let entries: Vec<ListedEntry> = added.into_iter().map(|(task, _)| ListedEntry::of(task)).collect();
        Ok(ImportedEntries { file: self.file.into(), dry_run, total: entries.len(), entries, leased })
    }
}

/// What came in, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedEntries {
    /// From which file.
    pub file: PathBuf,
    /// Whether nothing was kept.
    pub dry_run: bool,
    /// How many.
    pub total: usize,
    /// In the order of the file.
    pub entries: Vec<ListedEntry>,
    /// Those that were leased: they come in as ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leased: Vec<String>,
}

fn read_entries(text: &str, queue: &str) -> std::result::Result<Vec<Incoming>, Refusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct File {
        schema_version: Option<u32>,
        entries: Vec<Json>,
    }
    let file: File =
        serde_json::from_str(text).map_err(|error| bad_value(format!("no queue.json: {error}")))?;
    if let Some(version) = file.schema_version.filter(|version| *version != 1) {
        return Err(bad_value(format!("schemaVersion is {version}, this rota reads 1")));
    }
    let entry = |(number, entry): (usize, &Json)| {
        read_entry(Record::parse(Place::At(format!("entries[{number}]")), entry.as_str())?, queue)
    };
    file.entries.iter().enumerate().map(entry).collect()
}

fn read_entry(mut record: Record, queue: &str) -> std::result::Result<Incoming, Refusal> {
    let id = record.id("id")?;
    let word = record.text("status")?.unwrap_or_else(|| "pending".to_owned());
    let status = match word.as_str() {
        "pending" | "ready" | "leased" => Status::Open,
        "drained" => Status::Done,
        same => Status::from_word(same)
            .filter(|status| same != "open" && *status != Status::Active && *status != Status::Done)
            .ok_or_else(|| {
                let known = "pending, ready, leased, parked, drained, paused, failed, invalidated, deleted";
                record.place.refuse(format_args!("field \"status\" must be one of {known}, got: {same}"))
            })?,
    };
    let attempts = record.whole("attempts")?.unwrap_or(0);
    // A lease of an earlier life is never granted again.
    let lease = record.text("leaseId")?.and_then(|text| LeaseId::parse(&text).ok());
    let lease = lease.filter(|lease| lease.task == id).map_or(0, |lease| lease.fence.get());
    let was_leased = word != "pending" || attempts > 0;
    record.time("leaseExpiresAt")?;
    let past = Past {
        created_at: record.time("enqueuedAt")?,
        finished_at: record.time("drainedAt")?,
        attempts,
        fence: Fence::new(lease.max(u64::from(attempts)).max(u64::from(was_leased))),
        parked_reason: record.text("parkedReason")?,
        ..Past::new(status)
    };
    let not_before = record.time("nextEligibleAt")?;
    let priority = record.whole("priority")?.map_or(NewPriority::QueueDefault, NewPriority::Given);
    let place = record.place.clone();
    let title = [
        record.peek_text("note")?,
        record.peek_text("appId")?,
        record.peek_text("workflowId")?,
        record.peek_text("runId")?,
    ];
    let title = title.into_iter().flatten().next().unwrap_or_else(|| id.to_string());
    record.peek_text("repo")?;
    let kind = record.peek_text("appId")?;
    let new = NewTask {
        kind,
        priority,
        not_before,
        payload: record.rest(),
        past: Some(past),
        ..NewTask::new(id, queue, &title)
    };
    Ok(Incoming { place, new, was_held: word == "leased" })
}
