//! `rota why ID`

use std::process::ExitCode;

use crate::args::Common;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn run(common: &Common, id: Option<String>) -> CliResult<ExitCode> {
    let id = id.ok_or_else(|| CliError::Usage {
        message: "missing task ID".into(),
        usage: Some("Usage: rota why <ID>".into()),
    })?;
    let cx = locate::context(common)?;
    let explanation = rota_store::block_on(rota_verbs::why::why(&cx, &id))?;
    output::emit(common.json, explanation, output::why::text)
}
