//! `rota supervise` and `rota issue` with the real binary: on the local tracker, and against servers that behave as
//! trackers do.

mod crashes;
mod dispatch;
mod governance;
mod in_up;
mod local;
mod pin;
mod store_away;
mod tokens;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Lab, Ran};

/// Nothing here takes this long, however busy the machine.
pub const TOO_LONG: Duration = Duration::from_secs(240);
/// Between two looks: who looks all the time takes the processor from what is waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// A repository with governance, and a section for the supervisor.
pub fn repository(supervisor: &str) -> Lab {
    repository_on(Lab::new(), supervisor)
}

/// The same with a store of its own.
pub fn repository_on(lab: Lab, supervisor: &str) -> Lab {
    git(lab.path(), &["init", "-q"]);
    write(&lab, "docs/governance.md", "One task at a time.\n");
    write(&lab, "agents/state/environment.json", "{}\n");
    write(&lab, "rota.yml", &format!("supervisor: {{{supervisor}}}\n"));
    git(lab.path(), &["add", "-A"]);
    git(lab.path(), &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "first"]);
    lab
}

pub fn git(folder: &Path, arguments: &[&str]) {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn write(lab: &Lab, path: &str, text: &str) {
    let path = lab.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub fn read(lab: &Lab, path: &str) -> String {
    std::fs::read_to_string(lab.path().join(path)).unwrap()
}

pub fn state(lab: &Lab) -> serde_json::Value {
    serde_json::from_str(&read(lab, "agents/state/scheduler_state.json")).unwrap()
}

/// The line of a cycle that begins like this.
#[track_caller]
pub fn line<'a>(ran: &'a Ran, head: &str) -> &'a str {
    let found = ran.stdout.lines().find(|line| line.starts_with(head));
    found.unwrap_or_else(|| panic!("no {head} in: {}{}", ran.stdout, ran.stderr))
}

/// A cycle that pins, which it reports on stderr.
#[track_caller]
pub fn first_cycle(lab: &Lab) {
    let ran = lab.line("supervise --once");
    assert!(ran.code == 0 && ran.stderr.starts_with("pinned: "), "{}{}", ran.stdout, ran.stderr);
}

/// A supervisor that goes on until it is told to end.
pub fn start(lab: &Lab, arguments: &[&str]) -> Child {
    let mut command = lab.command();
    command.arg("supervise").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TOO_LONG, "never: {what}");
        std::thread::park_timeout(PAUSE);
    }
}

/// Waits for its end, which must come.
#[track_caller]
pub fn ended(mut child: Child) -> Ran {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > TOO_LONG {
            child.kill().unwrap();
            panic!("it runs for ever");
        }
        std::thread::park_timeout(PAUSE);
    }
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
