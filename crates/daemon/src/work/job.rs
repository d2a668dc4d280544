//! One command for one task: the task on its input, its output passed on.

use std::ffi::OsString;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use rota_core::{LeaseId, Task};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use super::Work;
use crate::runner::output::drain;
use crate::runner::process::{Ended, Launch};
use crate::runner::terminate::Urgency;

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

/// Where its output goes.
#[derive(Clone)]
pub struct Sink {
    /// Before each line, where several commands run at once.
    pub prefix: Option<String>,
    /// Whether stdout goes to stderr too.
    pub to_stderr: bool,
}

/// The command with what is said of its task.
pub fn launch(work: &Work, task: &Task, lease: &LeaseId) -> Launch {
    let mut environment = work.environment.clone();
    for (name, value) in [
        ("ROTA_TASK", task.id.to_string()),
        ("ROTA_LEASE", lease.to_string()),
        ("ROTA_AGENT", work.agent.clone()),
        ("ROTA_QUEUE", task.queue.clone()),
    ] {
        environment.insert(OsString::from(name), OsString::from(value));
    }
    Launch { argv: work.argv.clone(), folder: work.folder.clone(), environment, timeout: None }
}

/// Runs it to its end.
pub async fn run(
    launch: Launch,
    input: String,
    sink: Sink,
    mut stop: watch::Receiver<Option<Urgency>>,
) -> JobEnd {
    let failed = |error| JobEnd { ended: Err(error), last_line: None, last_error_line: None };
    let mut child = match launch.start(Stdio::piped(), Stdio::piped(), Stdio::piped()) {
        Ok(child) => child,
        Err(error) => return failed(error),
    };
    if let Some(mut stdin) = child.stdin.take() {
        tokio::spawn(async move {
            // A command that does not read it is none of our business.
            drop(stdin.write_all(input.as_bytes()).await);
        });
    }
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return failed(std::io::Error::other("no pipes"));
    };
    let mut out = Lines::new(sink.prefix.clone(), sink.to_stderr);
    let mut err = Lines::new(sink.prefix, true);
    let ended = {
        let reading = async {
            tokio::join!(drain(stdout, |bytes| out.take(bytes)), drain(stderr, |bytes| err.take(bytes)))
        };
        tokio::pin!(reading);
        let mut is_read = false;
        let ended = {
            let waiting = launch.wait(&mut child, &mut stop);
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
    JobEnd { ended, last_line: out.finish(LINE_BYTES), last_error_line: err.finish(REASON_BYTES) }
}

/// Passes output on line by line and remembers the last one.
struct Lines {
    prefix: Option<String>,
    to_stderr: bool,
    partial: Vec<u8>,
    last: Vec<u8>,
}

impl Lines {
    fn new(prefix: Option<String>, to_stderr: bool) -> Self {
        Self { prefix, to_stderr, partial: Vec::new(), last: Vec::new() }
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
        let whole: Vec<u8> = [prefix, line].concat();
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
