//! The shim itself: a small process between the daemon and one agent. It starts the agent, keeps its output, ends its
//! whole tree when it is told to, when it takes too long, or when nobody renews its lease; and writes down how it ended.
//!
//! One thread and one `poll`: nothing here may wait for anything else. It needs nobody: a daemon that is killed is
//! missed only when the lease runs out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{WaitOptions, wait};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use super::alarm::Alarm;
use super::cgroup;
use super::identity::Identity;
use super::orders::{self, LINE_BYTES, Orders};
use super::record::{self, Began, Exit, Line, Run, RunRecord, Step, StepEnd, Unattended, Why};
use crate::boot::BootTime;
use crate::files;
use crate::runner::environment::Environment;
use crate::runner::output::Capped;
use crate::runner::terminate::{GRACE, Urgency, signal_below, signal_group};

/// What people see who list processes.
#[cfg(target_os = "linux")]
const NAME: &std::ffi::CStr = c"rota shim";
/// How long output is waited for after its program has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long those who were told to end may take; what is still there then hangs in the kernel.
const TOLD: Duration = Duration::from_secs(5);
/// How often what is being ended is looked at.
const ROUND: Duration = Duration::from_millis(20);

/// The whole life of a shim, on a run that was written down, with a line to the daemon that wrote it.
pub fn main(record: PathBuf, environment: Environment, line: UnixStream) -> ExitCode {
    let carried_out = || {
        // Otherwise somebody else decided what becomes of it.
        let Some((run, record)) = RunRecord::at(record).take_to_run()? else { return Ok(()) };
        line.set_nonblocking(true)?;
        Guard::new(run, record, environment, line.try_clone()?)?.carry_out()
    };
    match carried_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&line, &error),
    }
}

/// Says why there is no end to be found.
pub(super) fn failed(mut line: &UnixStream, error: &io::Error) -> ExitCode {
    // Nobody to tell is a daemon that is gone.
    let _told = write!(line, "{error}");
    ExitCode::FAILURE
}

struct Guard {
    run: Run,
    environment: Environment,
    /// Which is ours for as long as we live.
    record: Unattended,
    began: Began,
    orders: Orders,
    /// As far as the orders in the record were read.
    heard: u64,
    /// The daemon that had us begin; another one writes its orders into the record.
    daemon: Option<(UnixStream, Vec<u8>)>,
    child_ended: UnixStream,
    told_to_end: UnixStream,
    has_orders: UnixStream,
    /// Readable after we were stopped, because only a process that was stopped is continued.
    continued: UnixStream,
    was_stopped: bool,
    alarm: Alarm,
    output: Option<Output>,
    /// The control group of the step under way, where there are control groups.
    step_group: Option<PathBuf>,
}

/// What an agent prints, and where it is kept.
struct Output {
    from: OwnedFd,
    to: Capped<File>,
    /// A full disk must not fill the pipe and stop the agent: the rest is read and left out.
    has_room: bool,
}

/// A program under way.
struct Agent {
    pid: u32,
    ended: Option<StepEnd>,
    started: BootTime,
}

impl Guard {
    fn new(run: Run, record: Unattended, environment: Environment, line: UnixStream) -> io::Result<Self> {
        // Away from the terminal and the group of whoever started us: their signals are not ours.
        let _leader = rustix::process::setsid();
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            rustix::thread::set_name(NAME)?;
        }
        let child_ended = signal_pipe(&[SIGCHLD])?;
        let told_to_end = signal_pipe(&[SIGTERM, SIGINT, SIGHUP])?;
        // Before anybody can know of us who would send it.
        let has_orders = signal_pipe(&[SIGUSR1])?;
        let continued = signal_pipe(&[SIGCONT])?;
        let began = Began {
            shim: Identity::of(std::process::id()),
            agent: None,
            cgroup: cgroup::create(&run.marker),
        };
        record.note(&Line::Began(began.clone()))?;
        Ok(Self {
            orders: Orders { until: run.until, ..Orders::default() },
            run,
            environment,
            record,
            began,
            heard: 0,
            daemon: Some((line, Vec::new())),
            child_ended,
            told_to_end,
            has_orders,
            continued,
            was_stopped: false,
            alarm: Alarm::new()?,
            output: None,
            step_group: None,
        })
    }

    fn carry_out(mut self) -> io::Result<()> {
        let mut exit = Exit {
            marker: self.run.marker.clone(),
            lease: self.run.lease.clone(),
            why: Why::Ended,
            steps: Vec::new(),
            strays: 0,
        };
        for (number, step) in self.run.steps.clone().iter().enumerate() {
            self.step_group =
                self.began.cgroup.as_deref().and_then(|group| cgroup::create_step(group, number));
            let (end, why, strays) = self.step(step)?;
            if let Some(group) = self.step_group.take() {
                cgroup::remove(&group);
            }
            exit.steps.extend(end);
            exit.why = why;
            exit.strays += strays;
            if exit.why != Why::Ended || end.is_none_or(|end| end.code != Some(0)) {
                break;
            }
        }
        if let Some(group) = &self.began.cgroup {
            cgroup::remove(group);
        }
        if let Some(path) = &self.run.exit {
            // For people only: the record says the same. An agent may have removed the folder.
            let _written = record::write_exit(path, &exit);
        }
        self.record.note(&Line::Exit(exit))
    }

    fn step(&mut self, step: &Step) -> io::Result<(Option<StepEnd>, Why, usize)> {
        if self.was_stopped {
            return Ok((None, Why::ShimStopped, 0));
        }
        if self.orders.end.is_some() {
            return Ok((None, Why::Stopped, 0));
        }
        let started = BootTime::now();
        let pid = match self.spawn(step) {
            Ok(pid) => pid,
            Err(error) => {
                self.output = None;
                return Ok((None, Why::CannotStart { error: error.raw_os_error().unwrap_or(0) }, 0));
            }
        };
        let mut agent = Agent { pid, ended: None, started };
        let why = self.until_over(&mut agent, step.timeout_ms)?;
        let strays = self.end_all(&mut agent, &why)?;
        self.last_words()?;
        Ok((agent.ended, why, strays))
    }

    fn spawn(&mut self, step: &Step) -> io::Result<u32> {
        let (program, arguments) = step
            .argv
            .split_first()
            .ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.run.folder)
            .process_group(0);
        if let Some(user) = &self.run.user {
            command.uid(user.uid).gid(user.gid);
        }
        if let Some(path) = &step.output {
            let (from, to) = io::pipe()?;
            rustix::io::ioctl_fionbio(&from, true)?;
            command.stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
            let to = Capped::new(new_log(path)?, step.output_bytes);
            self.output = Some(Output { from: from.into(), to, has_room: true });
        }
        let pid = match &self.step_group {
            Some(group) => cgroup::spawn(&mut command, group)?,
            None => command.spawn()?.id(),
        };
        if let Some(agent) = Identity::of(pid) {
            self.record.note(&Line::Agent(agent))?;
        }
        Ok(pid)
    }

    /// Waits until the program has ended by itself, or must end.
    fn until_over(&mut self, agent: &mut Agent, timeout_ms: Option<u64>) -> io::Result<Why> {
        let timeout = timeout_ms.map(|timeout| agent.started.after(Duration::from_millis(timeout)));
        loop {
            self.reap(agent);
            // Looked for after reaping: an agent may stop its shim before the shim first waits, and the signals that came
            // while the shim was stopped were all delivered before it could reap anything. The end of such an agent is not
            // its own doing.
            self.notice_stop();
            let now = BootTime::now();
            if self.was_stopped {
                return Ok(Why::ShimStopped);
            }
            if agent.ended.is_some() {
                return Ok(Why::Ended);
            }
            if self.orders.end.is_some() {
                return Ok(Why::Stopped);
            }
            if timeout.is_some_and(|timeout| now >= timeout) {
                return Ok(Why::TimedOut);
            }
            if now >= self.orders.until.stop_at {
                return Ok(Why::LeaseLost);
            }
            let next = self.orders.until.stop_at;
            self.attend(timeout.map_or(next, |timeout| timeout.min(next)))?;
        }
    }

    /// Ends what is left of it: asked first if it did not end by itself, then told. Returns how many could not be ended.
    fn end_all(&mut self, agent: &mut Agent, why: &Why) -> io::Result<usize> {
        let now = BootTime::now();
        let told_at = match why {
            Why::Ended | Why::ShimStopped => now,
            // Nobody else may have begun before we are done.
            Why::LeaseLost => now.after(GRACE).min(self.orders.until.lease_ends_at),
            _ => now.after(GRACE),
        };
        let is_asked =
            !matches!(why, Why::Ended | Why::ShimStopped) && self.orders.end != Some(Urgency::Tell);
        if is_asked {
            signal_group(agent.pid, Urgency::Ask);
            signal_below(Urgency::Ask);
        }
        let mut given_up_at = None;
        while self.reap(agent) {
            let now = BootTime::now();
            let must_go = now >= told_at || self.orders.end == Some(Urgency::Tell) || !is_asked;
            if must_go {
                let given_up_at = *given_up_at.get_or_insert(now.after(TOLD));
                if let Some(group) = &self.step_group {
                    cgroup::kill(group);
                }
                if agent.ended.is_none() {
                    signal_group(agent.pid, Urgency::Tell);
                }
                let left = signal_below(Urgency::Tell);
                if now >= given_up_at {
                    return Ok(left);
                }
            }
            self.attend(
                now.after(if must_go { ROUND } else { ROUND * 5 }).min(told_at.max(now.after(ROUND))),
            )?;
        }
        Ok(0)
    }

    /// Takes note of who has ended; false when nobody is left.
    fn reap(&mut self, agent: &mut Agent) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get().unsigned_abs() == agent.pid {
                        let took = agent.started.until(BootTime::now()).as_millis();
                        agent.ended = Some(StepEnd {
                            code: status.exit_status(),
                            signal: status.terminating_signal(),
                            took_ms: u64::try_from(took).unwrap_or(u64::MAX),
                        });
                    }
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => return true,
                Err(_) => return false,
            }
        }
    }

    /// What is still in the pipe, then the end of the file. Something that could not be ended may hold the pipe open.
    fn last_words(&mut self) -> io::Result<()> {
        let until = BootTime::now().after(LAST_WORDS);
        while self.output.is_some() && BootTime::now() < until {
            self.attend(until)?;
        }
        self.close_output();
        Ok(())
    }

    fn close_output(&mut self) {
        if let Some(output) = self.output.take() {
            // What could not be written is missing from a log.
            let _finished = output.to.finish();
        }
    }

    /// Waits until something happens, at most until a moment, and takes it in.
    fn attend(&mut self, until: BootTime) -> io::Result<()> {
        let timeout = self.alarm.set(until)?;
        let mut watched = vec![
            PollFd::new(&self.child_ended, PollFlags::IN),
            PollFd::new(&self.told_to_end, PollFlags::IN),
            PollFd::new(&self.has_orders, PollFlags::IN),
            PollFd::new(&self.continued, PollFlags::IN),
        ];
        if let Some(alarm) = self.alarm.fd() {
            watched.push(PollFd::from_borrowed_fd(alarm, PollFlags::IN));
        }
        if let Some((daemon, _)) = &self.daemon {
            watched.push(PollFd::from_borrowed_fd(daemon.as_fd(), PollFlags::IN));
        }
        if let Some(output) = &self.output {
            watched.push(PollFd::from_borrowed_fd(output.from.as_fd(), PollFlags::IN));
        }
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drop(watched);
        self.take_signals();
        self.hear();
        self.look_for_orders();
        self.keep_output();
        Ok(())
    }

    fn take_signals(&mut self) {
        let mut buffer = [0; 64];
        while matches!((&self.child_ended).read(&mut buffer), Ok(count) if count > 0) {}
        self.notice_stop();
        while let Ok(count) = (&self.told_to_end).read(&mut buffer) {
            if count == 0 {
                break;
            }
            let urgency = if self.orders.end.is_none() && count == 1 { Urgency::Ask } else { Urgency::Tell };
            self.orders.end = self.orders.end.max(Some(urgency));
        }
    }

    /// Notes whether the shim was continued since the last look, and so had been stopped.
    fn notice_stop(&mut self) {
        let mut buffer = [0; 64];
        while matches!((&self.continued).read(&mut buffer), Ok(count) if count > 0) {
            self.was_stopped = true;
        }
    }

    /// Orders of a daemon that took us over.
    fn look_for_orders(&mut self) {
        let mut buffer = [0; 64];
        let mut is_told = false;
        while matches!((&self.has_orders).read(&mut buffer), Ok(count) if count > 0) {
            is_told = true;
        }
        // Where nobody can be sure whom a signal reaches, none is sent.
        if !is_told && cfg!(target_os = "linux") {
            return;
        }
        // What cannot be read is as good as not told: then we end with the lease that we know of.
        let told = self.record.orders_behind(&mut self.heard).unwrap_or_else(|_| Vec::new());
        if let Some(ping) = told.iter().map(|orders| orders.ping).max() {
            // A daemon that reads no answer does not renew the lease.
            let _noted = self.record.note(&Line::Heard(ping));
        }
        for orders in told {
            self.orders = self.orders.and(orders);
        }
    }

    /// Orders of the daemon that had us begin.
    fn hear(&mut self) {
        let Some((daemon, heard)) = &mut self.daemon else { return };
        let mut buffer = [0; 1_024];
        loop {
            match daemon.read(&mut buffer) {
                Ok(count) if count > 0 && heard.len() + count <= LINE_BYTES => heard.extend(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                _ => {
                    self.daemon = None;
                    return;
                }
            }
        }
        while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = heard.drain(..=end).collect();
            if let Ok(told) = serde_json::from_slice::<Orders>(&line) {
                self.orders = self.orders.and(told);
                // A daemon that does not read its answers renews nothing, and does not hold us up.
                let _answered = daemon.write_all(orders::answer(told.ping).as_bytes());
            }
        }
    }

    fn keep_output(&mut self) {
        let Some(output) = &mut self.output else { return };
        let mut buffer = [0; 16 * 1_024];
        // Signals and orders are looked at in between, however fast it prints.
        for _ in 0..16 {
            match rustix::io::read(&output.from, &mut buffer) {
                Ok(0) => return self.close_output(),
                Ok(count) => {
                    if output.has_room {
                        output.has_room = output.to.take(&buffer[..count]).is_ok();
                    }
                }
                Err(_) => return,
            }
        }
    }
}

/// A new file for output. Where there is none to be had, because the folder was removed, output is dropped: the program
/// runs all the same.
fn new_log(path: &Path) -> io::Result<File> {
    let created = files::parent(path).and_then(|(dir, name)| dir.create(name));
    created.or_else(|_| File::options().write(true).open("/dev/null"))
}

/// Becomes readable when one of these signals comes.
fn signal_pipe(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}
