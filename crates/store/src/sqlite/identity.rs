//! Which files a session has open, and whether their paths still lead to them.
//!
//! SQLite goes on writing to a file that was unlinked or replaced, and acknowledges what nobody will ever read. So each
//! transaction compares device and inode of the paths with those that were opened. The log (`-wal`) and its index
//! (`-shm`) count as the database does: commits are in the log, and locks are in the index.
//!
//! A file system gives the inode number of a deleted file to the next new one, often at once. So a store keeps a handle
//! on its database ([`Pinned`]), and sessions stay open when a check fails: a number that is in use belongs to one file.
//!
//! A file can also be truncated where it lies, and SQLite would go on from its cache. Database and index never get
//! shorter while a session has them open. The log does, when it begins anew: then `Session::check` asks SQLite.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The database of a store, held so that no other file can get its inode number.
pub(super) struct Pinned {
    id: FileId,
    #[cfg(target_os = "linux")]
    _handle: rustix::fd::OwnedFd,
}

impl Pinned {
    /// The file that a path leads to now. The handle is for the path alone (`O_PATH`): closing any other descriptor of
    /// the file would release the locks that SQLite holds on it.
    #[cfg(target_os = "linux")]
    pub fn at(path: &Path) -> Result<Self, Fault> {
        use rustix::fs::{Mode, OFlags, fstat, open};
        let pin = || {
            let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let found = fstat(&handle)?;
            Ok(Self { id: FileId { device: found.st_dev, inode: found.st_ino }, _handle: handle })
        };
        pin().map_err(|error: rustix::io::Errno| io_fault(path, error.into()))
    }

    /// The file that a path leads to now. APFS does not use inode numbers again.
    #[cfg(not(target_os = "linux"))]
    pub fn at(path: &Path) -> Result<Self, Fault> {
        let found = path.metadata().map_err(|error| io_fault(path, error))?;
        Ok(Self { id: FileId::of(&found) })
    }

    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }
}

/// The files of a session. All sessions of one store that can write have the same.
pub(super) struct Files {
    /// As the caller named it; a symbolic link is followed each time.
    database: PathBuf,
    id: FileId,
    /// The log and its index, beside the database itself. None where the session has none open.
    beside: [(PathBuf, Option<FileId>); 2],
    /// The greatest lengths of the database and of the index.
    longest: [AtomicU64; 2],
    /// How long the log was when it was last known to be whole.
    log_seen: AtomicU64,
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
        let (longest, log_seen) = (Default::default(), AtomicU64::new(u64::MAX));
        Ok(Self { database: path.to_owned(), id: FileId::of(&found), beside: [wal, shm], longest, log_seen })
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
        let [database, index] = &self.longest;
        self.not_shorter(&self.database, database, found.len())?;
        let [(log, log_id), (shm, shm_id)] = &self.beside;
        if let Some(id) = shm_id {
            self.not_shorter(shm, index, self.same(shm, *id)?.len())?;
        }
        log_id.map_or(Ok(0), |id| self.same(log, id).map(|found| found.len()))
    }

    /// Whether a log of this length must be looked at before it is used.
    pub fn is_log_shorter(&self, bytes: u64) -> bool {
        self.beside[0].1.is_some() && self.log_seen.load(Ordering::Relaxed) > bytes
    }

    /// A log of this length is whole.
    pub fn saw_log(&self, bytes: u64) {
        self.log_seen.store(bytes, Ordering::Relaxed);
    }

    /// The log lacks what its index says that it has.
    pub fn truncated_log(&self) -> Fault {
        self.displaced(&self.beside[0].0, "truncated")
    }

    fn not_shorter(&self, path: &Path, longest: &AtomicU64, bytes: u64) -> Result<(), Fault> {
        let is_shorter = longest.fetch_max(bytes, Ordering::Relaxed) > bytes;
        if is_shorter { Err(self.displaced(path, "truncated")) } else { Ok(()) }
    }

    fn displaced(&self, file: &Path, how: &'static str) -> Fault {
        Fault::Displaced { path: self.database.clone(), file: file.to_owned(), how }
    }

    fn same(&self, path: &Path, id: FileId) -> Result<Metadata, Fault> {
        match path.metadata() {
            Ok(found) if FileId::of(&found) == id => Ok(found),
            Ok(_) => Err(self.displaced(path, "replaced")),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(self.displaced(path, "removed"))
            }
            Err(error) => Err(io_fault(path, error)),
        }
    }
}
