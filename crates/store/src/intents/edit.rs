//! Changing the fields of a task, and its state by a person's hand.

use async_trait::async_trait;
use rota_core::event::EventKind;
use rota_core::transition::{self, Command};
use rota_core::{Caller, Refusal, Status, Task, TaskId};

use super::{Call, Cx, find_task, write};
use crate::fault::Outcome;
use crate::store::Intent;
use crate::tx::{AnyTx, Row, Tx};

/// Changes what is given, leaves the rest. A done task is immutable.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Where, when, who.
    pub call: Call,
    /// Which task.
    pub id: TaskId,
    /// New title.
    pub title: Option<String>,
    /// New priority.
    pub priority: Option<u32>,
    /// New description; the empty one clears it.
    pub description: Option<String>,
    /// New steps.
    pub steps: Option<Vec<String>>,
    /// New state, reached through the state machine.
    pub status: Option<Status>,
    /// The lease or agent that the caller names; while the task is held, a new state needs its holder.
    pub caller: Caller,
    /// A person's override: changes the state of a held task without its holder.
    pub force: bool,
}

/// The reason journalled with a state that was forced.
pub const FORCED: &str = "a person's override (--force)";

#[async_trait]
impl Intent for Edit {
    type Output = Task;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Task> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let mut row = find_task(tx, &cx, &self.id).await?;
        if row.task.status == Status::Done {
            return Err(Refusal::DoneIsImmutable { id: self.id.clone() }.into());
        }
        let next = self.edited(&row.task);
        if next != row.task {
            row = write::save(tx, &cx, &row, write::Change::new(EventKind::Edited, next)).await?;
        }
        if let Some(wanted) = self.status
            && let Some(command) = way_to(wanted, &row.task)?
        {
            row = self.take(tx, &cx, &row, &command).await?;
        }
        Ok(row.task)
    }
}

impl Edit {
    async fn take(&self, tx: &mut AnyTx, cx: &Cx, row: &Row, command: &Command) -> Outcome<Row> {
        let policy = cx.policy(&row.task.queue);
        let is_held = row.task.status == Status::Active;
        if is_held && !self.force {
            transition::check_holder(&row.task, &self.caller, policy)?;
        }
        let applied = transition::apply(&row.task, command, policy, cx.now)?;
        let mut change = write::Change::of(applied, command);
        change.data.reason = (is_held && self.force).then(|| FORCED.to_owned());
        Ok(write::save_if_alive(tx, cx, row, change).await??)
    }

    fn edited(&self, task: &Task) -> Task {
        let mut next = task.clone();
        if let Some(title) = &self.title {
            next.title = title.into();
        }
        if let Some(priority) = self.priority {
            (next.priority, next.priority_inherited) = (Some(priority), false);
        }
        if let Some(description) = &self.description {
            next.description = Some(description).filter(|text| !text.is_empty()).map(Into::into);
        }
        if let Some(steps) = &self.steps {
            next.steps.clone_from(steps);
        }
        next
    }
}

/// The step that leads a person to a state; none if the task is there.
fn way_to(wanted: Status, task: &Task) -> Result<Option<Command>, Refusal> {
    let held = Caller { agent: None, lease: task.lease() };
    match (wanted, task.status) {
        (Status::Open, Status::Open)
        | (Status::Paused, Status::Paused)
        | (Status::Deleted, Status::Deleted) => Ok(None),
        (Status::Done, _) => Ok(Some(Command::Override { result: None })),
        (Status::Paused, _) => Ok(Some(Command::Pause)),
        (Status::Deleted, _) => Ok(Some(Command::Delete)),
        (Status::Open, Status::Active) => Ok(Some(Command::Release { caller: held })),
        (Status::Open, Status::Paused) => Ok(Some(Command::Resume)),
        (Status::Open, Status::Deleted) => Ok(Some(Command::Undelete)),
        (Status::Open, _) => Ok(Some(Command::Reset)),
        (other, _) => Err(Refusal::BadValue {
            problem: format!("--status takes open, paused, done or deleted, got: {other}"),
        }),
    }
}
