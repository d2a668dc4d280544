//! Keeping a SQLite file in order. Transactions commit in the order of their events here, so a follower's place is an
//! event's number.

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::{Fence, Json, Status, Task, TaskId, UnixMillis};
use rusqlite::params;

use super::super::row::{self, TASK_COLUMNS};
use super::super::sql;
use super::SqliteTx;
use crate::fault::Fault;
use crate::tx::{BlockRow, EventFilter, Row, Standing, Tx};
use crate::upkeep::{Cursor, EdgeRow, Highest, Kept, Upkeep};

const EVENT: &str =
    "seq, scope, task, number, at, kind, from_status, to_status, actor, fence, policy, data FROM journal";
const SCOPES: &str = "SELECT scope FROM queues UNION SELECT scope FROM policies UNION SELECT scope FROM agents \
     UNION SELECT scope FROM retired ORDER BY 1";
const HIGHEST: &str =
    "SELECT coalesce((SELECT max(seq) FROM tasks), 0), coalesce((SELECT max(seq) FROM journal), 0)";
const BLOCKER_STATES: &str = "SELECT e.task, e.blocker, b.status FROM edges e \
     LEFT JOIN tasks b ON b.scope = e.scope AND b.id = e.blocker WHERE e.scope = ?1 AND e.task = ?2 ORDER BY e.blocker";
const EDGE_PAGE: &str = "SELECT task, blocker FROM edges WHERE scope = ?1 AND (task, blocker) > (?2, ?3) \
     ORDER BY task, blocker LIMIT ?4";
const STRAY_EDGES: &str = "SELECT e.task, e.blocker FROM edges e WHERE e.scope = ?1 \
     AND (NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = e.scope AND t.id = e.task) \
       OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = e.scope AND t.id = e.blocker)) \
     ORDER BY e.task, e.blocker LIMIT ?2";
const STRAY_EVENTS: &str = "SELECT DISTINCT j.task FROM journal j WHERE j.scope = ?1 AND j.task IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = j.scope AND t.id = j.task) ORDER BY j.task LIMIT ?2";
const BLOCKS: &str = "SELECT upstream, blocked_until, hits, reason, updated_at FROM blocks ORDER BY upstream";
const RETIRED_PAGE: &str = "SELECT id, fence FROM retired WHERE scope = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
const RETIRED: &str = "SELECT id, fence FROM retired WHERE scope = ?1 AND id = ?2";
const RETIRE: &str = "INSERT INTO retired (scope, id, fence) VALUES (?1, ?2, ?3) \
     ON CONFLICT (scope, id) DO UPDATE SET fence = max(fence, excluded.fence)";
const IS_NEEDED: &str = "SELECT EXISTS (SELECT 1 FROM edges WHERE scope = ?1 AND blocker = ?2 \
         AND task NOT IN (SELECT value FROM json_each(?3))) \
     OR EXISTS (SELECT 1 FROM tasks WHERE scope = ?1 AND parent = ?2 AND id NOT IN (SELECT value FROM json_each(?3)))";
const SQUASH: &str = "UPDATE journal SET kind = ?4, from_status = NULL, to_status = ?5, actor = NULL, fence = NULL, \
     data = ?6 WHERE scope = ?1 AND task = ?2 AND number = ?3";

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn edge(row: &rusqlite::Row<'_>) -> rusqlite::Result<(TaskId, TaskId)> {
    Ok((row::id(row, 0)?, row::id(row, 1)?))
}

fn fence(row: &rusqlite::Row<'_>) -> rusqlite::Result<(TaskId, Fence)> {
    Ok((row::id(row, 0)?, Fence::new(row.get::<_, i64>(1)?.cast_unsigned())))
}

fn kept(row: &rusqlite::Row<'_>) -> rusqlite::Result<Kept> {
    Ok(Kept {
        row: row::task(row)?,
        stage: row.get(TASK_COLUMNS)?,
        sort_priority: row.get(TASK_COLUMNS + 1)?,
        static_score: row.get(TASK_COLUMNS + 2)?,
        ready_at: row.get(TASK_COLUMNS + 3)?,
        guarded: row.get(TASK_COLUMNS + 4)?,
        bucketed: None,
    })
}

#[async_trait]
impl Upkeep for SqliteTx {
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
        Ok((events, Cursor { turn: 0, seq: self.highest().await?.event }))
    }

    async fn schema(&mut self) -> Result<i64, Fault> {
        let read = self.connection().pragma_query_value(None, "user_version", |row| row.get(0));
        read.map_err(|error| self.fault(error))
    }

    async fn integrity(&mut self) -> Result<Vec<String>, Fault> {
        let mut found = self.all("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?;
        found.retain(|line| line != "ok");
        found.extend(self.all("PRAGMA foreign_key_check", [], |row| {
            let (table, of): (String, String) = (row.get(0)?, row.get(2)?);
            let number: Option<i64> = row.get(1)?;
            let number = number.map_or(String::new(), |number| format!(" {number}"));
            Ok(format!("row{number} of table {table} names a row of {of} that is not there"))
        })?);
        Ok(found)
    }

    async fn scopes(&mut self) -> Result<Vec<String>, Fault> {
        self.all(SCOPES, [], |row| row.get(0))
    }

    async fn highest(&mut self) -> Result<Highest, Fault> {
        let read = |row: &rusqlite::Row<'_>| {
            let (task, event): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(Highest { task: task.cast_unsigned(), event: event.cast_unsigned() })
        };
        Ok(self.one(HIGHEST, [], read)?.unwrap_or_default())
    }

    async fn page(&mut self, scope: &str, after: u64, limit: usize) -> Result<Vec<Kept>, Fault> {
        let bound = params![scope, after.cast_signed(), count(limit)];
        let with_flag = |row: &rusqlite::Row<'_>| Ok((kept(row)?, row.get(row::TASK_COLUMNS + 5)?));
        let page: Vec<(Kept, bool)> = self.all(sql::PAGE, bound, with_flag)?;
        let page = page.into_iter().map(|(kept, has_blockers)| {
            if !has_blockers {
                self.unlinked.note_without_blockers(&kept.row.task);
            }
            kept
        });
        Ok(page.collect())
    }

    async fn blocker_states(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<EdgeRow>, Fault> {
        let mut edges = Vec::new();
        for id in ids {
            let read = |row: &rusqlite::Row<'_>| {
                let missing = row.get_ref(2)? == rusqlite::types::ValueRef::Null;
                let status = if missing { None } else { Some(row::status(row, 2)?) };
                Ok(EdgeRow { task: row::id(row, 0)?, blocker: row::id(row, 1)?, status })
            };
            edges.extend(self.all(BLOCKER_STATES, params![scope, id.as_str()], read)?);
        }
        Ok(edges)
    }

    async fn events_of(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<Event>, Fault> {
        let text = format!("SELECT {EVENT} WHERE scope = ?1 AND task = ?2 ORDER BY number");
        let mut events = Vec::new();
        for id in ids {
            events.extend(self.all(&text, params![scope, id.as_str()], row::event)?);
        }
        Ok(events)
    }

    async fn edge_page(
        &mut self,
        scope: &str,
        after: Option<&(TaskId, TaskId)>,
        limit: usize,
    ) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let (task, blocker) = after.map_or(("", ""), |(task, blocker)| (task.as_str(), blocker.as_str()));
        self.all(EDGE_PAGE, params![scope, task, blocker, count(limit)], edge)
    }

    async fn stray_edges(&mut self, scope: &str, limit: usize) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        self.all(STRAY_EDGES, params![scope, count(limit)], edge)
    }

    async fn stray_events(&mut self, scope: &str, limit: usize) -> Result<Vec<TaskId>, Fault> {
        self.all(STRAY_EVENTS, params![scope, count(limit)], |row| row::id(row, 0))
    }

    async fn blocks(&mut self) -> Result<Vec<BlockRow>, Fault> {
        self.all(BLOCKS, [], super::block_row)
    }

    async fn retired_page(
        &mut self,
        scope: &str,
        after: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<(TaskId, Fence)>, Fault> {
        let after = after.map_or("", TaskId::as_str);
        self.all(RETIRED_PAGE, params![scope, after, count(limit)], fence)
    }

    async fn retired(&mut self, scope: &str, ids: &[TaskId]) -> Result<Vec<(TaskId, Fence)>, Fault> {
        let one = |id: &TaskId| self.one(RETIRED, params![scope, id.as_str()], fence).transpose();
        ids.iter().filter_map(one).collect()
    }

    async fn retire(&mut self, scope: &str, id: &TaskId, fence: Fence) -> Result<(), Fault> {
        self.change(RETIRE, params![scope, id.as_str(), fence.get().cast_signed()]).map(drop)
    }

    async fn finished(
        &mut self,
        scope: &str,
        unchanged_since: UnixMillis,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        self.all(sql::FINISHED, params![scope, before, unchanged_since.get(), count(limit)], row::task)
    }

    async fn is_needed(&mut self, scope: &str, id: &TaskId, except: &[TaskId]) -> Result<bool, Fault> {
        let except = Json::of(&except);
        let bound = params![scope, id.as_str(), except.as_str()];
        Ok(self.one(IS_NEEDED, bound, |row| row.get(0))?.unwrap_or(true))
    }

    async fn remove(&mut self, scope: &str, ids: &[TaskId]) -> Result<(), Fault> {
        self.unlinked.forget();
        for id in ids {
            let id = id.as_str();
            self.change("DELETE FROM edges WHERE scope = ?1 AND task = ?2", params![scope, id])?;
            self.change("DELETE FROM journal WHERE scope = ?1 AND task = ?2", params![scope, id])?;
        }
        for id in ids {
            self.change("DELETE FROM tasks WHERE scope = ?1 AND id = ?2", params![scope, id.as_str()])?;
        }
        Ok(())
    }

    async fn squash(&mut self, scope: &str, snapshots: &[Event]) -> Result<(), Fault> {
        for snapshot in snapshots {
            let (id, number) = (snapshot.task.as_ref().map(TaskId::as_str), snapshot.number.cast_signed());
            let earlier = "DELETE FROM journal WHERE scope = ?1 AND task = ?2 AND number < ?3";
            self.change(earlier, params![scope, id, number])?;
            let (kind, to) = (snapshot.kind.word(), snapshot.to.map(Status::word));
            let data = Json::of(&snapshot.data);
            self.change(SQUASH, params![scope, id, number, kind, to, data.as_str()])?;
        }
        Ok(())
    }

    async fn restore(&mut self, task: &Task, queue: i64, standing: &Standing) -> Result<(), Fault> {
        self.unlinked.forget();
        self.bound(sql::RESTORE, |binder| {
            binder.bind(task.scope.as_str())?.bind(task.id.as_str())?.bind(queue)?;
            binder.fields(task)?.state(task, standing)?.bind(task.seq.cast_signed()).map(drop)
        })
    }

    async fn restore_event(&mut self, event: &Event) -> Result<(), Fault> {
        self.bound(sql::RESTORE_EVENT, |binder| binder.event(event)?.bind(event.seq.cast_signed()).map(drop))
    }

    async fn restored(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
