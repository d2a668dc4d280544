//! Verbs that move one task: `renew`, `done`, `fail`, `release`, `park`, `reset`, `pause`, `resume`, `undelete`.

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::{Result, TaskPayload, renew as renewing, settle, step};

use super::Run;
use crate::args::{DoneArgs, FailArgs, IdArg, ParkArgs, RenewArgs};
use crate::commands::number;
use crate::errors::{CliError, CliResult};
use crate::output;

fn moved(run: &Run<'_>, word: &str, result: Result<TaskPayload>) -> CliResult<ExitCode> {
    output::emit(run.json(), result?, |task| format!("{word} {}\n", escaped(task.id.as_str())))
}

pub fn renew(run: &Run<'_>, args: RenewArgs) -> CliResult<ExitCode> {
    let id = args.id.id;
    let lease = args.lease.as_deref().map(|text| number("--lease", text)).transpose()?;
    let cx = run.context()?;
    moved(run, "renewed", rota_store::block_on(renewing::renew(&cx, &id, lease)))
}

pub fn done(run: &Run<'_>, args: DoneArgs) -> CliResult<ExitCode> {
    let id = args.id.id;
    let cx = run.context()?;
    moved(run, "done", rota_store::block_on(settle::done(&cx, &id, args.result.as_deref())))
}

pub fn fail(run: &Run<'_>, args: FailArgs) -> CliResult<ExitCode> {
    let id = args.id.id;
    let cx = run.context()?;
    moved(run, "failed", rota_store::block_on(settle::fail(&cx, &id, args.reason)))
}

pub fn release(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    moved(run, "released", rota_store::block_on(settle::release(&cx, &id)))
}

pub fn park(run: &Run<'_>, args: ParkArgs) -> CliResult<ExitCode> {
    let id = args.id.id;
    if args.reason.is_empty() {
        return Err(CliError::value("missing --reason"));
    }
    let cx = run.context()?;
    moved(run, "parked", rota_store::block_on(settle::park(&cx, &id, args.reason)))
}

pub fn reset(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    moved(run, "reset", rota_store::block_on(step::reset(&cx, &id)))
}

pub fn pause(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    moved(run, "paused", rota_store::block_on(step::pause(&cx, &id)))
}

pub fn resume(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    moved(run, "resumed", rota_store::block_on(step::resume(&cx, &id)))
}

pub fn undelete(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    moved(run, "undeleted", rota_store::block_on(step::undelete(&cx, &id)))
}
