//! What a daemon serves: the HTTP API on the loopback, and on PostgreSQL with it the way by which agents come to their
//! tasks without the database's password. Each agent has a token for its lease, and the store says whether it still counts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rota_daemon::companion::{Companion, Held};
use rota_door::{Door, LeaseClaim, Token};
use rota_serve::http::{Api, Gates, Meter, Settings, serve_api};
use rota_serve::listen;
use rota_store::AnyStore;
use rota_verbs::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::commands::serve::collector;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// Where it listens if it can.
const PORT: u16 = 8788;

/// An API that is served as long as this is kept.
pub struct Endpoint {
    url: String,
    token: Token,
    /// Whether agents come to their tasks by it.
    is_for_agents: bool,
    meter: Meter,
    stop: CancellationToken,
}

impl Endpoint {
    /// Begins to serve. A port that is taken is no trouble: where it listens is written to `.rota/run/serve`, and tried
    /// first the next time, because agents that outlived us know it.
    pub async fn open(rota: &Path, cx: &Context, policy_file: PathBuf, gates: Gates) -> CliResult<Self> {
        let file = locate::token_file()?;
        let read = || Token::of_file(&file).map_err(|error| CliError::Io(error.to_string()));
        let (token, for_door) = (read()?, read()?);
        let note = rota.join("run/serve");
        let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", note.display()));
        let listener = listener(&note).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let url = format!("http://{address}");
        std::fs::write(&note, format!("{url}\n")).map_err(failed)?;
        let context = Context { agent: None, lease: None, ambient_lease: None, ..cx.clone() };
        let api = Api::new(Settings { context, policy_file: Some(policy_file), gates: Some(gates) });
        let meter = api.meter();
        let api = match collector()? {
            Some(collector) => api.with_traces(collector),
            None => api,
        };
        let stop = CancellationToken::new();
        let served = serve_api(api, listener, Door::new(address, for_door), stop.clone());
        tokio::spawn(async move {
            if let Err(error) = served.await {
                // Nobody is left to tell if this cannot be written either.
                drop(output::warn(&format!("{address} is not served: {error}")));
            }
        });
        let is_for_agents = matches!(cx.store, AnyStore::Postgres(_));
        Ok(Self { url, token, is_for_agents, meter, stop })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Where it listened before, else the usual port, else any.
async fn listener(note: &Path) -> std::io::Result<TcpListener> {
    let before = std::fs::read_to_string(note).ok().and_then(|url| {
        let address: SocketAddr = url.trim().strip_prefix("http://")?.parse().ok()?;
        address.ip().is_loopback().then_some(address)
    });
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for address in before.into_iter().chain([at(PORT)]) {
        if let Ok(listener) = listen::bind(address).await {
            return Ok(listener);
        }
    }
    listen::bind(at(0)).await
}

impl Companion for Endpoint {
    fn begun(&self, held: &Held) -> Vec<(String, String)> {
        if !self.is_for_agents {
            return Vec::new();
        }
        let claim = LeaseClaim {
            scope: held.scope.clone(),
            task: held.task.id.to_string(),
            lease: held.lease.clone(),
        };
        let token = self.token.seal(&claim).expose().to_owned();
        vec![("ROTA_STORE".to_owned(), self.url.clone()), ("ROTA_TOKEN".to_owned(), token)]
    }

    /// The store knows.
    fn ended(&self, _held: &Held) {}

    fn ticked(&self, took: Duration) {
        self.meter.note_tick(took);
    }
}
