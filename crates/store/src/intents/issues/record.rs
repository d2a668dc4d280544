//! What is kept per tracker: the pin of the governance files, and the next number of local issues. It is a task that
//! never runs, in a queue of its own, so that it is shown, journalled and moved like everything else.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::{Fence, Json, Status, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::{Note, QUEUE, with_reason};
use crate::fault::{Fault, Outcome};
use crate::intents::add::{NewTask, Past, add_all};
use crate::intents::{Call, Cx, find_task, write};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Row, Tx};

/// Where records are.
const RECORDS: &str = "supervisor";

/// What is kept per tracker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The governance files and their SHA-256, once they were pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<BTreeMap<String, String>>,
    /// Violations so far.
    pub violations: u64,
    /// Local issues so far.
    pub issues: u64,
}

impl Record {
    /// The task that keeps it.
    pub fn id(source: &str) -> TaskId {
        TaskId::from_stored(format!("supervisor/{source}").into())
    }

    fn of(task: &Task) -> Result<Self, Fault> {
        let Some(payload) = &task.payload else { return Ok(Self::default()) };
        serde_json::from_str(payload.as_str())
            .map_err(|error| Fault::Unreadable { problem: format!("payload of task '{}': {error}", task.id) })
    }
}

async fn find_or_add<T: Tx>(tx: &mut T, cx: &Cx, source: &str) -> Outcome<(Row, Record)> {
    let id = Record::id(source);
    if let Some(row) = tx.task(&cx.scope, &id).await? {
        let record = Record::of(&row.task)?;
        return Ok((row, record));
    }
    let past = Past { fence: Fence::NONE, ..Past::new(Status::Paused) };
    let task = NewTask {
        past: Some(past),
        spec_ref: Some(source.to_owned()),
        ..NewTask::new(id.clone(), RECORDS, &format!("What the supervisor of {source} keeps"))
    };
    add_all(tx, cx, &[task]).await?;
    Ok((find_task(tx, cx, &id).await?, Record::default()))
}

async fn save<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: &Row,
    record: &Record,
    (kind, reason): (EventKind, String),
) -> Outcome<()> {
    let mut next = row.task.clone();
    next.payload = Some(Json::of(record));
    write::save(tx, cx, row, with_reason(kind, next, reason)).await?;
    Ok(())
}

/// The record of a tracker, if there is one.
#[derive(Clone, Debug)]
pub struct ReadRecord {
    /// Where, when, who.
    pub call: Call,
    /// Which tracker.
    pub source: String,
}

#[async_trait]
impl Intent for ReadRecord {
    type Output = Option<Record>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Option<Record>> {
        let row = tx.tasks(&self.call.scope, &[Record::id(&self.source)]).await?.pop();
        Ok(row.map(|row| Record::of(&row.task)).transpose()?)
    }
}

/// Pins the governance files. Returns the pin in force and whether this one is it.
#[derive(Clone, Debug)]
pub struct PinGovernance {
    /// Where, when, who.
    pub call: Call,
    /// Which tracker.
    pub source: String,
    /// The files and their SHA-256.
    pub files: BTreeMap<String, String>,
    /// Whether a pin that is there stays.
    pub only_first: bool,
}

#[async_trait]
impl Intent for PinGovernance {
    type Output = BTreeMap<String, String>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<BTreeMap<String, String>> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let (row, record) = find_or_add(tx, &cx, &self.source).await?;
        match record.pin {
            Some(pin) if self.only_first => return Ok(pin),
            _ => {}
        }
        let words = if self.only_first { "the first start" } else { "rota supervise pin" };
        let record = Record { pin: Some(self.files.clone()), ..record };
        save(tx, &cx, &row, &record, (EventKind::Pinned, words.to_owned())).await?;
        Ok(self.files.clone())
    }
}

/// Notes a violation of governance in the journal.
#[derive(Clone, Debug)]
pub struct NoteViolation {
    /// Where, when, who.
    pub call: Call,
    /// Which tracker.
    pub source: String,
    /// What was violated, and how.
    pub message: String,
}

#[async_trait]
impl Intent for NoteViolation {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let (row, record) = find_or_add(tx, &cx, &self.source).await?;
        let record = Record { violations: record.violations + 1, ..record };
        save(tx, &cx, &row, &record, (EventKind::Violated, self.message.clone())).await
    }
}

/// Adds an issue to the local tracker, under the next number.
#[derive(Clone, Debug)]
pub struct AddLocalIssue {
    /// Where, when, who.
    pub call: Call,
    /// The tracker's name.
    pub source: String,
    /// One line.
    pub title: String,
    /// The text.
    pub body: Option<String>,
    /// Its labels.
    pub labels: Vec<String>,
}

#[async_trait]
impl Intent for AddLocalIssue {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let (row, record) = find_or_add(tx, &cx, &self.source).await?;
        let number = record.issues + 1;
        let record = Record { issues: number, ..record };
        save(tx, &cx, &row, &record, (EventKind::Edited, format!("issue #{number} was added"))).await?;
        let note = Note { number, labels: self.labels.clone(), ..Note::default() };
        let task = NewTask {
            description: self.body.clone(),
            spec_ref: Some(self.source.clone()),
            payload: Some(Json::of(&note)),
            ..NewTask::new(local_issue(number), QUEUE, &self.title)
        };
        let added = add_all(tx, &cx, &[task]).await?;
        match added.into_iter().next() {
            Some(task) => Ok(task),
            None => unreachable!("one task was added"),
        }
    }
}

/// The task of a local issue.
pub fn local_issue(number: u64) -> TaskId {
    TaskId::from_stored(format!("issue-{number}").into())
}
