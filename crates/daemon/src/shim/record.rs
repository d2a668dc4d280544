//! What is written down about a run, so that a daemon that was killed finds it again: a folder under `.rota/run/agents`.
//!
//! | file | written by | says |
//! |---|---|---|
//! | `run.json` | the daemon, before it starts the shim | what is to run, for which lease, until when |
//! | the lock on it | the shim, for as long as it lives | that the run is looked after |
//! | `shim.json` | the shim, before it starts the agent | that it began, and which process it is |
//! | `agent.json` | the shim, once it has started the agent | which process that is |
//! | `sock` | the shim | where it takes orders |
//! | `exit.json` | the shim, as the last thing | how it ended |
//!
//! Whoever holds the lock decides: a shim that comes too late finds the lock taken or the file gone, and begins nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::boot::BootTime;

/// The variable by which the processes of a run are known, wherever they went.
pub const MARKER: &str = "ROTA_RUN";

/// What is to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// By this name, which is also the value of [`MARKER`].
    pub marker: String,
    /// For this lease.
    pub lease: String,
    /// In this scope.
    pub scope: String,
    /// As this iteration of a loop; none where the run is not a loop's.
    pub iteration: Option<u32>,
    /// In this folder.
    pub folder: PathBuf,
    /// One after the other, as long as each ends well.
    pub steps: Vec<Step>,
    /// Where the end is written down.
    pub exit: PathBuf,
    /// When it must be over unless the lease is renewed.
    pub until: Tenure,
}

/// One program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Where its output goes, up to a size; none: to where the shim's own goes.
    pub output: Option<PathBuf>,
    /// How much of it.
    pub output_bytes: u64,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
}

/// How long a run may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenure {
    /// From then on it ends by itself: 80 % of the lease after it was last granted or renewed.
    pub stop_at: BootTime,
    /// The end of the lease.
    pub lease_ends_at: BootTime,
}

impl Tenure {
    /// Of a lease of such a length, granted or renewed by a request that was sent at a moment.
    pub fn since(sent: BootTime, length: std::time::Duration) -> Self {
        Self { stop_at: sent.after(length * 4 / 5), lease_ends_at: sent.after(length) }
    }
}

/// Who looks after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Began {
    /// The shim.
    pub shim: Option<Identity>,
    /// The program, once it was started.
    #[serde(default)]
    pub agent: Option<Identity>,
    /// The control group, where there is one.
    pub cgroup: Option<PathBuf>,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// The run.
    pub marker: String,
    /// The lease it was for.
    pub lease: String,
    /// Why no more steps were begun.
    pub why: Why,
    /// How each of those that were begun ended.
    pub steps: Vec<StepEnd>,
    /// Processes that could not be ended.
    pub strays: usize,
}

/// Why a run is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The last step ended by itself.
    Ended,
    /// It took too long.
    TimedOut,
    /// It was told to.
    Stopped,
    /// Nobody renewed the lease.
    LeaseLost,
    /// The program could not be started.
    CannotStart {
        /// The system's number for the reason.
        error: i32,
    },
}

/// How a program ended: with a code, or by a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepEnd {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it took.
    pub took_ms: u64,
}

/// The folder of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunFolder(PathBuf);

/// Nobody looks after the run, and nobody begins to while this is held.
pub struct Unattended {
    _lock: File,
}

/// A name that no other run of this machine has had since it was started.
pub fn marker() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{count:x}", BootTime::now().millis(), std::process::id())
}

impl RunFolder {
    /// For a run that is about to begin.
    pub fn create(agents: &Path, run: &Run) -> io::Result<Self> {
        let folder = Self(agents.join(&run.marker));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder.0)?;
        write(&folder.0.join("run.json"), run)?;
        Ok(folder)
    }

    /// Where it is.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Every run that is written down.
    pub fn all(agents: &Path) -> io::Result<Vec<Self>> {
        let mut folders = Vec::new();
        let listed = match std::fs::read_dir(agents) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(folders),
            listed => listed?,
        };
        for entry in listed {
            folders.push(Self(entry?.path()));
        }
        folders.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(folders)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What is to run; none if that was never written.
    pub fn run(&self) -> io::Result<Option<Run>> {
        read(&self.0.join("run.json"))
    }

    /// Who began it; none if nobody did.
    pub fn began(&self) -> io::Result<Option<Began>> {
        let Some(began) = read::<Began>(&self.0.join("shim.json"))? else { return Ok(None) };
        let agent = read(&self.0.join("agent.json"))?.or(began.agent);
        Ok(Some(Began { agent, ..began }))
    }

    pub(super) fn note_began(&self, began: &Began) -> io::Result<()> {
        write(&self.0.join("shim.json"), began)
    }

    /// In a file of its own: a file system may bring one that takes another's place to the disk at once, and the
    /// commits of the machine wait for it.
    pub(super) fn note_agent(&self, agent: &Identity) -> io::Result<()> {
        write(&self.0.join("agent.json"), agent)
    }

    /// Takes the run, unless somebody looks after it.
    pub fn take(&self) -> io::Result<Option<Unattended>> {
        let path = self.0.join("run.json");
        let lock = match File::open(&path) {
            // A folder whose record was never written has nobody either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(&self.0)?,
            opened => opened?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(Some(Unattended { _lock: lock }))
    }

    /// Takes the run to carry it out: it must be there still once the lock is ours.
    pub(super) fn take_to_run(&self) -> io::Result<Option<(Run, Unattended)>> {
        let Some(taken) = self.take()? else { return Ok(None) };
        let path = self.0.join("run.json");
        let is_same = std::fs::metadata(&path)?.ino() == taken._lock.metadata()?.ino();
        Ok(self.run()?.filter(|_| is_same).map(|run| (run, taken)))
    }

    /// Forgets it.
    pub fn remove(&self, _taken: Unattended) -> io::Result<()> {
        std::fs::remove_dir_all(&self.0)
    }

    /// Runs something with a short path to the socket.
    pub(super) fn with_socket<T>(&self, run: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        with_short_path(&self.0, "sock", run)
    }
}

/// Addresses of sockets end after 107 bytes, folders do not.
pub fn with_short_path<T>(
    folder: &Path,
    name: &str,
    run: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = folder.join(name);
    if path.as_os_str().len() < 100 || !cfg!(target_os = "linux") {
        return run(&path);
    }
    let folder = File::open(folder)?;
    run(&PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())))
}

/// Writes a file whole or not at all. A process that is killed loses nothing of it; only the machine's own end can, and
/// then nothing runs any more that it would speak of.
pub fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(value).map_err(io::Error::other)?;
    text.push(b'\n');
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&text)?;
    std::fs::rename(&fresh, path)
}

/// Reads such a file; none if it is not there.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
