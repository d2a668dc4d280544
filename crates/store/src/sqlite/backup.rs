//! A copy of the file that is one snapshot of it, while others go on writing.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::{SqliteStore, busy, fault, log, open};
use crate::fault::Fault;
use crate::files::{make_whole, part_of};
use crate::store::Access;

/// How often a backup is begun that took too long.
const ATTEMPTS: usize = 3;
/// So many pages are copied before the length of the log is looked at.
const STEP_PAGES: i32 = 4_096;

impl SqliteStore {
    /// Copies one snapshot while writers go on beside it. If that takes so long that the log grows too much, it is begun
    /// again, a few times.
    pub fn backup(&self, file: &Path) -> Result<(), Fault> {
        let part = part_of(file);
        let mut copied = self.copy_to(&part, file);
        for _again in 1..ATTEMPTS {
            if !matches!(copied, Err(Fault::LongRead { .. })) {
                break;
            }
            copied = self.copy_to(&part, file);
        }
        if copied.is_err() {
            // Half a copy is of no use; that it could not be removed is not what the caller must hear.
            drop(std::fs::remove_file(&part));
        }
        copied?;
        make_whole(&part, file)
    }

    fn copy_to(&self, part: &Path, file: &Path) -> Result<(), Fault> {
        std::fs::File::create(part).map_err(|error| open::io_fault(file, error))?;
        let session = self.shared.connect(Access::Read)?;
        let log_bytes = || session.files.as_ref().map_or(0, |files| files.log_bytes());
        let run = || {
            // The transaction keeps the snapshot between the steps.
            session.connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")?;
            let mut copy = Connection::open(part)?;
            let backup = Backup::new(&session.connection, &mut copy)?;
            loop {
                match backup.step(STEP_PAGES)? {
                    StepResult::More if log::is_long(log_bytes()) => return Ok(StepResult::More),
                    StepResult::More => {}
                    ended => return Ok(ended),
                }
            }
        };
        match run().map_err(|error| fault(part, error))? {
            StepResult::Done => Ok(()),
            StepResult::More => Err(Fault::LongRead { path: self.path().to_owned() }),
            _ => Err(busy(self.path())),
        }
    }
}
