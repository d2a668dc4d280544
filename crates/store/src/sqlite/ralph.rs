//! Reads the `tasks.db` of Ralph as it is: rows of text, nothing judged, nothing written.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::fault;
use super::open::APPLICATION_ID;
use crate::fault::Fault;

/// What a SQLite file turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// Ralph's.
    Ralph(RalphDatabase),
    /// Our own.
    Rota,
    /// Somebody else's.
    Unknown,
}

/// Everything of it that Rota has a place for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RalphDatabase {
    /// Column to value, absent where it is null; by age.
    pub tasks: Vec<BTreeMap<&'static str, String>>,
    /// Task and blocker, as the rows of `tasks` call themselves.
    pub deps: Vec<(String, String)>,
}

/// Older databases lack some of these.
const COLUMNS: [&str; 17] = [
    "id",
    "slug",
    "scope_repo",
    "scope_branch",
    "title",
    "description",
    "category",
    "priority",
    "status",
    "spec_ref",
    "ref",
    "result",
    "retry_count",
    "fail_reason",
    "steps",
    "created_at",
    "updated_at",
];
const NEEDED: [&str; 5] = ["id", "title", "status", "priority", "created_at"];

/// Looks into a SQLite file without the right to write.
pub fn look_into(path: &Path) -> Result<Foreign, Fault> {
    let read = || -> rusqlite::Result<Foreign> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(super::TIMEOUT)?;
        let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        if application == APPLICATION_ID {
            return Ok(Foreign::Rota);
        }
        let there = columns(&connection, "tasks")?;
        let deps = columns(&connection, "task_deps")?;
        let has = |columns: &[String], name: &str| columns.iter().any(|column| column == name);
        if !NEEDED.iter().all(|name| has(&there, name)) || !has(&deps, "task_id") || !has(&deps, "blocked_by")
        {
            return Ok(Foreign::Unknown);
        }
        let present: Vec<&'static str> = COLUMNS.into_iter().filter(|name| has(&there, name)).collect();
        Ok(Foreign::Ralph(RalphDatabase { tasks: tasks(&connection, &present)?, deps: edges(&connection)? }))
    };
    read().map_err(|error| fault(path, error))
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

fn tasks(
    connection: &Connection,
    columns: &[&'static str],
) -> rusqlite::Result<Vec<BTreeMap<&'static str, String>>> {
    let texts: Vec<String> = columns.iter().map(|name| format!("CAST({name} AS TEXT)")).collect();
    let text = format!("SELECT {} FROM tasks ORDER BY created_at, rowid", texts.join(", "));
    let mut statement = connection.prepare(&text)?;
    let row = |row: &rusqlite::Row<'_>| {
        let mut read = BTreeMap::new();
        for (place, name) in columns.iter().enumerate() {
            if let Some(value) = row.get::<_, Option<String>>(place)? {
                read.insert(*name, value);
            }
        }
        Ok(read)
    };
    statement.query_map([], row)?.collect()
}

fn edges(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement =
        connection.prepare("SELECT task_id, blocked_by FROM task_deps ORDER BY task_id, blocked_by")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
