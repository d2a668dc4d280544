//! Where loops keep their things: `.rota/loops/<id>/iterations/NNN/`. Ids come from outside and become names here, and
//! paths that agents give are opened beneath a folder without following any link.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rota_core::{Task, TaskId};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use sha2::Digest;

/// Names longer than this are cut.
const NAME_BYTES: usize = 200;

/// The folders of one workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// Where agents work.
    pub workspace: PathBuf,
    /// `.rota`
    pub rota: PathBuf,
}

impl Folders {
    /// A short name for this workspace: several daemons of one host may share a store.
    pub fn name(&self) -> String {
        short_hash(self.workspace.as_os_str().as_encoded_bytes())
    }

    /// A loop's own folder.
    pub fn of_loop(&self, id: &TaskId) -> PathBuf {
        self.rota.join("loops").join(encoded(id))
    }

    /// The folder of one iteration.
    pub fn of_iteration(&self, id: &TaskId, number: u32) -> PathBuf {
        self.of_loop(id).join("iterations").join(numbered(number))
    }

    /// The worktree of a loop.
    pub fn worktree(&self, id: &TaskId) -> PathBuf {
        self.rota.join("worktrees").join(encoded(id))
    }

    /// Whether what triggers a task is there: a regular file beneath its parent's folder, or the workspace.
    pub fn has_artifact(&self, task: &Task) -> bool {
        let Some(path) = &task.triggered_by else { return true };
        let root = task.parent.as_ref().map_or_else(|| self.workspace.clone(), |parent| self.of_loop(parent));
        open_beneath(&root, path).is_ok()
    }
}

/// `001`
pub fn numbered(number: u32) -> String {
    format!("{number:03}")
}

/// An id as the name of a file or a branch: percent-encoded, and where it is too long cut with a hash behind it.
pub fn encoded(id: &TaskId) -> String {
    let text = id.as_str();
    let mut name = String::with_capacity(text.len());
    for (place, byte) in text.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_safe_dot = byte == b'.'
            && place > 0
            && !text[..place].ends_with('.')
            && !text[place..].eq_ignore_ascii_case(".lock");
        if plain || (is_safe_dot && place + 1 < text.len()) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > NAME_BYTES {
        let hash = short_hash(text.as_bytes());
        name.truncate(NAME_BYTES - hash.len() - 1);
        name.push('-');
        name.push_str(&hash);
    }
    name
}

/// Sixteen digits that stand for a text.
fn short_hash(text: &[u8]) -> String {
    sha2::Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a regular file beneath a folder. No part of the path may be a link, or lead up or out.
pub fn open_beneath(root: &Path, path: &str) -> io::Result<File> {
    let refused = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("'{path}' {problem}"));
    if path.starts_with('/') {
        return Err(refused("is not a path beneath the folder"));
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| part.is_empty() || *part == "." || *part == ".." || part.contains('\0')) {
        return Err(refused("is not a path beneath the folder"));
    }
    let (last, folders) = parts.split_last().ok_or_else(|| refused("is empty"))?;
    let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder: OwnedFd = openat(CWD, root, folder_flags, Mode::empty())?;
    for part in folders {
        folder = openat(&folder, *part, folder_flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&folder, *last, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(refused("is not a regular file"));
    }
    Ok(File::from(file))
}

/// Reads such a file, up to a limit.
pub fn read_beneath(root: &Path, path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_beneath(root, path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("'{path}' is longer than {limit} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    #[test]
    fn ids_become_names() {
        for (id, wanted) in [
            ("plan-1", "plan-1"),
            ("a/b c", "a%2Fb%20c"),
            (".hidden", "%2Ehidden"),
            ("a..b", "a.%2Eb"),
            ("v1.2", "v1.2"),
            ("main.lock", "main%2Elock"),
            ("end.", "end%2E"),
            ("größe", "gr%C3%B6%C3%9Fe"),
            ("50%", "50%25"),
        ] {
            assert_eq!(encoded(&TaskId::from_stored(id.into())), wanted, "{id}");
        }
        let long = |end: &str| encoded(&TaskId::from_stored(("x".repeat(240) + end).into()));
        assert_eq!(long("a").len(), NAME_BYTES);
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn only_regular_files_beneath_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("artifacts")).unwrap();
        std::fs::write(root.join("artifacts/spec.md"), "spec").unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../../secret", root.join("artifacts/link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("out")).unwrap();
        assert_eq!(read_beneath(&root, "artifacts/spec.md", 10).unwrap(), b"spec");
        for bad in [
            "",
            "/etc/passwd",
            "../secret",
            "artifacts/../../secret",
            "artifacts/link",
            "out/secret",
            "artifacts",
            "none",
            "./artifacts/spec.md",
            "artifacts//spec.md",
        ] {
            assert!(open_beneath(&root, bad).is_err(), "{bad}");
        }
        assert!(read_beneath(&root, "artifacts/spec.md", 3).is_err());
    }
}
