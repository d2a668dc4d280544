//! `rota why ID`

use std::process::ExitCode;

use crate::args::{Common, IdArg};
use crate::errors::CliResult;
use crate::{locate, output};

pub fn run(common: &Common, args: IdArg) -> CliResult<ExitCode> {
    let cx = locate::context(common)?;
    let explanation = rota_store::block_on(rota_verbs::why::why(&cx, &args.id))?;
    output::emit(common.json, explanation, output::why::text)
}
