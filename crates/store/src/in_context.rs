//! One task with everything that its standing depends on, as it is at one moment.

use rota_core::obstacle::{Facts, ParentFact};
use rota_core::{Task, TaskId};

use crate::fault::Fault;
use crate::tx::{Blocker, Row, Tx};

/// A task and what stands around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InContext {
    /// The task.
    pub row: Row,
    /// Its parent, if it names one that exists.
    pub parent: Option<ParentFact>,
    /// Its blockers, by id.
    pub blockers: Vec<Blocker>,
}

impl InContext {
    /// What its obstacles depend on; the blockers only as a count.
    pub fn facts(&self) -> Facts {
        Facts { parent: self.parent, open_blockers: self.row.open_blockers, blocked_by: Vec::new() }
    }
}

/// Looks in several steps, where a transaction makes one moment of them.
pub(crate) async fn in_steps<T: Tx>(
    tx: &mut T,
    scope: &str,
    id: &TaskId,
) -> Result<Option<InContext>, Fault> {
    let Some(row) = tx.task(scope, id).await? else { return Ok(None) };
    let parent = parent(tx, scope, &row.task).await?;
    Ok(Some(InContext { row, parent, blockers: tx.blockers(scope, id).await? }))
}

/// What is known of a task's parent.
pub(crate) async fn parent<T: Tx>(tx: &mut T, scope: &str, task: &Task) -> Result<Option<ParentFact>, Fault> {
    let Some(parent) = &task.parent else { return Ok(None) };
    let found = tx.tasks(scope, std::slice::from_ref(parent)).await?.pop();
    Ok(found.map(|row| ParentFact { status: row.task.status, iteration: row.task.iteration }))
}
