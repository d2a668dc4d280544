//! The command line of loops: `rota loop`, `rota debug`.

use clap::{Args, Subcommand};
use rota_verbs::input::Id;
use rota_verbs::loops::{
    AddLoop, CancelLoop, ConfigureLoop, ListLoops, MoveLoop, PauseLoop, ReiterateLoop, ResumeLoop, ShowLoop,
    ShowScheduler, ShowTree,
};

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct LoopArgs {
    #[command(subcommand)]
    pub command: Option<LoopCommand>,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "made once per process")]
pub enum LoopCommand {
    Add(AddLoop),
    List(ListLoops),
    Tree(ShowTree),
    Show(ShowLoop),
    Reiterate(ReiterateLoop),
    Cancel(CancelLoop),
    Pause(PauseLoop),
    Resume(ResumeLoop),
    Move(MoveLoop),
    /// Print what an iteration's agent and validation printed
    ///
    /// Example: rota loop logs ralph-7 -f
    Logs(LoopLogsArgs),
    Config(ConfigureLoop),
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct DebugArgs {
    #[command(subcommand)]
    pub command: Option<DebugCommand>,
}

#[derive(Subcommand, Debug)]
pub enum DebugCommand {
    Scheduler(ShowScheduler),
}

#[derive(Args, Debug)]
pub struct LoopLogsArgs {
    /// The task
    #[arg(value_name = "id")]
    pub id: Id,
    /// Of this iteration instead of the last
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub iteration: Option<String>,
    /// Go on as it grows, until the loop runs no longer
    #[arg(short, long)]
    pub follow: bool,
    /// Write the bytes as the agent wrote them, with escape sequences
    #[arg(long)]
    pub raw: bool,
}
