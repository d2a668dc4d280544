//! `rota init`

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use rota_core::Json;
use rota_core::text::escaped;
use rota_daemon::config::{Config, template};
use serde::Serialize;

use super::config;
use crate::args::{Common, InitArgs};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// Where the template tells editors to look, beside the configuration.
const SCHEMA_FILE: &str = "rota.schema.json";

#[derive(Serialize)]
struct Written {
    file: String,
    schema: String,
}

/// Creates the configuration, or leaves an existing one alone. The schema is replaced: it follows from the version.
pub fn run(common: &Common, args: &InitArgs) -> CliResult<ExitCode> {
    if args.group {
        locate::make_group_folder()?;
    }
    let file = locate::config_file(common)?;
    let schema = file.with_file_name(SCHEMA_FILE);
    let failed = |file: &Path, error: &std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => ", and is left alone",
            _ => "",
        };
        CliError::Io(format!("{}: {error}{hint}", file.display()))
    };
    let write = |file: &Path, options: &std::fs::OpenOptions, text: &str| {
        let mut opened = options.open(file).map_err(|error| failed(file, &error))?;
        opened
            .write_all(text.as_bytes())
            .and_then(|()| opened.sync_all())
            .map_err(|error| failed(file, &error))
    };
    write(&file, File::options().write(true).create_new(true), &template())?;
    let schema_text = config::text(&Json::of(&Config::schema()));
    write(&schema, File::options().write(true).create(true).truncate(true), &schema_text)?;
    let written = Written { file: file.display().to_string(), schema: schema.display().to_string() };
    output::emit(common.json, written, |written| {
        format!("wrote {}\nwrote {}\n", escaped(&written.file), escaped(&written.schema))
    })
}
