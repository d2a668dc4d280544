//! Keeping SQLite's log short.
//!
//! A checkpoint copies the log into the database, but the log begins anew only when no reader needs it. A read that goes
//! on for long lets it grow without end. So reads of ours end themselves when the log is too long, and a writer that
//! finds it long waits a moment for readers to finish.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::{PATIENCE, Session, Shared, fault};
use crate::fault::Fault;
use crate::warning::warn;

/// How long the log may be.
pub const LIMIT_BYTES: u64 = 64 * 1_024 * 1_024;
/// From here on a writer tries to begin the log anew, and reads that are not short end themselves.
const LONG_BYTES: u64 = LIMIT_BYTES / 2;
/// Up to here a checkpoint costs a command no more than a few milliseconds.
const SHORT_BYTES: u64 = 4 * 1_024 * 1_024;
/// A read that takes no longer is left alone.
const SHORT_READ: Duration = Duration::from_millis(500);
/// How long a writer waits for readers before it goes on with a long log.
const WAIT: Duration = Duration::from_millis(100);
/// How much longer the log is when a writer waits again.
const AGAIN_BYTES: u64 = 8 * 1_024 * 1_024;
/// So many steps of SQLite's machine pass before it is asked whether a read should end: a few milliseconds.
const STEPS: i32 = 20_000;

/// Ends the reads of a connection that keep the log from beginning anew.
#[derive(Clone, Default)]
pub(super) struct ReadLimit {
    /// When the transaction began, if it only reads.
    since: Arc<Mutex<Option<Instant>>>,
}

impl ReadLimit {
    /// Watches a connection.
    pub fn on(connection: &mut Connection, log: PathBuf) -> rusqlite::Result<Self> {
        let limit = Self::default();
        let watched = limit.clone();
        connection.progress_handler(STEPS, Some(move || watched.is_over(&log)))?;
        Ok(limit)
    }

    fn is_over(&self, log: &Path) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() > SHORT_READ)
            && log.metadata().is_ok_and(|found| found.len() > LONG_BYTES)
    }

    /// A transaction that only reads begins or ends.
    pub fn set_reading(&self, is_reading: bool) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = is_reading.then(Instant::now);
    }
}

/// Whether reads that take longer than a moment should end.
pub(super) fn is_long(log_bytes: u64) -> bool {
    log_bytes > LONG_BYTES
}

impl Session {
    /// Copies a short log into the database, so that a copy of the file alone has everything, and nobody waits for it.
    pub(super) fn checkpoint_if_cheap(&self) {
        let Some(files) = &self.files else { return };
        if files.check().is_ok_and(|bytes| bytes > 0 && bytes <= SHORT_BYTES) {
            // Without it the log keeps what was committed, and the next writer copies it.
            let _checkpointed = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }

    /// Copies all of the log and begins it anew, waiting a moment for readers; whether that was possible.
    fn begin_log_anew(&self) -> rusqlite::Result<bool> {
        self.connection.busy_timeout(WAIT)?;
        let busy: rusqlite::Result<i64> =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        self.connection.busy_timeout(PATIENCE)?;
        Ok(busy? == 0)
    }
}

impl Shared {
    /// After a commit, while no other writer has its turn: begins a long log anew where readers let it.
    pub(super) fn bound_log(&self, session: &Session, log_bytes: u64) -> Result<(), Fault> {
        if log_bytes <= LONG_BYTES {
            return Ok(());
        }
        let mut tried = self.log_tried_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if (*tried..*tried + AGAIN_BYTES).contains(&log_bytes) {
            return Ok(());
        }
        *tried = log_bytes;
        drop(tried);
        let is_done = session.begin_log_anew().map_err(|error| fault(&self.path, error))?;
        if !is_done && log_bytes > LIMIT_BYTES {
            warn("log", || long_log(&self.path, log_bytes));
        }
        Ok(())
    }
}

/// What is wrong with a log of this length.
pub(super) fn long_log(path: &Path, bytes: u64) -> String {
    format!(
        "{}-wal has grown to {} MB because another program keeps reading an old state of the database: end that \
         program (try `fuser {}`)",
        path.display(),
        bytes / 1_024 / 1_024,
        path.display()
    )
}
