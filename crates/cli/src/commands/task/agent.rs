//! `rota task agent register|list|deregister`

use std::process::ExitCode;

use rota_verbs::agent;

use super::Run;
use crate::args::{AgentArgs, AgentCommand};
use crate::errors::CliResult;
use crate::{locate, output};

pub fn run(run: &Run<'_>, args: AgentArgs) -> CliResult<ExitCode> {
    match args.command {
        None => Err(run.usage("missing agent subcommand")),
        Some(AgentCommand::Register) => {
            // The agent is whoever called: this process is gone in a moment.
            let pid = std::os::unix::process::parent_id();
            let cx = run.context()?;
            let registered = rota_store::block_on(agent::register(&cx, pid, &locate::host()?))?;
            output::emit(run.json(), registered, |agent| format!("{}\n", agent.id))
        }
        Some(AgentCommand::List) => {
            let cx = run.context()?;
            let agents = rota_store::block_on(agent::list(&cx))?;
            output::emit(run.json(), agents, output::table::agents)
        }
        Some(AgentCommand::Deregister { id }) => {
            let id = id.filter(|id| !id.is_empty()).ok_or_else(|| run.usage("missing agent ID"))?;
            let cx = run.context()?;
            let gone = rota_store::block_on(agent::deregister(&cx, &id))?;
            output::emit(run.json(), gone, |gone| format!("deregistered {}\n", gone.id))
        }
    }
}
