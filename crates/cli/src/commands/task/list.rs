//! Looking: `peek`, `list`, `show`, `deps`, `attempts`.

use std::process::ExitCode;

use rota_verbs::list::statuses;
use rota_verbs::table::{ListTasks, PeekTasks, ShowAttempts, ShowDeps, ShowTask};

use super::Run;
use crate::args::{IdArg, ListArgs, PeekArgs, ShowArgs};
use crate::commands::number;
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn peek(run: &Run<'_>, args: PeekArgs) -> CliResult<ExitCode> {
    let limit = number("-n", &args.limit)?;
    let seen = run.ask(PeekTasks { queue: args.queue.queue, limit, specs: args.specs.given() })?;
    output::emit(run.json(), seen, |list| output::markdown::tasks(&list.tasks))
}

pub fn list(run: &Run<'_>, args: ListArgs) -> CliResult<ExitCode> {
    if args.all && args.status.is_some() {
        return Err(CliError::value("--all and --status are mutually exclusive"));
    }
    args.status.as_deref().map(statuses).transpose()?;
    let ListArgs { queue, status, all, assignee, .. } = args;
    let tasks = run.ask(ListTasks { queue: queue.queue, status, all, assignee })?;
    output::emit(run.json(), tasks, |list| {
        if args.markdown { output::markdown::tasks(&list.tasks) } else { output::table::tasks(&list.tasks) }
    })
}

pub fn show(run: &Run<'_>, args: ShowArgs) -> CliResult<ExitCode> {
    let shown = run.ask(ShowTask { id: args.id.id, with_deps: args.with_deps })?;
    output::emit(run.json(), shown, output::show::text)
}

pub fn deps(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let deps = run.ask(ShowDeps { id: args.id })?;
    output::emit(run.json(), deps, output::show::deps)
}

pub fn attempts(run: &Run<'_>, args: IdArg) -> CliResult<ExitCode> {
    let attempts = run.ask(ShowAttempts { id: args.id })?;
    output::emit(run.json(), attempts, output::table::attempts)
}
