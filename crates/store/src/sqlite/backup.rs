//! A copy of the file that is one snapshot of it, while others go on writing.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::{SqliteStore, fault, open};
use crate::fault::Fault;
use crate::files::{make_whole, part_of};

impl SqliteStore {
    /// Copies everything in one step, under one read lock: writers go on beside it, and none can make it start over.
    pub fn backup(&self, file: &Path) -> Result<(), Fault> {
        let part = part_of(file);
        std::fs::File::create(&part).map_err(|error| open::io_fault(file, error))?;
        let copied = self.copy_to(&part);
        if copied.is_err() {
            // Half a copy is of no use; that it could not be removed is not what the caller must hear.
            drop(std::fs::remove_file(&part));
        }
        copied?;
        make_whole(&part, file)
    }

    fn copy_to(&self, part: &Path) -> Result<(), Fault> {
        let session = open::session(self.path())?;
        let run = || {
            let mut copy = Connection::open(part)?;
            let backup = Backup::new(&session.connection, &mut copy)?;
            backup.step(-1)
        };
        match run().map_err(|error| fault(part, error))? {
            StepResult::Done => Ok(()),
            _ => Err(Fault::Busy {
                place: self.path().display().to_string(),
                waited_secs: super::PATIENCE.as_secs(),
            }),
        }
    }
}
