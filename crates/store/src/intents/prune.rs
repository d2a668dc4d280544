//! Taking out what nobody needs any more: old finished tasks, and old events, which a snapshot then stands for. What
//! is left of the journal still folds to the tables.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::event::{self, Event, EventData, EventKind, Folded};
use rota_core::{Fence, Status, TaskId, UnixMillis};

use super::policy::scope_event;
use super::{Call, Cx, write};
use crate::fault::{Fault, Outcome};
use crate::store::Intent;
use crate::tx::{AnyTx, Row, Tx};

/// How many tasks one transaction looks at.
const BATCH: usize = 500;

/// What was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    /// Tasks.
    pub tasks: u64,
    /// Old and finished, but another task waits for it or is its child.
    pub needed: u64,
    /// Events of tasks that stay.
    pub events: u64,
}

/// Where a prune stands: tasks from the newest to the oldest, again while that frees others, then the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Looking for tasks before this number; whether this pass took any out, and how many were needed.
    Tasks {
        /// Insertion number.
        before: u64,
        /// In this pass.
        removed: bool,
        /// In this pass.
        needed: u64,
    },
    /// Looking for events of tasks behind this number.
    Events {
        /// Insertion number.
        after: u64,
    },
}

impl Place {
    /// The beginning.
    pub const START: Self = Self::Tasks { before: u64::MAX, removed: false, needed: 0 };
}

/// One batch of a prune, in one transaction: others are kept waiting for a moment only, and a crash leaves whole
/// batches.
#[derive(Clone, Debug)]
pub struct Prune {
    /// Where, when, who.
    pub call: Call,
    /// Only what did not change since.
    pub unchanged_since: UnixMillis,
    /// Where to go on from.
    pub place: Place,
}

#[async_trait]
impl Intent for Prune {
    type Output = (Pruned, Option<Place>);

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        tx.lock_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let limit = self.unchanged_since;
        Ok(match self.place {
            Place::Tasks { before, removed, needed } => {
                let (pruned, left, last) = remove_batch(tx, &cx, limit, before).await?;
                let (removed, needed) = (removed || pruned.tasks > 0, needed + left);
                let next = match last {
                    Some(before) => Place::Tasks { before, removed, needed },
                    // What was taken out may have been all that needed others.
                    None if removed && needed > 0 => Place::START,
                    None => Place::Events { after: 0 },
                };
                let done = matches!(next, Place::Events { .. });
                (Pruned { needed: if done { needed } else { 0 }, ..pruned }, Some(next))
            }
            Place::Events { after } => {
                let (events, last) = squash_batch(tx, &cx, limit, after).await?;
                (Pruned { events, ..Pruned::default() }, last.map(|after| Place::Events { after }))
            }
        })
    }
}

/// Takes out the tasks of a batch that nothing needs; how many are needed, and where the next batch begins.
async fn remove_batch<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    limit: UnixMillis,
    before: u64,
) -> Result<(Pruned, u64, Option<u64>), Fault> {
    let mut rows = tx.finished(&cx.scope, limit, before, BATCH).await?;
    let last = rows.last().filter(|_| rows.len() == BATCH).map(|row| row.task.seq);
    let mut going: Vec<TaskId> = Vec::new();
    loop {
        let before = going.len();
        let mut kept = Vec::new();
        for row in rows {
            match may_go(tx, cx, limit, &row.task.id, &going).await? {
                true => going.push(row.task.id),
                false => kept.push(row),
            }
        }
        rows = kept;
        // What goes may have been all that needed others.
        if going.len() == before || rows.is_empty() {
            break;
        }
    }
    if !going.is_empty() {
        // Written before anything is taken out: the highest event stays, so that its number is never given again
        // and no follower misses what comes next.
        let reason = Some(format!("finished and unchanged since {limit}"));
        let data = EventData { reason, ..EventData::default() };
        write::append(tx, cx, scope_event(cx, EventKind::Pruned, data)).await?;
        tx.remove(&cx.scope, &going).await?;
    }
    let pruned = Pruned { tasks: going.len() as u64, ..Pruned::default() };
    Ok((pruned, rows.len() as u64, last))
}

/// Whether a task may be taken out with those that go; then its last fence is kept.
async fn may_go<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    limit: UnixMillis,
    id: &TaskId,
    going: &[TaskId],
) -> Result<bool, Fault> {
    // Locked before it is judged: whoever adds a child or a dependent locks it too.
    let Some(Row { task, .. }) = tx.task(&cx.scope, id).await? else { return Ok(false) };
    if !task.status.is_finished() || task.updated_at >= limit || tx.is_needed(&cx.scope, id, going).await? {
        return Ok(false);
    }
    if task.fence > Fence::NONE {
        tx.retire(&cx.scope, id, task.fence).await?;
    }
    Ok(true)
}

/// Puts snapshots in the place of old events of tasks that stay. A task under way keeps its history.
async fn squash_batch<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    limit: UnixMillis,
    after: u64,
) -> Result<(u64, Option<u64>), Fault> {
    let page = tx.page(&cx.scope, after, BATCH).await?;
    let last = page.last().filter(|_| page.len() == BATCH).map(|kept| kept.row.task.seq);
    let idle = page.iter().map(|kept| &kept.row.task).filter(|task| task.status != Status::Active);
    let ids: Vec<TaskId> = idle.map(|task| task.id.clone()).collect();
    let mut journal: BTreeMap<TaskId, Vec<Event>> = BTreeMap::new();
    for event in tx.events_of(&cx.scope, &ids).await? {
        if let Some(task) = event.task.clone() {
            journal.entry(task).or_default().push(event);
        }
    }
    let (mut snapshots, mut squashed) = (Vec::new(), 0);
    for events in journal.into_values() {
        let old: Vec<&Event> = events.iter().take_while(|event| event.at < limit).collect();
        let folded =
            old.iter().try_fold(None::<Folded>, |before, event| event::fold(before, event).map(Some));
        // A journal that does not fold is for `rota doctor`.
        if let (Ok(Some(folded)), [_, .., end]) = (folded, old.as_slice()) {
            snapshots.push(Event::snapshot(&folded, end));
            squashed += old.len() as u64 - 1;
        }
    }
    tx.squash(&cx.scope, &snapshots).await?;
    Ok((squashed, last))
}
