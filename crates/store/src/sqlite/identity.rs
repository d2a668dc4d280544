//! Which files a session has open, and whether their paths still lead to them.
//!
//! SQLite goes on writing to a file that was unlinked or replaced, and acknowledges what nobody will ever read. So each
//! transaction compares device and inode of the paths with those that were opened. The log (`-wal`) and its index
//! (`-shm`) count as the database does: commits are in the log, and locks are in the index.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::open::io_fault;
use crate::fault::Fault;

/// A file, whatever it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// The files of one session.
pub(super) struct Files {
    /// As the caller named it; a symbolic link is followed each time.
    database: PathBuf,
    id: FileId,
    /// The log and its index, beside the database itself. None where the session has none open.
    beside: [(PathBuf, Option<FileId>); 2],
}

/// The name of a file that SQLite or the turnstile keeps beside a database.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The path that SQLite puts its files beside: links in it are followed.
pub(super) fn real_path(path: &Path) -> Result<PathBuf, Fault> {
    if path.is_symlink() {
        path.canonicalize().map_err(|error| io_fault(path, error))
    } else {
        Ok(path.to_owned())
    }
}

impl Files {
    /// The files of a session that has just opened them. One that may only read has no claim on log and index: they
    /// may appear later, with the first writer.
    pub fn look(path: &Path, is_read_only: bool) -> Result<Self, Fault> {
        let found = path.metadata().map_err(|error| io_fault(path, error))?;
        let real = real_path(path)?;
        let [wal, shm] = ["-wal", "-shm"].map(|suffix| {
            let name = beside(&real, suffix);
            let id = name.metadata().ok().filter(|_| !is_read_only).map(|found| FileId::of(&found));
            (name, id)
        });
        Ok(Self { database: path.to_owned(), id: FileId::of(&found), beside: [wal, shm] })
    }

    /// The database.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// How long the log is, in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.beside[0].0.metadata().map_or(0, |found| found.len())
    }

    /// Compares every path with the file that was opened; says how long the log is.
    pub fn check(&self) -> Result<u64, Fault> {
        let found = self.same(&self.database, self.id)?;
        if found.nlink() > 1 {
            return Err(Fault::Linked { path: self.database.clone(), links: found.nlink() });
        }
        let mut log_bytes = 0;
        for (number, (path, id)) in self.beside.iter().enumerate() {
            if let Some(id) = id {
                let found = self.same(path, *id)?;
                log_bytes = if number == 0 { found.len() } else { log_bytes };
            }
        }
        Ok(log_bytes)
    }

    fn same(&self, path: &Path, id: FileId) -> Result<Metadata, Fault> {
        let displaced = |how| Fault::Displaced { path: self.database.clone(), file: path.to_owned(), how };
        match path.metadata() {
            Ok(found) if FileId::of(&found) == id => Ok(found),
            Ok(_) => Err(displaced("replaced")),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(displaced("removed"))
            }
            Err(error) => Err(io_fault(path, error)),
        }
    }
}
