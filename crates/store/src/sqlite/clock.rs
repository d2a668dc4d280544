//! The time of a database: the host's clock, but never before what was written by it.
//!
//! The database remembers the newest time that a clock gave to an event. If the host's clock falls behind it by little,
//! that time is used until the clock catches up. If it falls behind by more, nothing is written: leases would end
//! early or late, and nobody knows which of the two times is wrong.
//!
//! The mark is moved at most once a second, so that it costs a busy writer nothing; the events behind it say the rest.

use rota_core::UnixMillis;
use rusqlite::{OptionalExtension, params};

use super::tx::SqliteTx;
use super::{SqliteStore, sql};
use crate::clock::system_now;
use crate::fault::Fault;
use crate::store::Access;
use crate::warning::warn;

/// So far behind the host's clock may be.
const TOLERANCE_MS: i64 = 10 * 60_000;
/// The mark is not moved by less.
const STEP_MS: i64 = 1_000;

/// A clock that is behind what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockBehind {
    /// The newest time that was written by a clock.
    pub newest: UnixMillis,
    /// What the host's clock says.
    pub host: UnixMillis,
}

impl ClockBehind {
    /// Whether it is too far behind to be used.
    pub fn is_far(&self) -> bool {
        self.newest.get().saturating_sub(self.host.get()) > TOLERANCE_MS
    }
}

/// What a transaction found when it read the clock.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    now: UnixMillis,
    mark: Option<i64>,
}

impl SqliteTx {
    /// The time to decide by.
    pub(super) fn read_clock(&mut self) -> Result<UnixMillis, Fault> {
        let host = system_now();
        let mark = self.clock_mark()?;
        let behind = self.behind(mark, host)?;
        let now = match behind {
            None => host,
            Some(behind) if !behind.is_far() => behind.newest,
            Some(behind) if self.access() == Access::Write => return Err(self.too_far(behind)),
            Some(behind) => {
                let fault = self.too_far(behind);
                warn("clock", || fault.to_string());
                host
            }
        };
        self.reading = Some(Reading { now, mark });
        Ok(now)
    }

    fn too_far(&self, ClockBehind { newest, host }: ClockBehind) -> Fault {
        Fault::ClockBehind { path: self.path().to_owned(), newest, host }
    }

    fn clock_mark(&self) -> Result<Option<i64>, Fault> {
        // Beside the one statement of a transaction that has only one: the mark is no part of its snapshot.
        let read =
            || self.connection().prepare_cached(sql::CLOCK)?.query_row([], |row| row.get(0)).optional();
        read().map_err(|error| self.fault(error))
    }

    fn behind(&self, mark: Option<i64>, host: UnixMillis) -> Result<Option<ClockBehind>, Fault> {
        let Some(mark) = mark.filter(|mark| *mark > host.get()) else { return Ok(None) };
        let read = || {
            let mut last = self.connection().prepare_cached(sql::NEWEST_OF_MARK)?;
            last.query_row(params![mark, mark + STEP_MS], |row| row.get::<_, Option<i64>>(0))
        };
        let newest = read().map_err(|error| self.fault(error))?.unwrap_or(mark);
        Ok(Some(ClockBehind { newest: UnixMillis::new(newest), host }))
    }

    /// Before a commit: moves the mark if the clock gave its time to what was written.
    pub(super) fn mark_clock(&self) -> Result<(), Fault> {
        let Some(Reading { now, mark }) = self.reading else { return Ok(()) };
        if mark.is_some_and(|mark| now.get() < mark + STEP_MS) || !self.has_changed() {
            return Ok(());
        }
        let run = || {
            let last: Option<i64> = self
                .connection()
                .prepare_cached(sql::LAST_TIME)?
                .query_row([], |row| row.get(0))
                .optional()?;
            if last == Some(now.get()) {
                self.connection().prepare_cached(sql::SET_CLOCK)?.execute([now.get()])?;
            }
            Ok(())
        };
        run().map_err(|error| self.fault(error))
    }
}

impl SqliteStore {
    /// How far the host's clock is behind what was written; none if it is not.
    pub fn clock_behind(&self) -> Result<Option<ClockBehind>, Fault> {
        let tx = SqliteTx::begin(std::sync::Arc::clone(&self.shared), Access::Read)?;
        tx.behind(tx.clock_mark()?, system_now())
    }

    /// From now on the host's clock counts, although it is behind what was written; says by how much it was.
    pub fn accept_clock(&self) -> Result<Option<ClockBehind>, Fault> {
        let mut tx = SqliteTx::begin(std::sync::Arc::clone(&self.shared), Access::Write)?;
        let found = tx.behind(tx.clock_mark()?, system_now())?;
        if let Some(behind) = found {
            let set = tx.connection().execute(sql::SET_CLOCK, [behind.host.get()]);
            set.map_err(|error| tx.fault(error))?;
            tx.end("COMMIT")?;
        }
        Ok(found)
    }
}
