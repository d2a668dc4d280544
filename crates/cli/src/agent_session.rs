//! The agent name of a session of Claude Code or Codex: one for its hooks, its MCP server and the commands that it runs.
//!
//! Claude Code gives its session id to all three, Codex to its shell and, on standard input, to its hooks. A name that is
//! given (`--agent`, `ROTA_AGENT`) goes first: `rota work` and `rota up` name their agents themselves.

use crate::args::{Cli, Command};
use crate::locate::variable;

/// An agent, and the variable that has the id of its session.
const SESSIONS: [(&str, &str); 2] = [("claude", "CLAUDE_CODE_SESSION_ID"), ("codex", "CODEX_SESSION_ID")];

/// Names the agent of this call after its session, for commands that an agent runs for itself. `rota up`, `rota work` and
/// servers outlive the session: its end must not release what they hold.
pub fn name_agent(cli: &mut Cli) {
    let is_agents = match &cli.command {
        Some(Command::Task(_) | Command::Why(_) | Command::Prime) => true,
        Some(Command::Mcp(args)) => !args.http,
        _ => false,
    };
    // A name that cannot be read is refused where it is used.
    if is_agents && cli.common.agent.is_none() && matches!(variable("ROTA_AGENT"), Ok(None)) {
        let named = |(client, name): (&str, &str)| {
            let session = variable(name).ok().flatten().filter(|session| is_plain(session));
            session.map(|session| agent_name(client, &session))
        };
        cli.common.agent = SESSIONS.into_iter().find_map(named);
    }
}

/// The agent name of a session.
pub fn agent_name(client: &str, session: &str) -> String {
    format!("{client}-{session}")
}

/// Whether an id is one, and not text that somebody put in its place.
pub fn is_plain(session: &str) -> bool {
    let is_id = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    (1..=64).contains(&session.len()) && session.chars().all(is_id)
}
