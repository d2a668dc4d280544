//! The control socket: `.rota/run/rota.sock`, for this user only. One line asks, one line answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};

use crate::manager::Request;
use crate::manager::happening::Status;
use crate::runner::terminate::Urgency;

/// The longest line.
const LINE_BYTES: u64 = 64 * 1_024;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the manager is waited for before what was last known is shown; it counts for less than that.
const BUSY: Duration = Duration::from_secs(4);
/// How long the lock of a daemon that was killed may outlive it.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// What can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
pub enum Ask {
    /// What is going on.
    Status,
    /// Stop; at once if so.
    Down {
        /// Without asking the agents.
        now: bool,
    },
    /// Read the configuration again.
    Reload,
    /// Something changed.
    Look,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Answer {
    /// It is done, or will be.
    Done,
    /// What is going on.
    Status(Status),
    /// It was not done.
    Refused {
        /// Why.
        problem: String,
    },
}

/// The folder of sockets and locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Beneath `.rota`.
    pub fn of(rota: &Path) -> Self {
        Self(rota.join("run"))
    }

    /// Takes the folder for one daemon; none if another has it. Held until dropped.
    pub fn take(&self) -> io::Result<Option<Held>> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let lock = rota_store::open_own(
            std::fs::File::options().create(true).truncate(false).write(true).mode(0o600),
            &self.0.join("rota.lock"),
        )?;
        let begun = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    lock.set_len(0)?;
                    (&lock).write_all(format!("{}\n", std::process::id()).as_bytes())?;
                    return Ok(Some(Held { _lock: lock }));
                }
                // A child that a killed daemon was just starting keeps its lock for a moment, and answers nobody.
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LAST_BREATH && !self.answers() => {
                    std::thread::sleep(LAST_BREATH / 50);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn answers(&self) -> bool {
        self.with_socket(|path| std::os::unix::net::UnixStream::connect(path)).is_ok()
    }

    /// Whether a daemon has it.
    pub fn is_taken(&self) -> bool {
        let Ok(lock) = rota_store::open_regular(&self.0.join("rota.lock")) else { return false };
        flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    fn with_socket<T>(&self, run: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        with_short_path(&self.0, "rota.sock", run)
    }

    /// Listens. Only who has the folder may.
    pub fn listen(&self, _held: &Held) -> io::Result<UnixListener> {
        match std::fs::remove_file(self.0.join("rota.sock")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.with_socket(|path| {
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        })
    }

    /// Asks the daemon; none if there is none.
    pub fn ask(&self, ask: Ask) -> io::Result<Option<Answer>> {
        let connected = self.with_socket(|path| std::os::unix::net::UnixStream::connect(path));
        let mut stream = match connected {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&line(&ask)?)?;
        let mut text = String::new();
        BufReader::new(stream.take(LINE_BYTES * 1_024)).read_line(&mut text)?;
        if text.is_empty() {
            let problem = format!(
                "the daemon did not answer within {} s; it may be waiting for its store",
                PATIENCE.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
        }
        serde_json::from_str(&text).map(Some).map_err(io::Error::other)
    }
}

/// The folder is ours.
pub struct Held {
    _lock: std::fs::File,
}

fn line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

/// Answers whoever asks, by asking the manager. While the manager waits for its store, what was last known of it is shown.
pub async fn serve(
    listener: UnixListener,
    manager: mpsc::Sender<Request>,
    latest: watch::Receiver<Option<Status>>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (manager, latest) = (manager.clone(), latest.clone());
                tokio::spawn(async move {
                    // Whoever goes away or says nothing is let go.
                    let _served = tokio::time::timeout(PATIENCE, answer(stream, manager, latest)).await;
                });
            }
            // No descriptors left, say: it passes.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(
    stream: UnixStream,
    manager: mpsc::Sender<Request>,
    latest: watch::Receiver<Option<Status>>,
) -> io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut text = String::new();
    tokio::io::BufReader::new(from).take(LINE_BYTES).read_line(&mut text).await?;
    let ask = match serde_json::from_str::<Ask>(&text) {
        Ok(ask) => ask,
        Err(error) => {
            let problem = format!("not understood: {error}");
            return to.write_all(&line(&Answer::Refused { problem })?).await;
        }
    };
    let answer = carry_out(ask, &manager, &latest).await;
    to.write_all(&line(&answer)?).await?;
    if let Ask::Down { now } = ask {
        let urgency = if now { Urgency::Tell } else { Urgency::Ask };
        // The manager may be waiting for a server that is away.
        rota_store::postgres::stop_waiting_after(crate::signals::PARTING);
        // One that does not hear it any more is ending.
        let _told = manager.send(Request::Down(urgency)).await;
    }
    Ok(())
}

async fn carry_out(
    ask: Ask,
    manager: &mpsc::Sender<Request>,
    latest: &watch::Receiver<Option<Status>>,
) -> Answer {
    let gone = || Answer::Refused { problem: "the daemon is ending".to_owned() };
    match ask {
        Ask::Status => {
            let (to, status) = oneshot::channel();
            let asked = async {
                manager.send(Request::Status(to)).await.ok()?;
                status.await.ok()
            };
            match tokio::time::timeout(BUSY, asked).await {
                Ok(status) => status.map_or_else(gone, Answer::Status),
                Err(_) => latest.borrow().clone().map_or_else(gone, Answer::Status),
            }
        }
        Ask::Reload => {
            let (to, problem) = oneshot::channel();
            if manager.send(Request::Reload(to)).await.is_err() {
                return gone();
            }
            match problem.await {
                Ok(None) => Answer::Done,
                Ok(Some(problem)) => Answer::Refused { problem },
                Err(_) => gone(),
            }
        }
        // Answered first: a daemon with nothing to do ends at once, and would take the answer with it.
        Ask::Down { .. } => Answer::Done,
        Ask::Look => manager.send(Request::Look).await.map_or_else(|_| gone(), |()| Answer::Done),
    }
}

/// Addresses of sockets end after 107 bytes, folders do not.
fn with_short_path<T>(folder: &Path, name: &str, run: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = folder.join(name);
    if path.as_os_str().len() < 100 || !cfg!(target_os = "linux") {
        return run(&path);
    }
    let folder = std::fs::File::open(folder)?;
    run(&PathBuf::from(format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&folder))))
}
