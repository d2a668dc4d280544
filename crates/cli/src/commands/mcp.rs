//! `rota mcp [--http]`

use std::net::SocketAddr;
use std::process::ExitCode;

use rota_core::text::escaped;
use rota_serve::mcp::{McpServer, Settings, ToolSet, serve_http, serve_stdio};
use rota_serve::stop_signal;
use rota_store::block_on;

use super::serve;
use crate::args::Common;
use crate::args_serve::McpArgs;
use crate::errors::{CliError, CliResult};
use crate::locate;

const LISTEN: &str = "127.0.0.1:8789";

pub fn run(common: &Common, args: McpArgs) -> CliResult<ExitCode> {
    let tools = match args.tools.as_str() {
        "core" => ToolSet::Core,
        "all" => ToolSet::All,
        other => {
            return Err(CliError::value(format!("--tools must be core or all, got: {}", escaped(other))));
        }
    };
    if args.listen.is_some() && !args.http {
        return Err(CliError::value("--listen is only for --http"));
    }
    let address = serve::address(args.listen.as_deref(), LISTEN)?;
    let failed = |error: std::io::Error| CliError::Io(error.to_string());
    rota_serve::prepare().map_err(failed)?;
    let settings = Settings {
        context: locate::context(common)?,
        folder: locate::current_folder()?,
        policy_file: locate::policy_file(common)?,
        tools,
    };
    let server = McpServer::new(settings);
    if args.http {
        block_on(over_http(server, address))?;
    } else {
        block_on(async { serve_stdio(server, stop_signal()?).await }).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn over_http(server: McpServer, address: SocketAddr) -> CliResult<()> {
    let open = serve::open(address, "/mcp").await?;
    let served = serve_http(server, open.listener, open.door, open.stop).await;
    served.map_err(|error| CliError::Io(format!("{address}: {error}")))
}
