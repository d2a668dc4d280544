//! The one way a task is written: row, event, and what follows for those who waited for it.

use std::borrow::Cow;

use rota_core::event::{Event, EventData, EventKind};
use rota_core::obstacle::{self, Facts, Stage};
use rota_core::rank;
use rota_core::transition::{self, Applied, Command, RateLimit};
use rota_core::{Fence, Json, Refusal, Status, Task};

use super::{Cx, blocks, family};
use crate::fault::{Error, Fault, Outcome};
use crate::in_context;
use crate::tx::{Row, Standing, Transition, Tx};

/// A task's next state, and what to say about it.
pub(super) struct Change {
    pub next: Task,
    pub kind: EventKind,
    pub fence: Option<Fence>,
    pub data: EventData,
}

impl Change {
    pub fn new(kind: EventKind, next: Task) -> Self {
        Self { next, kind, fence: None, data: EventData::default() }
    }

    pub fn of(applied: Applied, command: &Command) -> Self {
        let reason = match command {
            Command::Fail { reason, .. } => reason.clone(),
            Command::Park { reason, .. }
            | Command::Exhaust { reason, .. }
            | Command::Iterate { reason, .. }
            | Command::Yield { reason, .. }
            | Command::Invalidate { reason } => Some(reason.clone()),
            _ => None,
        };
        Self {
            kind: EventKind::Step(applied.verb),
            fence: applied.lease.map(|lease| lease.fence),
            data: EventData { outcome: applied.outcome, reason, ..EventData::default() },
            next: applied.task,
        }
    }
}

/// Applies a command and writes what it leads to. The inner refusal changes nothing.
pub(super) async fn step<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: &Row,
    command: &Command,
) -> Result<Result<Row, Refusal>, Fault> {
    match judge(cx, row, command) {
        Ok(change) => save_if_alive(tx, cx, row, change).await,
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Has core judge a command.
pub(super) fn judge(cx: &Cx, row: &Row, command: &Command) -> Result<Change, Refusal> {
    let command = &by_policy(cx, command);
    let applied = transition::apply(&row.task, command, cx.policy(&row.task.queue), cx.now)?;
    Ok(Change::of(applied, command))
}

/// The command with the waits that the policy sets, where the caller could not know them.
fn by_policy<'a>(cx: &Cx, command: &'a Command) -> Cow<'a, Command> {
    match command {
        Command::RateLimit { caller, limit: limit @ RateLimit { backoff: None, .. } } => {
            let limit = RateLimit { backoff: Some(blocks::backoff_of(cx)), ..*limit };
            Cow::Owned(Command::RateLimit { caller: caller.clone(), limit })
        }
        _ => Cow::Borrowed(command),
    }
}

/// [`save`], unless it would reopen what its parent has left behind.
pub(super) async fn save_if_alive<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: &Row,
    change: Change,
) -> Result<Result<Row, Refusal>, Fault> {
    let (before, after) = (&row.task, &change.next);
    if before.status.is_finished() && !after.status.is_finished() && after.parent.is_some() {
        let facts = facts(tx, cx, row).await?;
        if let Some(why) = obstacle::outlived(after, &facts) {
            return Ok(Err(Refusal::CannotReopen { id: after.id.clone(), why }));
        }
    }
    save(tx, cx, row, change).await.map(Ok)
}

/// [`step`] where a refusal ends the whole intent.
pub(super) async fn step_or_refuse<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, command: &Command) -> Outcome<Row> {
    step(tx, cx, row, command).await?.map_err(Error::Refused)
}

/// Writes a changed task and its event, then tells dependents, children and all below it.
pub(super) async fn save<T: Tx>(tx: &mut T, cx: &Cx, old: &Row, change: Change) -> Result<Row, Fault> {
    let (row, facts) = save_alone(tx, cx, old, change).await?;
    family::follow(tx, cx, &old.task, row, &facts).await
}

/// The same, but what it means for those further below is the caller's.
pub(super) async fn save_alone<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    old: &Row,
    change: Change,
) -> Result<(Row, Facts), Fault> {
    let (row, facts) = write(tx, cx, old, change).await?;
    let (before, after) = (&old.task, &row.task);
    if before.status.satisfies_edge() != after.status.satisfies_edge() {
        let by = if after.status.satisfies_edge() { -1 } else { 1 };
        let dependents = tx.shift_dependents(&cx.scope, &after.id, by).await?;
        restand(tx, cx, dependents).await?;
    }
    if (before.status == Status::Done) != (after.status == Status::Done) {
        let children = tx.children(&cx.scope, &after.id).await?;
        restand(tx, cx, children).await?;
    }
    Ok((row, facts))
}

async fn write<T: Tx>(tx: &mut T, cx: &Cx, old: &Row, change: Change) -> Result<(Row, Facts), Fault> {
    let (row, event) = changed(cx, old, change);
    let facts = facts(tx, cx, &row).await?;
    tx.update(&old.task, &row.task, &judged(cx, &row.task, &facts)).await?;
    append(tx, cx, event).await?;
    Ok((row, facts))
}

/// Writes changed tasks and their events, where none has a parent and none of the changes means anything for others;
/// returns the tasks in the same order.
pub(super) async fn save_unlinked<'a, T: Tx>(
    tx: &mut T,
    cx: &Cx,
    mut changes: Vec<(&'a Row, Change)>,
) -> Result<impl Iterator<Item = Task> + use<'a, T>, Fault> {
    for (old, change) in &mut changes {
        change.next.events = old.task.events + 1;
        change.next.updated_at = cx.now;
    }
    let moved: Vec<Transition<'_>> = changes
        .iter()
        .map(|(old, change)| {
            let open_blockers = old.open_blockers;
            let facts = Facts { parent: None, open_blockers, blocked_by: Vec::new() };
            Transition {
                old: &old.task,
                next: &change.next,
                standing: judged(cx, &change.next, &facts),
                kind: change.kind,
                fence: change.fence,
                data: &change.data,
                actor: cx.actor.as_deref(),
                policy: &cx.published.version,
            }
        })
        .collect();
    tx.apply_transitions(&moved).await?;
    Ok(changes.into_iter().map(|(_, change)| change.next))
}

/// The row after a change, and its event.
fn changed(cx: &Cx, old: &Row, change: Change) -> (Row, Event) {
    let mut next = change.next;
    next.events = old.task.events + 1;
    next.updated_at = cx.now;
    let mut event = Event::of_change(change.kind, Some(&old.task), &next);
    event.fence = change.fence;
    event.data = EventData { changes: event.data.changes, ..change.data };
    (Row { task: next, open_blockers: old.open_blockers }, event)
}

/// Writes a new task and its event; returns it with its insertion number.
pub(super) async fn create<T: Tx>(tx: &mut T, cx: &Cx, row: Row, queue: i64) -> Result<Row, Fault> {
    let Row { mut task, open_blockers } = row;
    task.events = 1;
    task.updated_at = cx.now;
    let mut row = Row { task, open_blockers };
    let standing = standing(tx, cx, &row).await?;
    row.task.seq = tx.insert(&row.task, queue, &standing).await?;
    append(tx, cx, Event::of_change(EventKind::Created, None, &row.task)).await?;
    Ok(row)
}

/// Signs an event and writes it.
pub(super) async fn append<T: Tx>(tx: &mut T, cx: &Cx, event: Event) -> Result<(), Fault> {
    tx.append(&sign(cx, event)).await?;
    Ok(())
}

fn sign(cx: &Cx, mut event: Event) -> Event {
    event.actor = cx.actor.clone();
    event.policy = Some(cx.published.version.clone());
    event
}

/// Judges a task anew from what stands around it.
pub(super) async fn standing<T: Tx>(tx: &mut T, cx: &Cx, row: &Row) -> Result<Standing, Fault> {
    let facts = facts(tx, cx, row).await?;
    Ok(judged(cx, &row.task, &facts))
}

fn judged(cx: &Cx, task: &Task, facts: &Facts) -> Standing {
    let policy = cx.policy(&task.queue);
    Standing {
        open_blockers: facts.open_blockers,
        stage: Stage::of(task, facts, cx.now),
        static_score: rank::static_score(task, policy),
        bucketed: policy.is_bucketed(),
        guarded: policy.score.as_ref().is_some_and(|score| score.starvation_guard_minutes.is_some()),
    }
}

/// What stands around a task; the blockers only as a count.
pub(super) async fn facts<T: Tx>(tx: &mut T, cx: &Cx, row: &Row) -> Result<Facts, Fault> {
    let parent = in_context::parent(tx, &cx.scope, &row.task).await?;
    Ok(Facts { parent, open_blockers: row.open_blockers, blocked_by: Vec::new() })
}

/// Judges tasks anew after something they waited for has changed. One that nothing but time holds back any longer
/// has been runnable since now, and its journal says so.
pub(super) async fn restand<T: Tx>(tx: &mut T, cx: &Cx, rows: Vec<Row>) -> Result<Vec<Row>, Fault> {
    let mut stood = Vec::with_capacity(rows.len());
    for row in rows {
        if row.task.status != Status::Open {
            stood.push(row);
            continue;
        }
        let standing = standing(tx, cx, &row).await?;
        if standing.stage == Stage::Obstructed {
            tx.update(&row.task, &row.task, &standing).await?;
            stood.push(row);
            continue;
        }
        let mut next = row.task.clone();
        next.open_since = next.open_since.max(cx.now);
        stood.push(write(tx, cx, &row, Change::new(EventKind::Readied, next)).await?.0);
    }
    Ok(stood)
}

/// Facts of a grant that came from outside, for the journal.
pub(super) fn fact(name: &str, value: &impl serde::Serialize) -> (String, Json) {
    (name.to_owned(), Json::of(value))
}
