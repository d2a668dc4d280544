//! MCP over streamable HTTP, at `/mcp`.

use std::sync::Arc;

use ::http::StatusCode;
use ::http::request::Parts;
use bytes::Bytes;
use http_body_util::Full;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{MESSAGE_BYTES, McpServer};
use crate::listen::{Problem, serve};
use rota_door::{Caller, Door};

/// Where it is.
pub const PATH: &str = "/mcp";
/// Sessions of the older family at once; each ends after five silent minutes.
const SESSIONS: usize = 1_024;

/// Serves until `stop` says so; calls that are under way are answered first.
pub async fn serve_http(
    server: McpServer,
    listener: TcpListener,
    door: Door,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let streams = CancellationToken::new();
    // The door has looked at Host and Origin already, and the listener at the size.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MESSAGE_BYTES)
        .with_cancellation_token(streams.clone());
    let sessions = Arc::new(LocalSessionManager::default());
    let each = server.clone();
    let service = StreamableHttpService::new(move || Ok(each.clone()), Arc::clone(&sessions), config);
    let handler = move |parts: Parts, body: Bytes, _caller: Option<Caller>| {
        let request = ::http::Request::from_parts(parts, Full::new(body));
        let (service, sessions) = (service.clone(), Arc::clone(&sessions));
        async move {
            if request.uri().path() != PATH {
                return Problem::new(StatusCode::NOT_FOUND, "not_found", "there is only /mcp here")
                    .response();
            }
            let is_first = !request.headers().contains_key("mcp-session-id");
            if is_first && sessions.sessions.read().await.len() >= SESSIONS {
                let problem = "too many sessions are open: close some, or wait until they run out";
                return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", problem)
                    .response();
            }
            service.handle(request).await
        }
    };
    let ending = stop.clone();
    let rest = async move {
        ending.cancelled().await;
        server.rest().await;
        // Streams that wait for what a server might say would never end by themselves.
        streams.cancel();
    };
    let operators = move |parts: &Parts| door.check(parts).map(|()| Some(Caller::Operator));
    tokio::join!(serve(listener, operators, MESSAGE_BYTES, handler, stop), rest).0
}
