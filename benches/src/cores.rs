//! Which core a program is on.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;

/// A program that begins on one core.
pub fn pinned(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// Puts a process that runs, with all its threads, on the cores of a list.
pub fn pin(pid: u32, cores: &str) -> Result<()> {
    let set =
        Command::new("taskset").args(["-acp", cores, &pid.to_string()]).stdout(Stdio::null()).status()?;
    if set.success() { Ok(()) } else { Err(format!("taskset: cores {cores} are wanted").into()) }
}
