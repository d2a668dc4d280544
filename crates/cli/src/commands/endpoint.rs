//! The listener of `rota up` and `rota work` on the loopback. Agents reach their tasks through it, with a token for their
//! lease, and never open the store themselves; `rota up` also serves the HTTP API there.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rota_auth::{Authenticator, LeaseToken, Token};
use rota_daemon::companion::{Companion, Held};
use rota_serve::http::{Api, Cycles, Gates, Meter, Settings, serve_api};
use rota_serve::listen;
use rota_verbs::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::serve::collector;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// The first port to try for the HTTP API.
const PORT: u16 = 8788;

/// A listener that is open until this is dropped.
pub struct Endpoint {
    url: String,
    token: Token,
    meter: Meter,
    stop: CancellationToken,
}

/// The callers that an endpoint serves besides agents.
pub enum Served {
    /// The HTTP API for the operator, with its policy file, the gates and the supervisor's cycles.
    Api(PathBuf, Gates, Option<Cycles>),
    /// Nothing: a caller without a lease token is refused.
    AgentsOnly,
}

impl Endpoint {
    /// Opens the listener of a daemon. The address is written to `.rota/run/serve` and tried first the next time, because
    /// agents that outlive the daemon know it; if it is taken, another port is used.
    pub async fn of_daemon(rota: &Path, cx: &Context, served: Served) -> CliResult<Self> {
        let note = rota.join("run/serve");
        let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", note.display()));
        let first = if matches!(served, Served::Api(..)) { PORT } else { 0 };
        let endpoint = Self::open(listener(&note, first).await.map_err(failed)?, cx, served)?;
        rota_store::replace_for_owner(&note, format!("{}\n", endpoint.url).as_bytes()).map_err(failed)?;
        Ok(endpoint)
    }

    /// Opens a listener for agents alone on any port.
    pub async fn for_agents(cx: &Context) -> CliResult<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = listen::bind(address).await;
        let listener = listener.map_err(|error| CliError::Io(format!("{address}: {error}")))?;
        Self::open(listener, cx, Served::AgentsOnly)
    }

    fn open(listener: TcpListener, cx: &Context, served: Served) -> CliResult<Self> {
        let file = locate::token_file()?;
        let read = || Token::of_file(&file).map_err(|error| CliError::Io(error.to_string()));
        let (token, for_listener) = (read()?, read()?);
        let address =
            listener.local_addr().map_err(|error| CliError::Io(format!("the agents' listener: {error}")))?;
        let context = Context { agent: None, lease: None, ambient_lease: None, ..cx.clone() };
        let agents_only = matches!(served, Served::AgentsOnly);
        let (policy_file, gates, cycles) = match served {
            Served::Api(policy_file, gates, cycles) => (Some(policy_file), Some(gates), cycles),
            Served::AgentsOnly => (None, None, None),
        };
        let api = Api::new(Settings { context, policy_file, gates, cycles, agents_only });
        let meter = api.meter();
        let api = match collector()? {
            Some(collector) => api.with_traces(collector),
            None => api,
        };
        let stop = CancellationToken::new();
        let served = serve_api(api, listener, Authenticator::new(address, for_listener), stop.clone());
        tokio::spawn(async move {
            if let Err(error) = served.await {
                // If this cannot be written either, there is no way left to report it.
                drop(output::warn(&format!("{address} is not served: {error}")));
            }
        });
        Ok(Self { url: format!("http://{address}"), token, meter, stop })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Listens on the noted address of an earlier daemon, else on the first port, else on any.
async fn listener(note: &Path, first: u16) -> std::io::Result<TcpListener> {
    let before = locate::read_note(note).ok().and_then(|url| {
        let address: SocketAddr = url.trim().strip_prefix("http://")?.parse().ok()?;
        address.ip().is_loopback().then_some(address)
    });
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for address in before.into_iter().chain([at(first)]) {
        if let Ok(listener) = listen::bind(address).await {
            return Ok(listener);
        }
    }
    listen::bind(at(0)).await
}

impl Companion for Endpoint {
    fn begun(&self, held: &Held) -> Vec<(String, String)> {
        let claim = LeaseToken {
            scope: held.scope.clone(),
            task: held.task.id.to_string(),
            lease: held.lease.clone(),
        };
        let token = self.token.sign(&claim).expose().to_owned();
        vec![("ROTA_STORE".to_owned(), self.url.clone()), ("ROTA_TOKEN".to_owned(), token)]
    }

    /// The token ends with its lease, which the store knows.
    fn ended(&self, _held: &Held) {}

    fn ticked(&self, took: Duration) {
        self.meter.note_tick(took);
    }
}
