//! `log`: the journal, readable.

use rota_core::event::{Event, EventData};
use rota_core::{TaskId, UnixMillis};
use rota_store::intents::follow;
use rota_store::intents::read::Journal;
use rota_store::{Cursor, EventFilter, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, task_id};
use crate::{Result, Word};

/// Which events.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Only this task's.
    pub task: Option<String>,
    /// Only those after this number.
    pub after: u64,
    /// At most so many.
    pub limit: Option<usize>,
    /// Of the newest ones.
    pub newest: bool,
}

/// Events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// How many.
    pub total: usize,
    /// Oldest first.
    pub events: Vec<EventPayload>,
}

/// An event as every interface shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the event")]
pub struct EventPayload {
    pub seq: u64,
    pub at: UnixMillis,
    pub event: Word,
    pub scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    pub data: EventData,
}

impl EventPayload {
    fn of(event: Event) -> Self {
        Self {
            seq: event.seq,
            at: event.at,
            event: event.kind.word().into(),
            lease_id: event.lease().map(|lease| lease.to_string()),
            number: event.task.is_some().then_some(event.number),
            scope: event.scope,
            task: event.task,
            from: event.from.map(|status| status.word().into()),
            to: event.to.map(|status| status.word().into()),
            actor: event.actor,
            policy: event.policy,
            data: event.data,
        }
    }
}

/// Reads the journal.
pub async fn log(cx: &Context, input: Log) -> Result<Events> {
    let task = input.task.as_deref().map(task_id).transpose()?;
    let filter = EventFilter { task, after: input.after, limit: input.limit, newest: input.newest };
    let events = cx.store.perform(&Journal { call: cx.call(), filter }).await?;
    let events: Vec<EventPayload> = events.into_iter().map(EventPayload::of).collect();
    Ok(Events { total: events.len(), events })
}

/// Events, and how far they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// Each once, in an order that never changes.
    pub events: Vec<EventPayload>,
    /// Where to go on from.
    #[schemars(with = "String")]
    pub cursor: Cursor,
    /// Whether there was nothing more to read.
    pub at_end: bool,
}

impl Followed {
    fn of(events: impl ExactSizeIterator<Item = Event>, cursor: Cursor, task: Option<&TaskId>) -> Self {
        let at_end = events.len() == 0;
        let wanted = events.filter(|event| task.is_none() || event.task.as_ref() == task);
        Self { events: wanted.map(EventPayload::of).collect(), cursor, at_end }
    }
}

/// How many events are read at once.
const PAGE: usize = 1_000;

/// The newest events as a follower sees them, and where to go on from. The task must exist.
pub async fn tail(cx: &Context, task: Option<&str>, limit: usize) -> Result<Followed> {
    let task = task.map(task_id).transpose()?;
    let tail = follow::Tail { call: cx.call(), task: task.clone(), limit };
    let (events, cursor) = cx.store.perform(&tail).await?;
    Ok(Followed::of(events.into_iter(), cursor, task.as_ref()))
}

/// What came behind a cursor: nothing is missed and nothing comes twice, although transactions commit out of order.
pub async fn follow(cx: &Context, task: Option<&str>, after: Cursor) -> Result<Followed> {
    let task = task.map(task_id).transpose()?;
    let behind = follow::Follow { call: cx.call(), after, limit: PAGE };
    let (events, cursor) = cx.store.perform(&behind).await?;
    Ok(Followed::of(events.into_iter().map(|(_, event)| event), cursor, task.as_ref()))
}

/// The same, each event with the cursor behind it, so that whoever was cut off anywhere can go on from there.
pub async fn placed(
    cx: &Context,
    after: Cursor,
    limit: usize,
) -> Result<(Vec<(Cursor, EventPayload)>, Cursor)> {
    let (events, cursor) = cx.store.perform(&follow::Follow { call: cx.call(), after, limit }).await?;
    let shown = events.into_iter().map(|(place, event)| (place, EventPayload::of(event)));
    Ok((shown.collect(), cursor))
}
