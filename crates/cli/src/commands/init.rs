//! `rota init`

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use rota_core::text::escaped;
use rota_daemon::config::TEMPLATE;
use serde::Serialize;

use crate::args::{Common, InitArgs};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

#[derive(Serialize)]
struct Written {
    file: String,
}

/// Writes a new file whole, or leaves an old one alone.
pub fn run(common: &Common, args: &InitArgs) -> CliResult<ExitCode> {
    if args.group {
        locate::make_group_folder()?;
    }
    let file = locate::config_file(common)?;
    let failed = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => ", and is left alone",
            _ => "",
        };
        CliError::Io(format!("{}: {error}{hint}", file.display()))
    };
    let mut opened = File::options().write(true).create_new(true).open(&file).map_err(failed)?;
    opened.write_all(TEMPLATE.as_bytes()).and_then(|()| opened.sync_all()).map_err(failed)?;
    let written = Written { file: file.display().to_string() };
    output::emit(common.json, written, |written| format!("wrote {}\n", escaped(&written.file)))
}
