//! Keeping a PostgreSQL schema in order.
//!
//! **Following.** Events get their numbers when they are written and become visible when they are committed, so a
//! later number can be seen first. Each row therefore carries its transaction's number, and a follower reads only
//! rows of transactions below the oldest one that is still open: nothing can be added there any more. It goes on in
//! the order of (transaction, event), in windows of transactions, which a BRIN index finds without sorting the rest.

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::{Fence, Json, Status, Task, TaskId, UnixMillis};
use tokio_postgres::Row as PgRow;

use super::super::row::{self, get};
use super::super::sql::{self, events};
use super::{Bound, PostgresTx, block_row, ids};
use crate::fault::Fault;
use crate::tx::{BlockRow, Row, Standing};
use crate::upkeep::{Cursor, EdgeRow, Highest, Kept, Upkeep};

/// How many transactions a follower looks at first; more while it finds nothing.
const WINDOW: i64 = 2_000;

/// Below this every transaction has ended.
const SETTLED: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
const FOLLOW: &str = events!(
    "WHERE e.scope = $1 AND e.xid >= $2 AND (e.xid > $2 OR e.seq > $3) AND e.xid < $4 ORDER BY e.xid, e.seq LIMIT $5"
);
const TAIL: &str = events!("WHERE e.scope = $1 AND e.xid < $2 ORDER BY e.seq DESC LIMIT $3");
const SCHEMA: &str = "SELECT coalesce(max(number), 0) FROM migrations";
const INVALID_INDEXES: &str = "SELECT 'index ' || c.relname || ' is not valid: REINDEX it' FROM pg_index i \
     JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = current_schema() AND NOT (i.indisvalid AND i.indisready) ORDER BY c.relname";
const UNCHECKED: &str = "SELECT 'constraint ' || conname || ' is not validated' FROM pg_constraint c \
     JOIN pg_namespace n ON n.oid = c.connamespace WHERE n.nspname = current_schema() AND NOT convalidated \
     ORDER BY conname";
/// What no foreign key guards.
const UNKNOWN_QUEUES: &str = "SELECT 'task ' || t.id || ' of scope ' || t.scope || ' names queue ' || t.queue \
     || ', which is not there' FROM tasks t WHERE NOT EXISTS (SELECT 1 FROM queues q WHERE q.key = t.queue) \
     ORDER BY t.seq LIMIT 20";
const FROM_THE_FUTURE: &str = "SELECT count(*) FROM journal \
     WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
const SCOPES: &str = "SELECT scope FROM queues UNION SELECT scope FROM policies UNION SELECT scope FROM agents \
     UNION SELECT scope FROM retired ORDER BY 1";
const HIGHEST: &str = "SELECT coalesce((SELECT max(seq) FROM tasks), 0), \
     coalesce((SELECT max(seq) FROM journal), 0)";
const BLOCKER_STATES: &str = "SELECT e.task, e.blocker, b.status FROM edges e \
     LEFT JOIN tasks b ON b.scope = e.scope AND b.id = e.blocker WHERE e.scope = $1 AND e.task = ANY($2) \
     ORDER BY e.task, e.blocker";
const EVENTS_OF: &str = events!("WHERE e.scope = $1 AND e.task = ANY($2) ORDER BY e.task, e.number");
const EDGE_PAGE: &str = "SELECT task, blocker FROM edges WHERE scope = $1 AND (task, blocker) > ($2, $3) \
     ORDER BY task, blocker LIMIT $4";
const STRAY_EDGES: &str = "SELECT e.task, e.blocker FROM edges e WHERE e.scope = $1 \
     AND (NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = e.scope AND t.id = e.task) \
       OR NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = e.scope AND t.id = e.blocker)) \
     ORDER BY e.task, e.blocker LIMIT $2";
const STRAY_EVENTS: &str = "SELECT DISTINCT j.task FROM journal j WHERE j.scope = $1 AND j.task IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = j.scope AND t.id = j.task) ORDER BY j.task LIMIT $2";
pub(in crate::postgres) const BLOCKS: &str =
    "SELECT upstream, blocked_until, hits, reason, updated_at FROM blocks ORDER BY upstream";
/// Rows that name one of these tasks, in each table that has any.
const REMOVE: [&str; 3] = [
    "DELETE FROM journal WHERE scope = $1 AND task = ANY($2)",
    "DELETE FROM edges WHERE scope = $1 AND task = ANY($2)",
    "DELETE FROM tasks WHERE scope = $1 AND id = ANY($2)",
];
const RETIRED_PAGE: &str = "SELECT id, fence FROM retired WHERE scope = $1 AND id > $2 ORDER BY id LIMIT $3";
pub(crate) const RETIRED: &str = "SELECT id, fence FROM retired WHERE scope = $1 AND id = ANY($2)";
const RETIRE: &str = "INSERT INTO retired AS r (scope, id, fence) VALUES ($1, $2, $3) \
     ON CONFLICT (scope, id) DO UPDATE SET fence = greatest(r.fence, excluded.fence)";
const IS_NEEDED: &str = "SELECT EXISTS (SELECT 1 FROM edges WHERE scope = $1 AND blocker = $2 AND task <> ALL($3)) \
     OR EXISTS (SELECT 1 FROM tasks WHERE scope = $1 AND parent = $2 AND id <> ALL($3))";
const DROP_BEFORE: &str = "DELETE FROM journal j USING unnest($2::text[], $3::bigint[]) AS s (task, number) \
     WHERE j.scope = $1 AND j.task = s.task AND j.number < s.number";
const SQUASH: &str = "UPDATE journal j SET kind = s.kind, from_status = NULL, to_status = s.to_status, actor = NULL, \
         fence = NULL, data = s.data \
     FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[]) AS s (task, number, kind, to_status, data) \
     WHERE j.scope = $1 AND j.task = s.task AND j.number = s.number";
const RESTORED: &str = "SELECT setval(pg_get_serial_sequence('tasks', 'seq'), \
         (SELECT coalesce(max(seq), 0) + 1 FROM tasks), false), \
     setval(pg_get_serial_sequence('journal', 'seq'), (SELECT coalesce(max(seq), 0) + 1 FROM journal), false)";

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn edge(row: &PgRow) -> Result<(TaskId, TaskId), Fault> {
    Ok((row::id(row, 0)?, row::id(row, 1)?))
}

pub(crate) fn retired_fence(row: &PgRow) -> Result<(TaskId, Fence), Fault> {
    Ok((row::id(row, 0)?, Fence::new(row::unsigned(row, 1)?)))
}

/// Snapshots, column by column.
#[derive(Default)]
struct Squashed<'a> {
    tasks: Vec<&'a str>,
    numbers: Vec<i64>,
    kinds: Vec<&'static str>,
    to: Vec<Option<&'static str>>,
    data: Vec<String>,
}

impl<'a> Squashed<'a> {
    fn add(&mut self, snapshot: &'a Event) {
        let Some(task) = &snapshot.task else { return };
        self.tasks.push(task.as_str());
        self.numbers.push(snapshot.number.cast_signed());
        self.kinds.push(snapshot.kind.word());
        self.to.push(snapshot.to.map(Status::word));
        self.data.push(Json::of(&snapshot.data).as_str().to_owned());
    }
}

/// An event and the transaction that wrote it.
fn placed(row: &PgRow) -> Result<(u64, Event), Fault> {
    Ok((row::unsigned(row, 12)?, row::event(row)?))
}

impl PostgresTx {
    async fn settled_below(&mut self) -> Result<i64, Fault> {
        match self.one(SETTLED, &[]).await? {
            Some(row) => get(&row, 0),
            None => unreachable!("it has always one row"),
        }
    }
}

#[async_trait]
impl Upkeep for PostgresTx {
    async fn follow(
        &mut self,
        scope: &str,
        after: Cursor,
        limit: usize,
    ) -> Result<(Vec<(Cursor, Event)>, Cursor), Fault> {
        // The bound is read before the rows: what it lets through is committed, so whichever snapshot reads them
        // sees them.
        let settled = self.settled_below().await?;
        let (mut turn, mut seq) = (after.turn.cast_signed(), after.seq.cast_signed());
        let mut window = WINDOW;
        loop {
            let until = turn.saturating_add(window).min(settled);
            let bound: Bound<'_> = &[&scope, &turn, &seq, &until, &count(limit)];
            let found = self.all(FOLLOW, bound, placed).await?;
            if let Some((turn, last)) = found.last() {
                let cursor = Cursor { turn: *turn, seq: last.seq };
                let placed = |(turn, event): (u64, Event)| (Cursor { turn, seq: event.seq }, event);
                return Ok((found.into_iter().map(placed).collect(), cursor));
            }
            if until >= settled {
                return Ok((Vec::new(), Cursor { turn: turn.cast_unsigned(), seq: seq.cast_unsigned() }));
            }
            // Nothing is left below `until`, for ever.
            (turn, seq, window) = (until, 0, window.saturating_mul(4));
        }
    }

    async fn tail(
        &mut self,
        scope: &str,
        task: Option<&TaskId>,
        limit: usize,
    ) -> Result<(Vec<Event>, Cursor), Fault> {
        let settled = self.settled_below().await?;
        let mut found = match task {
            None => self.all(TAIL, &[&scope, &settled, &count(limit)], placed).await?,
            Some(task) => self.all(EVENTS_OF, &[&scope, &ids(std::slice::from_ref(task))], placed).await?,
        };
        found.retain(|(turn, _)| *turn < settled.cast_unsigned());
        found.sort_by_key(|(turn, event)| (*turn, event.seq));
        found.drain(..found.len().saturating_sub(limit));
        let cursor = Cursor { turn: settled.cast_unsigned(), seq: 0 };
        Ok((found.into_iter().map(|(_, event)| event).collect(), cursor))
    }

    async fn schema(&mut self) -> Result<i64, Fault> {
        Ok(self.all(SCHEMA, &[], |row| get(row, 0)).await?.pop().unwrap_or_default())
    }

    async fn integrity(&mut self) -> Result<Vec<String>, Fault> {
        let mut found = Vec::new();
        for text in [INVALID_INDEXES, UNCHECKED, UNKNOWN_QUEUES] {
            found.extend(self.all(text, &[], |row| get::<String>(row, 0)).await?);
        }
        let future: i64 = self.all(FROM_THE_FUTURE, &[], |row| get(row, 0)).await?.pop().unwrap_or_default();
        if future > 0 {
            found.push(format!(
                "{future} journal rows are of transactions that this server has not reached, as after a dump and \
                 restore: followers wait for them; carry the store over with `rota export` and `rota import` instead"
            ));
        }
        Ok(found)
    }

    async fn scopes(&mut self) -> Result<Vec<String>, Fault> {
        self.all(SCOPES, &[], |row| get(row, 0)).await
    }

    async fn highest(&mut self) -> Result<Highest, Fault> {
        let read = |row: &PgRow| Ok(Highest { task: row::unsigned(row, 0)?, event: row::unsigned(row, 1)? });
        Ok(self.all(HIGHEST, &[], read).await?.pop().unwrap_or_default())
    }

    async fn page(&mut self, scope: &str, after: u64, limit: usize) -> Result<Vec<Kept>, Fault> {
        self.all(sql::PAGE, &[&scope, &after.cast_signed(), &count(limit)], row::kept).await
    }

    async fn blocker_states(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<EdgeRow>, Fault> {
        let read = |row: &PgRow| {
            let there = get::<Option<&str>>(row, 2)?.is_some();
            let status = there.then(|| row::status(row, 2)).transpose()?;
            Ok(EdgeRow { task: row::id(row, 0)?, blocker: row::id(row, 1)?, status })
        };
        self.all(BLOCKER_STATES, &[&scope, &ids(list)], read).await
    }

    async fn events_of(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<Event>, Fault> {
        self.all(EVENTS_OF, &[&scope, &ids(list)], row::event).await
    }

    async fn edge_page(
        &mut self,
        scope: &str,
        after: Option<&(TaskId, TaskId)>,
        limit: usize,
    ) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        let (task, blocker) = after.map_or(("", ""), |(task, blocker)| (task.as_str(), blocker.as_str()));
        self.all(EDGE_PAGE, &[&scope, &task, &blocker, &count(limit)], edge).await
    }

    async fn stray_edges(&mut self, scope: &str, limit: usize) -> Result<Vec<(TaskId, TaskId)>, Fault> {
        self.all(STRAY_EDGES, &[&scope, &count(limit)], edge).await
    }

    async fn stray_events(&mut self, scope: &str, limit: usize) -> Result<Vec<TaskId>, Fault> {
        self.all(STRAY_EVENTS, &[&scope, &count(limit)], |row| row::id(row, 0)).await
    }

    async fn blocks(&mut self) -> Result<Vec<BlockRow>, Fault> {
        if let Some(blocks) = &self.fetched.blocks {
            return Ok(blocks.clone());
        }
        self.all(BLOCKS, &[], block_row).await
    }

    async fn retired_page(
        &mut self,
        scope: &str,
        after: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<(TaskId, Fence)>, Fault> {
        let after = after.map_or("", TaskId::as_str);
        self.all(RETIRED_PAGE, &[&scope, &after, &count(limit)], retired_fence).await
    }

    async fn retired(&mut self, scope: &str, list: &[TaskId]) -> Result<Vec<(TaskId, Fence)>, Fault> {
        if let Some(fences) = self.fetched.retired(scope, list) {
            return Ok(fences);
        }
        self.all(RETIRED, &[&scope, &ids(list)], retired_fence).await
    }

    async fn retire(&mut self, scope: &str, id: &TaskId, fence: Fence) -> Result<(), Fault> {
        self.change(RETIRE, &[&scope, &id.as_str(), &fence.get().cast_signed()]).await.map(drop)
    }

    async fn finished(
        &mut self,
        scope: &str,
        unchanged_since: UnixMillis,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let bound: Bound<'_> = &[&scope, &before, &unchanged_since.get(), &count(limit)];
        self.all(sql::FINISHED, bound, row::task).await
    }

    async fn is_needed(&mut self, scope: &str, id: &TaskId, except: &[TaskId]) -> Result<bool, Fault> {
        let bound: Bound<'_> = &[&scope, &id.as_str(), &ids(except)];
        Ok(self.all(IS_NEEDED, bound, |row| get(row, 0)).await?.pop().unwrap_or(true))
    }

    async fn remove(&mut self, scope: &str, list: &[TaskId]) -> Result<(), Fault> {
        for text in REMOVE {
            self.change(text, &[&scope, &ids(list)]).await?;
        }
        Ok(())
    }

    async fn squash(&mut self, scope: &str, snapshots: &[Event]) -> Result<(), Fault> {
        let mut columns = Squashed::default();
        for snapshot in snapshots {
            columns.add(snapshot);
        }
        let Squashed { tasks, numbers, kinds, to, data } = columns;
        self.change(DROP_BEFORE, &[&scope, &tasks, &numbers]).await?;
        self.change(SQUASH, &[&scope, &tasks, &numbers, &kinds, &to, &data]).await.map(drop)
    }

    async fn restore(&mut self, task: &Task, queue: i64, standing: &Standing) -> Result<(), Fault> {
        self.outbox.insert_task(task, queue, standing);
        Ok(())
    }

    async fn restore_event(&mut self, event: &Event) -> Result<(), Fault> {
        self.outbox.restore_event(event);
        Ok(())
    }

    async fn restored(&mut self) -> Result<(), Fault> {
        self.query(RESTORED, &[]).await.map(drop)
    }
}
