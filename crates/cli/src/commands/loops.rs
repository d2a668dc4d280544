//! `rota loop` and `rota debug`

use std::io::Read;
use std::process::ExitCode;

use rota_core::limits;
use rota_core::text::escaped;
use rota_store::block_on;
use rota_verbs::loops::{self, AddLoop, ChangedTree, ListLoops, LoopPayload};

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
    if !is_read {
        up::nudge()?;
    }
    Ok(code)
}

fn dispatch(common: &Common, command: LoopCommand) -> CliResult<ExitCode> {
    match command {
        LoopCommand::Logs(args) => logs::run(common, &args),
        LoopCommand::Add(args) => add(common, args),
        LoopCommand::List(args) => list(common, &args),
        LoopCommand::Tree(args) => {
            let cx = locate::context(common)?;
            let tree = block_on(loops::tree(&cx, args.id.as_deref()))?;
            output::emit(common.json, tree, output::loops::tree)
        }
        LoopCommand::Show(IdArg { id }) => {
            let cx = locate::context(common)?;
            output::emit(common.json, block_on(loops::show(&cx, &id))?, output::loops::show)
        }
        LoopCommand::Reiterate(LoopReiterateArgs { id: IdArg { id }, reason }) => {
            let cx = locate::context(common)?;
            changed(common, "reiterated", "invalidated", block_on(loops::reiterate(&cx, &id, reason))?)
        }
        LoopCommand::Cancel(IdArg { id }) => {
            let cx = locate::context(common)?;
            changed(common, "cancelled", "invalidated", block_on(loops::cancel(&cx, &id))?)
        }
        LoopCommand::Pause(IdArg { id }) => {
            let cx = locate::context(common)?;
            moved(common, "paused", block_on(loops::pause(&cx, &id))?)
        }
        LoopCommand::Resume(IdArg { id }) => {
            let cx = locate::context(common)?;
            moved(common, "resumed", block_on(loops::resume(&cx, &id))?)
        }
        LoopCommand::Move(LoopMoveArgs { id: IdArg { id }, host }) => {
            let cx = locate::context(common)?;
            changed(common, "moved", "moved", block_on(loops::move_tree(&cx, &id, host))?)
        }
        LoopCommand::Config(IdArg { id }) => {
            let config = locate::configured(common)?.config;
            let cx = locate::context(common)?;
            let settings = |kind: &str, policy: &rota_core::Policy| config.settings(kind, policy);
            output::emit(common.json, block_on(loops::config(&cx, &id, settings))?, output::loops::config)
        }
    }
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
    let cx = locate::context(common)?;
    let added = block_on(loops::add(&cx, input))?;
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

fn list(common: &Common, args: &LoopListArgs) -> CliResult<ExitCode> {
    let statuses = args.status.as_deref().map(loops::statuses).transpose()?;
    let kinds = args.kind.as_deref().map(|kinds| {
        kinds.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(str::to_owned).collect()
    });
    let cx = locate::context(common)?;
    let listed = block_on(loops::list(&cx, ListLoops { statuses, kinds }))?;
    output::emit(common.json, listed, |listed| output::loops::list(&listed.loops))
}

/// `rota debug`
pub fn debug(common: &Common, args: DebugArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(missing_command("debug")),
        Some(DebugCommand::Scheduler) => {
            let cx = locate::context(common)?;
            output::emit(common.json, block_on(loops::scheduler(&cx))?, output::loops::scheduler)
        }
    }
}
