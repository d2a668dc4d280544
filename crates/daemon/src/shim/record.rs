//! What is written down about a run, so that a daemon that was killed finds it again: one file in `.rota/run/agents`, a
//! line for each thing that happened. What is over is moved to the records of its iteration: a file system may have to look
//! past every file that was taken away lately to make a new one.
//!
//! | line | written by | says |
//! |---|---|---|
//! | `run` | the daemon, before it has a shim begin | what is to run, for which lease, until when |
//! | the lock on the file | the shim, for as long as it lives | that the run is looked after |
//! | `began` | the shim, before it starts the agent | that it began, and which process it is |
//! | `agent` | the shim, once it has started the agent | which process that is |
//! | `orders` | a daemon that took the run over | what has changed since |
//! | `heard` | the shim | the last ping among these orders that it read |
//! | `exit` | the shim, as the last thing | how it ended |
//!
//! Whoever holds the lock decides: a shim that comes too late finds the lock taken or the file gone, and begins nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::orders::Orders;
use crate::agent_user::Ids;
use crate::boot::BootTime;
use crate::files::{self, Dir, Owner};

/// The variable by which the processes of a run are known, wherever they went.
pub const MARKER: &str = "ROTA_RUN";

/// Of the files that are records.
const SUFFIX: &str = "jsonl";
/// Its name beside the end of the run.
const KEPT: &str = "run.jsonl";
/// The longest record that is read.
const RECORD_BYTES: u64 = 64 * 1_024 * 1_024;

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
    /// The user that its steps run as; none: the shim's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Ids>,
    /// When it was handed to its shim.
    #[serde(default)]
    pub started: BootTime,
}

impl Run {
    /// How long it has been running, also under an earlier daemon.
    pub fn age(&self) -> std::time::Duration {
        self.started.until(BootTime::now())
    }
}

/// One program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The program and its arguments.
    #[serde(with = "argv_as_text")]
    pub argv: Vec<OsString>,
    /// Where its output goes, up to a size; none: to where the shim's own goes.
    pub output: Option<PathBuf>,
    /// How much of it.
    pub output_bytes: u64,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
}

/// Arguments as people read them: a text each, or its bytes where it is none.
mod argv_as_text {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Argument {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(argv: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        let written = |argument: &OsString| match argument.to_str() {
            Some(text) => Argument::Text(text.to_owned()),
            None => Argument::Bytes(argument.as_bytes().to_vec()),
        };
        argv.iter().map(written).collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
        let read = |argument: Argument| match argument {
            Argument::Text(text) => text.into(),
            Argument::Bytes(bytes) => OsString::from_vec(bytes),
        };
        Ok(Vec::<Argument>::deserialize(from)?.into_iter().map(read).collect())
    }
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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
    /// The shim itself was stopped by a signal; the process that started it ended the agent.
    ShimStopped,
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
    /// The last ping that the shim read here.
    Heard(u64),
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
    /// The last ping that the shim read here.
    pub heard: u64,
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
        let name = format!("{}.{SUFFIX}", run.marker);
        let dir = match Dir::open(agents) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Dir::open_or_create(Path::new("/"), agents.strip_prefix("/").unwrap_or(agents))?
            }
            opened => opened?,
        };
        append(&dir.create(&name)?, &Line::Run(Box::new(run)))?;
        Ok(Self(agents.join(name)))
    }

    /// Where it is.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Every run that is written down.
    pub fn all(agents: &Path) -> io::Result<Vec<Self>> {
        let names = match Dir::open(agents) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?.names()?,
        };
        let paths = names.into_iter().map(|name| agents.join(name));
        Ok(paths.filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX)).map(Self).collect())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What it says.
    pub fn read(&self) -> io::Result<Written> {
        let (dir, name) = files::parent(&self.0)?;
        let text = dir.read(&name.to_string_lossy(), Owner::Us, RECORD_BYTES)?;
        Ok(lines(&text).fold(Written::default(), Written::and))
    }

    /// Tells a shim what has changed.
    pub(super) fn order(&self, orders: &Orders) -> io::Result<()> {
        append(&self.open()?, &Line::Orders(*orders))
    }

    fn open(&self) -> io::Result<File> {
        let (dir, name) = files::parent(&self.0)?;
        dir.open_to_append(name)
    }

    /// Takes the run, unless somebody looks after it.
    pub fn take(&self) -> io::Result<Option<Unattended>> {
        let file = self.open()?;
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
        let is_same = match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            found => found?.metadata()?.ino() == file.ino(),
        };
        let mut text = vec![0; length(file.len())?];
        taken.file.read_exact_at(&mut text, 0)?;
        let written = lines(&text).fold(Written::default(), Written::and);
        Ok(written.run.filter(|_| is_same).map(|run| (run, taken)))
    }

    /// Puts it beside its end, for people; one that is for nobody is forgotten.
    pub fn put_away(&self, _taken: Unattended) -> io::Result<()> {
        if let Some(exit) = self.read()?.run.and_then(|run| run.exit) {
            let kept = || {
                let ((from, name), (to, _)) = (files::parent(&self.0)?, files::parent(&exit)?);
                to.take_in(&from, name, KEPT)
            };
            match kept() {
                // The records of a loop that was pruned are gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => return moved,
            }
        }
        let (dir, name) = files::parent(&self.0)?;
        dir.remove_all(name)
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
            Line::Heard(ping) => self.heard = ping,
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
        let mut text = vec![0; length(self.file.metadata()?.len().saturating_sub(*place))?];
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

/// How much to read; a file that became absurdly long is not read at all.
fn length(bytes: u64) -> io::Result<usize> {
    if bytes > RECORD_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the record of the run is too long"));
    }
    usize::try_from(bytes).map_err(io::Error::other)
}

/// Writes how a run ended, for people.
pub(super) fn write_exit(path: &Path, exit: &Exit) -> io::Result<()> {
    let mut text = serde_json::to_vec(exit).map_err(io::Error::other)?;
    text.push(b'\n');
    let (dir, name) = files::parent(path)?;
    dir.write(name, &text)
}
