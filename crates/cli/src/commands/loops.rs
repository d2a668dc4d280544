//! `rota loop` and `rota debug`

use std::io::Read;
use std::process::ExitCode;

use rota_core::limits;
use rota_core::text::escaped;
use rota_verbs::Verb;
use rota_verbs::loops::{self, ChangedTree, LoopPayload};
use rota_verbs::table::{
    AddLoop, CancelLoop, ConfigureLoop, ListLoops, MoveLoop, PauseLoop, ReiterateLoop, ResumeLoop, ShowLoop,
    ShowScheduler, ShowTree,
};

use super::{help_of, logs, up};
use crate::args::{Common, IdArg};
use crate::args_loops::{
    DebugArgs, DebugCommand, LoopAddArgs, LoopArgs, LoopCommand, LoopListArgs, LoopMoveArgs,
    LoopReiterateArgs,
};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// `rota loop`
pub fn run(common: &Common, args: LoopArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else { return Err(missing_command("loop")) };
    let verb = match &command {
        LoopCommand::Add(_) => "add",
        LoopCommand::List(_) => "list",
        LoopCommand::Tree(_) => "tree",
        LoopCommand::Show(_) => "show",
        LoopCommand::Reiterate(_) => "reiterate",
        LoopCommand::Cancel(_) => "cancel",
        LoopCommand::Pause(_) => "pause",
        LoopCommand::Resume(_) => "resume",
        LoopCommand::Move(_) => "move",
        LoopCommand::Config(_) => "config",
        LoopCommand::Logs(_) => "logs",
    };
    let is_read = matches!(verb, "list" | "tree" | "show" | "config" | "logs");
    let code = dispatch(common, command).map_err(|error| error.with_usage_of(&["loop", verb]))?;
    if !is_read && !locate::is_remote(common)? {
        up::nudge()?;
    }
    Ok(code)
}

fn dispatch(common: &Common, command: LoopCommand) -> CliResult<ExitCode> {
    match command {
        LoopCommand::Logs(args) => logs::run(common, &args),
        LoopCommand::Add(args) => add(common, args),
        LoopCommand::List(args) => list(common, args),
        LoopCommand::Tree(args) => {
            output::emit(common.json, ask(common, ShowTree { id: args.id })?, output::loops::tree)
        }
        LoopCommand::Show(IdArg { id }) => {
            output::emit(common.json, ask(common, ShowLoop { id })?, output::loops::show)
        }
        LoopCommand::Reiterate(LoopReiterateArgs { id: IdArg { id }, reason }) => {
            changed(common, "reiterated", "invalidated", ask(common, ReiterateLoop { id, reason })?)
        }
        LoopCommand::Cancel(IdArg { id }) => {
            changed(common, "cancelled", "invalidated", ask(common, CancelLoop { id })?)
        }
        LoopCommand::Pause(IdArg { id }) => moved(common, "paused", ask(common, PauseLoop { id })?),
        LoopCommand::Resume(IdArg { id }) => moved(common, "resumed", ask(common, ResumeLoop { id })?),
        LoopCommand::Move(LoopMoveArgs { id: IdArg { id }, host }) => {
            changed(common, "moved", "moved", ask(common, MoveLoop { id, to: host })?)
        }
        LoopCommand::Config(IdArg { id }) => {
            output::emit(common.json, ask(common, ConfigureLoop { id })?, output::loops::config)
        }
    }
}

fn ask<V: Verb>(common: &Common, input: V) -> CliResult<V::Payload> {
    locate::desk(common)?.ask(input)
}

fn missing_command(noun: &str) -> CliError {
    CliError::Usage { message: "missing command".into(), usage: Some(help_of(&[noun])) }
}

fn moved(common: &Common, word: &str, task: LoopPayload) -> CliResult<ExitCode> {
    output::emit(common.json, task, |task| format!("{word} {}\n", escaped(task.task.id.as_str())))
}

/// The loop that was named, then the others that were changed with it.
fn changed(common: &Common, word: &str, others: &str, tree: ChangedTree) -> CliResult<ExitCode> {
    output::emit(common.json, tree, |tree| {
        let mut text = format!("{word} {}\n", escaped(tree.task.task.id.as_str()));
        text.extend(tree.below.iter().map(|id| format!("{others} {}\n", escaped(id.as_str()))));
        text
    })
}

fn add(common: &Common, args: LoopAddArgs) -> CliResult<ExitCode> {
    let input = AddLoop {
        kind: args.kind,
        id: args.id,
        title: args.title,
        parent: args.parent,
        triggered_by: args.triggered_by,
        priority: args.priority.as_deref().map(loops::priority).transpose()?,
        prompt: args.prompt.map(prompt).transpose()?,
    };
    let added = ask(common, input)?;
    output::emit(common.json, added, |added| format!("{}\n", escaped(added.task.id.as_str())))
}

/// The text itself, or what a file says.
fn prompt(text: String) -> CliResult<String> {
    let Some(file) = text.strip_prefix('@') else { return Ok(text) };
    let limit = limits::TEXT_BYTES as u64 + 1;
    let mut text = String::new();
    let read = if file == "-" {
        std::io::stdin().take(limit).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(limit).read_to_string(&mut text))
    };
    read.map_err(|error| CliError::Io(format!("--prompt @{file}: {error}")))?;
    Ok(text)
}

fn list(common: &Common, args: LoopListArgs) -> CliResult<ExitCode> {
    args.status.as_deref().map(loops::statuses).transpose()?;
    let listed = ask(common, ListLoops { status: args.status, kind: args.kind })?;
    output::emit(common.json, listed, |listed| output::loops::list(&listed.loops))
}

/// `rota debug`
pub fn debug(common: &Common, args: DebugArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(missing_command("debug")),
        Some(DebugCommand::Scheduler) => {
            output::emit(common.json, ask(common, ShowScheduler {})?, output::loops::scheduler)
        }
    }
}
