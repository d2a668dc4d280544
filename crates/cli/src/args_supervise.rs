//! The command line of the supervisor: `rota supervise`, `rota issue`.

use clap::{Args, Subcommand};
use rota_verbs::issues::{
    AddIssue, CloseIssue, CommentIssue, EditIssue, LabelIssue, ListIssues, ReopenIssue, ShowIssue,
};

/// Runs cycles as the section `supervisor` of rota.yml says: validates governance and surroundings, selects the lowest
/// open issue that nobody works on, takes its lease, sets the label and reads it back, reports, sleeps.
///
/// The first TERM, INT or HUP ends the sleep, or lets the cycle under way end; the second cuts it off. After the last
/// cycle of --once or --cycles SLEEP is printed but not slept; the exit code is 0 if it claimed something or there was
/// nothing to claim, 1 if it failed. With --now (only with --once) the cycle is as of that time.
///
/// Example: rota supervise --once
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub struct SuperviseArgs {
    /// Run one cycle
    #[arg(long)]
    pub once: bool,
    /// Run so many cycles
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cycles: Option<String>,
    /// A JSON file with cycle_interval_seconds and cycle_max_runtime_seconds, which win over rota.yml
    #[arg(long, value_name = "FILE")]
    pub settings: Option<String>,
    /// On PostgreSQL: publish what rota.yml says about the policy (on SQLite that is always done)
    #[arg(long)]
    pub publish: bool,
    #[command(subcommand)]
    pub command: Option<SuperviseCommand>,
}

#[derive(Subcommand, Debug)]
pub enum SuperviseCommand {
    /// Look whether governance and surroundings are in order, and change nothing
    ///
    /// Exit code 1 if anything is not. Example: rota supervise check --json
    Check,
    /// Accept the governance files as they are now
    ///
    /// From then on every cycle compares them with this pin; the journal says who set it. Example: rota supervise pin
    Pin,
}

#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct IssueArgs {
    #[command(subcommand)]
    pub command: Option<IssueCommand>,
}

#[derive(Subcommand, Debug)]
pub enum IssueCommand {
    Add(AddIssue),
    List(ListIssues),
    Show(ShowIssue),
    Close(CloseIssue),
    Reopen(ReopenIssue),
    Label(LabelIssue),
    Comment(CommentIssue),
    Edit(EditIssue),
}
