//! The tracker that is the store itself: issues are tasks of queue `issues`, with labels and comments in the payload.

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::transition::Command;
use rota_core::{Json, Status, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::record::{Record, find_or_add, save};
use super::{Note, QUEUE};
use crate::fault::Outcome;
use crate::intents::add::{NewTask, add_all};
use crate::intents::{Call, Cx, find_task, write};
use crate::store::Intent;
use crate::tx::{AnyTx, Tx};

/// A comment on a local issue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalComment {
    /// The agent who wrote it, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The text.
    pub text: String,
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
        let author = self.call.actor.clone();
        let note = Note { number, author, labels: self.labels.clone(), ..Note::default() };
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

/// Says of a local issue that it is closed: done, whoever held it.
#[derive(Clone, Debug)]
pub struct CloseIssue {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
}

#[async_trait]
impl Intent for CloseIssue {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let mut row = find_task(tx, &cx, &self.id).await?;
        let way = match row.task.status {
            Status::Done => return Ok(row.task),
            Status::Paused => Some(Command::Resume),
            Status::Deleted => Some(Command::Undelete),
            Status::Parked | Status::Failed | Status::Invalidated => Some(Command::Reset),
            Status::Open | Status::Active => None,
        };
        if let Some(command) = way {
            row = write::step_or_refuse(tx, &cx, &row, &command).await?;
        }
        row = write::step_or_refuse(tx, &cx, &row, &Command::Override { result: None }).await?;
        Ok(row.task)
    }
}

/// Opens a local issue again that was closed; an open one stays as it is.
#[derive(Clone, Debug)]
pub struct ReopenIssue {
    /// Where, when, who.
    pub call: Call,
    /// Its task.
    pub id: TaskId,
}

#[async_trait]
impl Intent for ReopenIssue {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let row = find_task(tx, &cx, &self.id).await?;
        let command = match row.task.status {
            Status::Done => Command::Reiterate,
            Status::Invalidated => Command::Reset,
            Status::Deleted => Command::Undelete,
            Status::Open | Status::Active | Status::Paused | Status::Parked | Status::Failed => {
                return Ok(row.task);
            }
        };
        Ok(write::step_or_refuse(tx, &cx, &row, &command).await?.task)
    }
}

/// Replaces title or body of a local issue.
#[derive(Clone, Debug)]
pub struct EditLocalIssue {
    /// Where, when, who.
    pub call: Call,
    /// Its task.
    pub id: TaskId,
    /// The new title; none leaves it.
    pub title: Option<String>,
    /// The new body; none leaves it, an empty one removes it.
    pub body: Option<String>,
}

#[async_trait]
impl Intent for EditLocalIssue {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let row = find_task(tx, &cx, &self.id).await?;
        let mut next = row.task.clone();
        if let Some(title) = &self.title {
            next.title = title.as_str().into();
        }
        if let Some(body) = &self.body {
            next.description = (!body.is_empty()).then(|| body.as_str().into());
        }
        if next == row.task {
            return Ok(row.task);
        }
        Ok(write::save(tx, &cx, &row, write::Change::new(EventKind::Edited, next)).await?.task)
    }
}
