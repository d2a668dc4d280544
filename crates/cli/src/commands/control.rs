//! `rota queue`, `rota sched`, `rota policy`: JSON, and every refusal is one line and exit code 1.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use rota_core::Json;
use rota_verbs::table::{
    AddEntry, ApplyPolicy, CompleteLease, DiffPolicy, DrainEntries, ExportEntries, GrantLeases,
    ImportEntries, ListEntries, ListPolicies, PauseQueue, PlanLeases, ReclaimLeases, ReleaseLease,
    RenewLease, ResetEntry, ResumeQueue, SetRules, ShowEntry, ShowPolicy, ShowRules,
};
use rota_verbs::{input, mirror, policy, sched};
use serde::Serialize;

use crate::args::Common;
use crate::args_control::{
    PolicyArgs, PolicyCommand, QueueArgs, QueueCommand, SchedArgs, SchedCommand, SchedPolicyCommand,
    SchedPolicySetArgs,
};
use crate::desk::Desk;
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
    let open = || locate::desk(common);
    match command {
        QueueCommand::Add(args) => {
            let repo = match args.repo {
                Some(repo) => repo,
                None => locate::current_folder()?,
            };
            let priority = args.priority.as_deref().map(|text| number("priority", text)).transpose()?;
            let input = AddEntry {
                id: args.id,
                queue: args.queue.queue,
                run_id: args.run_id,
                app: args.app,
                workflow: args.workflow,
                repo,
                priority,
                note: args.note,
            };
            print(open()?.ask(input)?)
        }
        QueueCommand::List(args) => {
            let input = ListEntries { queue: args.queue.queue, status: args.status, repo: args.repo };
            output::emit(common.json, open()?.ask(input)?, output::entries::text)
        }
        QueueCommand::Show { id } => {
            let id = id.ok_or_else(|| missing("entry ID"))?;
            print(open()?.ask(ShowEntry { id })?)
        }
        QueueCommand::Drain(args) => {
            let limit = number("limit", &args.limit)?;
            print(open()?.ask(DrainEntries { queue: args.queue.queue, limit, repo: args.repo })?)
        }
        QueueCommand::Import(args) => {
            let file = args.file.ok_or_else(|| missing("FILE"))?;
            let text = rota_verbs::import::text(Path::new(&file))?;
            let (queue, dry_run) = (args.queue.queue, args.dry_run);
            let imported = open()?.ask(ImportEntries { file, text, queue, dry_run })?;
            if !imported.leased.is_empty() {
                output::warn(&format!("leased entries come in as ready: {}", imported.leased.join(", ")))?;
            }
            print(imported)
        }
        QueueCommand::Export(args) => print(open()?.ask(ExportEntries { queue: args.queue })?),
        QueueCommand::Pause { queue } => {
            let queue = queue.ok_or_else(|| missing("queue"))?;
            print(open()?.ask(PauseQueue { queue })?)
        }
        QueueCommand::Resume { queue } => {
            let queue = queue.ok_or_else(|| missing("queue"))?;
            print(open()?.ask(ResumeQueue { queue })?)
        }
    }
}

/// `rota sched`
pub fn sched(common: &Common, args: SchedArgs) -> CliResult<ExitCode> {
    let verbs = "command (plan, lease, renew, complete, release, reclaim, reset, policy)";
    let command = args.command.ok_or_else(|| missing(verbs))?;
    let open = || locate::desk(common);
    let lease = |lease: Option<String>| lease.ok_or_else(|| missing("lease ID"));
    match command {
        SchedCommand::Plan(args) => {
            let limit = args.limit.as_deref().map(|text| number("limit", text)).transpose()?;
            print(open()?.ask(PlanLeases { queue: args.queue.queue, limit })?)
        }
        SchedCommand::Lease(args) => {
            let limit = args.limit.as_deref().map(|text| number("limit", text)).transpose()?;
            print(open()?.ask(GrantLeases { queue: args.queue.queue, limit })?)
        }
        SchedCommand::Renew(args) => {
            let lease = lease(args.lease)?;
            print(open()?.ask(RenewLease { lease })?)
        }
        SchedCommand::Complete(args) => {
            let lease = lease(args.lease)?;
            print(open()?.ask(CompleteLease { lease })?)
        }
        SchedCommand::Release(args) => {
            let lease = lease(args.lease.lease)?;
            print(open()?.ask(ReleaseLease { lease, failed: args.failed, reason: args.reason })?)
        }
        SchedCommand::Reclaim(args) => print(open()?.ask(ReclaimLeases { queue: args.queue })?),
        SchedCommand::Reset { id } => {
            let id = id.ok_or_else(|| missing("entry ID"))?;
            print(open()?.ask(ResetEntry { id })?)
        }
        SchedCommand::Policy(args) => match args.command {
            None => print(open()?.ask(ShowRules { queue: "runs".to_owned() })?),
            Some(SchedPolicyCommand::Show(args)) => print(open()?.ask(ShowRules { queue: args.queue })?),
            Some(SchedPolicyCommand::Set(args)) => {
                let rules = rules(args)?;
                let desk = open()?;
                let shown = desk.ask(rules)?;
                mirror_to_file(common, &desk)?;
                print(shown)
            }
        },
    }
}

/// The rules that the flags name, each a number of any size.
fn rules(args: SchedPolicySetArgs) -> CliResult<SetRules> {
    let given = [
        args.max_concurrent,
        args.max_attempts,
        args.lease_ttl_ms,
        args.backoff_base_ms,
        args.backoff_factor,
        args.backoff_cap_ms,
    ];
    sched::flat(sched::RULES.into_iter().zip(given.clone())).map_err(CliError::reading)?;
    let number = |text: Option<String>| text.and_then(|text| Json::parse(&text).ok());
    let [max_concurrent, max_attempts, lease_ttl_ms, backoff_base_ms, backoff_factor, backoff_cap_ms] =
        given.map(number);
    Ok(SetRules {
        queue: args.queue.queue,
        max_concurrent,
        max_attempts,
        lease_ttl_ms,
        backoff_base_ms,
        backoff_factor,
        backoff_cap_ms,
    })
}

/// `rota policy`
pub fn policy(common: &Common, args: PolicyArgs) -> CliResult<ExitCode> {
    let command =
        args.command.ok_or_else(|| missing("command (show, apply, diff, check, history, schema)"))?;
    let open = || locate::desk(common);
    match command {
        PolicyCommand::Show => print(open()?.ask(ShowPolicy {})?),
        PolicyCommand::Check(args) => print(policy::check(&document(args.file)?)?),
        PolicyCommand::Diff(args) => {
            let document = document(args.file)?;
            print(open()?.ask(DiffPolicy { document })?)
        }
        PolicyCommand::Apply(args) => {
            let document = document(args.file.file)?;
            let unnamed = match (args.merge, args.replace) {
                (true, _) => policy::Unnamed::Merge,
                (_, true) => policy::Unnamed::Replace,
                _ => policy::Unnamed::Refuse,
            };
            let desk = open()?;
            let applied = desk.ask(ApplyPolicy { document, unnamed })?;
            mirror_to_file(common, &desk)?;
            print(applied)
        }
        PolicyCommand::History => print(open()?.ask(ListPolicies {})?),
        PolicyCommand::Schema => output::emit(common.json, policy::schema(), |schema| {
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
fn mirror_to_file(common: &Common, desk: &Desk) -> CliResult<()> {
    let path = locate::policy_file(common)?;
    let ask = || desk.ask(ShowPolicy {}).map(|shown| (shown.version, shown.policy));
    match mirror::write_asking(&path, ask) {
        Ok(()) => Ok(()),
        Err(error) => output::warn(&format!("published, but not mirrored: {}", error.in_words())),
    }
}
