//! `rota task agent register|list|deregister`

use std::process::ExitCode;

use rota_core::text::escaped;
use rota_verbs::table::{DeregisterAgent, ListAgents, RegisterAgent};

use super::Run;
use crate::args::{AgentArgs, AgentCommand};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn run(run: &Run<'_>, args: AgentArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(CliError::value("missing agent subcommand")),
        Some(AgentCommand::Register) => {
            // The agent is whoever called: this process is gone in a moment.
            let pid = std::os::unix::process::parent_id();
            let registered = run.ask(RegisterAgent { pid, host: locate::host()? })?;
            output::emit(run.json(), registered, |agent| format!("{}\n", agent.id))
        }
        Some(AgentCommand::List) => {
            let agents = run.ask(ListAgents {})?;
            output::emit(run.json(), agents, output::table::agents)
        }
        Some(AgentCommand::Deregister { id }) if id.is_empty() => Err(CliError::value("missing agent ID")),
        Some(AgentCommand::Deregister { id }) => {
            let gone = run.ask(DeregisterAgent { id })?;
            output::emit(run.json(), gone, |gone| format!("deregistered {}\n", escaped(&gone.id)))
        }
    }
}
