//! MCP over streamable HTTP, at `/mcp`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::http::StatusCode;
use ::http::request::Parts;
use bytes::Bytes;
use http_body_util::Full;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{
    SessionManager, StreamableHttpServerConfig, StreamableHttpService,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::session::{SILENCE, Sessions};
use super::{MESSAGE_BYTES, McpServer};
use crate::listen::{Problem, serve};
use rota_auth::{Authenticator, Caller};

/// Where it is.
pub const PATH: &str = "/mcp";
/// Sessions of the older family at once.
const SESSIONS: usize = 1_024;
/// How often sessions are looked at.
const LOOK: Duration = Duration::from_secs(15);

/// When each session was last used.
#[derive(Default)]
struct LastUsed(Mutex<BTreeMap<String, Instant>>);

impl LastUsed {
    fn note(&self, id: &str) {
        self.lock().insert(id.to_owned(), Instant::now());
    }

    /// The open sessions that have been silent for too long and hold no lease. What was noted of others is dropped.
    fn silent(&self, open: &BTreeSet<String>, now: Instant, holds: impl Fn(&str) -> bool) -> Vec<String> {
        let mut used = self.lock();
        used.retain(|id, _| open.contains(id));
        for id in open {
            used.entry(id.clone()).or_insert(now);
        }
        let silent = used.iter().filter(|(id, last)| now.duration_since(**last) >= SILENCE && !holds(id));
        silent.map(|(id, _)| id.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends sessions whose client went away without a word.
async fn end_silent(
    manager: Arc<LocalSessionManager>,
    used: Arc<LastUsed>,
    sessions: Arc<Sessions>,
    stop: CancellationToken,
) {
    while tokio::time::timeout(LOOK, stop.cancelled()).await.is_err() {
        let open = manager.sessions.read().await.keys().map(ToString::to_string).collect();
        let now = Instant::now();
        for id in used.silent(&open, now, |id| sessions.holds(id, now)) {
            // It may have ended by itself meanwhile.
            drop(manager.close_session(&id.into()).await);
        }
    }
}

/// Serves until `stop` says so; calls that are under way are answered first.
pub async fn serve_http(
    server: McpServer,
    listener: TcpListener,
    auth: Authenticator,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let streams = CancellationToken::new();
    // Host and Origin were checked by the authenticator, the size by the listener.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MESSAGE_BYTES)
        .with_cancellation_token(streams.clone());
    let mut manager = LocalSessionManager::default();
    // A session that holds a lease may be silent for longer than the library would let it.
    manager.session_config.keep_alive = None;
    let sessions = Arc::new(manager);
    let last_used = Arc::new(LastUsed::default());
    tokio::spawn(end_silent(
        Arc::clone(&sessions),
        Arc::clone(&last_used),
        Arc::clone(&server.sessions),
        stop.clone(),
    ));
    let each = server.clone();
    let service = StreamableHttpService::new(move || Ok(each.for_client()), Arc::clone(&sessions), config);
    let handler = move |parts: Parts, body: Bytes, _caller: Option<Caller>| {
        let request = ::http::Request::from_parts(parts, Full::new(body));
        let (service, sessions, last_used) = (service.clone(), Arc::clone(&sessions), Arc::clone(&last_used));
        async move {
            if request.uri().path() != PATH {
                return Problem::new(StatusCode::NOT_FOUND, "not_found", "there is only /mcp here")
                    .response();
            }
            let id = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
            if let Some(id) = id {
                last_used.note(id);
            }
            if id.is_none() && sessions.sessions.read().await.len() >= SESSIONS {
                let problem = "too many sessions are open: close some, or wait until they run out";
                return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", problem)
                    .response();
            }
            let is_delete = request.method() == ::http::Method::DELETE;
            let mut response = service.handle(request).await;
            // The session is gone, and there is nothing to say of it.
            if is_delete && response.status().is_success() {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
            response
        }
    };
    let ending = stop.clone();
    let rest = async move {
        ending.cancelled().await;
        server.rest().await;
        // Streams that wait for what a server might say would never end by themselves.
        streams.cancel();
    };
    let operators = move |parts: &Parts| auth.check_operator(parts).map(|()| Some(Caller::Operator));
    tokio::join!(serve(listener, operators, MESSAGE_BYTES, handler, stop), rest).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_session_is_kept_while_it_holds_a_lease() {
        let used = LastUsed::default();
        let open: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let start = Instant::now();
        let silent =
            |after: Duration, holds: &[&str]| used.silent(&open, start + after, |id| holds.contains(&id));
        assert_eq!(silent(Duration::ZERO, &[]), [""; 0]);
        assert_eq!(silent(SILENCE, &["a"]), ["b"]);
        assert_eq!(silent(SILENCE * 10, &[]), ["a", "b"]);
    }
}
