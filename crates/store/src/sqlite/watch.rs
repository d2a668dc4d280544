//! Noticing that another connection wrote: SQLite counts the changes of a file for each connection that looks.

use std::path::PathBuf;
use std::time::Duration;

use super::{Session, SqliteStore, fault, open};
use crate::fault::Fault;

/// How often the counter is looked at: reading it costs a few microseconds.
const POLL: Duration = Duration::from_millis(100);

/// A connection that only looks at the counter.
pub struct DataVersion {
    session: Session,
    path: PathBuf,
    seen: Option<i64>,
}

impl SqliteStore {
    /// Begins to watch for changes by others, other transactions of this store included.
    pub fn data_version(&self) -> Result<DataVersion, Fault> {
        let path = self.path().to_owned();
        Ok(DataVersion { session: open::session(&path)?, path, seen: None })
    }
}

impl DataVersion {
    /// Returns when something changed since the last call, or after this long. The first call returns at once.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), Fault> {
        let mut left = at_most;
        loop {
            let read =
                self.session.connection.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0));
            let now = read.map_err(|error| fault(&self.path, error))?;
            if self.seen.replace(now) != Some(now) || left.is_zero() {
                return Ok(());
            }
            let nap = POLL.min(left);
            std::thread::sleep(nap);
            left -= nap;
        }
    }
}
