//! `rota`: the scheduler for fleets of AI coding agents. This crate only translates words: from the command line to
//! verbs, and from payloads to text.

mod agent_session;
mod args;
mod args_control;
mod args_gate;
mod args_loops;
mod args_run;
mod args_serve;
mod args_settle;
mod args_setup;
mod args_supervise;
mod args_update;
mod commands;
mod desk;
mod errors;
mod locate;
mod output;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod reference;
mod tui;

use std::process::ExitCode;

use rota_daemon::shim::nursery;

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
