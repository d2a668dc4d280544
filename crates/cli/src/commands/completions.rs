//! `rota completions SHELL`

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::errors::{CliError, CliResult};
use crate::output;

pub fn run(shell: &str) -> CliResult<ExitCode> {
    let shell = match shell {
        "bash" => Shell::Bash,
        "elvish" => Shell::Elvish,
        "fish" => Shell::Fish,
        "powershell" => Shell::PowerShell,
        "zsh" => Shell::Zsh,
        other => {
            let shown = rota_core::text::escaped(other);
            let message = format!("unknown shell '{shown}' (known: bash, elvish, fish, powershell, zsh)");
            return Err(CliError::value(message).with_usage_of(&["completions"]));
        }
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rota", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
