//! One transaction on a PostgreSQL server. Reads are answered at once; writes wait in the outbox for the next read or
//! the COMMIT.

mod upkeep;

pub(super) use upkeep::{BLOCKS, RETIRED, retired_fence};

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::policy::GateLevel;
use rota_core::rank::Rankable;
use rota_core::{Json, Policy, Task, TaskId, UnixMillis};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;

use super::fetched::Fetched;
use super::outbox::Outbox;
use super::pipeline::{Reply, Statement};
use super::readback::Trace;
use super::row::{self, Values, get};
use super::{Object, Shared, sql};
use crate::fault::Fault;
use crate::in_context::{self, InContext};
use crate::store::Access;
use crate::tx::{
    AgentRow, BlockRow, Blocker, EventFilter, Filter, GateTokenRow, HeadQuery, Level, ListFilter, PolicyRow,
    Prefetch, Published, QueueRow, Ranked, Row, SettlementRow, Standing, StatusCount, Tx, UsageFilter,
    UsageRow, fields_differ,
};

/// Values of a statement.
pub(super) type Bound<'a> = &'a [&'a (dyn ToSql + Sync)];

/// One transaction. It owns its connection until it ends.
pub struct PostgresTx {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Option<Object>,
    pub(super) access: Access,
    /// BEGIN goes out with the first statement.
    pub(super) begun: bool,
    /// How to find the transaction again if the answer to its COMMIT is lost.
    pub(super) trace: Option<Trace>,
    /// Whether followers are to be woken.
    pub(super) has_appended: bool,
    /// Writes that were not sent yet.
    pub(super) outbox: Outbox,
    /// Answers to reads that were made ahead.
    pub(super) fetched: Fetched,
}

impl PostgresTx {
    pub(super) async fn query(&mut self, text: &str, bound: Bound<'_>) -> Result<Vec<PgRow>, Fault> {
        let replies = self.flush(vec![Statement::Rows(text, bound.to_vec())]).await?;
        Ok(replies.into_iter().flat_map(Reply::rows).collect())
    }

    pub(super) async fn one(&mut self, text: &str, bound: Bound<'_>) -> Result<Option<PgRow>, Fault> {
        Ok(self.query(text, bound).await?.into_iter().next())
    }

    pub(super) async fn all<T>(
        &mut self,
        text: &str,
        bound: Bound<'_>,
        read: fn(&PgRow) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        self.query(text, bound).await?.iter().map(read).collect()
    }

    async fn change(&mut self, text: &str, bound: Bound<'_>) -> Result<u64, Fault> {
        let replies = self.flush(vec![Statement::Count(text, bound.to_vec())]).await?;
        Ok(replies.first().map_or(0, Reply::count))
    }

    /// What this process last saw in force: none if it never looked, else whether anything is published.
    pub(super) fn known_policy(&self, scope: &str) -> Option<Option<Arc<Published>>> {
        let cache = self.shared.policies.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(scope).cloned()
    }

    pub(super) async fn published(
        &mut self,
        scope: &str,
        version: Option<String>,
    ) -> Result<Option<Arc<Published>>, Fault> {
        if let Some(known) = self.known_policy(scope)
            && known.as_ref().map(|published| &published.version) == version.as_ref()
        {
            return Ok(known);
        }
        let published = match version {
            None => None,
            Some(_) => self.newest_policy(scope).await?,
        };
        let mut cache = self.shared.policies.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(scope.to_owned(), published.clone());
        Ok(published)
    }

    async fn newest_policy(&mut self, scope: &str) -> Result<Option<Arc<Published>>, Fault> {
        let rows = self.all(sql::POLICIES, &[&scope], policy_row).await?;
        let Some(last) = rows.into_iter().next_back() else { return Ok(None) };
        let policy = Policy::parse(last.document.as_str()).map_err(|error| Fault::UnreadablePolicy {
            scope: scope.to_owned(),
            problem: error.to_string(),
        })?;
        Ok(Some(Arc::new(Published { version: last.version, policy })))
    }
}

pub(super) fn ids(list: &[TaskId]) -> Vec<&str> {
    list.iter().map(TaskId::as_str).collect()
}

#[async_trait]
impl Tx for PostgresTx {
    fn writes(&self) -> bool {
        self.access == Access::Write
    }

    async fn commit(self) -> Result<(), Fault> {
        self.end_well().await
    }

    async fn prefetch(&mut self, reads: &Prefetch<'_>) -> Result<(), Fault> {
        self.fetch(reads).await
    }

    async fn clock(&mut self) -> Result<UnixMillis, Fault> {
        if let Some(clock) = self.fetched.clock {
            return Ok(clock);
        }
        let row = self.one(sql::CLOCK, &[]).await?;
        row.as_ref().map_or(Ok(UnixMillis::default()), |row| row::time(row, 0))
    }

    async fn opening(&mut self, scope: &str) -> Result<(UnixMillis, Option<Arc<Published>>), Fault> {
        let known = self.fetched.opening.as_ref().filter(|opening| opening.scope == scope).cloned();
        let opening = match known {
            Some(opening) => opening,
            None => {
                let text = if self.writes() { sql::OPENING_TO_WRITE } else { sql::OPENING };
                let Some(row) = self.one(text, &[&scope]).await? else {
                    unreachable!("it has always one row")
                };
                self.read_opening(scope, &row)?
            }
        };
        let published = self.published(scope, opening.version).await?;
        Ok((opening.clock, published))
    }

    async fn policy(&mut self, scope: &str) -> Result<Option<Arc<Published>>, Fault> {
        Ok(self.opening(scope).await?.1)
    }

    async fn add_policy(&mut self, scope: &str, row: &PolicyRow) -> Result<(), Fault> {
        let (number, at) = (row.number.cast_signed(), row.published_at.get());
        let document = row.document.as_str();
        let values = Values::default().add(scope).add(number).add(row.version.as_str()).add(document);
        self.fetched.opening = None;
        self.outbox.other(sql::ADD_POLICY, values.add(at).add(row.actor.clone()));
        Ok(())
    }

    async fn policies(&mut self, scope: &str) -> Result<Vec<PolicyRow>, Fault> {
        self.all(sql::POLICIES, &[&scope], policy_row).await
    }

    async fn lock_edges(&mut self, scope: &str) -> Result<(), Fault> {
        self.query(sql::LOCK_EDGES, &[&scope]).await.map(drop)
    }

    async fn share_edges(&mut self, scope: &str) -> Result<(), Fault> {
        self.query(sql::SHARE_EDGES, &[&scope]).await.map(drop)
    }

    /// Locks in one statement and reads in the next, which sees what the wait was for.
    async fn queue(&mut self, scope: &str, name: &str, bounded: bool) -> Result<Option<QueueRow>, Fault> {
        let locks = bounded && self.writes();
        if let Some(row) = self.fetched.queue(scope, name, locks) {
            return Ok(row);
        }
        self.fetched.forget_queue();
        let read = Statement::Rows(sql::QUEUE, vec![&scope, &name]);
        let lock = locks.then(|| Statement::Rows(sql::LOCK_QUEUE, vec![&scope, &name]));
        let replies = self.flush(lock.into_iter().chain([read]).collect()).await?;
        let rows = replies.into_iter().next_back().map(Reply::rows).unwrap_or_default();
        let row = rows.first().map(queue_row).transpose()?;
        self.shared.note_queue(scope, name, row.as_ref());
        Ok(row)
    }

    async fn queues(&mut self, scope: &str) -> Result<Vec<QueueRow>, Fault> {
        self.all(sql::QUEUES, &[&scope], queue_row).await
    }

    async fn ensure_queue(&mut self, scope: &str, name: &str) -> Result<QueueRow, Fault> {
        if let Some(row) = self.queue(scope, name, false).await? {
            return Ok(row);
        }
        self.change(sql::ADD_QUEUE, &[&scope, &name]).await?;
        self.fetched.forget_queue();
        match self.one(sql::QUEUE, &[&scope, &name]).await? {
            Some(row) => queue_row(&row),
            None => Err(Fault::Unreadable { problem: format!("queue '{name}' was added and is not there") }),
        }
    }

    async fn set_queue_paused(&mut self, key: i64, paused: bool) -> Result<(), Fault> {
        self.fetched.forget_queue();
        self.outbox.other(sql::PAUSE_QUEUE, Values::default().add(key).add(paused));
        Ok(())
    }

    async fn in_context(&mut self, scope: &str, id: &TaskId) -> Result<Option<InContext>, Fault> {
        in_context::in_steps(self, scope, id).await
    }

    async fn settlement_rows(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<SettlementRow>, Fault> {
        if let Some(rows) = self.fetched.settlement(scope, list) {
            return Ok(rows);
        }
        let ids = ids(list);
        let lock = Statement::Rows(sql::TASKS_LOCKED, vec![&scope, &ids]);
        let look = Statement::Rows(sql::LINKS, vec![&scope, &ids]);
        let mut replies = self.flush(vec![lock, look]).await?.into_iter();
        self.fetched.read_settlement(replies.next(), replies.next())
    }

    async fn task(&mut self, scope: &str, id: &TaskId) -> Result<Option<Row>, Fault> {
        // A row to be settled is locked, and dropped here as soon as it is written.
        // One that did not exist may have been added since.
        let locked = self.fetched.settlement(scope, std::slice::from_ref(id)).unwrap_or_default();
        if let Some(found) = locked.into_iter().next() {
            return Ok(Some(found.row));
        }
        let text = if self.writes() { sql::TASK_LOCKED } else { sql::TASK };
        self.one(text, &[&scope, &id.as_str()]).await?.as_ref().map(row::task).transpose()
    }

    async fn tasks(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<Row>, Fault> {
        if list.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(rows) = self.fetched.existing(scope, list) {
            return Ok(rows);
        }
        self.all(sql::TASKS, &[&scope, &ids(list)], row::task).await
    }

    async fn lock_tasks(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<Row>, Fault> {
        if list.is_empty() {
            return Ok(Vec::new());
        }
        self.all(sql::TASKS_LOCKED, &[&scope, &ids(list)], row::task).await
    }

    async fn tasks_by_seq(&mut self, seqs: &[u64]) -> Result<Vec<Row>, Fault> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        let seqs: Vec<i64> = seqs.iter().map(|seq| seq.cast_signed()).collect();
        self.all(sql::TASKS_BY_SEQ, &[&seqs], row::task).await
    }

    async fn list(&mut self, scope: &str, filter: &ListFilter) -> Result<Vec<Row>, Fault> {
        let words: Vec<&str> = filter.statuses.iter().map(|status| status.word()).collect();
        let statuses = (!words.is_empty()).then_some(words);
        let Filter { category, specs } = &filter.filter;
        let bound: Bound<'_> = &[&scope, &filter.queue, &statuses, &filter.assignee, specs, category];
        self.all(sql::LIST, bound, row::task).await
    }

    async fn list_unleased(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<Vec<Row>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(sql::LIST_UNLEASED, &[&queue, &now.get(), &limit], row::task).await
    }

    async fn count(&mut self, queue: i64, filter: &Filter) -> Result<Vec<StatusCount>, Fault> {
        let bound: Bound<'_> = &[&queue, &filter.category, &filter.specs];
        self.all(sql::COUNT, bound, |row| {
            Ok(StatusCount {
                status: row::status(row, 0)?,
                blocked: get(row, 1)?,
                count: row::unsigned(row, 2)?,
            })
        })
        .await
    }

    async fn specs(&mut self, scope: &str) -> Result<Vec<String>, Fault> {
        self.all(sql::SPECS, &[&scope], |row| get(row, 0)).await
    }

    async fn reserve(&mut self, count: usize) -> Result<(), Fault> {
        let missing = count.saturating_sub(self.fetched.numbers.len());
        if missing > 0 {
            let missing = i64::try_from(missing).unwrap_or(i64::MAX);
            let numbers = self.all(sql::RESERVE, &[&missing], row::unsigned_first).await?;
            self.fetched.numbers.extend(numbers);
        }
        Ok(())
    }

    async fn insert(&mut self, task: &Task, queue: i64, standing: &Standing) -> Result<u64, Fault> {
        self.reserve(1).await?;
        let Some(seq) = self.fetched.numbers.pop_front() else {
            return Err(Fault::Unreadable { problem: "the server reserved no number for a task".to_owned() });
        };
        self.outbox.insert_task(&Task { seq, ..task.clone() }, queue, standing);
        self.fetched.note_insert(task, standing);
        Ok(seq)
    }

    async fn update(&mut self, old: &Task, next: &Task, standing: &Standing) -> Result<(), Fault> {
        if fields_differ(old, next) {
            self.outbox.update_fields(next);
        }
        self.outbox.update_state(next, standing);
        self.fetched.note_update(old, next, standing);
        Ok(())
    }

    async fn blockers(&mut self, scope: &str, id: &TaskId) -> Result<Vec<Blocker>, Fault> {
        if self.fetched.unlinked.has_no_blockers(scope, id) {
            return Ok(Vec::new());
        }
        if let Some(blockers) = self.fetched.ready.as_ref().and_then(|ready| ready.blockers(scope, id)) {
            return Ok(blockers);
        }
        self.all(sql::BLOCKERS, &[&scope, &id.as_str()], row::blocker).await
    }

    async fn edges(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let unlinked = &self.fetched.unlinked;
        let linked = list.iter().filter(|id| !unlinked.has_no_blockers(scope, id));
        let linked: Vec<&str> = linked.map(TaskId::as_str).collect();
        if linked.is_empty() {
            return Ok(Vec::new());
        }
        let bound: Bound<'_> = &[&scope, &linked];
        self.all(sql::EDGES, bound, |row| Ok((row::id(row, 0)?, row::id(row, 1)?))).await
    }

    async fn add_new_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<(), Fault> {
        self.fetched.unlinked.forget();
        self.fetched.note_edge(task);
        self.outbox.insert_edge(scope, task.as_str(), blocker.as_str());
        Ok(())
    }

    async fn add_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<bool, Fault> {
        self.fetched.unlinked.forget();
        self.fetched.note_edge(task);
        Ok(self.change(sql::ADD_EDGE, &[&scope, &task.as_str(), &blocker.as_str()]).await? == 1)
    }

    async fn remove_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<bool, Fault> {
        self.fetched.note_edge(task);
        Ok(self.change(sql::REMOVE_EDGE, &[&scope, &task.as_str(), &blocker.as_str()]).await? == 1)
    }

    async fn shift_dependents(&mut self, scope: &str, blocker: &TaskId, by: i32) -> Result<Vec<Row>, Fault> {
        let (id, by) = (blocker.as_str(), i64::from(by));
        let replies = self
            .flush(vec![
                Statement::Rows(sql::LOCK_DEPENDENTS, vec![&scope, &id]),
                Statement::Count(sql::SHIFT_DEPENDENTS, vec![&scope, &id, &by]),
                Statement::Rows(sql::DEPENDENTS, vec![&scope, &id]),
                // A settlement that matters to dependents matters to children too, which are asked for next.
                Statement::Rows(sql::CHILDREN_LOCKED, vec![&scope, &id]),
            ])
            .await?;
        let mut rows = replies.into_iter().skip(2).map(Reply::rows);
        let dependents: Vec<Row> =
            rows.next().unwrap_or_default().iter().map(row::task).collect::<Result<_, _>>()?;
        let children = rows.next().unwrap_or_default().iter().map(row::task).collect::<Result<_, _>>()?;
        dependents.iter().for_each(|row| self.fetched.forget_task(&row.task));
        self.fetched.keep_children(scope, blocker, children);
        Ok(dependents)
    }

    async fn children(&mut self, scope: &str, parent: &TaskId) -> Result<Vec<Row>, Fault> {
        if self.fetched.ready.as_ref().is_some_and(|ready| ready.is_childless(scope, parent)) {
            return Ok(Vec::new());
        }
        if let Some(rows) = self.fetched.children(scope, parent) {
            return Ok(rows);
        }
        let text = if self.writes() { sql::CHILDREN_LOCKED } else { sql::CHILDREN };
        self.all(text, &[&scope, &parent.as_str()], row::task).await
    }

    async fn expired(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<Vec<Row>, Fault> {
        if let Some(rows) = self.fetched.expired(queue) {
            return Ok(rows);
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let text = if self.writes() { sql::EXPIRED_LOCKED } else { sql::EXPIRED };
        self.all(text, &[&queue, &now.get(), &limit], row::task).await
    }

    async fn promote_due(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<usize, Fault> {
        if let Some(promoted) = self.fetched.promoted(queue) {
            return Ok(promoted);
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let admitted = self.change(sql::PROMOTE_DUE, &[&queue, &now.get(), &limit]).await?;
        Ok(usize::try_from(admitted).unwrap_or(usize::MAX))
    }

    async fn awaiting_artifact(
        &mut self,
        queue: i64,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.all(sql::AWAITING_ARTIFACT, &[&queue, &after_seq.cast_signed(), &limit], row::task).await
    }

    async fn ready_count(&mut self, queue: i64, now: UnixMillis) -> Result<u64, Fault> {
        let row = self.one(sql::READY_COUNT, &[&queue, &now.get()]).await?;
        row.as_ref().map_or(Ok(0), |row| row::unsigned(row, 0))
    }

    async fn next_due(&mut self, queue: i64) -> Result<Option<UnixMillis>, Fault> {
        let row = self.one(sql::NEXT_DUE, &[&queue]).await?;
        row.as_ref().map(|row| row::time(row, 0)).transpose()
    }

    async fn active_by_kind(&mut self, queue: i64) -> Result<BTreeMap<String, u32>, Fault> {
        if let Some(active) = self.fetched.active(queue) {
            return Ok(active);
        }
        Ok(self.all(sql::ACTIVE_BY_KIND, &[&queue], active_of_kind).await?.into_iter().collect())
    }

    async fn heads(&mut self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        if query.bucketed { self.bucket_heads(query).await } else { self.plain_heads(query).await }
    }

    async fn rankables(&mut self, queue: i64, which: Ranked) -> Result<Vec<Rankable>, Fault> {
        let (text, now) = match which {
            Ranked::Ready(now) => (sql::RANK_READY, now),
            Ranked::Due(now) => (sql::RANK_DUE, now),
        };
        self.all(text, &[&queue, &now.get()], |row| {
            Ok(Rankable {
                seq: row::unsigned(row, 0)?,
                priority: row::unsigned(row, 1)?,
                static_score: get(row, 2)?,
                created_at: row::time(row, 3)?,
                ready_at: row::time(row, 4)?,
            })
        })
        .await
    }

    async fn append(&mut self, event: &Event) -> Result<(), Fault> {
        if self.outbox.is_full() {
            self.flush(Vec::new()).await?;
        }
        self.outbox.append(event);
        self.leave_trace(event);
        self.has_appended = true;
        Ok(())
    }

    async fn events(&mut self, scope: &str, filter: &EventFilter) -> Result<Vec<Event>, Fault> {
        let limit = filter.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let after = filter.after.cast_signed();
        let mut events = match (&filter.task, filter.newest) {
            (None, false) => self.all(sql::EVENTS, &[&scope, &after, &limit], row::event).await?,
            (None, true) => self.all(sql::EVENTS_NEWEST, &[&scope, &after, &limit], row::event).await?,
            (Some(task), newest) => {
                let text = if newest { sql::TASK_EVENTS_NEWEST } else { sql::TASK_EVENTS };
                self.all(text, &[&scope, &after, &limit, &task.as_str()], row::event).await?
            }
        };
        if filter.newest {
            events.reverse();
        }
        Ok(events)
    }

    async fn add_agent(&mut self, scope: &str, agent: &AgentRow) -> Result<bool, Fault> {
        let (started, stopped) = (agent.started_at.get(), agent.stopped_at.map(UnixMillis::get));
        let bound: Bound<'_> = &[&scope, &agent.id, &i64::from(agent.pid), &agent.host, &started, &stopped];
        Ok(self.change(sql::ADD_AGENT, bound).await? == 1)
    }

    async fn agent(&mut self, scope: &str, id: &str) -> Result<Option<AgentRow>, Fault> {
        self.one(sql::AGENT, &[&scope, &id]).await?.as_ref().map(agent_row).transpose()
    }

    async fn agents(&mut self, scope: &str) -> Result<Vec<AgentRow>, Fault> {
        self.all(sql::AGENTS, &[&scope], agent_row).await
    }

    async fn stop_agent(&mut self, scope: &str, id: &str, at: UnixMillis) -> Result<(), Fault> {
        self.outbox.other(sql::STOP_AGENT, Values::default().add(scope).add(id).add(at.get()));
        Ok(())
    }

    async fn block(&mut self, upstream: &str) -> Result<Option<BlockRow>, Fault> {
        if let Some(blocks) = &self.fetched.blocks {
            return Ok(blocks.iter().find(|block| block.upstream == upstream).cloned());
        }
        self.one(sql::BLOCK, &[&upstream]).await?.as_ref().map(block_row).transpose()
    }

    async fn set_block(&mut self, block: &BlockRow) -> Result<(), Fault> {
        self.fetched.blocks = None;
        let (until, hits) = (block.blocked_until.map(UnixMillis::get), i64::from(block.hits));
        let values = Values::default().add(block.upstream.as_str()).add(until).add(hits);
        self.outbox.other(sql::SET_BLOCK, values.add(block.reason.clone()).add(block.updated_at.get()));
        Ok(())
    }

    async fn add_usage(&mut self, usage: &UsageRow) -> Result<(), Fault> {
        let usage = &usage.clone().bounded();
        let UsageRow { scope, task, day, upstream, model, requests, .. } = usage;
        let [requests, input, output] =
            [*requests, usage.input_tokens, usage.output_tokens].map(u64::cast_signed);
        let [cached, waited, spent] =
            [usage.cache_read_tokens, usage.wait_ms, usage.spend_nanos].map(u64::cast_signed);
        let values = Values::default().add(scope.as_str()).add(task.as_str()).add(*day);
        let values = values.add(upstream.as_str()).add(model.as_str()).add(requests).add(input).add(output);
        self.outbox.other(sql::ADD_USAGE, values.add(cached).add(waited).add(spent));
        Ok(())
    }

    async fn usage(&mut self, filter: &UsageFilter) -> Result<Vec<UsageRow>, Fault> {
        self.all(sql::USAGE, &[&filter.scope, &filter.task, &filter.day], row::usage).await
    }

    async fn add_gate_token(&mut self, token: &GateTokenRow) -> Result<(), Fault> {
        let GateTokenRow { hash, scope, task, level, made_at, expires_at } = token;
        let (level, made, expires) =
            (level.map(GateLevel::word), made_at.get(), expires_at.map(UnixMillis::get));
        let values = Values::default().add(hash.as_str()).add(scope.as_str()).add(task.clone());
        self.outbox.other(sql::ADD_GATE_TOKEN, values.add(level).add(made).add(expires));
        Ok(())
    }

    async fn gate_token(&mut self, hash: &str) -> Result<Option<GateTokenRow>, Fault> {
        self.one(sql::GATE_TOKEN, &[&hash]).await?.as_ref().map(gate_token_row).transpose()
    }
}

pub(super) fn active_of_kind(row: &PgRow) -> Result<(String, u32), Fault> {
    Ok((get(row, 0)?, row::unsigned(row, 1)?))
}

pub(super) fn queue_row(row: &PgRow) -> Result<QueueRow, Fault> {
    Ok(QueueRow { key: get(row, 0)?, name: get(row, 1)?, paused: get(row, 2)? })
}

fn agent_row(row: &PgRow) -> Result<AgentRow, Fault> {
    let (id, pid, host) = (get(row, 0)?, row::unsigned(row, 1)?, get(row, 2)?);
    Ok(AgentRow { id, pid, host, started_at: row::time(row, 3)?, stopped_at: row::optional_time(row, 4)? })
}

pub(super) fn block_row(row: &PgRow) -> Result<BlockRow, Fault> {
    Ok(BlockRow {
        upstream: get(row, 0)?,
        blocked_until: row::optional_time(row, 1)?,
        hits: row::unsigned(row, 2)?,
        reason: get(row, 3)?,
        updated_at: row::time(row, 4)?,
    })
}

fn gate_token_row(row: &PgRow) -> Result<GateTokenRow, Fault> {
    Ok(GateTokenRow {
        hash: get(row, 0)?,
        scope: get(row, 1)?,
        task: get(row, 2)?,
        level: get::<Option<String>>(row, 3)?.and_then(|word| GateLevel::from_word(&word)),
        made_at: row::time(row, 4)?,
        expires_at: row::optional_time(row, 5)?,
    })
}

fn policy_row(row: &PgRow) -> Result<PolicyRow, Fault> {
    Ok(PolicyRow {
        number: row::unsigned(row, 0)?,
        version: get(row, 1)?,
        document: Json::from_stored(get(row, 2)?),
        published_at: row::time(row, 3)?,
        actor: get(row, 4)?,
    })
}
