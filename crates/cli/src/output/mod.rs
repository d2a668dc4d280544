//! Payloads as text. Everything a user wrote is shown with control characters escaped.

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

use rota_verbs::Payload;
use serde::Serialize;

use crate::errors::{CliError, CliResult};

/// Prints a payload: its JSON, or the text made of it.
pub fn emit<T: Serialize>(json: bool, payload: T, text: impl FnOnce(&T) -> String) -> CliResult<ExitCode> {
    let shown = if json { Payload::new(payload).to_text() } else { text(&payload) };
    print(&shown)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes data to standard output.
pub fn print(text: &str) -> CliResult<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::PipeClosed),
        Err(error) => Err(CliError::Io(format!("standard output: {error}"))),
    }
}

/// Writes a warning to standard error.
pub fn warn(text: &str) -> CliResult<()> {
    let line = format!("warning: {}\n", rota_core::text::escaped(text));
    let written = std::io::stderr().write_all(line.as_bytes());
    written.map_err(|error| CliError::Io(format!("standard error: {error}")))
}

/// Tells on standard error what a program that goes on is doing.
pub fn note(text: &str) -> CliResult<()> {
    note_raw(&rota_core::text::escaped(text))
}

/// The same for what has nothing left to escape.
pub fn note_raw(text: &str) -> CliResult<()> {
    let line = format!("{text}\n");
    let written = std::io::stderr().write_all(line.as_bytes());
    written.map_err(|error| CliError::Io(format!("standard error: {error}")))
}
