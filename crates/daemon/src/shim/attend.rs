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

use super::identity::Identity;
use super::nursery::{Cradle, Nursery};
use super::orders::{self, OrderReceiver};
use super::record::{self, Exit, Run, RunRecord, Unattended, Written};
use crate::changes::at;
use crate::files::off_runtime;
use crate::runner::environment::Environment;
use crate::runner::terminate::end_without_shim;

/// How soon a shim is looked at again of which nothing else tells.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The same for a shim that has not answered for longer than this.
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How long a shim that does not read may hold up an order; the next one says the same and more.
const SEND_WITHIN: Duration = Duration::from_secs(1);

/// How much a shim says of why it could not begin.
const REASON_BYTES: usize = 1_024;

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
        Self::started_by(program, rota)
    }

    /// By another program.
    pub(crate) fn started_by(program: PathBuf, rota: &Path) -> io::Result<Self> {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let nursery = Arc::new(Nursery::start(program)?);
        // Resolved once: from here on no part of the path may be a link.
        let rota = rota.canonicalize().unwrap_or_else(|_| rota.to_owned());
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

/// Follows a shim of ours to its end, and passes on the orders that the receiver has not seen. The run cannot begin again
/// while the answer is held.
pub async fn follow(
    record: &RunRecord,
    line: Line,
    mut orders: OrderReceiver,
) -> io::Result<(End, Unattended)> {
    orders.hand_over();
    let said = line.follow(record, &mut orders).await;
    match adopt(record, orders).await? {
        (End::NeverBegun, taken) if !said.is_empty() => {
            drop(taken);
            Err(io::Error::other(format!("its shim could not begin: {said}")))
        }
        ended => Ok(ended),
    }
}

/// Follows a shim that another daemon started. Whether it lives is said by its lock; its process only says when to look.
pub async fn adopt(record: &RunRecord, mut orders: OrderReceiver) -> io::Result<(End, Unattended)> {
    let mut shim: Option<Watched> = None;
    orders.hand_over();
    orders.mark_changed();
    loop {
        if let Some(taken) = with(record, RunRecord::take).await? {
            return Ok((ended(record).await?, taken));
        }
        let Some(shim) = &mut shim else {
            match with(record, RunRecord::read).await?.began {
                Some(began) => shim = Some(Watched::of(began.shim)),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
            continue;
        };
        let outstanding = orders.outstanding();
        let look_again = outstanding.map_or(LOOK_AGAIN, |since| since.clamp(LOOK_AGAIN, LOOK_SELDOM));
        let overdue = orders.overdue_at();
        tokio::select! {
            Ok(()) = orders.changed() => {
                let told = orders.latest();
                with(record, move |record| record.order(&told)).await?;
                shim.call();
            }
            () = shim.ended() => {}
            () = tokio::time::sleep(look_again), if outstanding.is_some() => orders.answered(record.read()?.heard),
            () = at(overdue) => {
                orders.wait_again();
                end_by_force(record).await?;
            }
        }
    }
}

/// Does something with a record on a thread for blocking work.
async fn with<T: Send + 'static>(
    record: &RunRecord,
    work: impl FnOnce(&RunRecord) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let record = record.clone();
    off_runtime(move || work(&record)).await
}

/// Ends a run whose shim does not answer, and the shim.
async fn end_by_force(record: &RunRecord) -> io::Result<()> {
    let Written { run: Some(run), began, .. } = with(record, RunRecord::read).await? else { return Ok(()) };
    off_runtime(move || {
        end_without_shim(&run.marker, began.as_ref());
        if let Some(shim) = began.and_then(|began| began.shim) {
            shim.signal(Signal::KILL);
        }
        Ok(())
    })
    .await
}

/// How a run ended whose shim is gone.
async fn ended(record: &RunRecord) -> io::Result<End> {
    let Written { run: Some(run), began, exit, .. } = with(record, RunRecord::read).await? else {
        return Ok(End::NeverBegun);
    };
    let end = match exit {
        Some(exit) if exit.strays == 0 => return Ok(End::Known(exit)),
        Some(exit) => End::Known(exit),
        None if began.is_some() => End::Lost,
        None => End::NeverBegun,
    };
    let sweep = tokio::task::spawn_blocking(move || end_without_shim(&run.marker, began.as_ref()));
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
    /// Passes orders on and takes answers until the shim hangs up; returns why it could not begin, if it said so.
    async fn follow(self, record: &RunRecord, orders: &mut OrderReceiver) -> String {
        let (mut from_shim, mut to_shim) = self.0.into_split();
        let (mut said, mut buffer) = (Vec::new(), [0; 256]);
        loop {
            let overdue = orders.overdue_at();
            tokio::select! {
                read = from_shim.read(&mut buffer) => match read {
                    Ok(count) if count > 0 && said.len() < REASON_BYTES => {
                        said.extend(&buffer[..count]);
                        take_answers(&mut said, orders);
                    }
                    _ => break,
                },
                Ok(()) = orders.changed() => {
                    let Ok(line) = orders.latest().line() else { continue };
                    // A shim that does not read is found by its missing answer, one that is gone by the end of the line.
                    drop(tokio::time::timeout(SEND_WITHIN, to_shim.write_all(&line)).await);
                }
                () = at(overdue) => {
                    orders.wait_again();
                    // A record that cannot be read is reported by whoever takes the run.
                    let ended = end_by_force(record).await;
                    let is_begun = record.read().is_ok_and(|written| written.began.is_some());
                    if ended.is_err() || !is_begun {
                        break;
                    }
                }
            }
        }
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Takes whole lines that are answers out of what a shim sent; the rest is why it could not begin.
fn take_answers(said: &mut Vec<u8>, orders: &OrderReceiver) {
    while let Some(end) = said.iter().position(|byte| *byte == b'\n') {
        let Some(ping) = orders::read_answer(&said[..end]) else { return };
        orders.answered(ping);
        said.drain(..=end);
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the safe way is deprecated, because it takes what is not a file too")]
fn watched(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned file stays open, and the same one, for as long as it is watched.
    Ok(unsafe { AsyncFd::register(process) }?)
}
