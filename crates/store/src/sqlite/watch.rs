//! Noticing that another connection wrote: SQLite counts the changes of a file for each connection that looks.

use std::sync::Arc;
use std::time::Duration;

use super::{Session, Shared, SqliteStore, fault};
use crate::fault::Fault;
use crate::store::{Access, block_in_place};

/// How often the counter is looked at: reading it costs a few microseconds.
const POLL: Duration = Duration::from_millis(100);

/// A connection that only looks at the counter.
pub struct DataVersion {
    shared: Arc<Shared>,
    session: Session,
    seen: Option<i64>,
}

impl SqliteStore {
    /// Begins to watch for changes by others, other transactions of this store included.
    pub fn data_version(&self) -> Result<DataVersion, Fault> {
        let shared = Arc::clone(&self.shared);
        Ok(DataVersion { session: shared.connect(Access::Read)?, shared, seen: None })
    }
}

impl DataVersion {
    /// Returns when something changed since the last call, or after this long: whether something changed. The first call
    /// returns at once.
    pub async fn wait(&mut self, at_most: Duration) -> Result<bool, Fault> {
        let mut left = at_most;
        loop {
            let now = block_in_place(|| self.read())?;
            let has_changed = self.seen.replace(now) != Some(now);
            if has_changed || left.is_zero() {
                return Ok(has_changed);
            }
            let nap = POLL.min(left);
            tokio::time::sleep(nap).await;
            left -= nap;
        }
    }

    fn read(&mut self) -> Result<i64, Fault> {
        match &self.session.files {
            Some(files) => drop(files.check()?),
            // The database did not exist when it was last looked for.
            None => {
                let session = self.shared.connect(Access::Read)?;
                if session.files.is_none() {
                    return Ok(0);
                }
                (self.session, self.seen) = (session, None);
            }
        }
        let read =
            self.session.connection.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0));
        read.map_err(|error| fault(&self.shared.path, error))
    }
}
