//! `rota`: the scheduler for fleets of AI coding agents. This crate only translates words: from the command line to
//! verbs, and from payloads to text.

mod agent_session;
mod args;
mod args_control;
mod args_gate;
mod args_loops;
mod args_run;
mod args_serve;
mod args_setup;
mod args_supervise;
mod backend;
mod commands;
mod errors;
mod locate;
mod output;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod reference;
mod tui;

use std::process::ExitCode;
use std::sync::OnceLock;

use rota_daemon::shim::nursery;
use tokio::runtime::{Builder, EnterGuard, Runtime};

use args::Command;
use errors::{CliError, CliResult};

/// The one runtime of the program.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Waits for a future on the program's runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    let Some(runtime) = RUNTIME.get() else { unreachable!("main makes the runtime") };
    runtime.block_on(future)
}

/// Makes the runtime. Commands that serve or supervise have threads that go on between calls, and one that writes to a file
/// does not keep the others waiting. A verb does one thing after the other, and starts faster with one thread.
fn start_runtime(command: Option<&Command>) -> CliResult<EnterGuard<'static>> {
    let serves = matches!(
        command,
        Some(
            Command::Gateway(_)
                | Command::Mcp(_)
                | Command::Serve(_)
                | Command::Supervise(_)
                | Command::Top
                | Command::Up(_)
                | Command::Work(_)
        )
    );
    let built = match serves {
        true => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        false => Builder::new_current_thread().enable_all().build(),
    };
    let built = built.map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    Ok(RUNTIME.get_or_init(|| built).enter())
}

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    // Started by ourselves, before there is a second thread, and not for people.
    if let [_, command] = arguments.as_slice()
        && command == nursery::COMMAND
    {
        return nursery::main();
    }
    match commands::run(&arguments) {
        Ok(code) => code,
        Err(error) => error.report(errors::wants_json_line(&arguments)),
    }
}
