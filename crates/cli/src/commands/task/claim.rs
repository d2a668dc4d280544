//! `rota task claim [<id>]`

use std::process::ExitCode;

use rota_verbs::table::ClaimTask;

use super::Run;
use crate::args::ClaimArgs;
use crate::commands::number;
use crate::errors::CliResult;
use crate::output;

pub fn run(run: &Run<'_>, args: ClaimArgs) -> CliResult<ExitCode> {
    let input = ClaimTask {
        id: args.id.id,
        queue: args.queue.queue,
        lease: args.lease.as_deref().map(|text| number("--lease", text)).transpose()?,
        category: args.category,
        specs: args.specs.given(),
    };
    let claimed = run.ask(input)?;
    output::emit(run.json(), claimed, output::markdown::claimed)
}
