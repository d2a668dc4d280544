//! `rota queue`, `rota sched`, `rota policy`: JSON, and every refusal is one line and exit code 1.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use rota_store::{AnyStore, block_on};
use rota_verbs::{Context, input, mirror, policy, queue, sched};
use serde::Serialize;

use crate::args::Common;
use crate::args_control::{
    PolicyArgs, PolicyCommand, QueueArgs, QueueCommand, SchedArgs, SchedCommand, SchedPolicyCommand,
    SchedPolicySetArgs,
};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// Prints a payload as JSON, with or without `--json`.
fn print<T: Serialize>(payload: T) -> CliResult<ExitCode> {
    output::emit(true, payload, |_| String::new())
}

fn missing(what: &str) -> CliError {
    CliError::value(format!("missing {what}"))
}

/// A number of a flag, in the words of the contract.
fn number<T: std::str::FromStr>(flag: &str, text: &str) -> CliResult<T> {
    input::number(flag, text).map_err(CliError::reading)
}

/// `rota queue`
pub fn queue(common: &Common, args: QueueArgs) -> CliResult<ExitCode> {
    let command = args
        .command
        .ok_or_else(|| missing("command (add, list, show, drain, import, export, pause, resume)"))?;
    let open = || locate::context(common);
    match command {
        QueueCommand::Add(args) => {
            let repo = match args.repo {
                Some(repo) => repo,
                None => locate::current_folder()?,
            };
            let priority = args.priority.as_deref().map(|text| number("priority", text)).transpose()?;
            let input = queue::AddEntry {
                id: args.id,
                queue: args.queue.queue,
                run_id: args.run_id,
                app: args.app,
                workflow: args.workflow,
                repo,
                priority,
                note: args.note,
            };
            print(block_on(queue::add(&open()?, input))?)
        }
        QueueCommand::List(args) => {
            let input = queue::ListEntries { queue: args.queue.queue, status: args.status, repo: args.repo };
            output::emit(common.json, block_on(queue::list(&open()?, input))?, output::entries::text)
        }
        QueueCommand::Show { id } => {
            print(block_on(queue::show(&open()?, &id.ok_or_else(|| missing("entry ID"))?))?)
        }
        QueueCommand::Drain(args) => {
            let limit = number("limit", &args.limit)?;
            let input = queue::DrainQueue { queue: args.queue.queue, limit, repo: args.repo };
            print(block_on(queue::drain(&open()?, input))?)
        }
        QueueCommand::Import(args) => {
            let file = args.file.ok_or_else(|| missing("FILE"))?;
            let imported =
                block_on(queue::import(&open()?, Path::new(&file), &args.queue.queue, args.dry_run))?;
            if !imported.leased.is_empty() {
                output::warn(&format!("leased entries come in as ready: {}", imported.leased.join(", ")))?;
            }
            print(imported)
        }
        QueueCommand::Export(args) => print(block_on(queue::export(&open()?, args.queue))?),
        QueueCommand::Pause { queue } => {
            print(block_on(queue::pause(&open()?, queue.ok_or_else(|| missing("queue"))?))?)
        }
        QueueCommand::Resume { queue } => {
            print(block_on(queue::resume(&open()?, queue.ok_or_else(|| missing("queue"))?))?)
        }
    }
}

/// `rota sched`
pub fn sched(common: &Common, args: SchedArgs) -> CliResult<ExitCode> {
    let verbs = "command (plan, lease, renew, complete, release, reclaim, reset, policy)";
    let command = args.command.ok_or_else(|| missing(verbs))?;
    let open = || locate::context(common);
    let lease = |lease: Option<String>| lease.ok_or_else(|| missing("lease ID"));
    match command {
        SchedCommand::Plan(args) => {
            let limit = args.limit.as_deref().map(|text| number("limit", text)).transpose()?;
            print(block_on(sched::plan(&open()?, &args.queue.queue, limit))?)
        }
        SchedCommand::Lease(args) => {
            let limit = args.limit.as_deref().map(|text| number("limit", text)).transpose()?;
            print(block_on(sched::lease(&open()?, &args.queue.queue, limit))?)
        }
        SchedCommand::Renew(args) => print(block_on(sched::renew(&open()?, &lease(args.lease)?))?),
        SchedCommand::Complete(args) => print(block_on(sched::complete(&open()?, &lease(args.lease)?))?),
        SchedCommand::Release(args) => {
            let id = lease(args.lease.lease)?;
            print(block_on(sched::release(&open()?, &id, args.failed, args.reason))?)
        }
        SchedCommand::Reclaim(args) => print(block_on(sched::reclaim(&open()?, &args.queue))?),
        SchedCommand::Reset { id } => {
            print(block_on(sched::reset(&open()?, &id.ok_or_else(|| missing("entry ID"))?))?)
        }
        SchedCommand::Policy(args) => match args.command {
            None | Some(SchedPolicyCommand::Show) => print(block_on(sched::policy_show(&open()?))?),
            Some(SchedPolicyCommand::Set(args)) => {
                let flat = flat(args)?;
                let cx = open()?;
                let (shown, _) = block_on(sched::policy_set(&cx, flat))?;
                mirror_to_file(common, &cx)?;
                print(shown)
            }
        },
    }
}

/// The flat document that the flags make.
fn flat(args: SchedPolicySetArgs) -> CliResult<String> {
    let given = [
        args.max_concurrent,
        args.max_attempts,
        args.lease_ttl_ms,
        args.backoff_base_ms,
        args.backoff_factor,
        args.backoff_cap_ms,
    ];
    sched::flat(sched::RULES.into_iter().zip(given)).map_err(CliError::reading)
}

/// `rota policy`
pub fn policy(common: &Common, args: PolicyArgs) -> CliResult<ExitCode> {
    let command =
        args.command.ok_or_else(|| missing("command (show, apply, diff, check, history, schema)"))?;
    let open = || -> CliResult<Context<AnyStore>> { locate::context(common) };
    match command {
        PolicyCommand::Show => print(block_on(policy::show(&open()?))?),
        PolicyCommand::Check(args) => print(policy::check(&document(args.file)?)?),
        PolicyCommand::Diff(args) => {
            let document = document(args.file)?;
            print(block_on(policy::diff(&open()?, &document))?)
        }
        PolicyCommand::Apply(args) => {
            let document = document(args.file)?;
            let cx = open()?;
            let (applied, _) = block_on(policy::apply(&cx, &document))?;
            mirror_to_file(common, &cx)?;
            print(applied)
        }
        PolicyCommand::History => print(block_on(policy::history(&open()?))?),
        PolicyCommand::Schema => output::emit(common.json, policy::schema(), |schema| {
            rota_verbs::payload::indented_json(&schema.schema)
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
fn mirror_to_file(common: &Common, cx: &Context<AnyStore>) -> CliResult<()> {
    let path = locate::policy_file(common)?;
    match block_on(mirror::write(cx, &path)) {
        Ok(()) => Ok(()),
        Err(error) => output::warn(&format!("published, but not mirrored: {error}")),
    }
}
