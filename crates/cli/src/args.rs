//! The command line, as one definition: parsing, help and completions come from it.
//!
//! Values are taken as text and checked by the commands, so that the messages are those of the contract.
#![allow(rustdoc::invalid_html_tags, reason = "the comments are the help text")]

use clap::{Args, Parser, Subcommand};
use rota_store::Secret;

use crate::args_control::{ImportArgs, PolicyArgs, QueueArgs, SchedArgs};
use crate::args_loops::{DebugArgs, LoopArgs};
use crate::args_settle::{DoneArgs, FailArgs, ParkArgs, RenewArgs};
use crate::args_update::UpdateArgs;

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
    /// Explain why a task runs, or not
    ///
    /// Prints every check with its verdict, the score, the position and what would free it.
    ///
    /// Example: rota why fix-login
    Why(IdArg),
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
    /// Read the journal: every change, in order
    ///
    /// Example: rota log --task fix-login -n 20
    Log(LogArgs),
    /// Look through the store, say what is wrong, repair what is derived
    ///
    /// Checks the schema, the database's own integrity, the count of blockers, what is derived from each task, edges
    /// and leases, and that the journal folds to the tables. Exit 1 when something is wrong.
    ///
    /// Example: rota doctor --fix
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
    /// Take out old finished tasks and the old part of the journal
    ///
    /// Done, failed, invalidated and deleted tasks go, unless another waits for them or is their child. Old events of
    /// tasks that stay are told by one snapshot. A task added again under a pruned id goes on from its last fence.
    ///
    /// Example: rota prune --older-than 30d --dry-run
    Prune(PruneArgs),
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
pub struct PruneArgs {
    /// What did not change for so long: 30d, 12h, 45m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub older_than: String,
    /// Say what would go, change nothing
    #[arg(long)]
    pub dry_run: bool,
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
    /// Only this task's events
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Only the newest N events
    #[arg(short = 'n', long = "limit", value_name = "N", allow_hyphen_values = true)]
    pub limit: Option<String>,
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

/// A queue other than `tasks`.
#[derive(Args, Debug, Clone, Default)]
pub struct QueueArg {
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    pub queue: String,
}

#[derive(Args, Debug, Clone, Default)]
pub struct IdArg {
    /// The task
    #[arg(value_name = "id")]
    pub id: String,
}

#[derive(Args, Debug, Clone, Default)]
pub struct OptionalIdArg {
    /// The task
    #[arg(value_name = "id")]
    pub id: Option<String>,
}

#[derive(Args, Debug, Clone, Default)]
pub struct SpecsArg {
    /// Only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    specs: Option<String>,
}

impl SpecsArg {
    /// The globs; an empty list is none given.
    pub fn given(self) -> Option<String> {
        rota_verbs::input::globs(self.specs)
    }
}

#[derive(Subcommand, Debug)]
pub enum TaskCommand {
    /// Add an open task
    ///
    /// Example: rota task create fix-login "Fix the login" -p 1 --deps setup-db
    Create(CreateArgs),
    /// Show the top claimable tasks, then all active ones; reads only
    ///
    /// Example: rota task peek -n 3
    Peek(PeekArgs),
    /// Claim the next task, or one by id
    ///
    /// Exit 2 when nothing is eligible. Example: rota task claim --agent a1 --lease 900
    Claim(ClaimArgs),
    /// Extend the lease of a task
    ///
    /// Example: rota task renew fix-login --agent a1
    Renew(RenewArgs),
    /// Settle a task as done; --next also claims the next one
    ///
    /// With --next, prints the claim after the settlement; exit 0 also when nothing is eligible. Example: rota task done
    /// fix-login --agent a1 --result '{"commit":"3f2c1a"}' --next
    Done(DoneArgs),
    /// Settle a task as failed: an attempt is counted
    ///
    /// Example: rota task fail fix-login --agent a1 --reason "tests do not pass"
    Fail(FailArgs),
    /// Give a task back; nothing is counted
    ///
    /// Example: rota task release fix-login --agent a1
    Release(IdArg),
    /// Park a task for a person
    ///
    /// Example: rota task park fix-login --reason "needs a key"
    Park(ParkArgs),
    /// Open a parked, failed or invalidated task with its attempts forgotten
    ///
    /// Example: rota task reset fix-login
    Reset(IdArg),
    /// Hold a task back; a lease on it ends
    ///
    /// Example: rota task pause fix-login
    Pause(IdArg),
    /// Let a paused task go on
    ///
    /// Example: rota task resume fix-login
    Resume(IdArg),
    /// Open a deleted task again
    ///
    /// Example: rota task undelete fix-login
    Undelete(IdArg),
    /// Make a task wait for another
    ///
    /// Example: rota task block fix-login --by setup-db
    Block(EdgeArgs),
    /// Remove such an edge
    ///
    /// Example: rota task unblock fix-login --by setup-db
    Unblock(EdgeArgs),
    /// Make the backlog agree with a plan: JSONL on standard input, one transaction
    ///
    /// Example: rota task plan-sync < plan.jsonl
    PlanSync(PlanSyncArgs),
    /// Count tasks by state
    ///
    /// Example: rota task plan-status --specs 'specs/*.md'
    PlanStatus(PlanStatusArgs),
    /// List tasks in the order they would run
    ///
    /// Example: rota task list --status open,active
    List(ListArgs),
    /// Show one task in full
    ///
    /// Example: rota task show fix-login --with-deps
    Show(ShowArgs),
    /// Show a task's blockers as a tree
    ///
    /// Example: rota task deps fix-login
    Deps(IdArg),
    /// Show every attempt at a task
    ///
    /// Example: rota task attempts fix-login
    Attempts(IdArg),
    /// Change fields of a task that is not done
    ///
    /// Example: rota task update fix-login --priority 0
    Update(UpdateArgs),
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
pub struct CreateArgs {
    /// Its id
    #[arg(value_name = "id")]
    pub id: String,
    /// One line
    #[arg(value_name = "title")]
    pub title: String,
    /// Priority, lower first [default: the queue's, 2 in tasks]
    #[arg(short = 'p', long, value_name = "N", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// Category
    #[arg(short = 'c', long, value_name = "CAT")]
    pub category: Option<String>,
    /// Description
    #[arg(short = 'd', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub description: Option<String>,
    /// Steps, a JSON array of texts
    #[arg(short = 's', long, value_name = "JSON_ARRAY", allow_hyphen_values = true)]
    pub steps: Option<String>,
    /// The spec it belongs to
    #[arg(short = 'r', long = "spec", value_name = "SPEC_REF")]
    pub spec: Option<String>,
    /// Free reference
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Comma-separated ids of tasks that come first
    #[arg(long, value_name = "a,b")]
    pub deps: Option<String>,
    /// Not before this time (RFC 3339)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub after: Option<String>,
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Args, Debug)]
pub struct PeekArgs {
    /// How many claimable tasks
    #[arg(short = 'n', long = "limit", value_name = "N", default_value = "5", allow_hyphen_values = true)]
    pub limit: String,
    #[command(flatten)]
    pub specs: SpecsArg,
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Args, Debug)]
pub struct ClaimArgs {
    #[command(flatten)]
    pub id: OptionalIdArg,
    /// How long the lease lasts [default: the policy's, 600 in tasks]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub lease: Option<String>,
    /// Only this category
    #[arg(long, value_name = "CAT")]
    pub category: Option<String>,
    #[command(flatten)]
    pub specs: SpecsArg,
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Args, Debug)]
pub struct EdgeArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// The task that comes first
    #[arg(long, value_name = "ID")]
    pub by: String,
}

#[derive(Args, Debug)]
pub struct PlanSyncArgs {
    #[command(flatten)]
    pub specs: SpecsArg,
    /// Say what would happen, change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Args, Debug)]
pub struct PlanStatusArgs {
    #[command(flatten)]
    pub specs: SpecsArg,
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only these states, comma-separated
    #[arg(long, value_name = "csv")]
    pub status: Option<String>,
    /// Deleted ones too
    #[arg(long)]
    pub all: bool,
    /// Only this holder's
    #[arg(long, value_name = "AGENT")]
    pub assignee: Option<String>,
    /// As markdown instead of a table
    #[arg(long)]
    pub markdown: bool,
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// With the results of its blockers
    #[arg(long)]
    pub with_deps: bool,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub id: OptionalIdArg,
    /// All in these states, comma-separated
    #[arg(long, value_name = "csv")]
    pub status: Option<String>,
    /// All
    #[arg(long)]
    pub all: bool,
    /// Yes, all
    #[arg(long)]
    pub confirm: bool,
    /// Of those, only this spec's
    #[arg(long, value_name = "SPEC")]
    pub spec: Option<String>,
    /// Of those, only this category's
    #[arg(long, value_name = "CAT")]
    pub category: Option<String>,
    #[command(flatten)]
    pub queue: QueueArg,
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
    /// List running agents
    List,
    /// Say that an agent stopped
    Deregister {
        /// The agent
        #[arg(value_name = "agent")]
        id: String,
    },
}
