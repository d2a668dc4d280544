//! The command line of the control plane: `rota queue`, `rota sched`, `rota policy`, and of `rota doctor`.

use clap::{Args, Subcommand};

/// A queue other than `runs`.
#[derive(Args, Debug, Clone, Default)]
pub struct RunsArg {
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    pub queue: String,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct QueueArgs {
    #[command(subcommand)]
    pub command: Option<QueueCommand>,
}

#[derive(Subcommand, Debug)]
pub enum QueueCommand {
    /// Add an entry
    ///
    /// Example: rota queue add --app review --repo . --priority 10
    Add(QueueAddArgs),
    /// List entries by priority, then age
    ///
    /// Example: rota queue list --status parked --json
    List(QueueListArgs),
    /// Show one entry
    ///
    /// Example: rota queue show run-1
    Show {
        /// The entry
        #[arg(value_name = "id")]
        id: Option<String>,
    },
    /// Mark entries without an obstacle as drained, around the policy
    ///
    /// Example: rota queue drain --limit 5
    Drain(QueueDrainArgs),
    /// Take in a queue.json: all of it, or nothing
    ///
    /// Example: rota queue import queue.json --dry-run
    Import(QueueImportArgs),
    /// Print every entry as JSON
    ///
    /// Example: rota queue export > queue.json
    Export(RunsArg),
    /// Grant nothing from a queue until it is resumed
    ///
    /// Example: rota queue pause runs
    Pause {
        /// Which queue
        #[arg(value_name = "queue")]
        queue: Option<String>,
    },
    /// Let a paused queue go on
    ///
    /// Example: rota queue resume runs
    Resume {
        /// Which queue
        #[arg(value_name = "queue")]
        queue: Option<String>,
    },
}

#[derive(Args, Debug)]
pub struct QueueAddArgs {
    /// Its id [default: made up]
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The app to run
    #[arg(long, value_name = "A")]
    pub app: Option<String>,
    /// The workflow to run
    #[arg(long, value_name = "W")]
    pub workflow: Option<String>,
    /// The run it belongs to
    #[arg(long = "runId", value_name = "R")]
    pub run_id: Option<String>,
    /// The repository [default: the current folder]
    #[arg(long, value_name = "P")]
    pub repo: Option<String>,
    /// Priority, lower first [default: the queue's, 100 in runs]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<String>,
    /// A note
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub note: Option<String>,
    #[command(flatten)]
    pub queue: RunsArg,
}

#[derive(Args, Debug)]
pub struct QueueListArgs {
    /// Only this state
    #[arg(long, value_name = "S")]
    pub status: Option<String>,
    /// Only this repository
    #[arg(long, value_name = "P")]
    pub repo: Option<String>,
    #[command(flatten)]
    pub queue: RunsArg,
}

#[derive(Args, Debug)]
pub struct QueueImportArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: Option<String>,
    /// Show what would come in and keep nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub queue: RunsArg,
}

/// `rota import`
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// The file
    #[arg(value_name = "file")]
    pub file: String,
    /// What it is: rota, ralph, beads or taskmaster [default: recognised]
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<String>,
    /// Only this tag of Task Master, or this owner/repo@branch of Ralph
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// The queue that tasks of others come into
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    pub queue: String,
    /// Show what would come in and keep nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct QueueDrainArgs {
    /// How many at most
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true)]
    pub limit: String,
    /// Only this repository
    #[arg(long, value_name = "P")]
    pub repo: Option<String>,
    #[command(flatten)]
    pub queue: RunsArg,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct SchedArgs {
    #[command(subcommand)]
    pub command: Option<SchedCommand>,
}

#[derive(Subcommand, Debug)]
pub enum SchedCommand {
    /// Show what would be granted now, and why not the rest; reads only
    ///
    /// Example: rota sched plan --now 2026-01-01T00:00:00Z
    Plan(SchedLimitArgs),
    /// Grant leases, up to the ceiling
    ///
    /// Example: rota sched lease --limit 1
    Lease(SchedLimitArgs),
    /// Extend a lease
    ///
    /// Example: rota sched renew lease-run-1-1
    Renew(LeaseArg),
    /// Settle a lease as done
    ///
    /// Example: rota sched complete lease-run-1-1
    Complete(LeaseArg),
    /// Give a lease back, or settle it as failed
    ///
    /// Example: rota sched release lease-run-1-1 --failed --reason "tests do not pass"
    Release(ReleaseArgs),
    /// Take expired leases back: one attempt counted each
    ///
    /// Example: rota sched reclaim
    Reclaim(RunsArg),
    /// Open a parked entry with its attempts forgotten
    ///
    /// Example: rota sched reset run-1
    Reset {
        /// The entry
        #[arg(value_name = "id")]
        id: Option<String>,
    },
    /// Show or change the rules of queue runs
    ///
    /// Example: rota sched policy set --maxConcurrent 4
    Policy(SchedPolicyArgs),
}

#[derive(Args, Debug)]
pub struct SchedLimitArgs {
    /// How many at most [default: up to the ceiling; without one, 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<String>,
    #[command(flatten)]
    pub queue: RunsArg,
}

#[derive(Args, Debug)]
pub struct LeaseArg {
    /// The lease
    #[arg(value_name = "leaseId", allow_hyphen_values = false)]
    pub lease: Option<String>,
}

#[derive(Args, Debug)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub lease: LeaseArg,
    /// Count a failed attempt
    #[arg(long)]
    pub failed: bool,
    /// Why
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub reason: Option<String>,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct SchedPolicyArgs {
    #[command(subcommand)]
    pub command: Option<SchedPolicyCommand>,
}

#[derive(Subcommand, Debug)]
pub enum SchedPolicyCommand {
    /// Show the rules of a queue
    Show(RunsArg),
    /// Change rules of a queue and publish them
    Set(SchedPolicySetArgs),
}

#[derive(Args, Debug)]
pub struct SchedPolicySetArgs {
    /// Leases held at once
    #[arg(long = "maxConcurrent", value_name = "N", allow_negative_numbers = true)]
    pub max_concurrent: Option<String>,
    /// Counted attempts after which an entry parks
    #[arg(long = "maxAttempts", value_name = "N", allow_negative_numbers = true)]
    pub max_attempts: Option<String>,
    /// How long a lease lasts
    #[arg(long = "leaseTtlMs", value_name = "N", allow_negative_numbers = true)]
    pub lease_ttl_ms: Option<String>,
    /// The first wait after a failure
    #[arg(long = "backoffBaseMs", value_name = "N", allow_negative_numbers = true)]
    pub backoff_base_ms: Option<String>,
    /// What each further wait is multiplied by
    #[arg(long = "backoffFactor", value_name = "N", allow_negative_numbers = true)]
    pub backoff_factor: Option<String>,
    /// The longest wait
    #[arg(long = "backoffCapMs", value_name = "N", allow_negative_numbers = true)]
    pub backoff_cap_ms: Option<String>,
    #[command(flatten)]
    pub queue: RunsArg,
}

#[derive(Args, Debug)]
pub struct PolicyApplyArgs {
    #[command(flatten)]
    pub file: PolicyFileArg,
    /// Keep what was published and the document does not name
    #[arg(long, conflicts_with = "replace")]
    pub merge: bool,
    /// Set what the document does not name back to its default
    #[arg(long)]
    pub replace: bool,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct PolicyArgs {
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
}

#[derive(Subcommand, Debug)]
pub enum PolicyCommand {
    /// Show the document in force
    ///
    /// Example: rota policy show
    Show,
    /// Check a document, tell what it changes, publish it
    ///
    /// Example: rota policy apply rota.policy.json
    Apply(PolicyApplyArgs),
    /// Tell what a document would change
    ///
    /// Example: rota policy diff rota.policy.json
    Diff(PolicyFileArg),
    /// Check a document
    ///
    /// Example: rota policy check rota.policy.json
    Check(PolicyFileArg),
    /// List the published versions
    ///
    /// Example: rota policy history
    History,
    /// Print the JSON Schema of the document, for editors
    ///
    /// With --json it is inside of a payload; without, it is the schema alone.
    ///
    /// Example: rota policy schema > rota.policy.schema.json
    Schema,
}

#[derive(Args, Debug)]
pub struct PolicyFileArg {
    /// The document, - for standard input
    #[arg(value_name = "FILE")]
    pub file: Option<String>,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Repair what is derived; the journal is never touched
    #[arg(long)]
    pub fix: bool,
    /// Use this host's clock from now on, although the newest entry of the SQLite store is later
    #[arg(long)]
    pub accept_clock: bool,
}
