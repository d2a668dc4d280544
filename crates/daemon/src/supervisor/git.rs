//! What is asked of git: a bounded call, never through a shell, never with a question to a person.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Runs git in a folder; its output if it succeeds.
pub async fn git(folder: &Path, arguments: &[&str], limit: Duration) -> io::Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments).env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let verb = arguments.first().copied().unwrap_or_default();
    let output = match tokio::time::timeout(limit, command.output()).await {
        Ok(output) => output?,
        Err(_) => {
            let problem = format!("git {verb}: no answer within {} s", limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
        }
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or("no reason given");
    Err(io::Error::other(format!("git {verb}: {said}")))
}
