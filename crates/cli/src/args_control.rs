//! The command line of the control plane: `rota queue`, `rota sched`, `rota policy`, and of `rota doctor`.

use clap::{Args, Subcommand};
use rota_verbs::doctor::ExamineStore;
use rota_verbs::policy::{DescribePolicy, ListPolicies, ShowPolicy};
use rota_verbs::queue::{
    AddEntry, DrainEntries, ExportEntries, ImportEntries, ListEntries, PauseQueue, ResumeQueue, ShowEntry,
};
use rota_verbs::sched::{
    CompleteLease, GrantLeases, PlanLeases, ReclaimLeases, ReleaseLease, RenewLease, ResetEntry, SetRules,
    ShowRules,
};

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct QueueArgs {
    #[command(subcommand)]
    pub command: Option<QueueCommand>,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "made once per process")]
pub enum QueueCommand {
    Add(AddEntry),
    List(ListEntries),
    Show(ShowEntry),
    Drain(DrainEntries),
    Import(ImportEntries),
    Export(ExportEntries),
    Pause(PauseQueue),
    Resume(ResumeQueue),
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct SchedArgs {
    #[command(subcommand)]
    pub command: Option<SchedCommand>,
}

#[derive(Subcommand, Debug)]
pub enum SchedCommand {
    Plan(PlanLeases),
    Lease(GrantLeases),
    Renew(RenewLease),
    Complete(CompleteLease),
    Release(ReleaseLease),
    Reclaim(ReclaimLeases),
    Reset(ResetEntry),
    /// Show or change the rules of queue runs
    ///
    /// Example: rota sched policy set --maxConcurrent 4
    Policy(SchedPolicyArgs),
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct SchedPolicyArgs {
    #[command(subcommand)]
    pub command: Option<SchedPolicyCommand>,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "made once per process")]
pub enum SchedPolicyCommand {
    Show(ShowRules),
    Set(SetRules),
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
    Show(ShowPolicy),
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
    History(ListPolicies),
    Schema(DescribePolicy),
}

#[derive(Args, Debug)]
pub struct PolicyFileArg {
    /// The document, - for standard input
    #[arg(value_name = "FILE")]
    pub file: Option<String>,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub input: ExamineStore,
    /// Use this host's clock from now on, although the newest entry of the SQLite store is later
    #[arg(long)]
    pub accept_clock: bool,
}
