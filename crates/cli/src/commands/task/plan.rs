//! The plan: `block`, `unblock`, `plan-sync`, `plan-status`.

use std::io::Read;
use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::block::Edge;
use rota_verbs::plan_status::PlanStatus;
use rota_verbs::table::{BlockTask, CountTasks, SyncPlan, UnblockTask};

use super::Run;
use crate::args::{EdgeArgs, PlanStatusArgs, PlanSyncArgs};
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn block(run: &Run<'_>, args: EdgeArgs) -> CliResult<ExitCode> {
    let edge = run.ask(BlockTask { id: args.id.id, by: args.by })?;
    output::emit(run.json(), edge, |edge| said("blocked", edge, "by"))
}

pub fn unblock(run: &Run<'_>, args: EdgeArgs) -> CliResult<ExitCode> {
    let edge = run.ask(UnblockTask { id: args.id.id, by: args.by })?;
    output::emit(run.json(), edge, |edge| said("unblocked", edge, "from"))
}

fn said(verb: &str, edge: &Edge, preposition: &str) -> String {
    format!("{verb} {} {preposition} {}\n", escaped(edge.id.as_str()), escaped(edge.by.as_str()))
}

pub fn sync(run: &Run<'_>, args: PlanSyncArgs) -> CliResult<ExitCode> {
    let mut input = Vec::new();
    std::io::stdin()
        .read_to_end(&mut input)
        .map_err(|error| CliError::Io(format!("standard input: {error}")))?;
    let plan =
        String::from_utf8(input).map_err(|error| match rota_core::plan_sync::read(error.as_bytes()) {
            Err(refusal) => CliError::from(refusal),
            Ok(_) => CliError::Io("standard input is not valid UTF-8".to_owned()),
        })?;
    let (queue, specs, dry_run) = (args.queue.queue, args.specs.given(), args.dry_run);
    let synced = run.ask(SyncPlan { plan, queue, specs, dry_run })?;
    if !synced.unknown_keys.is_empty() {
        let keys: Vec<&str> = synced.unknown_keys.iter().map(String::as_str).collect();
        output::warn(&format!("unknown keys ignored: {}", keys.join(", ")))?;
    }
    output::emit(run.json(), synced, |counts| {
        format!(
            "inserted: {}, updated: {}, deleted: {}, skipped (done): {}\n",
            counts.inserted, counts.updated, counts.deleted, counts.skipped_done
        )
    })
}

pub fn status(run: &Run<'_>, args: PlanStatusArgs) -> CliResult<ExitCode> {
    let status = run.ask(CountTasks { queue: args.queue.queue, specs: args.specs.given() })?;
    output::emit(run.json(), status, status_line)
}

fn status_line(status: &PlanStatus) -> String {
    let PlanStatus { open, active, done, blocked, deleted, parked, failed, paused, invalidated } = status;
    let mut line = format!("{open} open, {active} active, {done} done, {blocked} blocked, {deleted} deleted");
    for (count, word) in
        [(parked, "parked"), (failed, "failed"), (paused, "paused"), (invalidated, "invalidated")]
    {
        if *count > 0 {
            line.push_str(&format!(", {count} {word}"));
        }
    }
    line.push('\n');
    line
}
