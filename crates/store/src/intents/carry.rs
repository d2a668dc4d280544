//! Everything a store remembers, as lines of JSON, out of one store and into another. Nothing derived is carried: it is
//! derived anew where it arrives. Sorted, so that the same content gives the same bytes from every store.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use rota_core::event::{Event, EventData, EventKind};
use rota_core::task::Changes;
use rota_core::{Fence, Json, Status, Task, TaskId, UnixMillis, Usd};
use serde::{Deserialize, Serialize};

use super::Call;
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AgentRow, AnyTx, BlockRow, EventFilter, PolicyRow, Tx, UsageFilter, UsageRow};
use crate::upkeep::Upkeep;

/// The format's version.
pub const FORMAT: u32 = 1;
/// How many rows are read at once.
const PAGE: usize = 500;

/// One line of an export.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the variants are the tables")]
#[allow(clippy::large_enum_variant, reason = "one line is held at a time")]
pub enum Line {
    Export(Header),
    Block(BlockLine),
    Usage(UsageLine),
    Queue(QueueLine),
    Policy(PolicyLine),
    Agent(AgentLine),
    Task(TaskLine),
    Edge(EdgeLine),
    Retired(RetiredLine),
    Event(EventLine),
    End(End),
}

/// The first line.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are named")]
pub struct Header {
    pub schema_version: u32,
    pub scopes: Vec<String>,
}

/// The last line: how many came before it, so that a file that was cut off is noticed.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are named")]
pub struct End {
    pub lines: u64,
    pub tasks: u64,
    pub edges: u64,
    pub events: u64,
}

macro_rules! lines {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[allow(missing_docs, reason = "the fields are those of the row")]
        pub struct $name { $(pub $field: $type,)* })*
    };
}

lines! {
    /// A queue.
    QueueLine { scope: String, name: String, paused: bool, }
    /// A published policy.
    PolicyLine {
        scope: String, number: u64, version: String, document: Json, published_at: UnixMillis, actor: Option<String>,
    }
    /// An agent.
    AgentLine {
        scope: String, id: String, pid: u32, host: String, started_at: UnixMillis, stopped_at: Option<UnixMillis>,
    }
    /// The gate's block on an upstream.
    BlockLine {
        upstream: String, blocked_until: Option<UnixMillis>, hits: u32, reason: Option<String>, updated_at: UnixMillis,
    }
    /// What a task used of a model on a day.
    UsageLine {
        scope: String, task: String, day: i64, upstream: String, model: String, requests: u64, input_tokens: u64,
        output_tokens: u64, cache_read_tokens: u64, wait_ms: u64,
        usd: Usd,
    }
    /// A task.
    TaskLine { scope: String, id: TaskId, seq: u64, events: u64, fields: Changes, }
    /// A blocker of a task.
    EdgeLine { scope: String, task: TaskId, blocker: TaskId, }
    /// The last fence of an id that was pruned.
    RetiredLine { scope: String, id: TaskId, fence: Fence, }
    /// A row of the journal.
    EventLine {
        seq: u64, scope: String, task: Option<TaskId>, number: u64, at: UnixMillis, kind: String, from: Option<Status>,
        to: Option<Status>, actor: Option<String>, fence: Option<Fence>, policy: Option<String>, data: EventData,
    }
}

impl TaskLine {
    fn of(task: &Task) -> Self {
        let Task { scope, id, seq, events, .. } = task;
        Self { scope: scope.to_string(), id: id.clone(), seq: *seq, events: *events, fields: task.fields() }
    }

    /// The task it is of; every field must be there.
    pub fn task(self) -> Result<Task, String> {
        let blank = Task::new(&self.scope, self.id, "", "", UnixMillis::default());
        if let Some(missing) = blank.fields().keys().find(|field| !self.fields.contains_key(*field)) {
            return Err(format!("field \"{missing}\" is missing"));
        }
        let mut task = Task { seq: self.seq, events: self.events, ..blank };
        task.apply_changes(&self.fields).map_err(|error| error.to_string())?;
        Ok(task)
    }
}

impl EventLine {
    fn of(event: Event) -> Self {
        let Event { seq, scope, task, number, at, kind, from, to, actor, fence, policy, data } = event;
        let kind = kind.word().to_owned();
        Self { seq, scope, task, number, at, kind, from, to, actor, fence, policy, data }
    }

    /// The event it is of.
    pub fn event(self) -> Result<Event, String> {
        let Self { seq, scope, task, number, at, kind, from, to, actor, fence, policy, data } = self;
        let kind = EventKind::from_word(&kind).ok_or_else(|| format!("unknown event '{kind}'"))?;
        Ok(Event { seq, scope, task, number, at, kind, from, to, actor, fence, policy, data })
    }
}

impl From<UsageRow> for UsageLine {
    fn from(row: UsageRow) -> Self {
        let UsageRow {
            scope,
            task,
            day,
            upstream,
            model,
            requests,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            wait_ms,
            spend_nanos,
        } = row;
        Self {
            scope,
            task,
            day,
            upstream,
            model,
            requests,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            wait_ms,
            usd: Usd::from_nanos(spend_nanos),
        }
    }
}

impl From<UsageLine> for UsageRow {
    fn from(line: UsageLine) -> Self {
        let UsageLine {
            scope,
            task,
            day,
            upstream,
            model,
            requests,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            wait_ms,
            usd,
        } = line;
        Self {
            scope,
            task,
            day,
            upstream,
            model,
            requests,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            wait_ms,
            spend_nanos: usd.nanos(),
        }
    }
}

/// Where lines go.
pub trait Sink: Sync {
    /// Writes one line; the newline is the sink's.
    fn line(&self, text: &str) -> Result<(), Fault>;
}

/// A file or stream with a name for messages.
pub struct Output<W> {
    /// Where it is.
    pub path: PathBuf,
    /// What is written to.
    pub writer: Mutex<W>,
}

impl<W: Write + Send> Sink for Output<W> {
    fn line(&self, text: &str) -> Result<(), Fault> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let written = writer.write_all(text.as_bytes()).and_then(|()| writer.write_all(b"\n"));
        written.map_err(|source| Fault::Io { path: self.path.clone(), source })
    }
}

/// Where lines come from; opened anew each time a transaction is tried again.
pub trait Source: Sync {
    /// From the first line on.
    fn open(&self) -> Result<Box<dyn BufRead + Send>, Fault>;
    /// Its name for messages.
    fn path(&self) -> PathBuf;
}

/// Writes everything out of one snapshot.
pub struct Export<'a, S> {
    /// When, who. The scope does not matter.
    pub call: Call,
    /// Only this scope, and no blocks; none for the whole store.
    pub only: Option<String>,
    /// Where to.
    pub sink: &'a S,
}

struct Writer<'a, S> {
    sink: &'a S,
    end: End,
}

impl<S: Sink> Writer<'_, S> {
    fn put(&mut self, line: Line) -> Result<(), Fault> {
        match &line {
            Line::Task(_) => self.end.tasks += 1,
            Line::Edge(_) => self.end.edges += 1,
            Line::Event(_) => self.end.events += 1,
            _ => {}
        }
        self.end.lines += 1;
        self.sink.line(Json::of(&line).as_str())
    }
}

#[async_trait]
impl<S: Sink> Intent for Export<'_, S> {
    type Output = End;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<End> {
        let scopes = match &self.only {
            Some(scope) => vec![scope.clone()],
            None => tx.scopes().await?,
        };
        let mut out = Writer { sink: self.sink, end: End::default() };
        out.put(Line::Export(Header { schema_version: FORMAT, scopes: scopes.clone() }))?;
        if self.only.is_none() {
            for block in tx.blocks().await? {
                let BlockRow { upstream, blocked_until, hits, reason, updated_at } = block;
                out.put(Line::Block(BlockLine { upstream, blocked_until, hits, reason, updated_at }))?;
            }
        }
        for scope in &scopes {
            settings(tx, scope, &mut out).await?;
            tasks(tx, scope, &mut out).await?;
            journal(tx, scope, &mut out).await?;
            let of_scope = UsageFilter { scope: Some(scope.clone()), ..UsageFilter::default() };
            tx.usage(&of_scope).await?.into_iter().try_for_each(|row| out.put(Line::Usage(row.into())))?;
        }
        let end = out.end;
        out.put(Line::End(end))?;
        Ok(end)
    }
}

async fn settings<T: Tx, S: Sink>(tx: &mut T, scope: &str, out: &mut Writer<'_, S>) -> Result<(), Fault> {
    for queue in tx.queues(scope).await? {
        out.put(Line::Queue(QueueLine { scope: scope.to_owned(), name: queue.name, paused: queue.paused }))?;
    }
    for policy in tx.policies(scope).await? {
        let PolicyRow { number, version, document, published_at, actor } = policy;
        let scope = scope.to_owned();
        out.put(Line::Policy(PolicyLine { scope, number, version, document, published_at, actor }))?;
    }
    let mut agents = tx.agents(scope).await?;
    agents.sort_by(|left, right| left.id.cmp(&right.id));
    for agent in agents {
        let AgentRow { id, pid, host, started_at, stopped_at } = agent;
        let scope = scope.to_owned();
        out.put(Line::Agent(AgentLine { scope, id, pid, host, started_at, stopped_at }))?;
    }
    Ok(())
}

async fn tasks<T: Tx, S: Sink>(tx: &mut T, scope: &str, out: &mut Writer<'_, S>) -> Result<(), Fault> {
    let mut after = 0;
    loop {
        let page = tx.page(scope, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.row.task.seq;
        page.iter().try_for_each(|kept| out.put(Line::Task(TaskLine::of(&kept.row.task))))?;
    }
    let mut after: Option<(TaskId, TaskId)> = None;
    loop {
        let page = tx.edge_page(scope, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        for (task, blocker) in page {
            out.put(Line::Edge(EdgeLine { scope: scope.to_owned(), task, blocker }))?;
        }
    }
    let mut after: Option<TaskId> = None;
    loop {
        let page = tx.retired_page(scope, after.as_ref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (id, fence) in page {
            out.put(Line::Retired(RetiredLine { scope: scope.to_owned(), id, fence }))?;
        }
    }
}

async fn journal<T: Tx, S: Sink>(tx: &mut T, scope: &str, out: &mut Writer<'_, S>) -> Result<(), Fault> {
    let mut after = 0;
    loop {
        let filter = EventFilter { after, limit: Some(PAGE), ..EventFilter::default() };
        let page = tx.events(scope, &filter).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        page.into_iter().try_for_each(|event| out.put(Line::Event(EventLine::of(event))))?;
    }
}
