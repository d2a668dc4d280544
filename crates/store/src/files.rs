//! Files that appear whole or not at all, and folders that only their owner can enter.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::fault::Fault;

/// The name of the folder that Rota makes for its own files.
pub const ROTA_FOLDER: &str = ".rota";
/// Nobody but the owner.
pub const PRIVATE: u32 = 0o700;
/// The owner; the group may look (`rota init --group`).
pub const GROUP: u32 = 0o750;
/// A file for its owner alone.
const OWNER_FILE: u32 = 0o600;

/// The name under which a file is written until it is whole, in the same folder.
pub fn part_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    PathBuf::from(name)
}

/// Makes what was written durable and gives it its name.
pub fn make_whole(part: &Path, file: &Path) -> Result<(), Fault> {
    let made = File::open(part)
        .and_then(|written| written.sync_all())
        .and_then(|()| std::fs::rename(part, file))
        .and_then(|()| sync_folder(folder_of(file)));
    made.map_err(|source| Fault::Io { path: file.to_owned(), source })
}

/// The folder that a path lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a `.rota` folder durable, with these permissions whatever the umask, and with a `.gitignore` that keeps it out
/// of the repository. A folder that exists keeps its permissions.
pub fn make_rota_folder(folder: &Path, mode: u32) -> std::io::Result<()> {
    let parent = folder_of(folder);
    std::fs::create_dir_all(parent)?;
    let is_new = match DirBuilder::new().mode(mode).create(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => false,
        Err(error) => return Err(error),
    };
    if is_new {
        // The umask can only take permissions away, also from the owner.
        std::fs::set_permissions(folder, Permissions::from_mode(mode))?;
        sync_folder(parent)?;
    }
    match create_private(&folder.join(".gitignore")) {
        Ok(mut ignore) => {
            ignore.write_all(b"*\n")?;
            ignore.sync_all()?;
            sync_folder(folder)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // Whoever may only read needs no `.gitignore`.
        Err(_) if !is_new => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates a file that must not exist yet, readable by nobody but the owner, whatever the umask; by the group as well in
/// a `.rota` folder that the group may enter.
pub fn create_private(path: &Path) -> std::io::Result<File> {
    create_with_mode(path, file_mode(folder_of(path)))
}

/// Creates a file that must not exist yet, for its owner alone also where the group may read: a user who can open a lock
/// file can hold its lock.
pub(crate) fn create_for_owner(path: &Path) -> std::io::Result<File> {
    create_with_mode(path, OWNER_FILE)
}

/// Replaces a file by a new one for its owner alone. A link, a FIFO or a hard link that has its name is never opened.
pub fn replace_for_owner(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let part = part_of(path);
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create_for_owner(&part)?.write_all(content)?;
    std::fs::rename(&part, path)
}

/// Opens a file that this process writes more than once: a lock, a log. A link, a hard link, or anything that is not a
/// regular file in its place is refused, without waiting for it.
pub fn open_own(options: &OpenOptions, path: &Path) -> std::io::Result<File> {
    let file = opened(options, path, OFlags::NOFOLLOW)?;
    let links = file.metadata()?.nlink();
    if links > 1 { Err(unusable(path, "is a hard link")) } else { Ok(file) }
}

/// Opens a file for reading that people look after, and that an agent could replace. It may be a link; a FIFO, a device or
/// a socket is refused, without waiting for it.
pub fn open_regular(path: &Path) -> std::io::Result<File> {
    opened(File::options().read(true), path, OFlags::empty())
}

fn opened(options: &OpenOptions, path: &Path, flags: OFlags) -> std::io::Result<File> {
    let flags = (flags | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = match options.clone().custom_flags(flags).open(path) {
        Err(error) if is_one_of(&error, &[Errno::LOOP]) => {
            return Err(unusable(path, "is a symbolic link"));
        }
        Err(error) if is_one_of(&error, &[Errno::NXIO, Errno::ISDIR]) => {
            return Err(unusable(path, "is not a regular file"));
        }
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(unusable(path, "is not a regular file")) }
}

fn is_one_of(error: &std::io::Error, numbers: &[Errno]) -> bool {
    numbers.iter().any(|number| error.raw_os_error() == Some(number.raw_os_error()))
}

fn unusable(path: &Path, problem: &str) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidInput, format!("'{}' {problem}", path.display()))
}

fn create_with_mode(path: &Path, mode: u32) -> std::io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

fn file_mode(folder: &Path) -> u32 {
    let is_shared = || folder.metadata().is_ok_and(|found| found.permissions().mode() & 0o040 != 0);
    let is_ours = folder.file_name().is_some_and(|name| name == ROTA_FOLDER);
    if is_ours && is_shared() { 0o640 } else { OWNER_FILE }
}
