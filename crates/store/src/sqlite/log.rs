//! Keeping SQLite's log short.
//!
//! A checkpoint copies the log into the database, but the log begins anew only when no reader needs it. A read that goes
//! on for long lets it grow without end. So reads of ours end themselves when the log is too long, and a writer that
//! finds it long waits a moment for readers to finish.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::{Session, Shared, TIMEOUT, fault};
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
/// So many steps of SQLite's machine pass before it is asked whether a read should end: some ten microseconds. They are
/// counted for each statement, and an export is made of short ones.
const STEPS: i32 = 1_000;
/// The head of a log, and the head of each page in it.
const LOG_HEAD_BYTES: u64 = 32;
const FRAME_HEAD_BYTES: u64 = 24;
/// How often a log that seems too short is looked at: another process may begin it anew between two looks.
const LOOKS: usize = 3;

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
    /// Compares the files with those that were opened, before a transaction begins; says how long the log is.
    pub(super) fn check(&self, path: &Path) -> Result<u64, Fault> {
        let Some(files) = &self.files else { return Ok(0) };
        let log_bytes = files.check()?;
        let mut is_whole = !files.is_log_shorter(log_bytes);
        for _look in 0..LOOKS {
            if is_whole {
                files.saw_log(log_bytes);
                return Ok(log_bytes);
            }
            let needed = self.log_bytes_needed().map_err(|error| fault(path, error))?;
            is_whole = files.log_bytes() >= needed;
        }
        if is_whole { Ok(log_bytes) } else { Err(files.truncated_log()) }
    }

    /// How long the log must be by its index.
    fn log_bytes_needed(&self) -> rusqlite::Result<u64> {
        // Below zero in a database that is not in WAL mode.
        let number = |text, column| {
            let found = self.connection.query_row(text, [], |row| row.get::<_, i64>(column));
            found.map(|number| u64::try_from(number).unwrap_or(0))
        };
        let frames = number("PRAGMA wal_checkpoint(NOOP)", 1)?;
        let page = number("PRAGMA page_size", 0)?;
        Ok(if frames == 0 { 0 } else { LOG_HEAD_BYTES + frames * (FRAME_HEAD_BYTES + page) })
    }

    /// Copies a short log into the database, so that a copy of the file alone has everything, and nobody waits for it.
    pub(super) fn checkpoint_if_cheap(&self, path: &Path) {
        if self.check(path).is_ok_and(|bytes| bytes > 0 && bytes <= SHORT_BYTES) {
            // Without it the log keeps what was committed, and the next writer copies it.
            let _checkpointed = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }

    /// Copies all of the log and begins it anew, waiting a moment for readers; whether that was possible.
    fn begin_log_anew(&self) -> rusqlite::Result<bool> {
        self.connection.busy_timeout(WAIT)?;
        let busy: rusqlite::Result<i64> =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        self.connection.busy_timeout(TIMEOUT)?;
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
