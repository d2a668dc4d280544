//! `rota task delete <id>`, `--status csv`, `--all --confirm`

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::list::statuses;
use rota_verbs::table::{DeleteTask, DeleteTasks};

use super::Run;
use crate::args::DeleteArgs;
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn run(run: &Run<'_>, args: DeleteArgs) -> CliResult<ExitCode> {
    let filtered = args.status.is_some() || args.all || args.spec.is_some() || args.category.is_some();
    if let Some(id) = args.id.id {
        if filtered || args.confirm {
            return Err(CliError::value("a task ID and filters are mutually exclusive"));
        }
        let deleted = run.ask(DeleteTask { id })?;
        return output::emit(run.json(), deleted, |task| format!("deleted {}\n", escaped(task.id.as_str())));
    }
    if args.all && args.status.is_some() {
        return Err(CliError::value("--all and --status are mutually exclusive"));
    }
    if args.all && !args.confirm {
        return Err(CliError::value("--all requires --confirm flag"));
    }
    if !args.all && args.status.is_none() {
        let message =
            if filtered { "--spec and --category need --status or --all" } else { "missing task ID" };
        return Err(CliError::value(message));
    }
    args.status.as_deref().map(statuses).transpose()?;
    let DeleteArgs { queue, status, all, spec, category, .. } = args;
    let deleted = run.ask(DeleteTasks { queue: queue.queue, status, all, spec, category })?;
    output::emit(run.json(), deleted, |count| format!("deleted {} tasks\n", count.deleted))
}
