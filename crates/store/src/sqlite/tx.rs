//! One transaction on a SQLite file.

mod upkeep;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::policy::GateLevel;
use rota_core::rank::Rankable;
use rota_core::{Json, Policy, Status, Task, TaskId, UnixMillis};
use rusqlite::{CachedStatement, Connection, params};

use super::clock::Reading;
use super::row::{self, Binder};
use super::{Session, Shared, sql};
use crate::fault::Fault;
use crate::in_context::InContext;
use crate::store::Access;
use crate::tx::{
    AgentRow, BlockRow, Blocker, EventFilter, Filter, GateTokenRow, HeadQuery, Level, ListFilter, PolicyRow,
    Published, QueueRow, Ranked, Row, SettlementRow, Standing, StatusCount, Transition, Tx, UsageFilter,
    UsageRow, fields_differ,
};
use crate::unlinked::UnlinkedCache;

/// One transaction. It owns its connection until it ends, so it can move between threads.
pub struct SqliteTx {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Option<Session>,
    pub(super) access: Access,
    /// Whether a statement was asked for: a transaction that is [`Access::Once`] has one.
    pub(super) has_asked: Cell<bool>,
    /// How long the log was when it began.
    pub(super) log_bytes: u64,
    /// How many rows the connection had changed when it began.
    pub(super) changes: u64,
    pub(super) reading: Option<Reading>,
    pub(super) unlinked: UnlinkedCache,
}

impl SqliteTx {
    /// A statement, compiled at most once for each connection.
    pub(super) fn statement(&self, text: &str) -> rusqlite::Result<CachedStatement<'_>> {
        let is_second = self.has_asked.replace(true);
        assert!(!(is_second && self.access == Access::Once), "two statements would see two snapshots");
        self.connection().prepare_cached(text)
    }

    pub(super) fn connection(&self) -> &Connection {
        match &self.session {
            Some(session) => &session.connection,
            None => unreachable!("a transaction has its session until it ends"),
        }
    }

    pub(super) fn fault(&self, error: rusqlite::Error) -> Fault {
        match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => Fault::Unreadable { problem: error.to_string() },
            other => self.shared.fault(other),
        }
    }

    pub(super) fn run(&self, text: &str) -> Result<(), Fault> {
        let run = || self.statement(text)?.execute([]);
        run().map(drop).map_err(|error| self.fault(error))
    }

    fn all<T>(
        &self,
        text: &str,
        bound: impl rusqlite::Params,
        read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut list = Vec::new();
        self.extend(text, bound, read, &mut list)?;
        Ok(list)
    }

    fn change(&self, text: &str, bound: impl rusqlite::Params) -> Result<usize, Fault> {
        let run = || self.statement(text)?.execute(bound);
        run().map_err(|error| self.fault(error))
    }

    fn task_row(&self, scope: &str, id: &TaskId) -> Result<Option<Row>, Fault> {
        self.one(sql::TASK, params![scope, id.as_str()], row::task)
    }

    pub(super) fn replace(&mut self, old: &Task, next: &Task, standing: &Standing) -> Result<(), Fault> {
        let seq = next.seq.cast_signed();
        if fields_differ(old, next) {
            self.unlinked.forget();
            self.bound(sql::UPDATE_FIELDS, |binder| binder.fields(next)?.bind(seq).map(drop))?;
        }
        if row::is_lease_alone(old, next) {
            return self.bound(sql::UPDATE_LEASE, |binder| binder.bind(seq)?.lease(next, standing).map(drop));
        }
        self.bound(sql::UPDATE_STATE, |binder| binder.state(next, standing)?.bind(seq).map(drop))
    }

    pub(super) fn write_event(&self, event: &Event) -> Result<(), Fault> {
        self.bound(sql::APPEND, |binder| binder.event(event).map(drop))
    }

    /// Runs a statement whose values are bound one by one.
    pub(super) fn bound(
        &self,
        text: &str,
        bind: impl FnOnce(&mut Binder<'_, '_>) -> rusqlite::Result<()>,
    ) -> Result<(), Fault> {
        let run = || {
            let mut statement = self.statement(text)?;
            bind(&mut Binder::new(&mut statement))?;
            statement.raw_execute()
        };
        run().map(drop).map_err(|error| self.fault(error))
    }
}

fn json_list<T: serde::Serialize>(list: &[T]) -> Option<Json> {
    (!list.is_empty()).then(|| Json::of(&list))
}

#[async_trait]
impl Tx for SqliteTx {
    fn writes(&self) -> bool {
        self.access == Access::Write
    }

    async fn commit(mut self) -> Result<(), Fault> {
        self.mark_clock()?;
        self.check_files()?;
        self.shared.has_written.store(true, Ordering::Relaxed);
        self.end("COMMIT")
    }

    async fn clock(&mut self) -> Result<UnixMillis, Fault> {
        self.read_clock()
    }

    async fn policy(&mut self, scope: &str) -> Result<Option<Arc<Published>>, Fault> {
        let version: Option<String> = self.one(sql::POLICY_VERSION, params![scope], |row| row.get(0))?;
        let Some(version) = version else { return Ok(None) };
        let mut cache = self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, published)) = cache.as_ref()
            && of == scope
            && published.version == version
        {
            return Ok(Some(Arc::clone(published)));
        }
        let rows = self.all(sql::POLICIES, params![scope], policy_row)?;
        let Some(last) = rows.last() else { return Ok(None) };
        let policy = Policy::parse(last.document.as_str()).map_err(|error| Fault::UnreadablePolicy {
            scope: scope.to_owned(),
            problem: error.to_string(),
        })?;
        let published = Arc::new(Published { version, policy });
        *cache = Some((scope.to_owned(), Arc::clone(&published)));
        Ok(Some(published))
    }

    async fn add_policy(&mut self, scope: &str, row: &PolicyRow) -> Result<(), Fault> {
        let PolicyRow { number, version, document, published_at, actor } = row;
        let bound =
            params![scope, number.cast_signed(), version, document.as_str(), published_at.get(), actor];
        self.change(sql::ADD_POLICY, bound).map(drop)
    }

    async fn policies(&mut self, scope: &str) -> Result<Vec<PolicyRow>, Fault> {
        self.all(sql::POLICIES, params![scope], policy_row)
    }

    /// Writers have the whole file.
    async fn lock_edges(&mut self, _scope: &str) -> Result<(), Fault> {
        Ok(())
    }

    async fn share_edges(&mut self, _scope: &str) -> Result<(), Fault> {
        Ok(())
    }

    /// Writers have the whole file, so a bounded queue needs no turn of its own.
    async fn queue(&mut self, scope: &str, name: &str, _bounded: bool) -> Result<Option<QueueRow>, Fault> {
        self.one(sql::QUEUE, params![scope, name], queue_row)
    }

    async fn queues(&mut self, scope: &str) -> Result<Vec<QueueRow>, Fault> {
        self.all(sql::QUEUES, params![scope], queue_row)
    }

    async fn ensure_queue(&mut self, scope: &str, name: &str) -> Result<QueueRow, Fault> {
        if let Some(row) = self.one(sql::QUEUE, params![scope, name], queue_row)? {
            return Ok(row);
        }
        self.change(sql::ADD_QUEUE, params![scope, name])?;
        let key = self.connection().last_insert_rowid();
        Ok(QueueRow { key, name: name.to_owned(), paused: false })
    }

    async fn set_queue_paused(&mut self, key: i64, paused: bool) -> Result<(), Fault> {
        self.change(sql::PAUSE_QUEUE, params![key, paused]).map(drop)
    }

    async fn in_context(&mut self, scope: &str, id: &TaskId) -> Result<Option<InContext>, Fault> {
        self.look_around(scope, id)
    }

    async fn task(&mut self, scope: &str, id: &TaskId) -> Result<Option<Row>, Fault> {
        let is_read = self.access != Access::Write;
        let text = if is_read { sql::TASK_TO_READ } else { sql::TASK_TO_CHANGE };
        let found = self.one(text, params![scope, id.as_str()], |row| {
            Ok((row::task(row)?, row.get::<_, bool>(row::TASK_COLUMNS)?))
        })?;
        let Some((row, has_others)) = found else { return Ok(None) };
        match (has_others, is_read) {
            (true, _) => {}
            (false, true) => self.unlinked.note_without_blockers(&row.task),
            (false, false) => self.unlinked.note_without_followers(&row.task),
        }
        Ok(Some(row))
    }

    async fn tasks(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<Row>, Fault> {
        let rows = ids.iter().filter_map(|id| self.task_row(scope, id).transpose());
        rows.collect()
    }

    async fn lock_tasks(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<Row>, Fault> {
        self.tasks(scope, ids).await
    }

    async fn tasks_by_seq(&mut self, seqs: &[u64]) -> Result<Vec<Row>, Fault> {
        let row = |seq: &u64| self.one(sql::TASK_BY_SEQ, params![seq.cast_signed()], row::task).transpose();
        seqs.iter().filter_map(row).collect()
    }

    async fn list(&mut self, scope: &str, filter: &ListFilter) -> Result<Vec<Row>, Fault> {
        let words: Vec<&str> = filter.statuses.iter().map(|status| status.word()).collect();
        let statuses = json_list(&words);
        let specs = filter.filter.specs.as_ref().map(Json::of);
        let text = if filter.queue.is_some() && filter.statuses == [Status::Active] {
            sql::LIST_ACTIVE
        } else if specs.is_some() {
            sql::LIST_SPECS
        } else {
            sql::LIST
        };
        let bound = params![
            scope,
            filter.queue,
            statuses.as_ref().map(Json::as_str),
            filter.assignee,
            specs.as_ref().map(Json::as_str),
            filter.filter.category,
        ];
        self.all(text, bound, row::task)
    }

    async fn list_unleased(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<Vec<Row>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(sql::LIST_UNLEASED, params![queue, now.get(), limit], row::task)
    }

    async fn count(&mut self, queue: i64, filter: &Filter) -> Result<Vec<StatusCount>, Fault> {
        let specs = filter.specs.as_ref().map(Json::of);
        let bound = params![queue, filter.category, specs.as_ref().map(Json::as_str)];
        self.all(sql::COUNT, bound, |row| {
            let count: i64 = row.get(2)?;
            Ok(StatusCount {
                status: row::status(row, 0)?,
                blocked: row.get(1)?,
                count: count.cast_unsigned(),
            })
        })
    }

    async fn specs(&mut self, scope: &str) -> Result<Vec<String>, Fault> {
        self.all(sql::SPECS, params![scope], |row| row.get(0))
    }

    async fn insert(&mut self, task: &Task, queue: i64, standing: &Standing) -> Result<u64, Fault> {
        self.unlinked.forget();
        self.bound(sql::INSERT, |binder| {
            binder.bind(task.scope.as_str())?.bind(task.id.as_str())?.bind(queue)?;
            binder.fields(task)?.state(task, standing)?;
            Ok(())
        })?;
        Ok(self.connection().last_insert_rowid().cast_unsigned())
    }

    async fn update(&mut self, old: &Task, next: &Task, standing: &Standing) -> Result<(), Fault> {
        self.replace(old, next, standing)
    }

    async fn settlement_rows(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<SettlementRow>, Fault> {
        self.rows_to_settle(scope, ids)
    }

    async fn apply_transitions(&mut self, moved: &[Transition<'_>]) -> Result<(), Fault> {
        self.move_all(moved)
    }

    async fn blockers(&mut self, scope: &str, id: &TaskId) -> Result<Vec<Blocker>, Fault> {
        if self.unlinked.has_no_blockers(scope, id) {
            return Ok(Vec::new());
        }
        self.all(sql::BLOCKERS, params![scope, id.as_str()], |row| row::blocker(row, 0))
    }

    async fn edges(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let mut edges = Vec::new();
        for id in ids.iter().filter(|id| !self.unlinked.has_no_blockers(scope, id)) {
            let edge = |row: &rusqlite::Row<'_>| Ok((row::id(row, 0)?, row::id(row, 1)?));
            self.extend(sql::EDGES, params![scope, id.as_str()], edge, &mut edges)?;
        }
        Ok(edges)
    }

    async fn add_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<bool, Fault> {
        self.unlinked.forget();
        Ok(self.change(sql::ADD_EDGE, params![scope, task.as_str(), blocker.as_str()])? == 1)
    }

    async fn remove_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<bool, Fault> {
        Ok(self.change(sql::REMOVE_EDGE, params![scope, task.as_str(), blocker.as_str()])? == 1)
    }

    async fn shift_dependents(&mut self, scope: &str, blocker: &TaskId, by: i32) -> Result<Vec<Row>, Fault> {
        if self.unlinked.has_no_followers(scope, blocker) {
            return Ok(Vec::new());
        }
        let any = self.one(sql::HAS_DEPENDENTS, params![scope, blocker.as_str()], |_| Ok(()))?;
        if any.is_none() {
            return Ok(Vec::new());
        }
        self.change(sql::SHIFT_DEPENDENTS, params![scope, blocker.as_str(), by])?;
        self.all(sql::DEPENDENTS, params![scope, blocker.as_str()], row::task)
    }

    async fn children(&mut self, scope: &str, parent: &TaskId) -> Result<Vec<Row>, Fault> {
        if self.unlinked.has_no_followers(scope, parent) {
            return Ok(Vec::new());
        }
        self.all(sql::CHILDREN, params![scope, parent.as_str()], row::task)
    }

    async fn expired(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<Vec<Row>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(sql::EXPIRED, params![queue, now.get(), limit], row::task)
    }

    async fn promote_due(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<usize, Fault> {
        if self.one(sql::ANY_DUE, params![queue, now.get()], |_| Ok(()))?.is_none() {
            return Ok(0);
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.change(sql::PROMOTE_DUE, params![queue, now.get(), limit])
    }

    async fn awaiting_artifact(
        &mut self,
        queue: i64,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(sql::AWAITING_ARTIFACT, params![queue, after_seq.cast_signed(), limit], row::task)
    }

    async fn ready_count(&mut self, queue: i64, now: UnixMillis) -> Result<u64, Fault> {
        let ready: Option<i64> = self.one(sql::READY_COUNT, params![queue], |row| row.get(0))?;
        let due: Option<i64> = self.one(sql::DUE_COUNT, params![queue, now.get()], |row| row.get(0))?;
        Ok(ready.unwrap_or(0).cast_unsigned() + due.unwrap_or(0).cast_unsigned())
    }

    async fn next_due(&mut self, queue: i64) -> Result<Option<UnixMillis>, Fault> {
        self.one(sql::NEXT_DUE, params![queue], |row| row::time(row, 0))
    }

    async fn active_by_kind(&mut self, queue: i64) -> Result<BTreeMap<String, u32>, Fault> {
        let counts = self.all(sql::ACTIVE_BY_KIND, params![queue], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(counts.into_iter().collect())
    }

    async fn heads(&mut self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        self.level(query)
    }

    async fn rankables(&mut self, queue: i64, which: Ranked) -> Result<Vec<Rankable>, Fault> {
        let (text, now) = match which {
            Ranked::Ready(now) => (sql::RANK_READY, now),
            Ranked::Due(now) => (sql::RANK_DUE, now),
        };
        self.all(text, params![queue, now.get()], |row| {
            Ok(Rankable {
                seq: row.get::<_, i64>(0)?.cast_unsigned(),
                priority: row.get(1)?,
                static_score: row.get(2)?,
                created_at: row::time(row, 3)?,
                ready_at: row::time(row, 4)?,
            })
        })
    }

    async fn append(&mut self, event: &Event) -> Result<(), Fault> {
        self.write_event(event)
    }

    async fn events(&mut self, scope: &str, filter: &EventFilter) -> Result<Vec<Event>, Fault> {
        let limit = filter.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(-1));
        let after = filter.after.cast_signed();
        let mut events = match (&filter.task, filter.newest) {
            (None, false) => self.all(sql::EVENTS, params![scope, after, limit], row::event)?,
            (None, true) => self.all(sql::EVENTS_NEWEST, params![scope, after, limit], row::event)?,
            (Some(task), newest) => {
                let text = if newest { sql::TASK_EVENTS_NEWEST } else { sql::TASK_EVENTS };
                self.all(text, params![scope, after, limit, task.as_str()], row::event)?
            }
        };
        if filter.newest {
            events.reverse();
        }
        Ok(events)
    }

    async fn add_agent(&mut self, scope: &str, agent: &AgentRow) -> Result<bool, Fault> {
        let AgentRow { id, pid, host, started_at, stopped_at } = agent;
        let bound = params![scope, id, pid, host, started_at.get(), stopped_at.map(UnixMillis::get)];
        Ok(self.change(sql::ADD_AGENT, bound)? == 1)
    }

    async fn agent(&mut self, scope: &str, id: &str) -> Result<Option<AgentRow>, Fault> {
        self.one(sql::AGENT, params![scope, id], agent_row)
    }

    async fn agents(&mut self, scope: &str) -> Result<Vec<AgentRow>, Fault> {
        self.all(sql::AGENTS, params![scope], agent_row)
    }

    async fn stop_agent(&mut self, scope: &str, id: &str, at: UnixMillis) -> Result<(), Fault> {
        self.change(sql::STOP_AGENT, params![scope, id, at.get()]).map(drop)
    }

    async fn block(&mut self, upstream: &str) -> Result<Option<BlockRow>, Fault> {
        self.one(sql::BLOCK, params![upstream], block_row)
    }

    async fn set_block(&mut self, block: &BlockRow) -> Result<(), Fault> {
        let BlockRow { upstream, blocked_until, hits, reason, updated_at } = block;
        let bound = params![upstream, blocked_until.map(UnixMillis::get), hits, reason, updated_at.get()];
        self.change(sql::SET_BLOCK, bound).map(drop)
    }

    async fn add_usage(&mut self, usage: &UsageRow) -> Result<(), Fault> {
        let usage = &usage.clone().bounded();
        let UsageRow { scope, task, day, upstream, model, requests, .. } = usage;
        let [requests, input, output] =
            [*requests, usage.input_tokens, usage.output_tokens].map(u64::cast_signed);
        let [cached, waited, spent] =
            [usage.cache_read_tokens, usage.wait_ms, usage.spend_nanos].map(u64::cast_signed);
        let bound =
            params![scope, task, day, upstream, model, requests, input, output, cached, waited, spent];
        self.change(sql::ADD_USAGE, bound).map(drop)
    }

    async fn usage(&mut self, filter: &UsageFilter) -> Result<Vec<UsageRow>, Fault> {
        let UsageFilter { scope, task, day } = filter;
        self.all(sql::USAGE, params![scope, task, day], usage_row)
    }

    async fn add_gate_token(&mut self, token: &GateTokenRow) -> Result<(), Fault> {
        let GateTokenRow { hash, scope, task, level, made_at, expires_at } = token;
        let level = level.map(GateLevel::word);
        let bound = params![hash, scope, task, level, made_at.get(), expires_at.map(UnixMillis::get)];
        self.change(sql::ADD_GATE_TOKEN, bound).map(drop)
    }

    async fn gate_token(&mut self, hash: &str) -> Result<Option<GateTokenRow>, Fault> {
        self.one(sql::GATE_TOKEN, params![hash], gate_token_row)
    }
}

fn queue_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<QueueRow> {
    Ok(QueueRow { key: row.get(0)?, name: row.get(1)?, paused: row.get(2)? })
}

fn agent_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<AgentRow> {
    Ok(AgentRow {
        id: row.get(0)?,
        pid: row.get(1)?,
        host: row.get(2)?,
        started_at: row::time(row, 3)?,
        stopped_at: row::optional_time(row, 4)?,
    })
}

fn block_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<BlockRow> {
    Ok(BlockRow {
        upstream: row.get(0)?,
        blocked_until: row::optional_time(row, 1)?,
        hits: row.get(2)?,
        reason: row.get(3)?,
        updated_at: row::time(row, 4)?,
    })
}

fn usage_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<UsageRow> {
    let count = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    Ok(UsageRow {
        scope: row.get(0)?,
        task: row.get(1)?,
        day: row.get(2)?,
        upstream: row.get(3)?,
        model: row.get(4)?,
        requests: count(5)?,
        input_tokens: count(6)?,
        output_tokens: count(7)?,
        cache_read_tokens: count(8)?,
        wait_ms: count(9)?,
        spend_nanos: count(10)?,
    })
}

fn gate_token_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<GateTokenRow> {
    Ok(GateTokenRow {
        hash: row.get(0)?,
        scope: row.get(1)?,
        task: row.get(2)?,
        level: row.get::<_, Option<String>>(3)?.and_then(|word| GateLevel::from_word(&word)),
        made_at: row::time(row, 4)?,
        expires_at: row::optional_time(row, 5)?,
    })
}

fn policy_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<PolicyRow> {
    Ok(PolicyRow {
        number: row.get::<_, i64>(0)?.cast_unsigned(),
        version: row.get(1)?,
        document: Json::from_stored(row.get(2)?),
        published_at: row::time(row, 3)?,
        actor: row.get(4)?,
    })
}
