//! The plan: `block`, `unblock`, `plan-sync`, `plan-status`.

use std::io::Read;
use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::block as edges;
use rota_verbs::plan_status::{PlanStatus, plan_status};
use rota_verbs::plan_sync::{PlanSync, plan_sync};

use super::Run;
use crate::args::{EdgeArgs, PlanStatusArgs, PlanSyncArgs};
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn block(run: &Run<'_>, args: EdgeArgs) -> CliResult<ExitCode> {
    let cx = run.context()?;
    let edge = rota_store::block_on(edges::block(&cx, &args.id.id, &args.by))?;
    output::emit(run.json(), edge, |edge| said("blocked", edge, "by"))
}

pub fn unblock(run: &Run<'_>, args: EdgeArgs) -> CliResult<ExitCode> {
    let cx = run.context()?;
    let edge = rota_store::block_on(edges::unblock(&cx, &args.id.id, &args.by))?;
    output::emit(run.json(), edge, |edge| said("unblocked", edge, "from"))
}

fn said(verb: &str, edge: &edges::Edge, preposition: &str) -> String {
    format!("{verb} {} {preposition} {}\n", escaped(edge.id.as_str()), escaped(edge.by.as_str()))
}

pub fn sync(run: &Run<'_>, args: PlanSyncArgs) -> CliResult<ExitCode> {
    let mut input = Vec::new();
    std::io::stdin()
        .read_to_end(&mut input)
        .map_err(|error| CliError::Io(format!("standard input: {error}")))?;
    let plan = PlanSync { input, queue: args.queue.queue, specs: args.specs.given(), dry_run: args.dry_run };
    let cx = run.context()?;
    let synced = rota_store::block_on(plan_sync(&cx, plan))?;
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
    let cx = run.context()?;
    let status = rota_store::block_on(plan_status(&cx, args.queue.queue, args.specs.given().as_deref()))?;
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
