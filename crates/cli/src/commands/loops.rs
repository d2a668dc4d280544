//! `rota loop` and `rota debug`

use std::io::Read;
use std::process::ExitCode;

use rota_core::limits;
use rota_core::text::escaped;
use rota_verbs::Verb;
use rota_verbs::loops::{AddLoop, ChangedTree, LoopPayload};

use super::{help_of, logs, show, up};
use crate::args::Common;
use crate::args_loops::{DebugArgs, DebugCommand, LoopArgs, LoopCommand};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// `rota loop`
pub fn run(common: &Common, args: LoopArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(missing_command("loop")),
        Some(LoopCommand::Logs(args)) => {
            logs::run(common, &args).map_err(|error| error.with_usage_of(&["loop", "logs"]))
        }
        Some(LoopCommand::List(input)) => show(common, input, |listed| output::loops::list(&listed.loops)),
        Some(LoopCommand::Tree(input)) => show(common, input, output::loops::tree),
        Some(LoopCommand::Show(input)) => show(common, input, output::loops::show),
        Some(LoopCommand::Config(input)) => show(common, input, output::loops::config),
        Some(change) => {
            let code = changes(common, change)?;
            if !locate::is_remote(common)? {
                up::nudge()?;
            }
            Ok(code)
        }
    }
}

fn changes(common: &Common, command: LoopCommand) -> CliResult<ExitCode> {
    match command {
        LoopCommand::Add(input) => add(common, input),
        LoopCommand::Reiterate(input) => changed(common, "reiterated", "invalidated", input),
        LoopCommand::Cancel(input) => changed(common, "cancelled", "invalidated", input),
        LoopCommand::Pause(input) => moved(common, "paused", input),
        LoopCommand::Resume(input) => moved(common, "resumed", input),
        LoopCommand::Move(input) => changed(common, "moved", "moved", input),
        LoopCommand::Logs(_)
        | LoopCommand::List(_)
        | LoopCommand::Tree(_)
        | LoopCommand::Show(_)
        | LoopCommand::Config(_) => unreachable!("they change nothing"),
    }
}

fn missing_command(noun: &str) -> CliError {
    CliError::Usage { message: "missing command".into(), usage: Some(help_of(&[noun])) }
}

fn moved<V: Verb<Payload = LoopPayload>>(common: &Common, word: &str, input: V) -> CliResult<ExitCode> {
    show(common, input, |task| format!("{word} {}\n", escaped(task.task.id.as_str())))
}

/// The loop that was named, then the others that were changed with it.
fn changed<V: Verb<Payload = ChangedTree>>(
    common: &Common,
    word: &str,
    others: &str,
    input: V,
) -> CliResult<ExitCode> {
    show(common, input, |tree| {
        let mut text = format!("{word} {}\n", escaped(tree.task.task.id.as_str()));
        text.extend(tree.below.iter().map(|id| format!("{others} {}\n", escaped(id.as_str()))));
        text
    })
}

fn add(common: &Common, mut input: AddLoop) -> CliResult<ExitCode> {
    input.prompt = input.prompt.map(prompt).transpose()?;
    show(common, input, |added| format!("{}\n", escaped(added.task.id.as_str())))
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

/// `rota debug`
pub fn debug(common: &Common, args: DebugArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(missing_command("debug")),
        Some(DebugCommand::Scheduler(input)) => show(common, input, output::loops::scheduler),
    }
}
