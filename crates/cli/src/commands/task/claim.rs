//! `rota task claim [<id>]`

use std::process::ExitCode;

use rota_core::Refusal;
use rota_verbs::claim::{Claim, claim};

use super::Run;
use crate::args::ClaimArgs;
use crate::commands::number;
use crate::errors::CliResult;
use crate::output;

pub fn run(run: &Run<'_>, args: ClaimArgs) -> CliResult<ExitCode> {
    let input = Claim {
        id: args.id.id,
        queue: args.queue.queue,
        lease_secs: args.lease.as_deref().map(|text| number("--lease", text)).transpose()?,
        category: args.category,
        specs: args.specs.given(),
    };
    let cx = run.context()?;
    let claimed = rota_store::block_on(claim(&cx, input))?.ok_or(Refusal::NothingEligible)?;
    output::emit(run.json(), claimed, output::markdown::claimed)
}
