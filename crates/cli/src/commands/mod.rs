//! One folder per noun, one file per verb.

mod completions;
mod config;
mod control;
mod endpoint;
mod gate;
mod hook;
mod import;
mod init;
mod issue;
mod log;
mod logs;
mod loops;
mod mcp;
mod prime;
mod serve;
mod setup;
pub mod supervise;
mod task;
mod up;
mod upkeep;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use rota_daemon::shim::attend::Shims;
use rota_verbs::Verb;

pub use self::gate::gates;
use crate::args::{Cli, Command, Common};
use crate::errors::{CliError, CliResult, command_path};
use crate::{agent_session, locate, output};

/// Reads the command line and does what it says.
pub fn run(arguments: &[OsString]) -> CliResult<ExitCode> {
    let Some(mut cli) = parsed(arguments)? else { return Ok(ExitCode::SUCCESS) };
    let _entered = crate::start_runtime(cli.command.as_ref())?;
    if !matches!(cli.command, Some(Command::Prime | Command::Hook(_))) {
        // A warning that cannot be written is no reason to stop.
        rota_store::send_warnings_to(|text| drop(output::warn(text)));
    }
    agent_session::name_agent(&mut cli);
    match cli.command {
        Some(Command::Task(task)) => task::run(&cli.common, task),
        Some(Command::Queue(args)) => control::queue(&cli.common, args).map_err(CliError::in_one_line),
        Some(Command::Sched(args)) => control::sched(&cli.common, args).map_err(CliError::in_one_line),
        Some(Command::Policy(args)) => {
            control::policy(&cli.common, args).map_err(|error| error.with_usage_of(&["policy"]))
        }
        Some(Command::Loop(args)) => loops::run(&cli.common, args),
        Some(Command::Debug(args)) => loops::debug(&cli.common, args),
        Some(Command::Issue(args)) => issue::run(&cli.common, args),
        Some(Command::Supervise(args)) => {
            supervise::run(&cli.common, &args).map_err(|error| error.with_usage_of(&["supervise"]))
        }
        Some(Command::Up(args)) => up::run(&cli.common, &args).map_err(|error| error.with_usage_of(&["up"])),
        Some(Command::Status) => up::status(&cli.common),
        Some(Command::Down(args)) => up::down(&cli.common, &args),
        Some(Command::Reload) => up::reload(&cli.common),
        Some(Command::Work(args)) => {
            work::run(&cli.common, args).map_err(|error| error.with_usage_of(&["work"]))
        }
        Some(Command::Why(input)) => show(&cli.common, input, output::why::text),
        Some(Command::Mcp(args)) => {
            mcp::run(&cli.common, args).map_err(|error| error.with_usage_of(&["mcp"]))
        }
        Some(Command::Serve(args)) => {
            serve::run(&cli.common, &args).map_err(|error| error.with_usage_of(&["serve"]))
        }
        Some(Command::Gateway(args)) => {
            gate::gateway(&cli.common, &args).map_err(|error| error.with_usage_of(&["gateway"]))
        }
        Some(Command::Gate(args)) => gate::run(&cli.common, args),
        Some(Command::Top) => crate::tui::run(&cli.common).map_err(|error| error.with_usage_of(&["top"])),
        Some(Command::Log(log)) => log::run(&cli.common, log).map_err(|error| error.with_usage_of(&["log"])),
        Some(Command::Doctor(args)) => upkeep::doctor(&cli.common, &args),
        Some(Command::Export(args)) => upkeep::export(&cli.common, &args),
        Some(Command::Import(args)) => import::run(&cli.common, args),
        Some(Command::Backup(args)) => upkeep::backup(&cli.common, &args),
        Some(Command::Prune(args)) => {
            upkeep::prune(&cli.common, args).map_err(|error| error.with_usage_of(&["prune"]))
        }
        Some(Command::Migrate(args)) => upkeep::migrate(&cli.common, &args),
        Some(Command::Init(args)) => init::run(&cli.common, &args),
        Some(Command::Setup(args)) => {
            setup::run(&cli.common, &args).map_err(|error| error.with_usage_of(&["setup"]))
        }
        Some(Command::Prime) => prime::run(&cli.common),
        Some(Command::Hook(args)) => hook::run(&cli.common, args),
        Some(Command::Config(args)) => config::run(&cli.common, &args),
        Some(Command::Completions { shell }) => completions::run(&shell),
        None => Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&[])) }),
    }
}

/// The command line; none where there is nothing left to do.
fn parsed(arguments: &[OsString]) -> CliResult<Option<Cli>> {
    let error = match Cli::try_parse_from(arguments) {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        output::print(&error.render().to_string())?;
        return Ok(None);
    }
    let said = CliError::from_clap(&error, arguments);
    match command_path(arguments).first().map(String::as_str) {
        // Written by another version of `rota setup`.
        Some("hook") => Ok(None),
        Some("sched" | "queue") => Err(said.with_example(&error).in_one_line()),
        _ => Err(said),
    }
}

/// Asks for a verb where it runs.
fn ask<V: Verb>(common: &Common, input: V) -> CliResult<V::Payload> {
    let answer = locate::backend(common).and_then(|backend| backend.ask(input));
    answer.map_err(|error| error.with_usage_of(&V::ROUTE.name.split(' ').collect::<Vec<_>>()))
}

/// Asks for a verb and prints the payload, as JSON or as text.
fn show<V: Verb>(common: &Common, input: V, text: impl FnOnce(&V::Payload) -> String) -> CliResult<ExitCode> {
    output::emit(common.json, ask(common, input)?, text)
}

/// A usage error with the usage line of a command.
fn usage(path: &[&str], message: &str) -> CliError {
    CliError::value(message).with_usage_of(path)
}

/// The help text of a command.
fn help_of(path: &[&str]) -> String {
    let mut command = Cli::command();
    command.build();
    let found = path.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
    found.map_or(String::new(), |command| command.render_help().to_string())
}

/// The usage line of a command.
pub fn usage_of(path: &[&str]) -> Option<String> {
    help_of(path).lines().find(|line| line.starts_with("Usage:")).map(str::to_owned)
}

/// A whole number from 0, with the contract's message.
pub fn number<T: std::str::FromStr>(name: &str, text: &str) -> CliResult<T> {
    Ok(rota_verbs::input::count(name, text)?)
}

/// What starts agents for the workspace that `.rota` belongs to.
fn shims(rota: &std::path::Path) -> CliResult<Shims> {
    Shims::of_this_program(rota).map_err(|error| CliError::Io(format!("this program: {error}")))
}
