//! The command line of the supervisor: `rota supervise`, `rota issue`.

use clap::{Args, Subcommand};

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
    /// Add an issue and print its number
    ///
    /// Example: rota issue add --title "Fix the login" --body "It says 500." --label bug
    Add(IssueAddArgs),
    /// List open issues, lowest number first
    ///
    /// Example: rota issue list --all
    List(IssueListArgs),
    /// Show one issue with its body, labels and comments
    ///
    /// Example: rota issue show 3
    Show(NumberArg),
    /// Close an issue: it is done, whoever works on it
    ///
    /// Example: rota issue close 3
    Close(NumberArg),
    /// Open a closed issue again
    ///
    /// Example: rota issue reopen 3
    Reopen(NumberArg),
    /// Add or remove labels of an issue
    ///
    /// The label rota:retry brings a parked issue back. Example: rota issue label 3 --add rota:retry --remove wip
    Label(IssueLabelArgs),
    /// Comment on an issue
    ///
    /// A comment brings a parked issue back. Example: rota issue comment 3 --body "Use the staging database."
    Comment(IssueCommentArgs),
    /// Change the title or the body of an issue
    ///
    /// A change brings a parked issue back. Example: rota issue edit 3 --title "Fix the login page"
    Edit(IssueEditArgs),
}

#[derive(Args, Debug)]
pub struct IssueLabelArgs {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: String,
    /// A label to add; may be given several times
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    pub add: Vec<String>,
    /// A label to remove; may be given several times
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    pub remove: Vec<String>,
}

#[derive(Args, Debug)]
pub struct IssueCommentArgs {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: String,
    /// The text
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub body: String,
}

#[derive(Args, Debug)]
pub struct IssueEditArgs {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: String,
    /// The new title
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub title: Option<String>,
    /// The new text; an empty one removes it
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub body: Option<String>,
}

#[derive(Args, Debug)]
pub struct IssueAddArgs {
    /// One line
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub title: String,
    /// The text
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub body: Option<String>,
    /// A label; may be given several times
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    pub label: Vec<String>,
}

#[derive(Args, Debug)]
pub struct IssueListArgs {
    /// Closed ones too
    #[arg(long)]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct NumberArg {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: String,
}
