//! The state file and the lock beside it. It is old or new, never torn, and one that cannot be read is never replaced.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::cycle::{BadState, State};
use rota_core::supervisor::Standing;
use rustix::fs::{FlockOperation, flock};
use sha2::Digest;

/// No state is longer.
const STATE_BYTES: u64 = 64 * 1_024;

/// Why a state cannot be gone by.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no state.
    #[error(
        "the state file {} cannot be read ({problem}): a copy is in {}; put it right, or remove it to begin anew",
        path.display(), copy.display()
    )]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: BadState,
        /// Where its content is kept.
        copy: PathBuf,
    },
    /// Another supervisor has it.
    #[error("another rota supervise runs on {}", path.display())]
    Taken {
        /// Which file.
        path: PathBuf,
    },
}

/// A state file that is ours until this is dropped.
pub struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Takes it: one supervisor per file.
    pub fn take(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let lock = rota_store::open_own(
            File::options().create(true).truncate(false).write(true),
            &beside(path, ".lock"),
        )
        .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Taken { path: path.to_owned() }),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// What it says; one that is missing is made.
    pub fn read_or_make(&self, interval_secs: u64) -> Result<State, StateError> {
        let failed = |source| StateError::Io { path: self.path.clone(), source };
        let mut bytes = Vec::new();
        match rota_store::open_regular(&self.path) {
            Ok(file) => file.take(STATE_BYTES).read_to_end(&mut bytes).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let state = State::fresh(interval_secs);
                self.write(&state)?;
                return Ok(state);
            }
            Err(error) => return Err(failed(error)),
        };
        State::parse(&String::from_utf8_lossy(&bytes)).map_err(|problem| {
            let digest = sha2::Sha256::digest(&bytes);
            let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            let copy = beside(&self.path, &format!(".corrupt-{hash}"));
            match write_new(&copy, &bytes) {
                Ok(()) => StateError::Corrupt { path: self.path.clone(), problem, copy },
                Err(source) => StateError::Io { path: copy, source },
            }
        })
    }

    /// Replaces it: a crash leaves the old one or the new one.
    pub fn write(&self, state: &State) -> Result<(), StateError> {
        let part = beside(&self.path, ".part");
        write_new(&part, state.to_text().as_bytes())
            .map_err(|source| StateError::Io { path: part.clone(), source })?;
        rota_store::make_whole(&part, &self.path).map_err(|fault| match fault {
            rota_store::Fault::Io { path, source } => StateError::Io { path, source },
            other => StateError::Io { path: self.path.clone(), source: io::Error::other(other.to_string()) },
        })
    }
}

/// Where the cycles of a state file stand; none if there is no readable one. Takes no lock and writes nothing.
pub fn standing(path: &Path) -> Option<Standing> {
    let mut text = String::new();
    rota_store::open_regular(path).ok()?.take(STATE_BYTES).read_to_string(&mut text).ok()?;
    let state = State::parse(&text).ok()?;
    let lock = rota_store::open_regular(&beside(path, ".lock"));
    let running = lock.is_ok_and(|lock| {
        flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    });
    Some(state.standing(running))
}

/// Writes a new file. An entry that has its name, such as a link, is removed and never opened.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)?.write_all(content)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests {
    use super::*;

    /// An agent can predict every name beside the state file.
    #[test]
    fn links_are_never_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (path, outside) = (folder.path().join("state.json"), folder.path().join("outside"));
        std::fs::write(&outside, "outside").unwrap();
        let link = |ending: &str| std::os::unix::fs::symlink(&outside, beside(&path, ending)).unwrap();
        link(".lock");
        assert!(matches!(StateFile::take(&path), Err(StateError::Io { .. })));
        std::fs::remove_file(beside(&path, ".lock")).unwrap();
        let file = StateFile::take(&path).unwrap();
        link(".part");
        file.write(&State::fresh(60)).unwrap();
        // The name of the copy depends on what is copied, so it can be planted too.
        std::fs::write(&path, "broken").unwrap();
        let Err(StateError::Corrupt { copy, .. }) = file.read_or_make(60) else { panic!("not corrupt") };
        std::fs::remove_file(&copy).unwrap();
        std::os::unix::fs::symlink(&outside, &copy).unwrap();
        assert!(file.read_or_make(60).is_err());
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "broken");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "outside");
    }

    #[test]
    fn made_kept_locked_and_never_replaced_when_corrupt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agents/state/state.json");
        let file = StateFile::take(&path).unwrap();
        assert!(matches!(StateFile::take(&path), Err(StateError::Taken { .. })));
        assert_eq!(file.read_or_make(30).unwrap(), State::fresh(30));
        let state = State { cycle_count: 3, ..State::fresh(30) };
        file.write(&state).unwrap();
        assert_eq!(file.read_or_make(30).unwrap(), state);
        assert_eq!(standing(&path), Some(state.standing(true)));
        drop(file);
        // A child that another test has just forked keeps the lock until it executes its program.
        while standing(&path) == Some(state.standing(true)) {
            std::thread::yield_now();
        }
        assert_eq!(standing(&path), Some(state.standing(false)));
        assert_eq!(standing(&path.with_extension("none")), None);
        let file = StateFile::take(&path).unwrap();
        for torn in ["", "{\"cycle_count\": 3", "\u{0}\u{0}"] {
            std::fs::write(&path, torn).unwrap();
            let error = file.read_or_make(30).unwrap_err();
            let StateError::Corrupt { copy, .. } = &error else { panic!("{error}") };
            assert_eq!(std::fs::read_to_string(copy).unwrap(), torn);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), torn);
        }
    }
}
