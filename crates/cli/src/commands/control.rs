//! `rota queue`, `rota sched`, `rota policy`: JSON, and every refusal is one line and exit code 1.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use rota_verbs::policy::{ApplyPolicy, DiffPolicy, ShowPolicy};
use rota_verbs::sched::ShowRules;
use rota_verbs::{Verb, mirror, policy};

use super::{ask, show};
use crate::args::Common;
use crate::args_control::{
    PolicyArgs, PolicyCommand, QueueArgs, QueueCommand, SchedArgs, SchedCommand, SchedPolicyCommand,
};
use crate::backend::Backend;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// Asks for a verb and prints the payload as JSON, with or without `--json`.
fn print<V: Verb>(common: &Common, input: V) -> CliResult<ExitCode> {
    output::emit(true, ask(common, input)?, |_| String::new())
}

/// The same for a verb that publishes a policy, whose copy is then written anew.
fn publish<V: Verb>(common: &Common, input: V) -> CliResult<ExitCode> {
    let backend = locate::backend(common)?;
    let done = backend.ask(input)?;
    mirror_to_file(common, &backend)?;
    output::emit(true, done, |_| String::new())
}

fn missing(what: &str) -> CliError {
    CliError::value(format!("missing {what}"))
}

/// `rota queue`
pub fn queue(common: &Common, args: QueueArgs) -> CliResult<ExitCode> {
    let command = args
        .command
        .ok_or_else(|| missing("command (add, list, show, drain, import, export, pause, resume)"))?;
    match command {
        QueueCommand::Add(mut input) => {
            if input.repo.is_none() {
                input.repo = Some(locate::current_folder()?);
            }
            print(common, input)
        }
        QueueCommand::List(input) => show(common, input, output::entries::text),
        QueueCommand::Show(input) => print(common, input),
        QueueCommand::Drain(input) => print(common, input),
        QueueCommand::Import(mut input) => {
            input.text = rota_verbs::import::text(Path::new(&input.file))?;
            let imported = ask(common, input)?;
            if !imported.leased.is_empty() {
                output::warn(&format!("leased entries come in as ready: {}", imported.leased.join(", ")))?;
            }
            output::emit(true, imported, |_| String::new())
        }
        QueueCommand::Export(input) => print(common, input),
        QueueCommand::Pause(input) => print(common, input),
        QueueCommand::Resume(input) => print(common, input),
    }
}

/// `rota sched`
pub fn sched(common: &Common, args: SchedArgs) -> CliResult<ExitCode> {
    let verbs = "command (plan, lease, renew, complete, release, reclaim, reset, policy)";
    match args.command.ok_or_else(|| missing(verbs))? {
        SchedCommand::Plan(input) => print(common, input),
        SchedCommand::Lease(input) => print(common, input),
        SchedCommand::Renew(input) => print(common, input),
        SchedCommand::Complete(input) => print(common, input),
        SchedCommand::Release(input) => print(common, input),
        SchedCommand::Reclaim(input) => print(common, input),
        SchedCommand::Reset(input) => print(common, input),
        SchedCommand::Policy(args) => match args.command {
            None => print(common, ShowRules::of_runs()),
            Some(SchedPolicyCommand::Show(input)) => print(common, input),
            Some(SchedPolicyCommand::Set(input)) => publish(common, input),
        },
    }
}

/// `rota policy`
pub fn policy(common: &Common, args: PolicyArgs) -> CliResult<ExitCode> {
    let command =
        args.command.ok_or_else(|| missing("command (show, apply, diff, check, history, schema)"))?;
    match command {
        PolicyCommand::Show(input) => print(common, input),
        PolicyCommand::Check(args) => {
            output::emit(true, policy::check(&document(args.file)?)?, |_| String::new())
        }
        PolicyCommand::Diff(args) => print(common, DiffPolicy { document: document(args.file)? }),
        PolicyCommand::Apply(args) => {
            let document = document(args.file.file)?;
            let unnamed = match (args.merge, args.replace) {
                (true, _) => policy::Unnamed::Merge,
                (_, true) => policy::Unnamed::Replace,
                _ => policy::Unnamed::Refuse,
            };
            publish(common, ApplyPolicy { document, unnamed })
        }
        PolicyCommand::History(input) => print(common, input),
        PolicyCommand::Schema(_) => output::emit(common.json, policy::schema(), |schema| {
            rota_verbs::indented::indented_json(&schema.schema)
        }),
    }
}

fn document(file: Option<String>) -> CliResult<String> {
    let file = file.ok_or_else(|| missing("FILE"))?;
    let mut text = String::new();
    let read = if file == "-" {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(&file).and_then(|mut opened| opened.read_to_string(&mut text))
    };
    read.map_err(|error| CliError::Io(format!("{file}: {error}")))?;
    Ok(text)
}

/// Writes the plain, diffable copy of what was published. The store decides, so a copy that cannot be written is no
/// failure of what was done.
fn mirror_to_file(common: &Common, backend: &Backend) -> CliResult<()> {
    let path = locate::policy_file(common)?;
    let ask = || backend.ask(ShowPolicy {}).map(|shown| (shown.version, shown.policy));
    match mirror::write_asking(&path, ask) {
        Ok(()) => Ok(()),
        Err(error) => output::warn(&format!("published, but not mirrored: {}", error.in_words())),
    }
}
