//! `rota log`

use async_trait::async_trait;
use rota_core::event::{Event, EventData};
use rota_core::{TaskId, UnixMillis};
use rota_store::intents::follow;
use rota_store::intents::read::Journal;
use rota_store::{Cursor, EventFilter, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::{Count, Id, JournalCursor};
use crate::verb::{Route, Verb};
use crate::{Result, Word};

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

/// Read the journal: every change, in order
///
/// Example: rota log --task fix-login -n 20
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadJournal {
    /// Only this task's events
    #[arg(long, value_name = "ID")]
    pub task: Option<Id>,
    /// Only the newest N events
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
    pub limit: Option<Count>,
}

#[async_trait]
impl Verb for ReadJournal {
    type Payload = Events;
    const ROUTE: Route = Route::get("log", "/journal");

    async fn run(self, cx: &Context) -> Result<Events> {
        let (task, limit) = (self.task.map(Id::into_inner), self.limit.map(Count::get));
        let filter = EventFilter { task, after: 0, limit, newest: limit.is_some() };
        let events = cx.store.perform(&Journal { call: cx.call(), filter }).await?;
        let events: Vec<EventPayload> = events.into_iter().map(EventPayload::of).collect();
        Ok(Events { total: events.len(), events })
    }
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

/// Read the newest events, and learn where to go on from
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TailJournal {
    /// Only this task's events
    pub task: Option<Id>,
    /// How many
    #[serde(default)]
    pub limit: usize,
}

#[async_trait]
impl Verb for TailJournal {
    type Payload = Followed;
    const ROUTE: Route = Route::get("log tail", "/journal/tail");

    /// The task must exist.
    async fn run(self, cx: &Context) -> Result<Followed> {
        tail(cx, self.task.map(Id::into_inner), self.limit).await
    }
}

/// The newest events as a follower sees them, and where to go on from.
pub async fn tail(cx: &Context, task: Option<TaskId>, limit: usize) -> Result<Followed> {
    let tail = follow::Tail { call: cx.call(), task: task.clone(), limit };
    let (events, cursor) = cx.store.perform(&tail).await?;
    Ok(Followed::of(events.into_iter(), cursor, task.as_ref()))
}

/// Read on behind a cursor
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowJournal {
    /// Only this task's events
    pub task: Option<Id>,
    /// The cursor
    pub after: JournalCursor,
}

#[async_trait]
impl Verb for FollowJournal {
    type Payload = Followed;
    const ROUTE: Route = Route::get("log follow", "/journal/behind");

    /// Nothing is missed and nothing comes twice, although transactions commit out of order.
    async fn run(self, cx: &Context) -> Result<Followed> {
        let task = self.task.map(Id::into_inner);
        let behind = follow::Follow { call: cx.call(), after: self.after.into_inner(), limit: PAGE };
        let (events, cursor) = cx.store.perform(&behind).await?;
        Ok(Followed::of(events.into_iter().map(|(_, event)| event), cursor, task.as_ref()))
    }
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
