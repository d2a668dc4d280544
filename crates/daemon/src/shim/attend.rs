//! The daemon's side of a shim: starting it, telling it what changes, and learning how it ended.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::orders::Orders;
use super::record::{self, Exit, Run, RunFolder, Unattended};
use crate::runner::environment::Environment;
use crate::runner::terminate::end_left_behind;

/// How soon a shim that does not listen yet is called again.
const CALL_AGAIN: Duration = Duration::from_millis(10);

/// Starting shims: which program, and where its runs are written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shims {
    /// This binary.
    pub program: PathBuf,
    /// `.rota/run/agents`
    pub agents: PathBuf,
}

/// What becomes of the three streams of a shim, and with it of an agent whose output is not kept in a file.
pub struct Streams {
    /// Its input.
    pub stdin: Stdio,
    /// What it prints.
    pub stdout: Stdio,
    /// What it complains.
    pub stderr: Stdio,
}

impl Streams {
    /// Nothing in, nothing out.
    pub fn none() -> Self {
        Self { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() }
    }
}

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
    /// This very binary, also after another one took its place; runs are below `.rota`.
    pub fn of_this_program(rota: &Path) -> io::Result<Self> {
        let ours = Path::new("/proc/self/exe");
        let program = if ours.exists() { ours.to_owned() } else { std::env::current_exe()? };
        Ok(Self { program, agents: rota.join("run/agents") })
    }

    /// Writes a run down and starts its shim. *A crash in between leaves a run that nobody began.*
    pub fn start(
        &self,
        run: &Run,
        environment: &Environment,
        streams: Streams,
    ) -> io::Result<(RunFolder, Child)> {
        let folder = RunFolder::create(&self.agents, run)?;
        let started = Command::new(&self.program)
            .arg(super::COMMAND)
            .arg(folder.path())
            .env_clear()
            .envs(environment)
            .env(record::MARKER, &run.marker)
            .stdin(streams.stdin)
            .stdout(streams.stdout)
            .stderr(streams.stderr)
            .spawn();
        match started {
            Ok(child) => Ok((folder, child)),
            Err(error) => {
                if let Some(taken) = folder.take()? {
                    folder.remove(taken)?;
                }
                Err(error)
            }
        }
    }
}

/// Follows a shim of ours to its end, and passes orders on. Nobody begins the run again while the answer is held.
pub async fn follow(
    folder: &RunFolder,
    child: &mut Child,
    mut orders: watch::Receiver<Orders>,
) -> io::Result<(End, Unattended)> {
    let mut line = Line::default();
    orders.mark_unchanged();
    loop {
        tokio::select! {
            status = child.wait() => {
                status?;
                break;
            }
            () = line.attend(folder, &mut orders) => {}
        }
    }
    adopt(folder, orders).await
}

/// Follows a shim that another daemon started. Whether it lives is said by its lock; the line only says when to look.
pub async fn adopt(folder: &RunFolder, mut orders: watch::Receiver<Orders>) -> io::Result<(End, Unattended)> {
    let mut line = Line::default();
    orders.mark_changed();
    loop {
        if let Some(taken) = folder.take()? {
            return Ok((ended(folder).await?, taken));
        }
        line.attend(folder, &mut orders).await;
    }
}

/// How a run ended whose shim is gone.
async fn ended(folder: &RunFolder) -> io::Result<End> {
    let Some(run) = folder.run()? else { return Ok(End::NeverBegun) };
    let exit = record::read::<Exit>(&run.exit)?.filter(|exit| exit.marker == run.marker);
    let began = folder.began()?;
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

/// The line to a shim: opened when there is something to say, and kept.
#[derive(Default)]
struct Line {
    stream: Option<UnixStream>,
}

impl Line {
    /// Waits for new orders and passes them on, or for the other side to hang up. What a shim that has just ended does
    /// not hear needs no answer.
    async fn attend(&mut self, folder: &RunFolder, orders: &mut watch::Receiver<Orders>) {
        tokio::select! {
            changed = orders.changed() => {
                if changed.is_err() {
                    // The owner is gone: nothing more to say, but the end is still to be seen.
                    return tokio::time::sleep(CALL_AGAIN).await;
                }
                let told = *orders.borrow_and_update();
                if self.say(folder, &told).await.is_ok() {
                    return;
                }
            }
            () = closed(self.stream.as_ref()) => {}
        }
        self.stream = None;
        orders.mark_changed();
        tokio::time::sleep(CALL_AGAIN).await;
    }

    async fn say(&mut self, folder: &RunFolder, orders: &Orders) -> io::Result<()> {
        if self.stream.is_none() {
            let called = folder.with_socket(|path| std::os::unix::net::UnixStream::connect(path))?;
            called.set_nonblocking(true)?;
            self.stream = Some(UnixStream::from_std(called)?);
        }
        match &mut self.stream {
            Some(stream) => stream.write_all(&orders.line()?).await,
            None => Ok(()),
        }
    }
}

/// Waits for the end of a line. A shim says nothing: whatever comes is the end.
async fn closed(stream: Option<&UnixStream>) {
    match stream {
        Some(stream) => drop(stream.readable().await),
        None => std::future::pending().await,
    }
}
