//! Opening a database file: is it ours, may we write, is its schema current.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::identity::{Files, beside, real_path};
use super::log::ReadLimit;
use super::place::{self, Place};
use super::{SCHEMA, Session, TIMEOUT, fault};
use crate::fault::Fault;

const SQL: &str = include_str!("../../migrations/sqlite/schema.sql");

/// "ROTA" in the file's header.
pub(super) const APPLICATION_ID: i64 = 0x524f_5441;
/// The first version without the bug that could damage a log that is reset (sqlite.org/wal.html#walresetbug).
const OLDEST_SQLITE: i32 = 3_051_003;

/// A connection to a database whose schema is current. Whoever may not write gets one that reads.
pub(super) fn session(path: &Path) -> Result<Session, Fault> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(Fault::OldSqlite { found: rusqlite::version() });
    }
    let to_fault = |error| fault(path, error);
    let mut connection = connect(path)?;
    let is_read_only = connection.is_readonly("main").map_err(to_fault)?;
    let log = beside(&real_path(path)?, "-wal");
    let read_limit = ReadLimit::on(&mut connection, log).map_err(to_fault)?;
    schema_of(&connection, path)?;
    let files = Some(Arc::new(Files::look(path, is_read_only)?));
    Ok(Session { connection, files, is_read_only, read_limit, turn: OnceCell::new() })
}

/// Stands in for a database that does not exist yet: one without tasks, in memory.
pub(super) fn stand_in(path: &Path) -> Result<Session, Fault> {
    let make = || {
        let connection = Connection::open_in_memory()?;
        connection.set_prepared_statement_cache_capacity(64);
        write_schema(&connection)?;
        Ok(connection)
    };
    let connection = make().map_err(|error| fault(path, error))?;
    let read_limit = ReadLimit::default();
    Ok(Session { connection, files: None, is_read_only: true, read_limit, turn: OnceCell::new() })
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    let to_fault = |error| fault(path, error);
    // Without CREATE: a database that was deleted in this moment must not come back empty.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(to_fault)?;
    connection.busy_timeout(TIMEOUT).map_err(to_fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Plans depend on the text alone: otherwise SQLite compiles a statement anew each time its LIMIT is bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(to_fault)?;
    // The log and its index stay when the last process closes them, so that users who may only read find them. What is
    // cheap to copy into the database by then is copied by `Session::checkpoint_if_cheap`.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(to_fault)?;
    // A checkpoint writes each page once however often it changed since the last one, so fewer of them write less; the
    // log grows to about 16 MB, and is cut when it begins anew.
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; \
             PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 4194304; PRAGMA cache_size = -8000;",
        )
        .map_err(to_fault)?;
    Ok(connection)
}

/// The schema of a file, which is only looked at; 0 if there is none.
pub fn schema_at(path: &Path) -> Result<i64, Fault> {
    if place::look(path)? == Place::Absent {
        return Ok(0);
    }
    let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    schema_of(&opened.map_err(|error| fault(path, error))?, path)
}

/// The schema number of one of our databases.
fn schema_of(connection: &Connection, path: &Path) -> Result<i64, Fault> {
    let number = |text: &str| {
        let found = connection.query_row(text, [], |row| row.get::<_, i64>(0));
        found.map_err(|error| fault(path, error))
    };
    const APPLICATION: &str = "PRAGMA application_id";
    const VERSION: &str = "PRAGMA user_version";
    // A database appears under its name with its schema: one without tables is not ours either.
    if number(APPLICATION)? != APPLICATION_ID {
        return Err(Fault::Foreign { path: path.to_owned() });
    }
    match number(VERSION)? {
        found if found > SCHEMA => Err(Fault::TooNew { path: path.to_owned(), found, known: SCHEMA }),
        found if found < SCHEMA => {
            Err(Fault::TooOld { place: path.display().to_string(), found, known: SCHEMA })
        }
        found => Ok(found),
    }
}

/// Makes the schema of a new database, inside of a transaction.
pub(super) fn write_schema(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(SQL)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA)
}

pub(super) fn io_fault(path: &Path, source: std::io::Error) -> Fault {
    let path = path.to_owned();
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => Fault::Forbidden { path, problem: source.to_string() },
        std::io::ErrorKind::ReadOnlyFilesystem => Fault::ReadOnly { path },
        std::io::ErrorKind::StorageFull => Fault::Full { path },
        std::io::ErrorKind::IsADirectory => Fault::IsDirectory { path },
        _ => Fault::Io { path, source },
    }
}
