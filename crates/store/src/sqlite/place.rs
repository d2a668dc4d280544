//! Where a database is or could be: is there a file, is it long enough to be one, can SQLite work there.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::identity::{beside, real_path};
use super::open::io_fault;
use crate::fault::Fault;
use crate::files::{ROTA_FOLDER, folder_of};

/// The size of the smallest database.
const SMALLEST_BYTES: u64 = 512;

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Nothing, and nothing that a database would have left behind.
    Absent,
    /// A file that may be a database.
    Present,
}

/// Looks at a path without opening anything.
pub(super) fn look(path: &Path) -> Result<Place, Fault> {
    let place = look_at_file(path)?;
    let folder = folder_of(path);
    match folder.metadata() {
        Ok(found) if !found.is_dir() => return Err(io_fault(folder, ErrorKind::NotADirectory.into())),
        Ok(_) => {}
        // A `.rota` folder is made with the first write; others are the user's.
        Err(error) if error.kind() == ErrorKind::NotFound && is_rota(folder) => return Ok(Place::Absent),
        Err(error) => return Err(io_fault(folder, error)),
    }
    if std::env::var_os("ROTA_ALLOW_NETWORK_FS").is_none_or(|value| value.is_empty())
        && let Some(kind) = network_file_system(folder).map_err(|error| io_fault(folder, error))?
    {
        return Err(Fault::NetworkFileSystem { path: path.to_owned(), kind });
    }
    Ok(place)
}

/// Whether a folder is one that Rota makes.
pub(super) fn is_rota(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == ROTA_FOLDER)
}

fn look_at_file(path: &Path) -> Result<Place, Fault> {
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => return missing(path),
        // The folder is looked at next, and named.
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(Place::Absent),
        Err(error) => return Err(io_fault(path, error)),
    };
    let corrupt = |problem| Err(Fault::Corrupt { path: path.to_owned(), problem });
    if found.is_dir() {
        return Err(Fault::IsDirectory { path: path.to_owned() });
    }
    if !found.is_file() {
        return corrupt("it is not a regular file".to_owned());
    }
    // SQLite takes a few bytes for nothing, and would make a new database of them.
    if found.len() < SMALLEST_BYTES {
        return corrupt(format!(
            "it is only {} bytes long, so it was truncated: restore a backup, or delete it and the files beside it \
             (-wal, -shm, -turn) to start with an empty store",
            found.len()
        ));
    }
    if found.nlink() > 1 {
        return Err(Fault::Linked { path: path.to_owned(), links: found.nlink() });
    }
    Ok(Place::Present)
}

/// A database that is not there: it never was, or files that it left behind show that it was.
fn missing(path: &Path) -> Result<Place, Fault> {
    let real = real_path(path)?;
    for suffix in ["-wal", "-turn"] {
        let left = beside(&real, suffix);
        // A database appears before the files beside it: one that was made just now is there by now.
        if left.symlink_metadata().is_ok() {
            return match path.metadata() {
                Ok(_) => Ok(Place::Present),
                Err(_) => Err(Fault::Missing { path: path.to_owned(), beside: left }),
            };
        }
    }
    Ok(Place::Absent)
}

/// The name of the network file system a folder is on, if it is on one.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> std::io::Result<Option<&'static str>> {
    const NETWORK: [(u32, &str); 8] = [
        (0x6969, "nfs"),
        (0x517b, "smb"),
        (0xfe53_4d42, "smb2"),
        (0xff53_4d42, "cifs"),
        (0x5346_414f, "afs"),
        (0x00c3_6400, "ceph"),
        (0x0102_1997, "9p"),
        (0x0bd0_0bd0, "lustre"),
    ];
    let stat = rustix::fs::statfs(folder)?;
    // The width of f_type differs between architectures; the magic numbers are 32 bits everywhere.
    let magic = (stat.f_type as u64 & 0xffff_ffff) as u32;
    Ok(NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name))
}

/// The name of the network file system a folder is on, if it is on one.
#[cfg(not(target_os = "linux"))]
fn network_file_system(folder: &Path) -> std::io::Result<Option<&'static str>> {
    const NETWORK: [&str; 5] = ["nfs", "smbfs", "afpfs", "webdav", "ftp"];
    let stat = rustix::fs::statfs(folder)?;
    let name: Vec<u8> =
        stat.f_fstypename.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    Ok(NETWORK.into_iter().find(|network| network.as_bytes() == name))
}
