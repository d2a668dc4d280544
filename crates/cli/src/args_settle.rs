//! Arguments of the verbs that extend or end a lease: `rota task renew`, `done`, `fail` and `park`.

use clap::Args;

use crate::args::IdArg;

#[derive(Args, Debug)]
pub struct RenewArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// How long from now [default: the policy's, 600 in tasks]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub lease: Option<String>,
}

#[derive(Args, Debug)]
pub struct DoneArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// A JSON object with a `commit` key
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub result: Option<String>,
    /// Claim the next task in the same transaction
    #[arg(long)]
    pub next: bool,
    /// With --next: how long its lease lasts [default: the policy's, 600 in tasks]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub lease: Option<String>,
    /// With --next: only this category
    #[arg(long, value_name = "CAT")]
    pub category: Option<String>,
    /// With --next: only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    pub specs: Option<String>,
    /// With --next: which queue [default: tasks]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
}

#[derive(Args, Debug)]
pub struct FailArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// Why
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
}

#[derive(Args, Debug)]
pub struct ParkArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// Why
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: String,
}
