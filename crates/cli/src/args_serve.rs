//! What listens: `rota mcp`, `rota serve`.

use clap::Args;

#[derive(Args, Debug)]
pub struct McpArgs {
    /// Serve over HTTP instead
    #[arg(long)]
    pub http: bool,
    /// Where to listen, with --http [default: 127.0.0.1:8789]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Which tools to offer: core (what an agent needs to work) or all
    #[arg(long, value_name = "SET", default_value = "core")]
    pub tools: String,
}

#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where to listen [default: 127.0.0.1:8788]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Listen also where other hosts can reach it
    #[arg(long)]
    pub public: bool,
}
