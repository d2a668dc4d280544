//! `rota mcp [--http]`

use std::net::SocketAddr;
use std::process::ExitCode;

use crate::block_on;
use rota_core::text::escaped;
use rota_serve::mcp::{McpServer, Remote, Settings, ToolSet, serve_http, serve_stdio};
use rota_serve::stop_signal;
use rota_store::{AnyStore, Location};
use rota_verbs::Context;

use super::serve;
use crate::args::Common;
use crate::args_serve::McpArgs;
use crate::errors::{CliError, CliResult};
use crate::{backend, locate};

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
    let remote = if args.http { None } else { agents_server(common)? };
    let context = match remote {
        // Nothing is kept here: every call goes to the server.
        Some(_) => Context::new(crate::block_on(AnyStore::open(&Location::Memory))?),
        None => locate::serving_context(common)?,
    };
    let settings = Settings { context, policy_file: locate::policy_file(common)?, tools, remote };
    let server = McpServer::new(settings);
    if args.http {
        block_on(over_http(server, address))?;
    } else {
        block_on(async { serve_stdio(server, stop_signal()?).await }).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The server of an agent that was given a lease token instead of the store.
fn agents_server(common: &Common) -> CliResult<Option<Remote>> {
    let token = locate::variable("ROTA_TOKEN")?;
    if !token.is_some_and(|token| token.starts_with(rota_auth::LEASE_PREFIX)) {
        return Ok(None);
    }
    let remote = locate::remote(common)?.map(|remote| *remote);
    Ok(remote.map(|backend::Remote { endpoint, surroundings }| Remote { endpoint, surroundings }))
}

async fn over_http(server: McpServer, address: SocketAddr) -> CliResult<()> {
    let open = serve::open(address, "/mcp").await?;
    let served = serve_http(server, open.listener, open.auth, open.stop).await;
    served.map_err(|error| CliError::Io(format!("{address}: {error}")))
}
