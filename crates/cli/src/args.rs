//! The command line, as one definition: parsing, help and completions come from it. The flags of a verb are the fields of
//! its input type in `rota-verbs`, and its help is their doc comments; here is only what the command line adds.
#![allow(rustdoc::invalid_html_tags, reason = "the comments are the help text")]

use clap::{Args, Parser, Subcommand};
use rota_store::Secret;
use rota_verbs::agent::{DeregisterAgent, ListAgents};
use rota_verbs::attempts::ShowAttempts;
use rota_verbs::block::{BlockTask, UnblockTask};
use rota_verbs::claim::ClaimTask;
use rota_verbs::create::CreateTask;
use rota_verbs::delete::DeleteTasks;
use rota_verbs::deps::ShowDeps;
use rota_verbs::input::Id;
use rota_verbs::list::ListTasks;
use rota_verbs::log::ReadJournal;
use rota_verbs::peek::PeekTasks;
use rota_verbs::plan_status::CountTasks;
use rota_verbs::plan_sync::SyncPlan;
use rota_verbs::prune::PruneStore;
use rota_verbs::renew::RenewTask;
use rota_verbs::settle::{FailTask, FinishTask, ParkTask, ReleaseTask};
use rota_verbs::show::ShowTask;
use rota_verbs::step::{PauseTask, ResetTask, ResumeTask, UndeleteTask};
use rota_verbs::update::UpdateTask;
use rota_verbs::why::ExplainTask;

use crate::args_control::{ImportArgs, PolicyArgs, QueueArgs, SchedArgs};
use crate::args_loops::{DebugArgs, LoopArgs};

/// Whose turn is it, why (not) this one, may it call the model now.
#[derive(Parser)]
#[command(name = "rota", version, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 nothing eligible or not found, 75 may pass by itself."
)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What every command takes.
#[derive(Args, Clone, Default)]
pub struct Common {
    /// Where tasks are kept: sqlite:PATH, postgres://… or the http://… of a rota serve [env: ROTA_STORE] [default: <git root>/.rota/rota.db]
    #[arg(long, global = true, value_name = "STORE", help_heading = "Common options")]
    pub store: Option<Secret>,
    /// Namespace of tasks, queues and policy [env: ROTA_SCOPE] [default: default]
    #[arg(long, global = true, value_name = "SCOPE", help_heading = "Common options")]
    pub scope: Option<String>,
    /// Who asks [env: ROTA_AGENT]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        help_heading = "Common options",
        allow_hyphen_values = true
    )]
    pub agent: Option<String>,
    /// The lease this call speaks for [env: ROTA_LEASE]
    #[arg(
        long,
        global = true,
        value_name = "LEASE",
        help_heading = "Common options",
        allow_hyphen_values = true
    )]
    pub lease_id: Option<String>,
    /// Decide as if it were this time (RFC 3339)
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        help_heading = "Common options",
        allow_hyphen_values = true
    )]
    pub now: Option<String>,
    /// The configuration file [env: ROTA_CONFIG] [default: <git root>/rota.yml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    pub config: Option<String>,
    /// Where the copy of the policy is written [env: ROTA_POLICY] [default: rota.policy.json beside rota.yml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    pub policy: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = "Common options")]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "made once per process")]
pub enum Command {
    /// Plan, claim and settle tasks
    Task(TaskArgs),
    /// Add, list and drain the entries of a queue of runs
    Queue(QueueArgs),
    /// Plan, grant and settle leases by policy
    Sched(SchedArgs),
    /// Run the daemon: it picks loops, runs their agents, validates, iterates, spawns the children
    Up(crate::args_run::UpArgs),
    /// Show what the daemon of this workspace is doing
    Status,
    /// Stop the daemon of this workspace
    Down(crate::args_run::DownArgs),
    /// Let the daemon of this workspace read its configuration again
    Reload,
    /// Run a command for each task: claim, keep the lease, settle by exit code, go on
    Work(crate::args_run::WorkArgs),
    /// Show, check and publish the policy
    Policy(PolicyArgs),
    /// Add loops, look at their trees, start over, give up, move
    Loop(LoopArgs),
    /// Look inside
    Debug(DebugArgs),
    /// Add, list, show and close issues of the local tracker
    Issue(crate::args_supervise::IssueArgs),
    /// Take issues from a tracker in governed cycles
    Supervise(crate::args_supervise::SuperviseArgs),
    Why(ExplainTask),
    /// Serve the verbs as MCP tools, for agents that speak it
    ///
    /// On standard input and output, for an agent that starts the server itself; with --http for any number of
    /// clients, at /mcp, for those who show the token of .rota/token. Ends when the client leaves, or at TERM or INT.
    ///
    /// Example: claude mcp add rota -- rota mcp
    Mcp(crate::args_serve::McpArgs),
    /// Serve the verbs over HTTP, for other programs and for rota on other hosts
    ///
    /// Every verb is at /api/v1, for those who show the token of .rota/token; the JSON is that of --json. With
    /// ROTA_STORE=http://ADDRESS:PORT and ROTA_TOKEN, rota asks such a server instead of a store. Ends at TERM or INT.
    ///
    /// Example: rota serve --listen 127.0.0.1:8788
    Serve(crate::args_serve::ServeArgs),
    /// Run the gateway: agents share one key, one budget and one back-off by a base URL
    Gateway(crate::args_gate::GatewayArgs),
    /// Look at the gate, hold a slot of it, see what was used, let agents in
    Gate(crate::args_gate::GateArgs),
    /// Watch the fleet: what runs, what waits and why, the budget, the trees, the journal; and act
    ///
    /// Works on the store or on a rota serve. Keys are on the screen; ? shows all of them.
    Top,
    Log(LogArgs),
    Doctor(crate::args_control::DoctorArgs),
    /// Write everything the store remembers as lines of JSON
    ///
    /// The whole store, or the scope that --scope names.
    ///
    /// Example: rota export rota.jsonl
    Export(ExportArgs),
    /// Take in an export, or what others have written: all of it, or nothing
    ///
    /// An export of Rota: the scopes it has must be empty in the store. Ralph's tasks.db, Beads' JSONL export, Task
    /// Master's tasks.json: their tasks come into the scope and queue that are named.
    ///
    /// Example: rota import .beads/issues.jsonl --dry-run
    Import(ImportArgs),
    /// Copy the store to a file while others go on
    ///
    /// SQLite: a database that is one snapshot. PostgreSQL: an export of one snapshot, for `rota import`.
    ///
    /// Example: rota backup rota-backup.db
    Backup(FileArg),
    Prune(PruneStore),
    /// Bring the store's schema up to date
    ///
    /// For a role that may, where the role of the agents may not. Exit 1 when --status finds something pending.
    ///
    /// Example: rota migrate --store postgres://owner@db.example/rota --grant-to agents
    Migrate(MigrateArgs),
    /// Create a commented rota.yml with the defaults
    ///
    /// In the git root, or where --config says, with rota.schema.json beside it, by which editors check it. A rota.yml
    /// that exists is left alone.
    ///
    /// Example: rota init
    Init(InitArgs),
    /// Teach an agent to use Rota: instructions, MCP server, hooks
    ///
    /// In the current project: for claude CLAUDE.md, .mcp.json and .claude/settings.json; for codex AGENTS.md,
    /// .codex/config.toml and .codex/hooks.json; for agents-md AGENTS.md. Run it again after an update of Rota.
    ///
    /// Example: rota setup claude
    Setup(crate::args_setup::SetupArgs),
    /// Print what an agent should know: who it is, what it holds, what is next, the rules
    ///
    /// At most 2 KB. rota.prime.md beside rota.yml replaces the rules. Prints nothing outside of a workspace or when the
    /// store is out of reach; exit 0 either way.
    ///
    /// Example: rota prime
    Prime,
    /// Run by the hooks that rota setup writes; reads the event on standard input
    ///
    /// Example: echo '{"session_id":"1"}' | rota hook claude session-end
    #[command(hide = true)]
    Hook(crate::args_setup::HookArgs),
    /// Describe the configuration file
    ///
    /// Example: rota config schema > rota.schema.json
    Config(ConfigArgs),
    /// Print a completion script for a shell
    ///
    /// Example: rota completions bash > /etc/bash_completion.d/rota
    Completions {
        /// bash, elvish, fish, powershell or zsh
        #[arg(value_name = "shell")]
        shell: String,
    },
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Print the JSON Schema of rota.yml, for editors
    ///
    /// With --json it is inside of a payload; without, it is the schema alone. Write it again after an update of Rota.
    ///
    /// Example: rota config schema > rota.schema.json
    Schema,
}

#[derive(Args, Debug)]
pub struct InitArgs {
    /// Make .rota readable by its group (mode 0750, files 0640); by default only its owner can enter it
    #[arg(long)]
    pub group: bool,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The file [default: standard output]
    #[arg(value_name = "file")]
    pub file: Option<String>,
}

#[derive(Args, Debug)]
pub struct FileArg {
    /// The file
    #[arg(value_name = "file")]
    pub file: String,
}

#[derive(Args, Debug)]
pub struct MigrateArgs {
    /// Say where the schema stands, change nothing
    #[arg(long)]
    pub status: bool,
    /// On PostgreSQL, let this role use the schema
    #[arg(long, value_name = "ROLE")]
    pub grant_to: Option<String>,
}

#[derive(Args, Debug)]
pub struct LogArgs {
    #[command(flatten)]
    pub input: ReadJournal,
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Args, Debug)]
#[command(override_usage = "rota task <command> [options]", disable_help_subcommand = true)]
#[command(
    help_template = "Usage: {usage}\n\n{about-with-newline}\nCommands:\n{subcommands}{after-help}\n\nOptions:\n{options}\n"
)]
#[command(after_help = "  agent register    Register this process as an agent and print its id\n  \
    agent list        List running agents\n  \
    agent deregister  Say that an agent stopped\n\n\
    Database: <git root>/.rota/rota.db (no repository: ./.rota/rota.db), or --store / ROTA_STORE")]
pub struct TaskArgs {
    #[command(subcommand)]
    pub command: Option<TaskCommand>,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "made once per process")]
pub enum TaskCommand {
    Create(CreateTask),
    Peek(PeekTasks),
    Claim(ClaimTask),
    Renew(RenewTask),
    Done(FinishTask),
    Fail(FailTask),
    Release(ReleaseTask),
    Park(ParkTask),
    Reset(ResetTask),
    Pause(PauseTask),
    Resume(ResumeTask),
    Undelete(UndeleteTask),
    Block(BlockTask),
    Unblock(UnblockTask),
    PlanSync(SyncPlan),
    PlanStatus(CountTasks),
    List(ListArgs),
    Show(ShowTask),
    Deps(ShowDeps),
    Attempts(ShowAttempts),
    Update(UpdateTask),
    /// Delete one task, or many
    ///
    /// Example: rota task delete --status parked --category docs
    Delete(DeleteArgs),
    /// Register, list and deregister agents
    ///
    /// Example: export ROTA_AGENT=$(rota task agent register)
    #[command(hide = true)]
    Agent(AgentArgs),
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    pub input: ListTasks,
    /// As markdown instead of a table
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// The task
    #[arg(value_name = "id")]
    pub id: Option<Id>,
    #[command(flatten)]
    pub input: DeleteTasks,
    /// Yes, all
    #[arg(long)]
    pub confirm: bool,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct AgentArgs {
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
}

#[derive(Subcommand, Debug)]
pub enum AgentCommand {
    /// Register the calling process as an agent and print its id
    Register,
    List(ListAgents),
    Deregister(DeregisterAgent),
}
