//! `rota task update <id>`

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::list::status as read_status;
use rota_verbs::table::UpdateTask;

use super::{Run, steps};
use crate::args_update::UpdateArgs;
use crate::commands::number;
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn run(run: &Run<'_>, args: UpdateArgs) -> CliResult<ExitCode> {
    let id = args.id.id;
    let input = UpdateTask {
        id,
        title: args.title,
        priority: args.priority.as_deref().map(|text| number("-p (priority)", text)).transpose()?,
        description: args.description,
        steps: args.steps.as_deref().map(|text| steps("-s", text)).transpose()?,
        status: args.status,
        force: args.force,
    };
    input.status.as_deref().map(read_status).transpose()?;
    let UpdateTask { title, priority, description, steps, status, .. } = &input;
    if title.is_none() && priority.is_none() && description.is_none() && steps.is_none() && status.is_none() {
        return Err(CliError::value("no fields to update"));
    }
    let updated = run.ask(input)?;
    output::emit(run.json(), updated, |task| format!("updated {}\n", escaped(task.id.as_str())))
}
