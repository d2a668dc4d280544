//! The life of a transaction: it takes a connection and its turn, and gives both back.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::tx::SqliteTx;
use super::{Session, Shared, TIMEOUT, busy, open};
use crate::fault::Fault;
use crate::store::Access;
use crate::unlinked::UnlinkedCache;

impl SqliteTx {
    pub(super) fn begin(shared: Arc<Shared>, access: Access) -> Result<Self, Fault> {
        let session = shared.take(access)?;
        let log_bytes = match shared.enter(&session, access) {
            Ok(log_bytes) => log_bytes,
            Err(fault) => {
                shared.leave(session, &fault);
                return Err(fault);
            }
        };
        session.read_limit.set_reading(access != Access::Write);
        let has_asked = Cell::new(false);
        let (changes, session) = (session.connection.total_changes(), Some(session));
        let (reading, unlinked) = (None, UnlinkedCache::default());
        let tx = Self { shared, session, access, has_asked, log_bytes, changes, reading, unlinked };
        match access {
            Access::Write => tx.run("BEGIN IMMEDIATE")?,
            Access::Read => tx.run("BEGIN")?,
            // A statement outside of a transaction is one by itself.
            Access::Once => {}
        }
        Ok(tx)
    }

    /// Ends the transaction, gives back the turn, and keeps the connection for the next one.
    pub(super) fn end(&mut self, how: &str) -> Result<(), Fault> {
        let ended = if self.access == Access::Once { Ok(()) } else { self.run(how) };
        let Some(session) = self.session.take() else { return ended };
        session.read_limit.set_reading(false);
        if ended.is_err() && !session.connection.is_autocommit() {
            // Dropping the connection undoes what a failed COMMIT left open, and closes the turn's file with it.
            return ended;
        }
        if self.access == Access::Write {
            let bounded = self.shared.bound_log(&session, self.log_bytes);
            let given_back = session.turn(&self.shared.path)?.give_back();
            given_back.map_err(|error| open::io_fault(&self.shared.path, error))?;
            // What was committed stays committed: that the log could not be cut is no failure of it.
            drop(bounded);
        }
        self.shared.put(session);
        ended
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Whether it has written anything.
    pub(super) fn has_changed(&self) -> bool {
        self.connection().total_changes() != self.changes
    }

    /// Whether what is about to be committed goes into the file that others see.
    pub(super) fn check_files(&self) -> Result<(), Fault> {
        let files = self.session.as_ref().and_then(|session| session.files.as_ref());
        files.map_or(Ok(0), |files| files.check()).map(drop)
    }
}

impl Shared {
    /// Waits for the turn of a writer, then compares the files, because the wait may have been long; says how long the
    /// log is.
    fn enter(&self, session: &Session, access: Access) -> Result<u64, Fault> {
        if access == Access::Write {
            if session.is_read_only {
                return Err(Fault::ReadOnly { path: self.path.clone() });
            }
            let taken = session.turn(&self.path)?.take(TIMEOUT);
            if !taken.map_err(|error| open::io_fault(&self.path, error))? {
                return Err(busy(&self.path));
            }
        }
        session.check(&self.path)
    }

    /// Keeps a session whose files are not those that their names lead to: while it is open, their inode numbers are in
    /// use, and it can go on when they come back.
    fn leave(&self, session: Session, fault: &Fault) {
        let is_kept =
            matches!(fault, Fault::Displaced { .. } | Fault::Linked { .. } | Fault::ReadOnly { .. });
        if is_kept && session.turn.get().is_none_or(|turn| turn.give_back().is_ok()) {
            self.put(session);
        }
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if self.session.is_some()
            && let Err(fault) = self.end("ROLLBACK")
        {
            // Nothing was promised; the connection is closed, which undoes it as well.
            drop(fault);
        }
    }
}
