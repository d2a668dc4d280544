//! One program, from its start to its end.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::environment::Environment;
use super::terminate::{GRACE, Urgency, signal_group};

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Where.
    pub folder: PathBuf,
    /// All that it sees.
    pub environment: Environment,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself, with this status.
    Exited(ExitStatus),
    /// It took too long.
    TimedOut,
    /// It was stopped.
    Stopped,
}

/// What an exit code asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// 0
    Done,
    /// 75: the API pushed back.
    RateLimited,
    /// 77: a person must look at it.
    NeedsPerson,
    /// Anything else.
    Failed,
}

impl Meaning {
    /// By the contract's table.
    pub fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(0) => Self::Done,
            Some(75) => Self::RateLimited,
            Some(77) => Self::NeedsPerson,
            _ => Self::Failed,
        }
    }
}

/// An exit status in words.
pub fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The file that a program's name stands for: as it is with a slash in it, else the first in the folders of `PATH`.
pub fn find_program(name: &OsStr, folder: &Path, path: Option<&OsStr>) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let check = |file: PathBuf| {
        let about = std::fs::metadata(&file)?;
        let may_run = about.is_file() && about.permissions().mode() & 0o111 != 0;
        if may_run { Ok(file) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
    };
    if name.as_encoded_bytes().contains(&b'/') {
        return check(folder.join(name));
    }
    let folders = std::env::split_paths(path.unwrap_or_default());
    let found = folders.map(|place| check(folder.join(place).join(name))).find(Result::is_ok);
    found.unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()))
}

impl Launch {
    /// Starts it as the leader of a process group of its own, with pipes for what the caller reads and writes.
    pub fn start(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> std::io::Result<Child> {
        let (program, arguments) =
            self.argv.split_first().ok_or_else(|| std::io::Error::other("nothing to run"))?;
        Command::new(program)
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .envs(&self.environment)
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
    }

    /// Waits for its end, or brings it about when it takes too long or is stopped. Afterwards nothing of its process
    /// group is left.
    pub async fn wait(
        &self,
        child: &mut Child,
        stop: &mut watch::Receiver<Option<Urgency>>,
    ) -> std::io::Result<Ended> {
        let leader = child.id().unwrap_or(0);
        let too_long = async {
            match self.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            status = child.wait() => Ended::Exited(status?),
            () = too_long => {
                end(child, leader, stop, Urgency::Ask).await?;
                Ended::TimedOut
            }
            urgency = asked(stop) => {
                end(child, leader, stop, urgency).await?;
                Ended::Stopped
            }
        };
        signal_group(leader, Urgency::Tell);
        Ok(ended)
    }
}

/// Waits until somebody wants it stopped; for ever if nobody can any more.
async fn asked(stop: &mut watch::Receiver<Option<Urgency>>) -> Urgency {
    loop {
        if let Some(urgency) = *stop.borrow_and_update() {
            return urgency;
        }
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn end(
    child: &mut Child,
    leader: u32,
    stop: &mut watch::Receiver<Option<Urgency>>,
    urgency: Urgency,
) -> std::io::Result<()> {
    signal_group(leader, urgency);
    let told = async {
        loop {
            if *stop.borrow_and_update() == Some(Urgency::Tell) {
                return;
            }
            if stop.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        status = child.wait() => { status?; }
        () = tokio::time::sleep(GRACE) => { kill(child, leader).await?; }
        () = told => { kill(child, leader).await?; }
    }
    Ok(())
}

async fn kill(child: &mut Child, leader: u32) -> std::io::Result<()> {
    signal_group(leader, Urgency::Tell);
    child.wait().await.map(drop)
}
