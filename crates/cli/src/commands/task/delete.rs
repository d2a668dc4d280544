//! `rota task delete <id>`, `--status csv`, `--all --confirm`

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::delete::{DeleteMany, delete, delete_many};
use rota_verbs::list::statuses;

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
        let cx = run.context()?;
        let deleted = rota_store::block_on(delete(&cx, &id))?;
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
    let statuses = args.status.as_deref().map(statuses).transpose()?;
    let input = DeleteMany { queue: args.queue.queue, statuses, spec: args.spec, category: args.category };
    let cx = run.context()?;
    let deleted = rota_store::block_on(delete_many(&cx, input))?;
    output::emit(run.json(), deleted, |count| format!("deleted {} tasks\n", count.deleted))
}
