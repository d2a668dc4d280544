//! Opening a database file: is it one, is it ours, is it where SQLite works, is its schema current.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::turn::Turn;
use super::{PATIENCE, SCHEMA, Session, fault};
use crate::fault::Fault;

/// Numbered from 1; what was released is never changed.
pub(super) const MIGRATIONS: [&str; 4] = [
    include_str!("../../migrations/sqlite/0001_tasks.sql"),
    include_str!("../../migrations/sqlite/0002_upkeep.sql"),
    include_str!("../../migrations/sqlite/0003_loops.sql"),
    include_str!("../../migrations/sqlite/0004_gateway.sql"),
];

/// "ROTA" in the file's header.
pub(super) const APPLICATION_ID: i64 = 0x524f_5441;
/// The size of the smallest database.
const SMALLEST: u64 = 512;
/// The first version without the bug that could damage a log that is reset (sqlite.org/wal.html#walresetbug).
const OLDEST_SQLITE: i32 = 3_051_003;

/// A connection to a database whose schema is current.
pub(super) fn session(path: &Path) -> Result<Session, Fault> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(Fault::OldSqlite { found: rusqlite::version() });
    }
    check_place(path)?;
    let connection = connect(path)?;
    let turn = Turn::open(path)?;
    let session = Session { connection, turn };
    if schema_of(&session.connection, path)? != SCHEMA {
        migrate(&session, path)?;
    }
    Ok(session)
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    let to_fault = |error| fault(path, error);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(to_fault)?;
    connection.busy_timeout(PATIENCE).map_err(to_fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Plans depend on the text alone: otherwise SQLite compiles a statement anew each time its LIMIT is bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(to_fault)?;
    // A command that lives for milliseconds must not pay for a checkpoint when it closes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(to_fault)?;
    // A checkpoint writes each page once however often it changed since the last one, so fewer of them write less; the
    // log grows to about 16 MB.
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; \
             PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -8000;",
        )
        .map_err(to_fault)?;
    Ok(connection)
}

/// The schema of a file, which is only looked at; 0 if there is none.
pub fn schema_at(path: &Path) -> Result<i64, Fault> {
    if path.is_dir() {
        return Err(Fault::IsDirectory { path: path.to_owned() });
    }
    if !path.exists() {
        return Ok(0);
    }
    let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    schema_of(&opened.map_err(|error| fault(path, error))?, path)
}

/// The schema number of one of our databases, 0 for an empty one.
fn schema_of(connection: &Connection, path: &Path) -> Result<i64, Fault> {
    let number = |text: &str| {
        let found = connection.query_row(text, [], |row| row.get::<_, i64>(0));
        found.map_err(|error| fault(path, error))
    };
    const APPLICATION: &str = "PRAGMA application_id";
    const VERSION: &str = "PRAGMA user_version";
    if number(APPLICATION)? != APPLICATION_ID {
        // Another process may be making the schema, which appears all at once: whoever sees its tables sees its name.
        let is_empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
        if is_empty && number(VERSION)? == 0 {
            return Ok(0);
        }
        if number(APPLICATION)? != APPLICATION_ID {
            return Err(Fault::Foreign { path: path.to_owned() });
        }
    }
    match number(VERSION)? {
        found if found > SCHEMA => Err(Fault::TooNew { path: path.to_owned(), found, known: SCHEMA }),
        found => Ok(found),
    }
}

/// Brings the schema up to date. Any number of processes may try at once: one does, the others find it done.
fn migrate(session: &Session, path: &Path) -> Result<(), Fault> {
    let to_fault = |error| fault(path, error);
    if !session.turn.take(PATIENCE).map_err(|error| io_fault(path, error))? {
        return Err(Fault::Busy { place: path.display().to_string(), waited_secs: PATIENCE.as_secs() });
    }
    let connection = &session.connection;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(to_fault)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(to_fault)?;
    let found = schema_of(connection, path)?;
    for migration in &MIGRATIONS[usize::try_from(found).unwrap_or(0)..] {
        connection.execute_batch(migration).map_err(to_fault)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(to_fault)?;
    connection.pragma_update(None, "user_version", SCHEMA).map_err(to_fault)?;
    connection.execute_batch("COMMIT").map_err(to_fault)?;
    session.turn.give_back().map_err(|error| io_fault(path, error))
}

fn check_place(path: &Path) -> Result<(), Fault> {
    if let Ok(found) = std::fs::metadata(path) {
        if found.is_dir() {
            return Err(Fault::IsDirectory { path: path.to_owned() });
        }
        // SQLite takes a few bytes for nothing, and would make a new database of them.
        if (1..SMALLEST).contains(&found.len()) {
            let problem = format!("only {} bytes long", found.len());
            return Err(Fault::Corrupt { path: path.to_owned(), problem });
        }
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    if !std::fs::metadata(&folder).map_err(|error| io_fault(&folder, error))?.is_dir() {
        return Err(io_fault(&folder, std::io::ErrorKind::NotADirectory.into()));
    }
    if std::env::var_os("ROTA_ALLOW_NETWORK_FS").is_some_and(|value| !value.is_empty()) {
        return Ok(());
    }
    match network_file_system(&folder) {
        Ok(None) => Ok(()),
        Ok(Some(kind)) => Err(Fault::NetworkFileSystem { path: path.to_owned(), kind }),
        Err(error) => Err(io_fault(&folder, error)),
    }
}

/// The name of the network file system a folder is on, if it is on one.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> std::io::Result<Option<&'static str>> {
    const NETWORK: [(u32, &str); 8] = [
        (0x6969, "nfs"),
        (0x517b, "smb"),
        (0xfe53_4d42, "smb2"),
        (0xff53_4d42, "cifs"),
        (0x5346_414f, "afs"),
        (0x00c3_6400, "ceph"),
        (0x0102_1997, "9p"),
        (0x0bd0_0bd0, "lustre"),
    ];
    let stat = rustix::fs::statfs(folder)?;
    // The width of f_type differs between architectures; the magic numbers are 32 bits everywhere.
    let magic = (stat.f_type as u64 & 0xffff_ffff) as u32;
    Ok(NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name))
}

/// The name of the network file system a folder is on, if it is on one.
#[cfg(not(target_os = "linux"))]
fn network_file_system(folder: &Path) -> std::io::Result<Option<&'static str>> {
    const NETWORK: [&str; 5] = ["nfs", "smbfs", "afpfs", "webdav", "ftp"];
    let stat = rustix::fs::statfs(folder)?;
    let name: Vec<u8> =
        stat.f_fstypename.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    Ok(NETWORK.into_iter().find(|network| network.as_bytes() == name))
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
