//! `rota task create <id> <title>`

use std::process::ExitCode;

use rota_core::UnixMillis;
use rota_core::text::escaped;
use rota_verbs::table::CreateTask;

use super::{Run, steps};
use crate::args::CreateArgs;
use crate::commands::number;
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn run(run: &Run<'_>, args: CreateArgs) -> CliResult<ExitCode> {
    let after = args.after.as_deref().map(str::parse::<UnixMillis>).transpose();
    let input = CreateTask {
        id: args.id,
        title: args.title,
        queue: args.queue.queue,
        priority: args.priority.as_deref().map(|text| number("-p (priority)", text)).transpose()?,
        category: args.category,
        description: args.description,
        steps: args.steps.as_deref().map(|text| steps("-s", text)).transpose()?.unwrap_or_default(),
        spec: args.spec,
        reference: args.reference,
        deps: args.deps.map(|list| comma_separated(&list)).unwrap_or_default(),
        after: after.map_err(|error| CliError::value(format!("--after: {error}")))?,
    };
    let created = run.ask(input)?;
    output::emit(run.json(), created, |task| format!("{}\n", escaped(task.id.as_str())))
}

fn comma_separated(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
