//! One transaction on the memory store: a copy that replaces the original on commit.

mod upkeep;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::obstacle::{Facts, ParentFact, Stage};
use rota_core::rank::Rankable;
use rota_core::{Policy, Status, Task, TaskId, UnixMillis};

use super::{Clock, Shared, State, Stored};
use crate::fault::Fault;
use crate::in_context::{self, InContext};
use crate::store::Access;
use crate::tx::{
    AgentRow, BlockRow, Blocker, EventFilter, Filter, GateTokenRow, HeadQuery, Level, ListFilter, PolicyRow,
    Published, QueueRow, Ranked, Row, SettlementRow, Standing, StatusCount, Tx, UsageFilter, UsageRow,
};

/// One transaction.
pub struct MemoryTx {
    shared: Arc<Shared>,
    before: Option<State>,
    state: State,
    clock: Clock,
    access: Access,
}

impl MemoryTx {
    pub(super) fn new(shared: Arc<Shared>, before: State, clock: Clock, access: Access) -> Self {
        let state = before.clone();
        Self { shared, before: Some(before), state, clock, access }
    }

    fn get(&self, scope: &str, id: &TaskId) -> Option<&Stored> {
        self.state.tasks.get(&(scope.to_owned(), id.clone())).map(Arc::as_ref)
    }

    fn row(&self, scope: &str, id: &TaskId) -> Option<Row> {
        self.get(scope, id).map(|stored| stored.row.clone())
    }

    fn of_queue(&self, queue: i64) -> impl Iterator<Item = &Stored> {
        self.state.tasks.values().map(Arc::as_ref).filter(move |stored| stored.queue == queue)
    }

    /// The blockers of a task, by id.
    fn blockers_of(&self, scope: &str, task: &TaskId) -> impl Iterator<Item = &TaskId> {
        let first = (scope.to_owned(), (task.clone(), TaskId::from_stored("".into())));
        let own = self.state.edges.range(first.clone()..).map(|(edge, ())| edge);
        own.take_while(move |(of, (id, _))| *of == first.0 && *id == first.1.0)
            .map(|(_, (_, blocker))| blocker)
    }

    /// Counted from the edges, not from what was counted before.
    fn open_blockers(&self, task: &Task) -> u32 {
        let blocked = self.blockers_of(&task.scope, &task.id).filter(|blocker| {
            !self.get(&task.scope, blocker).is_some_and(|stored| stored.row.task.status.satisfies_edge())
        });
        u32::try_from(blocked.count()).unwrap_or(u32::MAX)
    }

    fn stage(&self, task: &Task, now: UnixMillis) -> Stage {
        let parent = task.parent.as_ref().and_then(|parent| self.get(&task.scope, parent));
        let parent = parent.map(|stored| ParentFact {
            status: stored.row.task.status,
            iteration: stored.row.task.iteration,
        });
        let open_blockers = self.open_blockers(task);
        Stage::of(task, &Facts { parent, open_blockers, blocked_by: Vec::new() }, now)
    }

    fn ready(&self, queue: i64, now: UnixMillis) -> impl Iterator<Item = &Stored> {
        self.of_queue(queue).filter(move |stored| self.stage(&stored.row.task, now) == Stage::Ready)
    }

    fn put(&mut self, row: Row, queue: i64, standing: &Standing) {
        let key = (row.task.scope.to_string(), row.task.id.clone());
        let Standing { static_score, guarded, .. } = *standing;
        let stored = Stored { row, queue, static_score, guarded };
        self.state.tasks.insert(key, Arc::new(stored));
    }
}

impl Drop for MemoryTx {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.shared.put(before);
        }
    }
}

#[async_trait]
impl Tx for MemoryTx {
    fn writes(&self) -> bool {
        self.access == Access::Write
    }

    async fn commit(mut self) -> Result<(), Fault> {
        self.before = Some(std::mem::take(&mut self.state));
        Ok(())
    }

    async fn clock(&mut self) -> Result<UnixMillis, Fault> {
        Ok((self.clock)())
    }

    async fn policy(&mut self, scope: &str) -> Result<Option<Arc<Published>>, Fault> {
        let Some(row) = self.state.policies.get(scope).and_then(|rows| rows.last()) else { return Ok(None) };
        let policy = Policy::parse(row.document.as_str()).map_err(|error| Fault::UnreadablePolicy {
            scope: scope.to_owned(),
            problem: error.to_string(),
        })?;
        Ok(Some(Arc::new(Published { version: row.version.clone(), policy })))
    }

    async fn add_policy(&mut self, scope: &str, row: &PolicyRow) -> Result<(), Fault> {
        self.state.policies.entry(scope.to_owned()).or_default().push(row.clone());
        Ok(())
    }

    async fn policies(&mut self, scope: &str) -> Result<Vec<PolicyRow>, Fault> {
        Ok(self.state.policies.get(scope).cloned().unwrap_or_default())
    }

    async fn lock_edges(&mut self, _scope: &str) -> Result<(), Fault> {
        Ok(())
    }

    async fn share_edges(&mut self, _scope: &str) -> Result<(), Fault> {
        Ok(())
    }

    async fn queue(&mut self, scope: &str, name: &str, _bounded: bool) -> Result<Option<QueueRow>, Fault> {
        Ok(self.state.queues.get(&(scope.to_owned(), name.to_owned())).cloned())
    }

    async fn queues(&mut self, scope: &str) -> Result<Vec<QueueRow>, Fault> {
        let own = self.state.queues.iter().filter(|((of, _), _)| of == scope);
        Ok(own.map(|(_, row)| row.clone()).collect())
    }

    async fn ensure_queue(&mut self, scope: &str, name: &str) -> Result<QueueRow, Fault> {
        let key = (scope.to_owned(), name.to_owned());
        if let Some(row) = self.state.queues.get(&key) {
            return Ok(row.clone());
        }
        self.state.last_queue += 1;
        let row = QueueRow { key: self.state.last_queue, name: name.to_owned(), paused: false };
        self.state.queues.insert(key, row.clone());
        Ok(row)
    }

    async fn set_queue_paused(&mut self, key: i64, paused: bool) -> Result<(), Fault> {
        self.state.queues.values_mut().filter(|row| row.key == key).for_each(|row| row.paused = paused);
        Ok(())
    }

    async fn in_context(&mut self, scope: &str, id: &TaskId) -> Result<Option<InContext>, Fault> {
        in_context::in_steps(self, scope, id).await
    }

    async fn task(&mut self, scope: &str, id: &TaskId) -> Result<Option<Row>, Fault> {
        Ok(self.row(scope, id))
    }

    async fn tasks(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<Row>, Fault> {
        Ok(ids.iter().filter_map(|id| self.row(scope, id)).collect())
    }

    async fn lock_tasks(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<Row>, Fault> {
        self.tasks(scope, ids).await
    }

    async fn settlement_rows(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<SettlementRow>, Fault> {
        let mut rows = self.tasks(scope, ids).await?;
        rows.sort_by(|left, right| left.task.id.cmp(&right.task.id));
        rows.dedup_by(|left, right| left.task.id == right.task.id);
        let has_dependents =
            |id: &TaskId| self.state.edges.keys().any(|(of, (_, by))| of == scope && by == id);
        let has_children = |id: &TaskId| {
            let tasks = self.state.tasks.values().map(|stored| &stored.row.task);
            tasks.into_iter().any(|task| task.scope == scope && task.parent.as_ref() == Some(id))
        };
        let settled = |row: Row| {
            let Task { id, parent, .. } = &row.task;
            let is_linked = parent.is_some() || has_dependents(id) || has_children(id);
            SettlementRow { row, is_linked }
        };
        Ok(rows.into_iter().map(settled).collect())
    }

    async fn tasks_by_seq(&mut self, seqs: &[u64]) -> Result<Vec<Row>, Fault> {
        let all = self.state.tasks.values().filter(|stored| seqs.contains(&stored.row.task.seq));
        Ok(all.map(|stored| stored.row.clone()).collect())
    }

    async fn list(&mut self, scope: &str, filter: &ListFilter) -> Result<Vec<Row>, Fault> {
        let wanted = |stored: &&Arc<Stored>| {
            let task = &stored.row.task;
            task.scope == scope
                && filter.queue.is_none_or(|queue| queue == stored.queue)
                && (filter.statuses.is_empty() || filter.statuses.contains(&task.status))
                && filter.assignee.as_ref().is_none_or(|wanted| task.assignee.as_ref() == Some(wanted))
                && filter.filter.admits(task)
        };
        Ok(self.state.tasks.values().filter(wanted).map(|stored| stored.row.clone()).collect())
    }

    async fn list_unleased(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<Vec<Row>, Fault> {
        let is_unheld = |task: &Task| match task.status {
            Status::Deleted => false,
            Status::Active => task.lease_expired(now),
            _ => true,
        };
        let rows = self.of_queue(queue).map(|stored| stored.row.clone());
        let mut rows: Vec<Row> = rows.filter(|row| is_unheld(&row.task)).collect();
        rows.sort_by_key(|row| (row.task.sort_priority(), row.task.created_at, row.task.seq));
        rows.truncate(limit);
        Ok(rows)
    }

    async fn count(&mut self, queue: i64, filter: &Filter) -> Result<Vec<StatusCount>, Fault> {
        let mut counts: BTreeMap<(Status, bool), u64> = BTreeMap::new();
        for stored in self.of_queue(queue).filter(|stored| filter.admits(&stored.row.task)) {
            let blocked = self.open_blockers(&stored.row.task) > 0;
            *counts.entry((stored.row.task.status, blocked)).or_default() += 1;
        }
        Ok(counts
            .into_iter()
            .map(|((status, blocked), count)| StatusCount { status, blocked, count })
            .collect())
    }

    async fn specs(&mut self, scope: &str) -> Result<Vec<String>, Fault> {
        let own = self.state.tasks.values().filter(|stored| stored.row.task.scope == scope);
        let mut specs: Vec<String> = own.filter_map(|stored| stored.row.task.spec_ref.clone()).collect();
        specs.sort();
        specs.dedup();
        Ok(specs)
    }

    async fn insert(&mut self, task: &Task, queue: i64, standing: &Standing) -> Result<u64, Fault> {
        self.state.last_seq += 1;
        let task = Task { seq: self.state.last_seq, ..task.clone() };
        self.put(Row { task, open_blockers: standing.open_blockers }, queue, standing);
        Ok(self.state.last_seq)
    }

    async fn update(&mut self, old: &Task, next: &Task, standing: &Standing) -> Result<(), Fault> {
        let queue = self.get(&old.scope, &old.id).map_or(0, |stored| stored.queue);
        self.put(Row { task: next.clone(), open_blockers: standing.open_blockers }, queue, standing);
        Ok(())
    }

    async fn blockers(&mut self, scope: &str, id: &TaskId) -> Result<Vec<Blocker>, Fault> {
        let blocker = |blocker: &TaskId| {
            let task = &self.get(scope, blocker)?.row.task;
            Some(Blocker {
                id: task.id.clone(),
                title: task.title.to_string(),
                status: task.status,
                result: task.result.clone(),
            })
        };
        Ok(self.blockers_of(scope, id).filter_map(blocker).collect())
    }

    async fn edges(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let own = |id: &TaskId| -> Vec<(TaskId, TaskId)> {
            self.blockers_of(scope, id).map(|blocker| (id.clone(), blocker.clone())).collect()
        };
        Ok(ids.iter().flat_map(own).collect())
    }

    async fn add_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<bool, Fault> {
        let edge = (scope.to_owned(), (task.clone(), blocker.clone()));
        Ok(self.state.edges.insert(edge, ()).is_none())
    }

    async fn remove_edge(&mut self, scope: &str, task: &TaskId, blocker: &TaskId) -> Result<bool, Fault> {
        let edge = (scope.to_owned(), (task.clone(), blocker.clone()));
        Ok(self.state.edges.remove(&edge).is_some())
    }

    async fn shift_dependents(&mut self, scope: &str, blocker: &TaskId, by: i32) -> Result<Vec<Row>, Fault> {
        let own = self.state.edges.keys().filter(|(of, (_, by))| of == scope && by == blocker);
        let dependents: Vec<TaskId> = own.map(|(_, (task, _))| task.clone()).collect();
        let mut rows = Vec::new();
        for id in dependents {
            let key = (scope.to_owned(), id);
            let Some(stored) = self.state.tasks.get_mut(&key) else { continue };
            let stored = Arc::make_mut(stored);
            stored.row.open_blockers = stored.row.open_blockers.saturating_add_signed(by);
            rows.push(stored.row.clone());
        }
        Ok(rows)
    }

    async fn children(&mut self, scope: &str, parent: &TaskId) -> Result<Vec<Row>, Fault> {
        let own = self.state.tasks.values().map(|stored| &stored.row);
        let own = own.filter(|row| row.task.scope == scope && row.task.parent.as_ref() == Some(parent));
        Ok(own.cloned().collect())
    }

    async fn expired(&mut self, queue: i64, now: UnixMillis, limit: usize) -> Result<Vec<Row>, Fault> {
        let expired = self.of_queue(queue).filter(|stored| stored.row.task.lease_expired(now));
        let mut rows: Vec<Row> = expired.map(|stored| stored.row.clone()).collect();
        rows.sort_by_key(|row| (row.task.lease_expires_at, row.task.kind.clone(), row.task.seq));
        rows.truncate(limit);
        Ok(rows)
    }

    async fn promote_due(&mut self, _queue: i64, _now: UnixMillis, _limit: usize) -> Result<usize, Fault> {
        Ok(0)
    }

    async fn awaiting_artifact(
        &mut self,
        queue: i64,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let waits = |task: &Task| {
            task.status == Status::Open
                && task.triggered_by.is_some()
                && !task.artifact_present
                && task.seq > after_seq
        };
        let waiting = self.of_queue(queue).filter(|stored| waits(&stored.row.task));
        let mut rows: Vec<Row> = waiting.map(|stored| stored.row.clone()).collect();
        rows.sort_by_key(|row| row.task.seq);
        rows.truncate(limit);
        Ok(rows)
    }

    async fn ready_count(&mut self, queue: i64, now: UnixMillis) -> Result<u64, Fault> {
        Ok(self.ready(queue, now).count() as u64)
    }

    async fn next_due(&mut self, queue: i64) -> Result<Option<UnixMillis>, Fault> {
        // Only what a time holds back alone; here nothing is told that its time has come.
        let cools =
            |stored: &&Stored| self.stage(&stored.row.task, UnixMillis::new(i64::MIN)) == Stage::Cooling;
        Ok(self.of_queue(queue).filter(cools).filter_map(|stored| stored.row.task.next_eligible_at).min())
    }

    async fn active_by_kind(&mut self, queue: i64) -> Result<BTreeMap<String, u32>, Fault> {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for stored in self.of_queue(queue).filter(|stored| stored.row.task.status == Status::Active) {
            *counts.entry(stored.row.task.kind.clone().unwrap_or_default()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Everything of the next priority: choosing from all is choosing from the heads.
    async fn heads(&mut self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        let wanted: Vec<&Stored> = self
            .ready(query.queue, query.now)
            .filter(|stored| query.after.is_none_or(|after| stored.row.task.sort_priority() > after))
            .filter(|stored| query.filter.admits(&stored.row.task))
            .filter(|stored| match (&stored.row.task.host, query.host) {
                (Some(host), Some(here)) => host == here,
                _ => true,
            })
            .filter(|stored| {
                let kind = stored.row.task.kind.clone().unwrap_or_default();
                !query.full_kinds.contains(&kind)
                    && query.only_kinds.is_none_or(|kinds| kinds.contains(&kind))
            })
            .collect();
        let Some(priority) = wanted.iter().map(|stored| stored.row.task.sort_priority()).min() else {
            return Ok(None);
        };
        let rows = wanted.into_iter().filter(|stored| stored.row.task.sort_priority() == priority);
        Ok(Some(Level { priority, rows: rows.map(|stored| stored.row.clone()).collect() }))
    }

    async fn rankables(&mut self, queue: i64, which: Ranked) -> Result<Vec<Rankable>, Fault> {
        // Nothing is ever waiting to be admitted here: due tasks are ready.
        let Ranked::Ready(now) = which else { return Ok(Vec::new()) };
        let rankable = |stored: &Stored| Rankable {
            seq: stored.row.task.seq,
            priority: stored.row.task.sort_priority(),
            static_score: stored.static_score,
            created_at: stored.row.task.created_at,
            ready_at: stored.row.task.ready_at(),
        };
        Ok(self.ready(queue, now).map(rankable).collect())
    }

    async fn append(&mut self, event: &Event) -> Result<(), Fault> {
        self.state.last_event += 1;
        let seq = self.state.last_event;
        self.state.journal.push(Arc::new(Event { seq, ..event.clone() }));
        Ok(())
    }

    async fn events(&mut self, scope: &str, filter: &EventFilter) -> Result<Vec<Event>, Fault> {
        let wanted = self.state.journal.iter().filter(|event| {
            event.scope == scope
                && event.seq > filter.after
                && filter.task.as_ref().is_none_or(|task| event.task.as_ref() == Some(task))
        });
        let mut events: Vec<Event> = wanted.map(|event| Event::clone(event)).collect();
        let limit = filter.limit.unwrap_or(usize::MAX).min(events.len());
        if filter.newest {
            events.drain(..events.len() - limit);
        }
        events.truncate(limit);
        Ok(events)
    }

    async fn add_agent(&mut self, scope: &str, agent: &AgentRow) -> Result<bool, Fault> {
        let key = (scope.to_owned(), agent.id.clone());
        if self.state.agents.contains_key(&key) {
            return Ok(false);
        }
        self.state.agents.insert(key, agent.clone());
        Ok(true)
    }

    async fn agent(&mut self, scope: &str, id: &str) -> Result<Option<AgentRow>, Fault> {
        Ok(self.state.agents.get(&(scope.to_owned(), id.to_owned())).cloned())
    }

    async fn agents(&mut self, scope: &str) -> Result<Vec<AgentRow>, Fault> {
        let own = self.state.agents.iter().filter(|((of, _), _)| of == scope);
        let mut agents: Vec<AgentRow> = own.map(|(_, agent)| agent.clone()).collect();
        agents.sort_by(|left, right| (right.started_at, &left.id).cmp(&(left.started_at, &right.id)));
        Ok(agents)
    }

    async fn stop_agent(&mut self, scope: &str, id: &str, at: UnixMillis) -> Result<(), Fault> {
        if let Some(agent) = self.state.agents.get_mut(&(scope.to_owned(), id.to_owned())) {
            agent.stopped_at = Some(at);
        }
        Ok(())
    }

    async fn block(&mut self, upstream: &str) -> Result<Option<BlockRow>, Fault> {
        Ok(self.state.blocks.get(upstream).cloned())
    }

    async fn set_block(&mut self, block: &BlockRow) -> Result<(), Fault> {
        self.state.blocks.insert(block.upstream.clone(), block.clone());
        Ok(())
    }

    async fn add_usage(&mut self, usage: &UsageRow) -> Result<(), Fault> {
        let usage = usage.clone().bounded();
        let UsageRow { scope, task, day, upstream, model, .. } = usage.clone();
        match self.state.usage.entry((scope, task, day, upstream, model)) {
            Entry::Vacant(entry) => drop(entry.insert(usage)),
            Entry::Occupied(mut entry) => entry.get_mut().add(&usage),
        }
        Ok(())
    }

    async fn usage(&mut self, filter: &UsageFilter) -> Result<Vec<UsageRow>, Fault> {
        let is_wanted = |row: &&UsageRow| {
            filter.scope.as_ref().is_none_or(|scope| *scope == row.scope)
                && filter.task.as_ref().is_none_or(|task| *task == row.task)
                && filter.day.is_none_or(|day| day == row.day)
        };
        Ok(self.state.usage.values().filter(is_wanted).cloned().collect())
    }

    async fn add_gate_token(&mut self, token: &GateTokenRow) -> Result<(), Fault> {
        self.state.gate_tokens.insert(token.hash.clone(), token.clone());
        Ok(())
    }

    async fn gate_token(&mut self, hash: &str) -> Result<Option<GateTokenRow>, Fault> {
        Ok(self.state.gate_tokens.get(hash).cloned())
    }
}
