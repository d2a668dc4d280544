//! Where shims come from: one process that is started with the daemon, does nothing, and forks for each of them. A program
//! as large as ours takes longer to load than to do all that a shim does; a fork of it is loaded already.
//!
//! What it is asked on its socket, one after the other: the length of a text, with four open files (the shim's line to the
//! daemon, and its three streams); then the text, the path of the run's record and each variable, every one ended by a zero.
//!
//! It also watches its shims: it is their parent, and the kernel reports to a parent that a child was stopped. An agent of
//! the same user can send SIGSTOP or SIGKILL to its shim, which then enforces no limit. The agent is ended in that moment,
//! whether or not the daemon is alive.
//!
//! It ends when its daemon and its last shim have.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use signal_hook::consts::SIGCHLD;

use super::identity::{Identity, Stat};
use super::record::RunRecord;
use super::{cgroup, guard};
use crate::boot;
use crate::runner::environment::Environment;
use crate::runner::terminate::end_without_shim;

/// The word on the command line that makes a `rota` a nursery.
pub const COMMAND: &str = "nursery";

/// How long a nursery that was stopped is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The line, and three streams.
const FILES: usize = 4;
/// The longest text: the system itself takes no more for a program's arguments and variables.
const TEXT_BYTES: usize = 6 * 1_024 * 1_024;

/// The daemon's side: starts the process, and again if it was killed.
pub struct Nursery {
    program: PathBuf,
    running: Mutex<Option<Running>>,
}

struct Running {
    process: Child,
    socket: UnixStream,
}

/// What a new shim is given.
pub struct Cradle<'a> {
    /// What is written down of its run.
    pub record: &'a Path,
    /// What its programs see.
    pub environment: &'a Environment,
    /// Its line to the daemon, then what it reads, prints and complains.
    pub files: [BorrowedFd<'a>; FILES],
}

impl Nursery {
    /// Starts the process.
    pub fn start(program: PathBuf) -> io::Result<Self> {
        let running = Running::start(&program)?;
        Ok(Self { program, running: Mutex::new(Some(running)) })
    }

    /// Has a shim begin. That it could not is said on its line.
    pub fn begin(&self, cradle: &Cradle<'_>) -> io::Result<()> {
        let text = cradle.text();
        let mut running = self.running();
        if let Some(running) = running.as_ref()
            && running.go_on().and_then(|()| running.ask(&text, &cradle.files)).is_ok()
        {
            return Ok(());
        }
        // It was killed, or hangs: nothing of what it was asked last has begun, or the run's lock says so.
        *running = None;
        let fresh = Running::start(&self.program)?;
        let asked = fresh.ask(&text, &cradle.files);
        *running = Some(fresh);
        asked
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cradle<'_> {
    fn text(&self) -> Vec<u8> {
        let mut text = self.record.as_os_str().as_bytes().to_vec();
        text.push(0);
        for (name, value) in self.environment {
            text.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        }
        text
    }
}

impl Running {
    fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let process = Command::new(program)
            .arg(COMMAND)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What a terminal sends to us is not for it.
            .process_group(0)
            .spawn()?;
        Ok(Self { process, socket: ours })
    }

    /// Continues a nursery that an agent stopped: it would take what it is asked and begin nothing.
    fn go_on(&self) -> io::Result<()> {
        let is_stopped = Stat::of(self.process.id()).is_some_and(|stat| stat.is_stopped);
        match i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).filter(|_| is_stopped) {
            Some(pid) => Ok(kill_process(pid, Signal::CONT)?),
            None => Ok(()),
        }
    }

    fn ask(&self, text: &[u8], files: &[BorrowedFd<'_>; FILES]) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_ne_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(files));
        // So few bytes go whole or not at all.
        sendmsg(&self.socket, &[IoSlice::new(&length)], &mut control, SendFlags::empty())?;
        (&self.socket).write_all(text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends by itself, once its last shim has. One that has ended already is reaped here, the rest by the system.
        let _continued = self.go_on();
        let _hung_up = self.socket.shutdown(std::net::Shutdown::Both);
        let _reaped = self.process.try_wait();
    }
}

/// Keeps other processes of the same user from reading this one's memory, from tracing it and from having it dumped; a
/// program that it executes is as any other.
pub fn hide_memory() {
    // A system that refuses is as it was.
    #[cfg(target_os = "linux")]
    let _hidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// The whole life of the process. Its shims return through here too, each at its own end.
pub fn main() -> ExitCode {
    hide_memory();
    // For people who list processes; without it we are called by how we were started.
    #[cfg(target_os = "linux")]
    let _named = rustix::thread::set_name(c"rota nursery");
    let served = UnixStream::from(match rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3) {
        Ok(socket) => socket,
        Err(_) => return ExitCode::FAILURE,
    });
    match serve(served) {
        Ok(Next::Over) => ExitCode::SUCCESS,
        Ok(Next::Shim(asked)) => asked.become_shim(),
        Err(error) => {
            eprintln!("error: rota starts its nursery by itself: {error}");
            ExitCode::FAILURE
        }
    }
}

enum Next {
    /// Whoever started us is gone.
    Over,
    /// This is the new process.
    Shim(Asked),
}

struct Asked {
    text: Vec<u8>,
    line: UnixStream,
    streams: [OwnedFd; 3],
}

fn serve(mut socket: UnixStream) -> io::Result<Next> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    // What every shim would have to find out.
    let _known = (boot::id(), cgroup::home());
    let (child_changed, registered) = signal_hook_pipe()?;
    let mut shims = Shims::default();
    let mut has_daemon = true;
    while has_daemon || !shims.records.is_empty() {
        let mut watched = vec![PollFd::new(&child_changed, PollFlags::IN)];
        if has_daemon {
            watched.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_asked = watched.get(1).is_some_and(|socket| !socket.revents().is_empty());
        drop(watched);
        shims.look_after(&child_changed);
        if !is_asked {
            continue;
        }
        let asked = match receive(&mut socket) {
            Ok(Some(asked)) => asked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A daemon that was killed in the middle of asking is gone too; one that asks nonsense gets no more answers.
            _ => {
                let _hung_up = socket.shutdown(std::net::Shutdown::Both);
                has_daemon = false;
                continue;
            }
        };
        match fork::fork() {
            Ok(fork::Side::Child) => {
                // Its children are not ours.
                signal_hook::low_level::unregister(registered);
                return Ok(Next::Shim(asked));
            }
            Ok(fork::Side::Parent(pid)) => shims.begun(pid, asked.record()),
            Err(error) => asked.refuse(&error),
        }
    }
    Ok(Next::Over)
}

/// Becomes readable when a child ends, stops or continues.
fn signal_hook_pipe() -> io::Result<(UnixStream, signal_hook::SigId)> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    Ok((reader, signal_hook::low_level::pipe::register(SIGCHLD, writer)?))
}

/// The shims that this process is the parent of.
#[derive(Default)]
struct Shims {
    /// Where the run of each is written down, and whether it was stopped before.
    records: BTreeMap<i32, (PathBuf, bool)>,
}

impl Shims {
    fn begun(&mut self, pid: i32, record: PathBuf) {
        self.records.insert(pid, (record, false));
    }

    /// Takes note of all that changed: reaps shims that ended, ends the runs of those that were stopped or killed.
    fn look_after(&mut self, child_changed: &UnixStream) {
        let mut buffer = [0; 64];
        let mut reader = child_changed;
        while matches!(reader.read(&mut buffer), Ok(count) if count > 0) {}
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if status.stopped() {
                self.stopped(pid);
            } else if let Some((record, _)) = self.records.remove(&pid.as_raw_nonzero().get())
                && status.signaled()
            {
                end_below(&record, None);
            }
        }
    }

    /// Ends all that runs below a shim while the shim is stopped, then lets the shim write down what became of the run. A
    /// second stop comes from outside the run, and ends the shim too.
    fn stopped(&mut self, pid: Pid) {
        let Some((record, was_stopped)) = self.records.get_mut(&pid.as_raw_nonzero().get()) else { return };
        end_below(record, Identity::of(pid.as_raw_nonzero().get().unsigned_abs()));
        let signal = if std::mem::replace(was_stopped, true) { Signal::KILL } else { Signal::CONT };
        // One that was killed meanwhile needs neither.
        let _sent = kill_process(pid, signal);
    }
}

/// Ends a run without its shim. The record may be gone with the folder; the descendants of a shim that is alive are known
/// without it.
fn end_below(record: &Path, shim: Option<Identity>) {
    let written = RunRecord::at(record.to_owned()).read().unwrap_or_default();
    let mut began = written.began.unwrap_or_default();
    began.shim = began.shim.or(shim);
    end_without_shim(&written.run.map(|run| run.marker).unwrap_or_default(), Some(&began));
}

/// What is asked next; none when nobody is left to ask.
fn receive(socket: &mut UnixStream) -> io::Result<Option<Asked>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &mut *socket,
        &mut [IoSliceMut::new(&mut length)],
        &mut control,
        #[cfg(target_os = "linux")]
        RecvFlags::CMSG_CLOEXEC,
        #[cfg(not(target_os = "linux"))]
        RecvFlags::empty(),
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut files: Vec<OwnedFd> = Vec::with_capacity(FILES);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            files.extend(sent);
        }
    }
    for file in &files {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
    }
    let length = usize::try_from(u32::from_ne_bytes(length)).map_err(io::Error::other)?;
    let files: Result<[OwnedFd; FILES], _> = files.try_into();
    let (true, Ok([line, stdin, stdout, stderr])) = (received.bytes == 4 && length <= TEXT_BYTES, files)
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut text = vec![0; length];
    socket.read_exact(&mut text)?;
    Ok(Some(Asked { text, line: line.into(), streams: [stdin, stdout, stderr] }))
}

impl Asked {
    fn record(&self) -> PathBuf {
        let record = self.text.split(|byte| *byte == 0).next().unwrap_or_default();
        PathBuf::from(OsStr::from_bytes(record))
    }

    fn refuse(mut self, error: &io::Error) {
        // Nobody to tell is a daemon that is gone.
        let _told = write!(self.line, "cannot fork: {error}");
    }

    fn become_shim(self) -> ExitCode {
        let record = self.record();
        let Self { text, line, streams: [stdin, stdout, stderr] } = self;
        let streams = rustix::stdio::dup2_stdin(&stdin)
            .and_then(|()| rustix::stdio::dup2_stdout(&stdout))
            .and_then(|()| rustix::stdio::dup2_stderr(&stderr));
        drop([stdin, stdout, stderr]);
        let environment = text.split(|byte| *byte == 0).skip(1).filter_map(variable).collect();
        match streams {
            Ok(()) => guard::main(record, environment, line),
            Err(error) => guard::failed(&line, &error.into()),
        }
    }
}

/// A name may begin with an equals sign, as the system itself sees it.
fn variable(text: &[u8]) -> Option<(OsString, OsString)> {
    let equals = 1 + text.get(1..)?.iter().position(|byte| *byte == b'=')?;
    let of = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Some((of(&text[..equals]), of(&text[equals + 1..])))
}

#[allow(unsafe_code, reason = "there is no safe fork")]
mod fork {
    use std::io;

    pub(super) enum Side {
        Parent(i32),
        Child,
    }

    /// The new process goes on from here with a copy of everything.
    pub(super) fn fork() -> io::Result<Side> {
        // SAFETY: a nursery has one thread, so nothing in the copy of its memory is locked or half done.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(Side::Child),
            pid => Ok(Side::Parent(pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn variables_arrive_as_they_were_sent() {
        let given = [("PATH", "/bin"), ("EMPTY", ""), ("A", "b=c\nd"), ("=C:", "x")];
        let environment: Environment =
            given.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let null = std::fs::File::open("/dev/null").unwrap_or_else(|error| panic!("{error}"));
        let cradle =
            Cradle { record: Path::new("/a b"), environment: &environment, files: [null.as_fd(); 4] };
        let text = cradle.text();
        let mut parts = text.split(|byte| *byte == 0);
        assert_eq!(parts.next(), Some(&b"/a b"[..]));
        assert_eq!(parts.filter_map(variable).collect::<Environment>(), environment);
    }
}
