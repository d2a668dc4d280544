//! `rota config`

use std::process::ExitCode;

use rota_core::Json;
use rota_daemon::config::Config;
use serde::Serialize;

use crate::args::{Common, ConfigArgs, ConfigCommand};
use crate::errors::CliResult;
use crate::output;

#[derive(Serialize)]
struct ConfigSchema {
    schema: Json,
}

pub fn run(common: &Common, args: &ConfigArgs) -> CliResult<ExitCode> {
    match args.command {
        ConfigCommand::Schema => {
            output::emit(common.json, ConfigSchema { schema: Json::of(&Config::schema()) }, |it| {
                text(&it.schema)
            })
        }
    }
}

/// The schema as a file of its own.
pub fn text(schema: &Json) -> String {
    rota_verbs::indented::indented_json(schema)
}
