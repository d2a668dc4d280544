//! The daemon's side of a shim: starting it, telling it what changes, and learning how it ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::identity::Identity;
use super::nursery::{Cradle, Nursery};
use super::orders::Orders;
use super::record::{self, Exit, Run, RunRecord, Unattended, Written};
use crate::runner::environment::Environment;
use crate::runner::terminate::end_left_behind;

/// How soon a shim is looked at again of which nothing else tells.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How much a shim says of why it could not begin.
const REASON_BYTES: u64 = 1_024;

/// Starting shims: by whom, and where their runs are written down.
#[derive(Clone)]
pub struct Shims {
    nursery: Arc<Nursery>,
    /// Nothing in, nothing out.
    null: Arc<OwnedFd>,
    /// `.rota/run/agents`
    pub agents: PathBuf,
}

/// What becomes of the three streams of a shim, and with it of an agent whose output is not kept in a file; without any,
/// nothing goes in or out.
pub struct Streams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Our ends of them.
pub struct Pipes {
    /// What it reads.
    pub stdin: pipe::Sender,
    /// What it prints.
    pub stdout: pipe::Receiver,
    /// What it complains.
    pub stderr: pipe::Receiver,
}

impl Streams {
    /// Through us.
    pub fn piped() -> io::Result<(Self, Pipes)> {
        let ((stdin, input), (output, stdout), (complaints, stderr)) =
            (io::pipe()?, io::pipe()?, io::pipe()?);
        let pipes = Pipes {
            stdin: pipe::Sender::from_owned_fd(input.into())?,
            stdout: pipe::Receiver::from_owned_fd(output.into())?,
            stderr: pipe::Receiver::from_owned_fd(complaints.into())?,
        };
        Ok((Self { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() }, pipes))
    }
}

/// The line to a shim that we had begin. It hangs up when it ends.
pub struct Line(UnixStream);

/// How a run ended, as far as is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// As it was written down.
    Known(Exit),
    /// It was begun, and whoever looked after it is gone: what it left behind was ended.
    Lost,
    /// Nothing of it was ever begun.
    NeverBegun,
}

impl Shims {
    /// By this very binary, also after another one took its place; runs are below `.rota`.
    pub fn of_this_program(rota: &Path) -> io::Result<Self> {
        let ours = Path::new("/proc/self/exe");
        let program = if ours.exists() { ours.to_owned() } else { std::env::current_exe()? };
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let nursery = Arc::new(Nursery::start(program)?);
        Ok(Self { nursery, null: Arc::new(null.into()), agents: rota.join("run/agents") })
    }

    /// Writes a run down and starts its shim. *A crash in between leaves a run that nobody began.*
    pub fn start(
        &self,
        run: Run,
        mut environment: Environment,
        streams: Option<Streams>,
    ) -> io::Result<(RunRecord, Line)> {
        environment.insert(record::MARKER.into(), run.marker.clone().into());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let null = self.null.as_fd();
        let [stdin, stdout, stderr] = match &streams {
            Some(streams) => [streams.stdin.as_fd(), streams.stdout.as_fd(), streams.stderr.as_fd()],
            None => [null; 3],
        };
        let record = RunRecord::create(&self.agents, run)?;
        let begun = self.nursery.begin(&Cradle {
            record: record.path(),
            environment: &environment,
            files: [theirs.as_fd(), stdin, stdout, stderr],
        });
        match begun {
            Ok(()) => Ok((record, Line(UnixStream::from_std(ours)?))),
            Err(error) => {
                if let Some(taken) = record.take()? {
                    record.put_away(taken)?;
                }
                Err(error)
            }
        }
    }
}

/// Follows a shim of ours to its end, and passes on what was ordered since the receiver was looked at. Nobody begins the run again while the answer is held.
pub async fn follow(
    record: &RunRecord,
    line: Line,
    mut orders: watch::Receiver<Orders>,
) -> io::Result<(End, Unattended)> {
    let said = line.follow(&mut orders).await;
    match adopt(record, orders).await? {
        (End::NeverBegun, taken) if !said.is_empty() => {
            drop(taken);
            Err(io::Error::other(format!("its shim could not begin: {said}")))
        }
        ended => Ok(ended),
    }
}

/// Follows a shim that another daemon started. Whether it lives is said by its lock; its process only says when to look.
pub async fn adopt(record: &RunRecord, mut orders: watch::Receiver<Orders>) -> io::Result<(End, Unattended)> {
    let mut shim: Option<Watched> = None;
    orders.mark_changed();
    loop {
        if let Some(taken) = record.take()? {
            return Ok((ended(record).await?, taken));
        }
        let Some(shim) = &mut shim else {
            match record.read()?.began {
                Some(began) => shim = Some(Watched::of(began.shim)),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
            continue;
        };
        tokio::select! {
            Ok(()) = orders.changed() => {
                let told = *orders.borrow_and_update();
                record.order(&told)?;
                shim.call();
            }
            () = shim.ended() => {}
        }
    }
}

/// How a run ended whose shim is gone.
async fn ended(record: &RunRecord) -> io::Result<End> {
    let Written { run: Some(run), began, exit } = record.read()? else { return Ok(End::NeverBegun) };
    let end = match exit {
        Some(exit) if exit.strays == 0 => return Ok(End::Known(exit)),
        Some(exit) => End::Known(exit),
        None if began.is_some() => End::Lost,
        None => End::NeverBegun,
    };
    let sweep = tokio::task::spawn_blocking(move || end_left_behind(&run.marker, began.as_ref()));
    sweep.await.map_err(io::Error::other)?;
    Ok(end)
}

/// A shim's process, as far as it can be told from others.
struct Watched {
    shim: Option<Identity>,
    #[cfg(target_os = "linux")]
    process: Option<AsyncFd<OwnedFd>>,
}

impl Watched {
    fn of(shim: Option<Identity>) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            process: shim.as_ref().and_then(Identity::open).and_then(|process| watched(process).ok()),
            shim,
        }
    }

    /// Has it read what was written for it.
    fn call(&self) {
        if let Some(shim) = &self.shim {
            shim.signal(Signal::USR1);
        }
    }

    /// Waits until it may have ended: until it has, the first time, and then a moment.
    async fn ended(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(process) = &self.process {
            // Whatever comes of waiting, the lock is looked at.
            drop(process.readable().await);
            self.process = None;
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl Line {
    /// Passes orders on until the shim hangs up, and returns what it said in the end.
    async fn follow(self, orders: &mut watch::Receiver<Orders>) -> String {
        let (hears, mut tells) = self.0.into_split();
        let mut said = String::new();
        let mut hears = hears.take(REASON_BYTES);
        let hearing = hears.read_to_string(&mut said);
        let telling = async {
            while orders.changed().await.is_ok() {
                let told = *orders.borrow_and_update();
                let Ok(line) = told.line() else { continue };
                if tells.write_all(&line).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // A shim that was killed says nothing.
            _heard = hearing => {}
            () = telling => {}
        }
        said
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the safe way is deprecated, because it takes what is not a file too")]
fn watched(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned file stays open, and the same one, for as long as it is watched.
    Ok(unsafe { AsyncFd::register(process) }?)
}
