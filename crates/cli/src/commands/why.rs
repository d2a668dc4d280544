//! `rota why ID`

use std::process::ExitCode;

use rota_verbs::table::ExplainTask;

use crate::args::{Common, IdArg};
use crate::errors::CliResult;
use crate::{locate, output};

pub fn run(common: &Common, args: IdArg) -> CliResult<ExitCode> {
    let explanation = locate::desk(common)?.ask(ExplainTask { id: args.id })?;
    output::emit(common.json, explanation, output::why::text)
}
