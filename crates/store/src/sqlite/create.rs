//! Making a database: it appears under its name whole, with its schema, or not at all.
//!
//! It is written under another name, made durable and renamed. So a file that is missing, or too short, beside a log or
//! a turnstile is never one that is just being made. Any number of processes may try at once: a lock on the folder lets
//! one of them do it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::identity::beside;
use super::open::{self, io_fault};
use super::place::{self, Place};
use super::turn::Turn;
use super::{TIMEOUT, busy, fault};
use crate::fault::Fault;
use crate::files::{PRIVATE, create_private, folder_of, make_rota_folder, make_whole};

/// Makes a database unless there is one by now; and its folder, where that is one of Rota's.
pub(super) fn create(path: &Path) -> Result<(), Fault> {
    let folder = folder_of(path);
    if place::is_rota(folder) {
        make_rota_folder(folder, PRIVATE).map_err(|error| io_fault(folder, error))?;
    }
    let lock = File::open(folder).map_err(|error| io_fault(folder, error))?;
    let lock = Turn::on(lock);
    if !lock.take(TIMEOUT).map_err(|error| io_fault(folder, error))? {
        return Err(busy(folder));
    }
    let made = match place::look(path)? {
        Place::Present => Ok(()),
        Place::Absent => make(path),
    };
    lock.give_back().map_err(|error| io_fault(folder, error))?;
    made
}

/// The lock on the folder is held, so a file of this name was left by a process that died.
fn make(path: &Path) -> Result<(), Fault> {
    let fresh = beside(path, "-new");
    for leftover in ["", "-journal", "-wal", "-shm"] {
        let name = beside(&fresh, leftover);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_fault(&name, error)),
            _ => {}
        }
    }
    create_private(&fresh).map_err(|error| io_fault(path, error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let write = || {
        let connection = Connection::open_with_flags(&fresh, flags)?;
        // It is made durable as a whole before it gets its name.
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; BEGIN")?;
        open::write_schema(&connection)?;
        connection.execute_batch("COMMIT")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.close().map_err(|(_, error)| error)
    };
    let made = write().map_err(|error| fault(path, error)).and_then(|()| make_whole(&fresh, path));
    if made.is_err() {
        // It may take the last of the space. That it could not be removed is not what the caller must hear.
        drop(std::fs::remove_file(&fresh));
    }
    made
}
