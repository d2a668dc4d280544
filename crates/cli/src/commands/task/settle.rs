//! Verbs that move one task: `renew`, `done`, `fail`, `release`, `park`, `reset`, `pause`, `resume`, `undelete`.

use std::process::ExitCode;

use rota_core::Refusal;
use rota_core::text::escaped;
use rota_verbs::table::{
    FailTask, FinishTask, ParkTask, PauseTask, ReleaseTask, RenewTask, ResetTask, ResumeTask, UndeleteTask,
};
use rota_verbs::{TaskPayload, Verb, settle};

use super::Run;
use crate::args::IdArg;
use crate::args_settle::{DoneArgs, FailArgs, ParkArgs, RenewArgs};
use crate::commands::number;
use crate::errors::{CliError, CliResult};
use crate::output;

fn moved<V: Verb<Payload = TaskPayload>>(run: &Run<'_>, word: &str, input: V) -> CliResult<ExitCode> {
    output::emit(run.json(), run.ask(input)?, |task| format!("{word} {}\n", escaped(task.id.as_str())))
}

pub fn renew(run: &Run<'_>, args: RenewArgs) -> CliResult<ExitCode> {
    let lease = args.lease.as_deref().map(|text| number("--lease", text)).transpose()?;
    moved(run, "renewed", RenewTask { id: args.id.id, lease })
}

pub fn done(run: &Run<'_>, args: DoneArgs) -> CliResult<ExitCode> {
    let result = args.result.as_deref().map(settle::object).transpose()?;
    let input = FinishTask {
        id: args.id.id,
        result,
        next: args.next,
        lease: args.lease.as_deref().map(|text| number("--lease", text)).transpose()?,
        category: args.category,
        specs: args.specs,
        queue: args.queue,
    };
    let finished = run.ask(input)?;
    let has_nothing_next = args.next && finished.next.is_none();
    let code = output::emit(run.json(), finished, |finished| {
        let next = finished.next.as_ref().map(output::markdown::claimed).unwrap_or_default();
        format!("done {}\n{next}", escaped(finished.task.id.as_str()))
    })?;
    if has_nothing_next {
        output::note(&Refusal::NothingEligible.to_string())?;
    }
    Ok(code)
}

pub fn fail(run: &Run<'_>, args: FailArgs) -> CliResult<ExitCode> {
    moved(run, "failed", FailTask { id: args.id.id, reason: args.reason })
}

pub fn release(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    moved(run, "released", ReleaseTask { id: args.id })
}

pub fn park(run: &Run<'_>, args: ParkArgs) -> CliResult<ExitCode> {
    if args.reason.is_empty() {
        return Err(CliError::value("missing --reason"));
    }
    moved(run, "parked", ParkTask { id: args.id.id, reason: args.reason })
}

pub fn reset(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    moved(run, "reset", ResetTask { id: args.id })
}

pub fn pause(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    moved(run, "paused", PauseTask { id: args.id })
}

pub fn resume(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    moved(run, "resumed", ResumeTask { id: args.id })
}

pub fn undelete(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    moved(run, "undeleted", UndeleteTask { id: args.id })
}
