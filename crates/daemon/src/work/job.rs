//! One command for one task: the task on its input, its output passed on.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitStatus;
use std::time::Duration;

use rota_core::text::escaped_lines;
use rota_core::{LeaseId, Task};
use tokio::io::AsyncWriteExt;

use super::Work;
use crate::boot::BootTime;
use crate::runner::environment::Environment;
use crate::runner::output::drain;
use crate::runner::process::status_of;
use crate::shim::attend::{self, End, Pipes, Shims, Streams};
use crate::shim::orders::OrderReceiver;
use crate::shim::record::{self, Run, Step, Tenure, Why};

/// How much of a line is kept; results are smaller.
const LINE_BYTES: usize = 1_024 * 1_024;
/// How much of what a command complains of becomes the reason.
const REASON_BYTES: usize = 500;
/// How long output is waited for after the command has ended: something it left behind may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What came of it.
pub struct JobEnd {
    /// How it ended.
    pub ended: std::io::Result<Ended>,
    /// The last line it printed.
    pub last_line: Option<String>,
    /// The last line it complained.
    pub last_error_line: Option<String>,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself, with this status.
    Exited(ExitStatus),
    /// It was stopped, or nothing of it was begun.
    Stopped,
    /// Its shim was killed, and what it left behind was ended.
    Lost,
    /// Its shim was stopped by a signal, and the command was ended.
    ShimStopped,
}

/// Where its output goes.
#[derive(Clone)]
pub struct Sink {
    /// Before each line, where several commands run at once.
    pub prefix: Option<String>,
    /// Whether stdout goes to stderr too.
    pub to_stderr: bool,
}

/// What the command sees, with what is said of its task.
pub fn environment(work: &Work, task: &Task, lease: &LeaseId) -> Environment {
    let mut environment = work.environment.clone();
    for (name, value) in [
        ("ROTA_TASK", task.id.to_string()),
        ("ROTA_LEASE", lease.to_string()),
        ("ROTA_AGENT", work.agent.clone()),
        ("ROTA_QUEUE", task.queue.to_string()),
    ] {
        environment.insert(OsString::from(name), OsString::from(value));
    }
    environment
}

/// The run as it is written down for its shim.
pub fn run_of(work: &Work, lease: &LeaseId, until: Tenure) -> Run {
    let marker = record::marker();
    Run {
        lease: lease.to_string(),
        scope: work.call.scope.clone(),
        iteration: None,
        folder: work.folder.clone(),
        steps: vec![Step { argv: work.argv.clone(), output: None, output_bytes: 0, timeout_ms: None }],
        exit: None,
        until,
        user: None,
        started: BootTime::now(),
        marker,
    }
}

/// Runs it to its end.
pub async fn run(
    shims: Shims,
    run: Run,
    environment: Environment,
    input: String,
    sink: Sink,
    orders: OrderReceiver,
) -> JobEnd {
    let failed = |error| JobEnd { ended: Err(error), last_line: None, last_error_line: None };
    let started = Streams::piped()
        .and_then(|(streams, pipes)| Ok((shims.start(run, environment, Some(streams))?, pipes)));
    let ((record, line), Pipes { mut stdin, stdout, stderr }) = match started {
        Ok(started) => started,
        Err(error) => return failed(error),
    };
    tokio::spawn(async move {
        // A command that does not read it is none of our business.
        drop(stdin.write_all(input.as_bytes()).await);
    });
    let mut out = Lines::new(sink.prefix.clone(), sink.to_stderr);
    let mut err = Lines::new(sink.prefix, true);
    let ended = {
        let reading = async {
            tokio::join!(drain(stdout, |bytes| out.take(bytes)), drain(stderr, |bytes| err.take(bytes)))
        };
        tokio::pin!(reading);
        let mut is_read = false;
        let ended = {
            let waiting = attend::follow(&record, line, orders);
            tokio::pin!(waiting);
            loop {
                tokio::select! {
                    ended = &mut waiting => break ended,
                    _ = &mut reading, if !is_read => is_read = true,
                }
            }
        };
        if !is_read {
            // What is lost here was written after the end, by somebody else.
            drop(tokio::time::timeout(LAST_WORDS, reading).await);
        }
        ended
    };
    let ended = ended.and_then(|(end, taken)| {
        record.put_away(taken)?;
        meaning(end)
    });
    JobEnd { ended, last_line: out.finish(LINE_BYTES), last_error_line: err.finish(REASON_BYTES) }
}

fn meaning(end: End) -> std::io::Result<Ended> {
    Ok(match end {
        End::Lost => Ended::Lost,
        End::NeverBegun => return Err(std::io::Error::other("its shim could not begin")),
        End::Known(exit) => match exit.why {
            Why::Ended => Ended::Exited(status_of(exit.steps.last().copied().unwrap_or_default())),
            Why::CannotStart { error } => return Err(std::io::Error::from_raw_os_error(error)),
            Why::ShimStopped => Ended::ShimStopped,
            Why::Stopped | Why::LeaseLost | Why::TimedOut => Ended::Stopped,
        },
    })
}

/// Passes output on line by line and remembers the last one.
struct Lines {
    prefix: Option<String>,
    to_stderr: bool,
    /// A terminal must not be steered by what a command prints; other readers get the bytes as they are.
    is_terminal: bool,
    partial: Vec<u8>,
    last: Vec<u8>,
}

impl Lines {
    fn new(prefix: Option<String>, to_stderr: bool) -> Self {
        let is_terminal =
            if to_stderr { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
        Self { prefix, to_stderr, is_terminal, partial: Vec::new(), last: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES {
                self.end_line();
            }
        }
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.partial);
        self.pass_on(&line);
        if !line.trim_ascii().is_empty() {
            self.last = line;
        }
    }

    /// A reader that went away does not stop the work.
    fn pass_on(&self, line: &[u8]) {
        let prefix = self.prefix.as_deref().unwrap_or_default().as_bytes();
        let shown = if self.is_terminal { escaped_lines(line) } else { Cow::Borrowed("") };
        let whole = [prefix, if self.is_terminal { shown.as_bytes() } else { line }].concat();
        if self.to_stderr {
            drop(std::io::stderr().lock().write_all(&whole));
        } else {
            let mut stdout = std::io::stdout().lock();
            drop(stdout.write_all(&whole).and_then(|()| stdout.flush()));
        }
    }

    fn finish(mut self, most: usize) -> Option<String> {
        if !self.partial.is_empty() {
            self.end_line();
        }
        let line = String::from_utf8_lossy(self.last.trim_ascii()).into_owned();
        let end = (0..=most.min(line.len())).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        Some(line[..end].to_owned()).filter(|line| !line.is_empty())
    }
}
