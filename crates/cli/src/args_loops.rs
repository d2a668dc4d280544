//! The command line of loops: `rota loop`, `rota debug`.

use clap::{Args, Subcommand};

use crate::args::{IdArg, OptionalIdArg};

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct LoopArgs {
    #[command(subcommand)]
    pub command: Option<LoopCommand>,
}

#[derive(Subcommand, Debug)]
pub enum LoopCommand {
    /// Add a loop
    ///
    /// An agent that adds one below its own loop needs nothing but --parent: its lease (ROTA_LEASE) says which iteration
    /// it comes from. Prints the id.
    ///
    /// Example: rota loop add --kind plan --prompt @idea.md
    Add(LoopAddArgs),
    /// List loops in the order they would run
    ///
    /// Example: rota loop list --status pending,running --kind ralph
    List(LoopListArgs),
    /// Show loops below their parents
    ///
    /// Example: rota loop tree plan-1
    Tree(OptionalIdArg),
    /// Show one loop with its children and iterations
    ///
    /// Example: rota loop show plan-1
    Show(IdArg),
    /// Start a finished or parked loop over; what is unfinished below it is invalidated
    ///
    /// Example: rota loop reiterate plan-1 --reason "the API has changed"
    Reiterate(LoopReiterateArgs),
    /// Give up a loop and all below it that has not finished
    ///
    /// Example: rota loop cancel plan-1
    Cancel(IdArg),
    /// Hold a loop back; a lease on it ends
    ///
    /// Example: rota loop pause ralph-7
    Pause(IdArg),
    /// Let a paused loop go on
    ///
    /// Example: rota loop resume ralph-7
    Resume(IdArg),
    /// Hand the whole tree of a loop to a host that has its folders
    ///
    /// Refused while something of the tree runs. Example: rota loop move plan-1 --host build-2
    Move(LoopMoveArgs),
    /// Print what an iteration's agent and validation printed
    ///
    /// Example: rota loop logs ralph-7 -f
    Logs(LoopLogsArgs),
    /// Show the settings of a loop, and where each comes from
    ///
    /// Example: rota loop config ralph-7
    Config(IdArg),
}

#[derive(Args, Debug)]
pub struct LoopAddArgs {
    /// Its kind: plan, spec, phase, ralph, or another that rota.yml says how to run
    #[arg(long, value_name = "K")]
    pub kind: String,
    /// Its id [default: made up]
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// One line [default: the prompt's first]
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub title: Option<String>,
    /// The loop that must be complete first
    #[arg(long, value_name = "ID")]
    pub parent: Option<String>,
    /// A file that must be there first, in the parent's folder (without a parent: in the workspace)
    #[arg(long, value_name = "PATH")]
    pub triggered_by: Option<String>,
    /// critical, high, normal, low or a number, lower first [default: none]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// What the agent is told, or @FILE that says it (@- for standard input); kept as the description
    #[arg(long, value_name = "TEXT|@FILE", allow_hyphen_values = true)]
    pub prompt: Option<String>,
}

#[derive(Args, Debug)]
pub struct LoopListArgs {
    /// Only these states, comma-separated
    #[arg(long, value_name = "csv")]
    pub status: Option<String>,
    /// Only these kinds, comma-separated
    #[arg(long, value_name = "csv")]
    pub kind: Option<String>,
}

#[derive(Args, Debug)]
pub struct LoopReiterateArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// Why, for the journal
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
}

#[derive(Args, Debug)]
pub struct LoopMoveArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// Where to [default: this host]
    #[arg(long, value_name = "H")]
    pub host: Option<String>,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct DebugArgs {
    #[command(subcommand)]
    pub command: Option<DebugCommand>,
}

#[derive(Subcommand, Debug)]
pub enum DebugCommand {
    /// List pending loops with their scores and what stands in their way
    ///
    /// Highest score first; PRIORITY is the score.
    ///
    /// Example: rota debug scheduler
    Scheduler,
}

#[derive(Args, Debug)]
pub struct LoopLogsArgs {
    #[command(flatten)]
    pub id: IdArg,
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
