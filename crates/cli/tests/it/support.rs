//! A folder of its own, the binary in a clean environment, and transcripts of what it says.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use expect_test::Expect;
use rota_store::{AnyStore, Location};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::mcp::client::Http;

/// A folder outside of any repository.
pub struct Lab {
    folder: TempDir,
    /// Where tasks are kept, if not in the folder.
    store: Option<String>,
    /// A server that is asked instead of the store.
    served: OnceLock<Http>,
    /// Who runs the binary, if not the user of the tests.
    user: Option<u32>,
}

/// What a process left behind.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// What a command that succeeded printed, read as JSON.
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its standard output, which is all there may be.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        self.stdout
    }
}

/// Runs a script in a folder of its own and compares the transcript.
#[track_caller]
pub fn check(script: &str, expected: Expect) {
    Lab::new().check(script, expected);
}

/// The binary under test.
pub const ROTA: &str = env!("CARGO_BIN_EXE_rota");

/// A command in a clean environment.
pub fn rota_in(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("ROTA_HOST", "test-host").current_dir(folder).stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

impl Lab {
    /// With a store in its folder; `tests/agents` has the same tests use PostgreSQL.
    pub fn new() -> Self {
        let is_postgres = std::env::var_os("ROTA_TEST_STORE").is_some_and(|store| store == "postgres");
        let store = is_postgres.then(|| rota_testbed::Server::shared().fresh_url());
        Self { folder: tempfile::tempdir().unwrap(), store, served: OnceLock::new(), user: None }
    }

    /// With a store elsewhere.
    pub fn on(store: String) -> Self {
        Self { store: Some(store), ..Self::new() }
    }

    /// Where an ordinary user runs the binary. Tests that do not run as root run as one already.
    pub fn of_ordinary_user() -> Self {
        const NOBODY: u32 = 65_534;
        let lab = Self::new();
        if !rustix::process::geteuid().is_root() {
            return lab;
        }
        std::os::unix::fs::chown(lab.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { user: Some(NOBODY), ..lab }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path().join(".rota/rota.db")
    }

    /// Its store, as `ROTA_STORE` names it.
    pub fn store(&self) -> String {
        self.store.clone().unwrap_or_else(|| format!("sqlite:{}", self.database().display()))
    }

    /// A command on the store; with `ROTA_TEST_SERVED` set every test asks a `rota serve` in front of it instead.
    pub fn command(&self) -> Command {
        if std::env::var_os("ROTA_TEST_SERVED").is_some() {
            return self.command_on_server();
        }
        self.served.get().map_or_else(|| self.command_on_store(), |_| self.command_on_server())
    }

    pub fn command_on_store(&self) -> Command {
        let mut command = rota_in(Path::new(ROTA), self.path());
        if let Some(user) = self.user {
            command = rota_in(Path::new("setpriv"), self.path());
            command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
            command.args(["--", ROTA]);
        }
        if let Some(store) = &self.store {
            command.env("ROTA_STORE", store);
        }
        command
    }

    fn command_on_server(&self) -> Command {
        let server = self.served.get_or_init(|| Http::serve(self, &[]));
        let mut command = self.command_on_store();
        command.env("ROTA_STORE", format!("http://{}", server.address)).env("ROTA_TOKEN", &server.token);
        command
    }

    /// From now on a server is asked.
    pub fn served(self) -> Self {
        self.command_on_server();
        self
    }

    /// The server that is asked.
    pub fn server(&self) -> &Http {
        self.served.get().unwrap()
    }

    /// The same store from within this process.
    pub fn open(&self) -> AnyStore {
        let location = match &self.store {
            Some(store) => Location::parse(store).unwrap(),
            None => Location::Sqlite(self.database()),
        };
        rota_testbed::block_on(AnyStore::open(&location)).unwrap()
    }

    /// Runs with arguments as they are.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ran {
        feed(self.command().args(arguments), b"")
    }

    /// Runs one line of a script.
    pub fn line(&self, line: &str) -> Ran {
        self.feed(line, b"")
    }

    /// The same with something on standard input.
    pub fn feed(&self, line: &str, input: &[u8]) -> Ran {
        let mut command = self.command();
        let (now, line) = match line.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
            Some((seconds, rest)) => (Some(at(seconds.parse().unwrap())), rest),
            None => (None, line),
        };
        let mut words = words(line).into_iter().peekable();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')).filter(is_variable)
        {
            command.env(name, value);
            words.next();
        }
        let now = now.iter().flat_map(|now| ["--now", now]);
        feed(command.args(now).args(words), input)
    }

    /// Runs a script: a command per line, `@N` in front of it for `--now` N seconds after the year's first, `| ` lines
    /// for its standard input.
    pub fn transcript(&self, script: &str) -> String {
        let mut transcript = String::new();
        let mut lines = script.lines().map(str::trim_start).filter(|line| !line.is_empty()).peekable();
        while let Some(line) = lines.next() {
            let mut input = String::new();
            while let Some(more) = lines.next_if(|line| line.starts_with('|')) {
                input.push_str(more.strip_prefix("| ").unwrap_or(""));
                input.push('\n');
            }
            let ran = self.feed(line, input.as_bytes());
            writeln!(transcript, "$ {line}").unwrap();
            transcript.push_str(&self.shown(&ran));
        }
        transcript
    }

    /// Standard output as it is, standard error behind `! `, the exit code unless it is 0.
    pub fn shown(&self, ran: &Ran) -> String {
        let mut text = ran.stdout.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str("(no newline)\n");
        }
        for line in ran.stderr.split_inclusive('\n') {
            write!(text, "! {line}").unwrap();
        }
        if ran.code != 0 {
            writeln!(text, "[{}]", ran.code).unwrap();
        }
        text.replace(self.path().to_str().unwrap(), "<folder>")
    }

    #[track_caller]
    pub fn check(&self, script: &str, expected: Expect) {
        expected.assert_eq(&self.transcript(script));
    }

    /// Everything there is: to show that nothing changed.
    pub fn export(&self) -> String {
        self.line("task list --all --json").ok() + &self.line("log --json").ok()
    }

    /// Runs a script whose every line must be refused and change nothing.
    #[track_caller]
    pub fn check_refused(&self, script: &str, expected: Expect) {
        let before = self.export();
        let transcript = self.transcript(script);
        assert_eq!(self.export(), before, "something changed");
        let refusals = transcript.matches("\n! error: ").count();
        assert_eq!(refusals, transcript.matches("\n[").count(), "{transcript}");
        assert_eq!(
            refusals,
            transcript.lines().filter(|line| line.starts_with("$ ")).count(),
            "{transcript}"
        );
        expected.assert_eq(&transcript);
    }
}

pub fn feed(command: &mut Command, input: &[u8]) -> Ran {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A verb that fails early does not read what it is given.
    child.stdin.take().unwrap().write_all(input).ok();
    Ran::of(finished(child))
}

/// Longer than any command of a test takes on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// Waits for a process to end. One that hangs is killed, so that its test fails instead of holding up the whole run.
fn finished(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if end.recv_timeout(COMMAND_LIMIT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("process {pid:?} did not end within {COMMAND_LIMIT:?}: killed");
            kill_process(pid, Signal::KILL).ok();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watchdog.join().unwrap();
    output
}

fn is_variable((name, _): &(&str, &str)) -> bool {
    name.starts_with("ROTA_") || *name == "HOSTNAME"
}

/// So many seconds after 2026-01-01T00:00:00Z.
pub fn at(seconds: u32) -> String {
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("2026-01-01T{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
}

/// Words as a shell would split them: quotes, and `\e`, `\n` and so on inside of double ones as Rust means them.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('"'), '\\') => word.get_or_insert_default().push(match characters.next().unwrap() {
                'n' => '\n',
                'e' => '\u{1b}',
                'b' => '\u{202e}',
                't' => '\t',
                other => other,
            }),
            (Some(_), other) => word.get_or_insert_default().push(other),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Whether whoever started the tests had HUP ignored, as under `nohup`: what they start has it so, too. Bit 0 is signal 1.
pub fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 != 0)
}
