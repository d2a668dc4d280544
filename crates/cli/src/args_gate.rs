//! The gateway, and the gate inside it.
#![allow(rustdoc::invalid_html_tags, reason = "the comments are the help text")]

use clap::{Args, Subcommand};

/// Agents are pointed here by a base URL (see `rota gate env`) and show a token as their API key. Calls of models wait for
/// the gate by the priority of their task, go to the provider with the provider's key, and come back byte for byte. What the
/// provider refuses for a while is held and sent again, so no agent sees it. `rota up` runs one by itself when rota.yml has
/// a section `gateway`.
///
/// It publishes what rota.yml says about the policy, and follows the policy and the file while it runs.
///
/// TERM or INT ends it: queued calls are told to come again, answers under way have 30 s.
///
/// Example: ANTHROPIC_API_KEY=... rota gateway
#[derive(Args, Debug)]
pub struct GatewayArgs {
    /// Where to listen [default: what rota.yml says, else 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// On PostgreSQL: publish what rota.yml says about the policy (on SQLite that is always done)
    #[arg(long)]
    pub publish: bool,
}

#[derive(Args, Debug)]
pub struct GateArgs {
    #[command(subcommand)]
    pub command: Option<GateCommand>,
}

#[derive(Subcommand, Debug)]
pub enum GateCommand {
    /// Show who runs and who waits, as a panel for each provider
    ///
    /// Example: rota gate status --watch
    Status(GateStatusArgs),
    /// Hold a slot of the gate while CMD runs
    ///
    /// Its exit code is CMD's.
    ///
    /// Example: rota gate exec --priority low -- ./nightly.sh
    Exec(GateExecArgs),
    /// Show what tasks used: requests, tokens, waits, dollars
    ///
    /// Example: rota gate usage --today
    Usage(GateUsageArgs),
    /// Make a token for an agent and print it alone; it is shown once
    ///
    /// Example: ANTHROPIC_API_KEY=$(rota gate token --ttl 3600) claude
    Token(GateTokenArgs),
    /// Print the variables, and the settings for Codex, that point an agent at the gateway
    ///
    /// Example: eval "$(rota gate env)"
    Env(GateEnvArgs),
    /// End a block, a quota's too
    ///
    /// Example: rota gate unblock anthropic
    Unblock(GateUnblockArgs),
}

#[derive(Args, Debug)]
pub struct GateStatusArgs {
    /// Draw it anew every second, until interrupted
    #[arg(long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct GateExecArgs {
    /// How urgent: critical, high, normal or low [default: what the policy says]
    #[arg(long, value_name = "P")]
    pub priority: Option<String>,
    /// Whose gate
    #[arg(long, value_name = "NAME", default_value = "anthropic")]
    pub upstream: String,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Args, Debug)]
pub struct GateUsageArgs {
    /// Only this task's
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Only what was used since midnight, UTC
    #[arg(long)]
    pub today: bool,
}

#[derive(Args, Debug)]
pub struct GateTokenArgs {
    /// How urgent its calls may be: critical, high, normal or low [default: what the task says, else the policy]
    #[arg(long, value_name = "P")]
    pub priority: Option<String>,
    /// Count what it uses as this task's
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Seconds until it is no longer good [default: for ever]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub ttl: Option<String>,
}

#[derive(Args, Debug)]
pub struct GateEnvArgs {
    /// The token that is shown [default: one that is made now]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
}

#[derive(Args, Debug)]
pub struct GateUnblockArgs {
    /// Which providers [default: all that rota.yml names]
    #[arg(value_name = "upstream")]
    pub upstreams: Vec<String>,
}
