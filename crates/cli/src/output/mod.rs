//! Payloads as text. All that is printed goes through `print`, which escapes whatever could steer a terminal.

pub mod entries;
pub mod gate;
pub mod log;
pub mod loops;
pub mod markdown;
pub mod show;
pub mod table;
pub mod why;

use std::io::Write;
use std::process::ExitCode;

use rota_core::text::{escaped, escaped_lines};
use rota_verbs::Payload;
use serde::Serialize;

use crate::errors::{CliError, CliResult};

/// Prints a payload: its JSON, or the text made of it.
pub fn emit<T: Serialize>(json: bool, payload: T, text: impl FnOnce(&T) -> String) -> CliResult<ExitCode> {
    let shown = if json { Payload::new(payload).to_text() } else { text(&payload) };
    print(&shown)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes text or JSON to standard output.
pub fn print(text: &str) -> CliResult<()> {
    write(escaped_lines(text.as_bytes()).as_bytes())
}

/// Clears the screen and goes to its top.
pub fn clear_screen() -> CliResult<()> {
    write(b"\x1b[H\x1b[2J")
}

/// Writes bytes to standard output as they are.
pub fn write(bytes: &[u8]) -> CliResult<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::PipeClosed),
        Err(error) => Err(CliError::Io(format!("standard output: {error}"))),
    }
}

/// Writes a warning to standard error.
pub fn warn(text: &str) -> CliResult<()> {
    let line = format!("warning: {}\n", escaped(text));
    let written = std::io::stderr().write_all(line.as_bytes());
    written.map_err(|error| CliError::Io(format!("standard error: {error}")))
}

/// Tells on standard error what a program that goes on is doing.
pub fn note(text: &str) -> CliResult<()> {
    note_raw(&escaped(text))
}

/// The same for what has nothing left to escape.
pub fn note_raw(text: &str) -> CliResult<()> {
    let line = format!("{text}\n");
    let written = std::io::stderr().write_all(line.as_bytes());
    written.map_err(|error| CliError::Io(format!("standard error: {error}")))
}
