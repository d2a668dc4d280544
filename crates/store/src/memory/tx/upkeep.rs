//! Keeping the maps in order.

use std::sync::Arc;

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::{Fence, Status, Task, TaskId, UnixMillis};

use super::super::Stored;
use super::MemoryTx;
use crate::fault::Fault;
use crate::sqlite::SCHEMA;
use crate::tx::{BlockRow, EventFilter, Row, Standing, Tx};
use crate::upkeep::{Cursor, EdgeRow, Highest, Kept, Upkeep};

impl MemoryTx {
    fn rows_of(&self, scope: &str) -> Vec<Row> {
        let own = self.state.tasks.values().filter(|stored| stored.row.task.scope == scope);
        let mut rows: Vec<Row> = own.map(|stored| stored.row.clone()).collect();
        rows.sort_by_key(|row| row.task.seq);
        rows
    }

    fn status_of(&self, scope: &str, id: &TaskId) -> Option<Status> {
        self.get(scope, id).map(|stored| stored.row.task.status)
    }

    fn kept(&self, stored: &Stored) -> Kept {
        let task = &stored.row.task;
        Kept {
            row: stored.row.clone(),
            stage: self.stage(task, (self.clock)()).number(),
            sort_priority: i64::from(task.sort_priority()),
            static_score: stored.static_score,
            ready_at: task.ready_at().get(),
            guarded: stored.guarded,
            bucketed: None,
        }
    }
}

#[async_trait]
impl Upkeep for MemoryTx {
    async fn follow(
        &mut self,
        scope: &str,
        after: Cursor,
        limit: usize,
    ) -> Result<(Vec<(Cursor, Event)>, Cursor), Fault> {
        let filter = EventFilter { after: after.seq, limit: Some(limit), ..EventFilter::default() };
        let events = self.events(scope, &filter).await?;
        let seq = events.last().map_or(after.seq, |last| last.seq);
        let placed = events.into_iter().map(|event| (Cursor { turn: 0, seq: event.seq }, event));
        Ok((placed.collect(), Cursor { turn: 0, seq }))
    }

    async fn tail(
        &mut self,
        scope: &str,
        task: Option<&TaskId>,
        limit: usize,
    ) -> Result<(Vec<Event>, Cursor), Fault> {
        let filter = EventFilter { task: task.cloned(), after: 0, limit: Some(limit), newest: true };
        let events = self.events(scope, &filter).await?;
        Ok((events, Cursor { turn: 0, seq: self.state.last_event }))
    }

    async fn schema(&mut self) -> Result<i64, Fault> {
        Ok(SCHEMA)
    }

    async fn integrity(&mut self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    async fn scopes(&mut self) -> Result<Vec<String>, Fault> {
        let state = &self.state;
        let named = state.queues.keys().map(|(scope, _)| scope).chain(state.policies.keys());
        let named = named.chain(state.agents.keys().map(|(scope, _)| scope));
        let named = named.chain(state.retired.keys().map(|(scope, _)| scope));
        let mut scopes: Vec<String> = named.cloned().collect();
        scopes.sort();
        scopes.dedup();
        Ok(scopes)
    }

    async fn highest(&mut self) -> Result<Highest, Fault> {
        let task = self.state.tasks.values().map(|stored| stored.row.task.seq).max().unwrap_or(0);
        let event = self.state.journal.iter().map(|event| event.seq).max().unwrap_or(0);
        Ok(Highest { task, event })
    }

    async fn page(&mut self, scope: &str, after: u64, limit: usize) -> Result<Vec<Kept>, Fault> {
        let rows = self.rows_of(scope);
        let rows = rows.iter().filter(|row| row.task.seq > after).take(limit);
        Ok(rows.filter_map(|row| Some(self.kept(self.get(scope, &row.task.id)?))).collect())
    }

    async fn blocker_states(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<EdgeRow>, Fault> {
        let own = self.state.edges.keys().filter(|(of, (task, _))| of == scope && ids.contains(task));
        let row = |(_, (task, blocker)): &(String, (TaskId, TaskId))| EdgeRow {
            task: task.clone(),
            blocker: blocker.clone(),
            status: self.status_of(scope, blocker),
        };
        Ok(own.map(row).collect())
    }

    async fn events_of(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<Event>, Fault> {
        let own = self.state.journal.iter().filter(|event| {
            event.scope == scope && event.task.as_ref().is_some_and(|task| ids.contains(task))
        });
        let mut events: Vec<Event> = own.map(|event| Event::clone(event)).collect();
        events.sort_by(|left, right| (&left.task, left.number).cmp(&(&right.task, right.number)));
        Ok(events)
    }

    async fn edge_page(
        &mut self,
        scope: &str,
        after: Option<&(TaskId, TaskId)>,
        limit: usize,
    ) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let own = self.state.edges.keys().filter(|(of, edge)| of == scope && Some(edge) > after);
        Ok(own.take(limit).map(|(_, edge)| edge.clone()).collect())
    }

    async fn stray_edges(&mut self, scope: &str, limit: usize) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let gone = |id: &TaskId| self.get(scope, id).is_none();
        let own = self.state.edges.keys().filter(|(of, _)| of == scope).map(|(_, edge)| edge);
        let stray = own.filter(|(task, blocker)| gone(task) || gone(blocker));
        Ok(stray.take(limit).cloned().collect())
    }

    async fn stray_events(&mut self, scope: &str, limit: usize) -> Result<Vec<TaskId>, Fault> {
        let own = self.state.journal.iter().filter(|event| event.scope == scope);
        let named = own.filter_map(|event| event.task.as_ref());
        let mut stray: Vec<TaskId> = named.filter(|id| self.get(scope, id).is_none()).cloned().collect();
        stray.sort();
        stray.dedup();
        stray.truncate(limit);
        Ok(stray)
    }

    async fn blocks(&mut self) -> Result<Vec<BlockRow>, Fault> {
        Ok(self.state.blocks.values().cloned().collect())
    }

    async fn retired_page(
        &mut self,
        scope: &str,
        after: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<(TaskId, Fence)>, Fault> {
        let own = self.state.retired.iter().filter(|((of, id), _)| of == scope && Some(id) > after);
        Ok(own.take(limit).map(|((_, id), fence)| (id.clone(), *fence)).collect())
    }

    async fn retired(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<(TaskId, Fence)>, Fault> {
        let fence = |id: &TaskId| self.state.retired.get(&(scope.to_owned(), id.clone())).copied();
        Ok(ids.iter().filter_map(|id| Some((id.clone(), fence(id)?))).collect())
    }

    async fn retire(&mut self, scope: &str, id: &TaskId, fence: Fence) -> Result<(), Fault> {
        let kept = self.state.retired.entry((scope.to_owned(), id.clone())).or_insert(fence);
        *kept = fence.max(*kept);
        Ok(())
    }

    async fn finished(
        &mut self,
        scope: &str,
        unchanged_since: UnixMillis,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let mut rows = self.rows_of(scope);
        rows.retain(|Row { task, .. }| {
            task.status.is_finished() && task.updated_at < unchanged_since && task.seq < before
        });
        rows.reverse();
        rows.truncate(limit);
        Ok(rows)
    }

    async fn is_needed(&mut self, scope: &str, id: &TaskId, except: &[TaskId]) -> Result<bool, Fault> {
        let mut edges = self.state.edges.keys();
        let blocks =
            edges.any(|(of, (task, blocker))| of == scope && blocker == id && !except.contains(task));
        let children = self.children(scope, id).await?;
        Ok(blocks || children.iter().any(|row| !except.contains(&row.task.id)))
    }

    async fn remove(&mut self, scope: &str, ids: &[TaskId]) -> Result<(), Fault> {
        for id in ids {
            self.state.tasks.remove(&(scope.to_owned(), id.clone()));
        }
        let is_one = |of: &str, task: &TaskId| of == scope && ids.contains(task);
        self.state.edges.retain(|(of, (task, _)), ()| !is_one(of, task));
        self.state
            .journal
            .retain(|event| !event.task.as_ref().is_some_and(|task| is_one(&event.scope, task)));
        Ok(())
    }

    async fn squash(&mut self, scope: &str, snapshots: &[Event]) -> Result<(), Fault> {
        for snapshot in snapshots {
            let same = |event: &Event| event.scope == scope && event.task == snapshot.task;
            self.state.journal.retain(|event| !(same(event) && event.number < snapshot.number));
            for event in &mut self.state.journal {
                if same(event) && event.number == snapshot.number {
                    *event = Arc::new(snapshot.clone());
                }
            }
        }
        Ok(())
    }

    async fn restore(&mut self, task: &Task, queue: i64, standing: &Standing) -> Result<(), Fault> {
        self.state.last_seq = self.state.last_seq.max(task.seq);
        self.put(Row { task: task.clone(), open_blockers: standing.open_blockers }, queue, standing);
        Ok(())
    }

    async fn restore_event(&mut self, event: &Event) -> Result<(), Fault> {
        self.state.last_event = self.state.last_event.max(event.seq);
        self.state.journal.push(Arc::new(event.clone()));
        Ok(())
    }

    async fn restored(&mut self) -> Result<(), Fault> {
        self.state.journal.sort_by_key(|event| event.seq);
        Ok(())
    }
}
