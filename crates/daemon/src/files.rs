//! Reading and writing files where an agent can write too.
//!
//! An agent is not trusted, and it may run as the daemon's own Unix user. So no file is opened by a plain path: a
//! path is walked from its root one component at a time, and a symbolic link in any component is an error.
//!
//! | operation | rule |
//! |---|---|
//! | [`Dir::create`] | `O_EXCL`: the file is new. An entry that has its name already is renamed, never opened |
//! | [`Dir::write`] | a new file under another name, then a rename: readers see all of it or nothing |
//! | [`Dir::make_fresh`] | the directory is new and empty; an entry that has its name already is renamed |
//! | [`Dir::read`], [`Dir::tail`], [`Dir::open_file`] | non-blocking; a regular file with one link, owned by the daemon's or the agents' user ([`Owner`]), up to a size |
//! | [`off_runtime`] | file I/O of async code runs on a thread for blocking work, with a time limit |
//!
//! A FIFO, a device, a socket, a directory, a hard link or a link to a secret in place of a file is thus an error of
//! the one run that it belongs to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, mkdirat, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::shim::record::marker;

/// How long file I/O may take before its caller goes on without it: an agent can mount a file system that never
/// answers.
const LIMIT: Duration = Duration::from_secs(10);
/// Directories are only walked through and created in, which on Linux needs no permission to read them.
#[cfg(target_os = "linux")]
const WALK: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const WALK: OFlags = OFlags::RDONLY;
/// New directories are for the daemon's user alone.
const PRIVATE_DIR: Mode = Mode::RWXU;
/// New files too.
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The user that a file must belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Not checked, and neither is the number of links: files of the workspace, which people look after.
    Any,
    /// The user of this process.
    Us,
    /// The user of this process, or the user that agents run as.
    UsOr(u32),
}

/// A directory that stays the same one when its path is given to something else.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens an absolute path without following a link in any of its components.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_absolute() {
            return Err(refused(path, "is not an absolute path"));
        }
        let mut dir = Self(openat(CWD, "/", dir_flags(), Mode::empty())?);
        for part in path.components() {
            match part {
                Component::RootDir => {}
                Component::Normal(name) => dir = dir.sub(name).map_err(|error| at(path, error))?,
                _ => return Err(refused(path, "leads up")),
            }
        }
        Ok(dir)
    }

    /// The same; directories that are missing below `root` are created for this user alone.
    pub fn open_or_create(root: &Path, below: &Path) -> io::Result<Self> {
        let mut dir = Self::open(root)?;
        let named = |error| at(&root.join(below), error);
        for part in below.components() {
            let Component::Normal(name) = part else { return Err(refused(below, "leads up")) };
            dir = dir.make(name).map_err(named)?;
        }
        Ok(dir)
    }

    /// A directory in this one; a link is refused.
    pub fn sub(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        match openat(&self.0, name, dir_flags(), Mode::empty()) {
            Ok(dir) => Ok(Self(dir)),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(refused(Path::new(name), "is not a directory")),
            Err(error) => Err(error.into()),
        }
    }

    /// A directory in this one, created if it is missing.
    pub fn make(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        match mkdirat(&self.0, name.as_ref(), PRIVATE_DIR) {
            Ok(()) | Err(Errno::EXIST) => self.sub(name),
            Err(error) => Err(error.into()),
        }
    }

    /// A new, empty directory in this one. An entry that has its name already is renamed.
    pub fn make_fresh(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        self.anew(name, || mkdirat(&self.0, name, PRIVATE_DIR))?;
        self.sub(name)
    }

    /// A new file in this one. An entry that has its name already is renamed.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.anew(name, || openat(&self.0, name, flags, PRIVATE_FILE)).map(File::from)
    }

    /// A new file with this content, complete when it appears. It takes the place of an earlier one.
    pub fn write(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        let name = name.as_ref();
        let mut unfinished = name.to_owned();
        unfinished.push(format!(".{}", marker()));
        self.create(&unfinished)?.write_all(content)?;
        self.in_place_of(name, || renameat(&self.0, &unfinished, &self.0, name))
    }

    /// A file with this content, unless the name is taken.
    pub fn write_once(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, PRIVATE_FILE) {
            Ok(file) => File::from(file).write_all(content),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file beneath this directory for reading.
    pub fn open_file(&self, path: &str, owner: Owner) -> io::Result<File> {
        let wrong = |problem: &str| refused(Path::new(path), problem);
        let parts: Vec<&str> = path.split('/').collect();
        let is_name = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains('\0');
        if !parts.iter().all(is_name) {
            return Err(wrong("is not a path beneath the folder"));
        }
        let Some((last, folders)) = parts.split_last() else { return Err(wrong("is empty")) };
        let mut folder: Option<Self> = None;
        for part in folders {
            folder = Some(folder.as_ref().unwrap_or(self).sub(part)?);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&folder.as_ref().unwrap_or(self).0, *last, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::LOOP) => return Err(wrong("is a link")),
            Err(Errno::NXIO) => return Err(wrong("is not a regular file")),
            Err(error) => return Err(error.into()),
        };
        check(&file, owner).map_err(|problem| wrong(&problem))?;
        Ok(File::from(file))
    }

    /// Reads a file beneath this directory; one that is longer than the limit is an error.
    pub fn read(&self, path: &str, owner: Owner, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(path, owner)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(refused(Path::new(path), &format!("is longer than {limit} bytes")));
        }
        Ok(bytes)
    }

    /// The last bytes of a file beneath this directory.
    pub fn tail(&self, path: &str, owner: Owner, limit: u64) -> io::Result<Vec<u8>> {
        let mut file = self.open_file(path, owner)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Hands an entry of this directory over to another user.
    pub fn give_to(&self, name: impl AsRef<OsStr>, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(chownat(&self.0, name.as_ref(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Hands an entry of this directory over to another user, with all that is in it.
    pub fn give_all_to(&self, name: impl AsRef<OsStr>, uid: u32, gid: u32) -> io::Result<()> {
        let name = name.as_ref();
        let about = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(about.st_mode) == FileType::Directory {
            let inner = self.sub(name)?;
            for entry in inner.names()? {
                inner.give_all_to(&entry, uid, gid)?;
            }
        }
        self.give_to(name, uid, gid)
    }

    /// Lets other users pass through a directory in this one, without listing it.
    pub fn let_pass(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(&self.0, name.as_ref(), flags, Mode::empty())?;
        Ok(rustix::fs::fchmod(dir, PRIVATE_DIR | Mode::XGRP | Mode::XOTH)?)
    }

    /// Opens a file of ours to read it and to append to it: the one kind of file that is written more than once.
    pub fn open_to_append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let wrong = |problem: &str| refused(Path::new(name), problem);
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(wrong("is a link")),
            opened => opened?,
        };
        check(&file, Owner::Us).map_err(|problem| wrong(&problem))?;
        Ok(File::from(file))
    }

    /// Moves an entry of another directory into this one, in place of an entry of that name.
    pub fn take_in(&self, from: &Self, name: impl AsRef<OsStr>, to: &str) -> io::Result<()> {
        self.in_place_of(OsStr::new(to), || renameat(&from.0, name.as_ref(), &self.0, to))
    }

    /// Whether there is an entry of this name, whatever it is.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        statat(&self.0, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The names in this directory, sorted.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let readable =
            openat(&self.0, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(readable)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(std::os::unix::ffi::OsStringExt::from_vec(name.into_bytes()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes an entry and all that is in it. Links are removed, never followed; a missing entry is no error.
    pub fn remove_all(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let inner = self.sub(name)?;
        for entry in inner.names()? {
            inner.remove_all(&entry)?;
        }
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Creates an entry; one that has its name already is renamed first.
    fn anew<T>(&self, name: &OsStr, create: impl Fn() -> Result<T, Errno>) -> io::Result<T> {
        match create() {
            Err(Errno::EXIST) => {
                self.move_aside(name)?;
                Ok(create()?)
            }
            created => Ok(created?),
        }
    }

    /// Renames a file to a name in this directory; a directory that has that name is renamed first.
    fn in_place_of(&self, name: &OsStr, rename: impl Fn() -> Result<(), Errno>) -> io::Result<()> {
        match rename() {
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                self.move_aside(name)?;
                Ok(rename()?)
            }
            renamed => Ok(renamed?),
        }
    }

    fn move_aside(&self, name: &OsStr) -> io::Result<()> {
        let mut aside = name.to_owned();
        aside.push(format!(".aside-{}", marker()));
        Ok(renameat(&self.0, name, &self.0, &aside)?)
    }
}

/// Opens the directory of an absolute path, and returns the name in it.
pub fn parent(path: &Path) -> io::Result<(Dir, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((Dir::open(parent)?, name)),
        _ => Err(refused(path, "is not the path of a file")),
    }
}

/// Opens a file of the workspace, which people look after: its folder's own path may have links in it.
pub fn open_beneath(root: &Path, path: &str) -> io::Result<File> {
    let flags = WALK | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir(openat(CWD, root, flags, Mode::empty())?).open_file(path, Owner::Any)
}

/// Reads such a file, up to a limit.
pub fn read_beneath(root: &Path, path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let flags = WALK | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir(openat(CWD, root, flags, Mode::empty())?).read(path, Owner::Any, limit)
}

/// The error of one of many files, with its path.
pub fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Runs file I/O on a thread for blocking work. Its caller goes on after a time limit: the thread may hang in a file
/// system that an agent mounted.
pub async fn off_runtime<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::time::timeout(LIMIT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(panicked)) if panicked.is_panic() => std::panic::resume_unwind(panicked.into_panic()),
        Ok(Err(_)) => Err(io::ErrorKind::Interrupted.into()),
        Err(_) => {
            let problem = format!("the file system did not answer within {} s", LIMIT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
    }
}

fn dir_flags() -> OFlags {
    WALK | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn check(file: &OwnedFd, owner: Owner) -> Result<(), String> {
    let about = fstat(file).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err("is not a regular file".to_owned());
    }
    let agent = match owner {
        Owner::Any => return Ok(()),
        Owner::Us => None,
        Owner::UsOr(agent) => Some(agent),
    };
    if about.st_nlink != 1 {
        return Err(format!("is a hard link ({} links)", about.st_nlink));
    }
    if about.st_uid != rustix::process::geteuid().as_raw() && Some(about.st_uid) != agent {
        return Err(format!("is owned by user {}", about.st_uid));
    }
    Ok(())
}

fn refused(path: &Path, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("'{}' {problem}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests;
