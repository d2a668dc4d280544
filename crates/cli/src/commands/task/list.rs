//! Looking: `peek`, `list`, `show`, `deps`, `attempts`.

use std::process::ExitCode;

use rota_verbs::attempts as attempting;
use rota_verbs::list::{List, list as listing, statuses};
use rota_verbs::peek::{Peek, peek as peeking};
use rota_verbs::{deps as depending, show as showing};

use super::Run;
use crate::args::{IdArg, ListArgs, PeekArgs, ShowArgs};
use crate::commands::number;
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn peek(run: &Run<'_>, args: PeekArgs) -> CliResult<ExitCode> {
    let limit = number("-n", &args.limit)?;
    let cx = run.context()?;
    let input = Peek { queue: args.queue.queue, limit, specs: args.specs.given() };
    let seen = rota_store::block_on(peeking(&cx, input))?;
    output::emit(run.json(), seen, |list| output::markdown::tasks(&list.tasks))
}

pub fn list(run: &Run<'_>, args: ListArgs) -> CliResult<ExitCode> {
    if args.all && args.status.is_some() {
        return Err(CliError::value("--all and --status are mutually exclusive"));
    }
    let statuses = args.status.as_deref().map(statuses).transpose()?;
    let input = List {
        queue: args.queue.queue,
        statuses,
        all: args.all,
        assignee: args.assignee.filter(|name| !name.is_empty()),
    };
    let cx = run.context()?;
    let tasks = rota_store::block_on(listing(&cx, input))?;
    output::emit(run.json(), tasks, |list| {
        if args.markdown { output::markdown::tasks(&list.tasks) } else { output::table::tasks(&list.tasks) }
    })
}

pub fn show(run: &Run<'_>, args: ShowArgs) -> CliResult<ExitCode> {
    let id = args.id.id;
    let cx = run.context()?;
    let shown = rota_store::block_on(showing::show(&cx, &id, args.with_deps))?;
    output::emit(run.json(), shown, output::show::text)
}

pub fn deps(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    let deps = rota_store::block_on(depending::deps(&cx, &id))?;
    output::emit(run.json(), deps, output::show::deps)
}

pub fn attempts(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let id = args.id;
    let cx = run.context()?;
    let attempts = rota_store::block_on(attempting::attempts(&cx, &id))?;
    output::emit(run.json(), attempts, output::table::attempts)
}
