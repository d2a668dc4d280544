//! Other processes: this very test program, started again in a role.
//!
//! The parent and a child talk in lines: what the child answers starts with `@`, so that the test harness's own output
//! is told apart. Both wait for lines, nobody sleeps.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

const ROLE: &str = "ROTA_TEST_ROLE";
const STORE: &str = "ROTA_TEST_STORE";
const EXTRA: &str = "ROTA_TEST_EXTRA";

/// A running child.
pub struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The command that starts this program in a role.
pub fn command(role: &str, store: &Path, extra: &str) -> Command {
    in_role(Command::new(std::env::current_exe().unwrap()), role, store, extra)
}

/// The same where something else starts this program at the end of its arguments.
pub fn in_role(mut command: Command, role: &str, store: &Path, extra: &str) -> Command {
    command.args(["children::play_a_role", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(STORE, store).env(EXTRA, extra).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Child {
    /// Starts one in a role.
    pub fn start(role: &str, store: &Path, extra: &str) -> Self {
        Self::spawn(command(role, store, extra))
    }

    /// Starts one by its command.
    pub fn spawn(mut command: Command) -> Self {
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    /// Sends a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// Waits for the next answer; none if the child is gone.
    pub fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The harness writes the test's name without a line end.
            if let Some((_, answer)) = line.split_once('@') {
                return Some(answer.trim_end().to_owned());
            }
        }
    }

    /// Waits for the next answer, which must come.
    #[track_caller]
    pub fn must_hear(&mut self) -> String {
        match self.hear() {
            Some(answer) => answer,
            None => panic!("the child is gone: {}", self.last_words()),
        }
    }

    fn last_words(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            errors.read_to_string(&mut text).unwrap();
        }
        text
    }

    /// Closes its input and waits for its end; what else it said comes with it.
    pub fn end(self) -> (ExitStatus, String) {
        let Self { mut process, input, mut output } = self;
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        if let Some(mut errors) = process.stderr.take() {
            errors.read_to_string(&mut rest).unwrap();
        }
        (process.wait().unwrap(), rest)
    }
}

/// What a role has to work with.
pub struct Stage {
    /// The database.
    pub store: PathBuf,
    /// Whatever the parent said at the start.
    pub extra: String,
}

impl Stage {
    /// Waits for the parent's next line; none when there are no more.
    pub fn cue(&self) -> Option<String> {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Answers.
    pub fn say(&self, answer: &str) {
        let mut output = std::io::stdout().lock();
        writeln!(output, "@{answer}").unwrap();
        output.flush().unwrap();
    }
}

/// Not a test by itself: plays the role that a parent asked for, and nothing otherwise.
#[test]
fn play_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let stage = Stage {
        store: std::env::var_os(STORE).unwrap().into(),
        extra: std::env::var(EXTRA).unwrap_or_default(),
    };
    match role.as_str() {
        "claimers" => crate::processes::claim_until_done(&stage),
        "racer" => crate::processes::race(&stage),
        "opener" => crate::processes::open_and_add(&stage),
        "crasher" => crate::crashes::perform_and_crash(&stage),
        "fleet" => crate::postgres_hosts::be_a_fleet(&stage),
        "host" => crate::postgres_clock::be_a_host(&stage),
        "reporter" => crate::damage::report(&stage),
        other => panic!("there is no role '{other}'"),
    }
}
