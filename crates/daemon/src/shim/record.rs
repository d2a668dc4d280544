//! What is written down about a run, so that a daemon that was killed finds it again: one file in `.rota/run/agents`, a
//! line for each thing that happened. What is over is moved to the folder of its iteration: a file system may have to look
//! past every file that was taken away lately to make a new one.
//!
//! | line | written by | says |
//! |---|---|---|
//! | `run` | the daemon, before it has a shim begin | what is to run, for which lease, until when |
//! | the lock on the file | the shim, for as long as it lives | that the run is looked after |
//! | `began` | the shim, before it starts the agent | that it began, and which process it is |
//! | `agent` | the shim, once it has started the agent | which process that is |
//! | `orders` | a daemon that took the run over | what has changed since |
//! | `exit` | the shim, as the last thing | how it ended |
//!
//! Whoever holds the lock decides: a shim that comes too late finds the lock taken or the file gone, and begins nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::orders::Orders;
use crate::boot::BootTime;

/// The variable by which the processes of a run are known, wherever they went.
pub const MARKER: &str = "ROTA_RUN";

/// Of the files that are records.
const SUFFIX: &str = "jsonl";
/// Its name beside the end of the run.
const KEPT: &str = "run.jsonl";

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
    /// Where the end is written for people too, and the record kept; none for a run that is forgotten.
    pub exit: Option<PathBuf>,
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

/// One line of a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// What is to run.
    Run(Box<Run>),
    /// Who looks after it.
    Began(Began),
    /// The program that was started last.
    Agent(Identity),
    /// What counts from now on.
    Orders(Orders),
    /// How it ended.
    Exit(Exit),
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// What is to run; none if that was never written.
    pub run: Option<Run>,
    /// Who looks after it, and the program that was started last; none if nobody began.
    pub began: Option<Began>,
    /// How it ended; none if nobody saw it.
    pub exit: Option<Exit>,
}

/// The record of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRecord(PathBuf);

/// Nobody looks after the run, and nobody begins to while this is held.
pub struct Unattended {
    file: File,
}

/// A name that no other run of this machine has had since it was started.
pub fn marker() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{count:x}", BootTime::now().millis(), std::process::id())
}

impl RunRecord {
    /// For a run that is about to begin.
    pub fn create(agents: &Path, run: Run) -> io::Result<Self> {
        let record = Self(agents.join(format!("{}.{SUFFIX}", run.marker)));
        let open = || File::options().append(true).create_new(true).mode(0o600).open(&record.0);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(agents)?;
                open()?
            }
            opened => opened?,
        };
        append(&file, &Line::Run(Box::new(run)))?;
        Ok(record)
    }

    /// Where it is.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Every run that is written down.
    pub fn all(agents: &Path) -> io::Result<Vec<Self>> {
        let mut records = Vec::new();
        let listed = match std::fs::read_dir(agents) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(records),
            listed => listed?,
        };
        for entry in listed {
            let path = entry?.path();
            if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
                records.push(Self(path));
            }
        }
        records.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(records)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What it says.
    pub fn read(&self) -> io::Result<Written> {
        Ok(lines(&std::fs::read(&self.0)?).fold(Written::default(), Written::and))
    }

    /// Tells a shim what has changed.
    pub(super) fn order(&self, orders: &Orders) -> io::Result<()> {
        append(&File::options().append(true).open(&self.0)?, &Line::Orders(*orders))
    }

    /// Takes the run, unless somebody looks after it.
    pub fn take(&self) -> io::Result<Option<Unattended>> {
        let file = File::options().read(true).append(true).open(&self.0)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Unattended { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the run to carry it out: it must be there still once the lock is ours.
    pub(super) fn take_to_run(&self) -> io::Result<Option<(Run, Unattended)>> {
        let taken = match self.take() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            taken => taken?,
        };
        let Some(taken) = taken else { return Ok(None) };
        let file = taken.file.metadata()?;
        let is_same = match std::fs::metadata(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            found => found?.ino() == file.ino(),
        };
        let mut text = vec![0; usize::try_from(file.len()).map_err(io::Error::other)?];
        taken.file.read_exact_at(&mut text, 0)?;
        let written = lines(&text).fold(Written::default(), Written::and);
        Ok(written.run.filter(|_| is_same).map(|run| (run, taken)))
    }

    /// Puts it beside its end, for people; one that is for nobody is forgotten.
    pub fn put_away(&self, _taken: Unattended) -> io::Result<()> {
        if let Some(exit) = self.read()?.run.and_then(|run| run.exit) {
            match std::fs::rename(&self.0, exit.with_file_name(KEPT)) {
                // The folder of a loop that was deleted is gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => return moved,
            }
        }
        std::fs::remove_file(&self.0)
    }
}

impl Written {
    fn and(mut self, line: Line) -> Self {
        match line {
            Line::Run(run) => self.run = Some(*run),
            Line::Began(began) => self.began = Some(began),
            Line::Agent(agent) => {
                if let Some(began) = &mut self.began {
                    began.agent = Some(agent);
                }
            }
            Line::Orders(_) => {}
            Line::Exit(exit) => self.exit = Some(exit),
        }
        self
    }
}

impl Unattended {
    /// Adds a line.
    pub(super) fn note(&self, line: &Line) -> io::Result<()> {
        append(&self.file, line)
    }

    /// The orders behind a place in the file, which moves on.
    pub(super) fn orders_behind(&self, place: &mut u64) -> io::Result<Vec<Orders>> {
        let mut text =
            vec![0; usize::try_from(self.file.metadata()?.len().saturating_sub(*place)).unwrap_or(0)];
        self.file.read_exact_at(&mut text, *place)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        *place += u64::try_from(whole).unwrap_or(0);
        let orders = |line| match line {
            Line::Orders(orders) => Some(orders),
            _ => None,
        };
        Ok(lines(&text[..whole]).filter_map(orders).collect())
    }
}

/// What is not a whole line, or none of ours, was cut off in the middle.
fn lines(text: &[u8]) -> impl Iterator<Item = Line> {
    let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.filter_map(|line| serde_json::from_slice(line).ok())
}

/// In one go. A process that is killed loses nothing of it; only the machine's own end can, and then nothing runs any more
/// that it would speak of.
fn append(mut file: &File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    file.write_all(&text)
}

/// Writes a file whole or not at all.
pub(super) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(value).map_err(io::Error::other)?;
    text.push(b'\n');
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&text)?;
    std::fs::rename(&fresh, path)
}
