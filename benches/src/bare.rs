//! The limit: a loop straight on rusqlite that makes the same writes in a database of the same schema. It knows one
//! queue, one order and one outcome, and checks nothing but the fence.

use std::path::Path;
use std::time::Duration;

use rota_core::UnixMillis;
use rusqlite::{Connection, params};

use crate::Result;
use crate::worker::Loop;

const HEADS: &str = "SELECT seq, id, fence, events, title, description FROM tasks INDEXED BY tasks_ready \
     WHERE queue = ?1 AND stage = 2 \
     ORDER BY queue, sort_priority, kind, host, static_score, created_at, seq LIMIT ?2";
const GRANT: &str = "UPDATE tasks SET status = 'active', stage = 0, fence = ?2, assignee = ?3, lease_expires_at = ?4, \
     started_at = ?5, updated_at = ?5, events = ?6 WHERE seq = ?1";
const SETTLE: &str = "UPDATE tasks SET status = 'done', assignee = NULL, lease_expires_at = NULL, finished_at = ?3, \
     updated_at = ?3, events = ?4 WHERE seq = ?1 AND fence = ?2 AND status = 'active'";
const APPEND: &str = "INSERT INTO journal (scope, task, number, at, kind, from_status, to_status, actor, fence, policy, \
     data) VALUES ('default', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'a94a8fe5ccb19ba6', ?9)";

const LEASE_MS: i64 = 300_000;

/// A claimed task, as much of it as settling needs.
struct Held {
    seq: i64,
    id: String,
    fence: i64,
    events: i64,
}

/// One bare worker.
pub struct Bare {
    connection: Connection,
    agent: String,
    queue: i64,
}

impl Bare {
    /// On a file that the store made.
    pub fn open(path: &Path, agent: &str) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        let queue =
            connection.query_row("SELECT key FROM queues WHERE name = 'tasks'", [], |row| row.get(0))?;
        Ok(Self { connection, agent: agent.to_owned(), queue })
    }

    fn run(&self, text: &str) -> Result<()> {
        self.connection.prepare_cached(text)?.execute([])?;
        Ok(())
    }

    fn claim(&self, limit: usize) -> Result<Vec<Held>> {
        let now = rota_store::clock::system_now();
        let mut statement = self.connection.prepare_cached(HEADS)?;
        let mut rows = statement.query(params![self.queue, i64::try_from(limit)?])?;
        let mut heads = Vec::with_capacity(limit);
        while let Some(row) = rows.next()? {
            let held = Held {
                seq: row.get(0)?,
                id: row.get(1)?,
                fence: row.get::<_, i64>(2)? + 1,
                events: row.get::<_, i64>(3)? + 1,
            };
            let _: (String, Option<String>) = (row.get(4)?, row.get(5)?);
            heads.push(held);
        }
        drop(rows);
        for held in &heads {
            let expiry = now.plus_ms(LEASE_MS);
            let bound = params![held.seq, held.fence, self.agent, expiry.get(), now.get(), held.events];
            self.connection.prepare_cached(GRANT)?.execute(bound)?;
            let data = format!(
                r#"{{"changes":{{"assignee":"{}","fence":{},"leaseExpiresAt":"{expiry}","startedAt":"{now}"}}}}"#,
                self.agent, held.fence
            );
            self.append(held, now, ["granted", "open", "active"], &data)?;
        }
        Ok(heads)
    }

    fn settle(&self, held: &mut Held) -> Result<()> {
        let now = rota_store::clock::system_now();
        held.events += 1;
        let bound = params![held.seq, held.fence, now.get(), held.events];
        if self.connection.prepare_cached(SETTLE)?.execute(bound)? != 1 {
            return Err("the lease is gone".into());
        }
        let data = format!(
            r#"{{"outcome":"done","changes":{{"assignee":null,"finishedAt":"{now}","leaseExpiresAt":null}}}}"#
        );
        self.append(held, now, ["done", "active", "done"], &data)
    }

    fn append(&self, held: &Held, now: UnixMillis, words: [&str; 3], data: &str) -> Result<()> {
        let [kind, from, to] = words;
        let bound = params![held.id, held.events, now.get(), kind, from, to, self.agent, held.fence, data];
        self.connection.prepare_cached(APPEND)?.execute(bound)?;
        Ok(())
    }
}

impl Bare {
    /// Claims a task, does something and settles it, with a commit before and after; false if there is none.
    pub fn claim_and_settle(&self, between: impl FnOnce() -> Result<()>) -> Result<bool> {
        self.run("BEGIN IMMEDIATE")?;
        let mut held = self.claim(1)?;
        self.run("COMMIT")?;
        let Some(held) = held.first_mut() else { return Ok(false) };
        between()?;
        self.run("BEGIN IMMEDIATE")?;
        self.settle(held)?;
        self.run("COMMIT")?;
        Ok(true)
    }
}

impl Loop for Bare {
    fn turns(&mut self, batch: usize, go_on: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        loop {
            self.run("BEGIN IMMEDIATE")?;
            let mut held = self.claim(batch)?;
            self.run("COMMIT")?;
            if held.is_empty() {
                return Ok(());
            }
            self.run("BEGIN IMMEDIATE")?;
            for held in &mut held {
                self.settle(held)?;
            }
            self.run("COMMIT")?;
            if !go_on(held.len()) {
                return Ok(());
            }
        }
    }
}
