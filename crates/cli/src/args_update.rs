//! Arguments of `rota task update`.

use clap::Args;

use crate::args::IdArg;

#[derive(Args, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub id: IdArg,
    /// New title
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub title: Option<String>,
    /// New priority
    #[arg(short = 'p', long, value_name = "N", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// New description
    #[arg(short = 'd', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub description: Option<String>,
    /// New steps, a JSON array of texts
    #[arg(short = 's', long, value_name = "JSON_ARRAY", allow_hyphen_values = true)]
    pub steps: Option<String>,
    /// New state: open, paused, done or deleted; while the task is held, only with its lease, its holder's name or --force
    #[arg(long, value_name = "STATUS")]
    pub status: Option<String>,
    /// Change the state of a held task as a person's override, which is journalled; refused under a lease
    #[arg(long)]
    pub force: bool,
}
