//! One record per tracker: the pin of the governance files, this store's name, the next number of local issues. It is a task that
//! never runs, in a queue of its own, so that it is shown, journalled and moved like everything else.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::{Fence, Json, Status, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::with_reason;
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
    /// A random name that tells this store from others whose supervisors share the tracker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
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

pub(super) async fn find_or_add<T: Tx>(tx: &mut T, cx: &Cx, source: &str) -> Outcome<(Row, Record)> {
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

pub(super) async fn save<T: Tx>(
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

/// How the reason of a pin begins that replaced one which was lost.
pub const PINNED_ANEW: &str = "pinned anew";

/// Pins the governance files.
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
    /// Why, for the journal.
    pub reason: String,
}

/// The pin in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pinned {
    /// The files and their SHA-256.
    pub files: BTreeMap<String, String>,
    /// Whether it was set by this call.
    pub is_new: bool,
}

#[async_trait]
impl Intent for PinGovernance {
    type Output = Pinned;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Pinned> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let (row, record) = find_or_add(tx, &cx, &self.source).await?;
        match record.pin {
            Some(files) if self.only_first => return Ok(Pinned { files, is_new: false }),
            _ => {}
        }
        let record = Record { pin: Some(self.files.clone()), ..record };
        save(tx, &cx, &row, &record, (EventKind::Pinned, self.reason.clone())).await?;
        Ok(Pinned { files: self.files.clone(), is_new: true })
    }
}

/// The name of this store among the supervisors of a tracker; the first proposal is kept.
#[derive(Clone, Debug)]
pub struct Identify {
    /// Where, when, who.
    pub call: Call,
    /// Which tracker.
    pub source: String,
    /// A random name.
    pub proposed: String,
}

#[async_trait]
impl Intent for Identify {
    type Output = String;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<String> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let (row, record) = find_or_add(tx, &cx, &self.source).await?;
        if let Some(identity) = record.identity {
            return Ok(identity);
        }
        let record = Record { identity: Some(self.proposed.clone()), ..record };
        let reason = "a name among the supervisors of this tracker".to_owned();
        save(tx, &cx, &row, &record, (EventKind::Edited, reason)).await?;
        Ok(self.proposed.clone())
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
