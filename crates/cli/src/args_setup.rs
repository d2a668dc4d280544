//! What agents are set up with: `rota setup`, and `rota hook`, which their hooks run.

use clap::Args;

#[derive(Args, Debug)]
pub struct SetupArgs {
    /// claude, codex or agents-md (Cursor, Gemini CLI, opencode and others read AGENTS.md)
    #[arg(value_name = "agent")]
    pub client: Option<String>,
    /// Compare the files with what setup would write: exit 0 current, 2 missing, 3 stale
    #[arg(long, group = "mode")]
    pub check: bool,
    /// Take out what setup wrote; every file is as it was before
    #[arg(long, group = "mode")]
    pub remove: bool,
    /// Print what setup would write, change nothing
    #[arg(long, group = "mode")]
    pub print: bool,
    /// Add a Stop hook that reminds the agent while it holds a lease
    #[arg(long)]
    pub remind: bool,
}

#[derive(Args, Debug)]
pub struct HookArgs {
    /// claude or codex
    #[arg(value_name = "agent")]
    pub client: String,
    /// session-start, session-end, stop or stop-failure
    #[arg(value_name = "event")]
    pub event: String,
}
