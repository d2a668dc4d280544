//! `rota mcp [--http]`

use std::net::SocketAddr;
use std::process::ExitCode;

use rota_core::text::escaped;
use rota_door::{Door, Token};
use rota_serve::mcp::{McpServer, Settings, ToolSet, serve_http, serve_stdio};
use rota_serve::{listen, stop_signal};
use rota_store::block_on;

use crate::args::{Common, McpArgs};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

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
    let address = address(args.listen.as_deref().unwrap_or(LISTEN))?;
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

fn address(text: &str) -> CliResult<SocketAddr> {
    let numbers = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    numbers.parse().map_err(|_| {
        CliError::value(format!("--listen must be ADDRESS:PORT (e.g. {LISTEN}), got: {}", escaped(text)))
    })
}

async fn over_http(server: McpServer, address: SocketAddr) -> CliResult<()> {
    let failed = |error: std::io::Error| CliError::Io(format!("{address}: {error}"));
    let path = locate::token_file()?;
    let token = Token::of_file(&path).map_err(|error| CliError::Io(error.to_string()))?;
    let stop = stop_signal().map_err(failed)?;
    let listener = listen::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !address.ip().is_loopback() {
        output::warn(&format!(
            "{address} can be reached from other hosts, and the token travels unencrypted"
        ))?;
    }
    output::note(&format!("listening on http://{address}/mcp, token in {}", path.display()))?;
    serve_http(server, listener, Door::new(address, token), stop).await;
    Ok(())
}
