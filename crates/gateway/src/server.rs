//! Connections in: each a task of its own, all with the same bounds; how the gateway is started and how it ends.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rota_auth::{Authenticator, Token};
use rota_gate::{ConfigError, Gate, GateConfig, GroupConfig, OpenError};
use rota_net::{Connections, Requests};
use rota_store::intents::Call;
use rota_store::{AnyStore, Secret};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bound::HeadTimer;
use crate::call;
use crate::config::{Api, Credentials, GatewayConfig};
use crate::keeper::{Caller, Keeper, Notices};
use crate::limits;
use crate::link::Links;
use crate::panel::{BudgetView, GateView, Panel};
use crate::quiet::quietly;
use crate::refusal::Refusal;
use crate::route::Route;
use crate::stalled::Patient;
use crate::tls;
use crate::upstream::{Key, Upstream};

/// A call has a connection here and one to its provider.
const DESCRIPTORS: u64 = 2;
/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests for a reload that may wait; more are refused.
const RELOADS: usize = 4;
/// How long a client may take between the pieces of its first line, before it is known what it speaks.
const PIECE: Duration = Duration::from_millis(5);

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    /// A limit that lets nothing through.
    #[error("gate: {0}")]
    Gate(#[from] ConfigError),
    /// What the store says of blocks is not known.
    #[error(transparent)]
    Store(#[from] rota_store::Error),
    /// The stored block is not known.
    #[error(transparent)]
    Block(#[from] rota_gate::StoreFault),
    /// No TLS.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A key that cannot be sent.
    #[error("{variable} holds no key: visible ASCII is wanted")]
    Key {
        /// Where it comes from.
        variable: String,
    },
    /// A key that others could read on its way.
    #[error("upstream {upstream}: its key would travel unencrypted to {url}; use https://, or no key_env")]
    Exposed {
        /// Which.
        upstream: String,
        /// Where to.
        url: String,
    },
    /// The system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<OpenError> for StartFault {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Config(error) => Self::Gate(error),
            OpenError::Store(error) => Self::Block(error),
        }
    }
}

/// What every call sees.
pub(crate) struct Shared {
    pub auth: Authenticator,
    pub keeper: Arc<Keeper>,
    pub credentials: Credentials,
    /// How long calls are held, in milliseconds.
    hold_ms: AtomicU64,
    pub apis: Vec<(String, Api)>,
    /// In the order of `apis`.
    pub upstreams: Vec<Arc<Upstream>>,
    next_call: AtomicU64,
    bodies_bytes: AtomicUsize,
    closing: watch::Sender<bool>,
    /// Who reads the configuration again when that is asked for.
    pub reloads: mpsc::Sender<Reload>,
}

impl Shared {
    pub fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms.load(Ordering::Relaxed))
    }

    pub fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.iter().find(|upstream| *upstream.name == *name)
    }

    /// Whose shape a refusal has.
    pub fn api_of(&self, route: &Route<'_>, path: &str) -> Api {
        match route {
            Route::Upstream { index, .. } => self.upstreams[*index].api,
            _ => call::api_of_path(path),
        }
    }

    /// A name for the panel; one task may have many calls under way.
    pub fn name_of(&self, caller: &Caller) -> String {
        let whose = if caller.task.is_empty() { ["call", "-"] } else { [&*caller.task, "#"] };
        self.numbered(whose)
    }

    pub fn name_of_exec(&self) -> String {
        self.numbered(["exec", "-"])
    }

    fn numbered(&self, [before, between]: [&str; 2]) -> String {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        [before, between, itoa::Buffer::new().format(number)].concat()
    }

    /// Ready when the gateway goes down.
    pub async fn closing(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives as long as this.
        let _closed = closing.wait_for(|closing| *closing).await;
    }

    /// Room for a body.
    pub fn room(&self) -> Room<'_> {
        Room { taken: 0, all: &self.bodies_bytes }
    }

    pub fn panel(&self) -> Panel {
        let budget = self.keeper.day_budget().map(BudgetView::of);
        let is_spent = budget.as_ref().is_some_and(|budget| budget.is_spent);
        let view = |upstream: &Arc<Upstream>| {
            let idle = upstream.links.idle_count();
            GateView::of(&upstream.name, &upstream.gate.details(), idle, is_spent)
        };
        Panel { upstreams: self.upstreams.iter().map(view).collect(), budget }
    }
}

/// Somebody wants the configuration read again; the answer is what is wrong with it.
pub type Reload = oneshot::Sender<Option<String>>;

/// A share of what all bodies may take, given back when the call is over.
pub(crate) struct Room<'a> {
    taken: usize,
    all: &'a AtomicUsize,
}

impl Room<'_> {
    pub fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.taken += bytes;
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > limits::BODIES_BYTES { Err(Refusal::Busy) } else { Ok(()) }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// A gateway that is ready to serve. Clones share it.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
    reloads: Arc<Mutex<Option<mpsc::Receiver<Reload>>>>,
}

/// What a gateway is made of.
pub struct Setup<'a> {
    /// The section of `rota.yml`.
    pub config: &'a GatewayConfig,
    /// The gate's part of the policy, as a gate reads it.
    pub gate: GateConfig,
    /// Where tasks, usage and blocks are.
    pub store: AnyStore,
    /// In which scope, as whom.
    pub call: Call,
    /// The operator's token.
    pub token: Token,
    /// Where it listens.
    pub address: SocketAddr,
    /// The value of a variable, where it is set.
    pub variable: &'a dyn Fn(&str) -> Option<Secret>,
    /// Who is told what happens.
    pub notices: Notices,
}

impl Gateway {
    /// Reads what is blocked and makes one gate per upstream.
    ///
    /// # Errors
    /// See [`StartFault`].
    pub async fn new(setup: Setup<'_>) -> Result<Self, StartFault> {
        let Setup { config, gate, store, call, token, address, variable, notices } = setup;
        let auth = Authenticator::new(address, token);
        let names: Vec<String> = config.upstreams.keys().cloned().collect();
        let budget = config.budget.clone();
        let keeper = Keeper::open(store, call, auth.clone(), budget, names, notices).await?;
        let tls = tls::connector()?;
        let mut upstreams = Vec::new();
        for (name, upstream) in &config.upstreams {
            let key = key_of(name, upstream, config.credentials, variable)?;
            let gate = grouped(gate.clone(), config);
            let gate = Gate::with_store(gate, name, keeper.block_store())?;
            let links = Links::new(upstream.url.clone(), &tls);
            upstreams.push(Arc::new(Upstream::new(name, upstream, key, gate, links)));
        }
        let apis = upstreams.iter().map(|upstream| (upstream.name.to_string(), upstream.api)).collect();
        let (reloads, asked) = mpsc::channel(RELOADS);
        let shared = Shared {
            auth,
            keeper: Arc::new(keeper),
            credentials: config.credentials,
            hold_ms: AtomicU64::new(millis(config.hold)),
            apis,
            upstreams,
            next_call: AtomicU64::new(1),
            bodies_bytes: AtomicUsize::new(0),
            closing: watch::Sender::new(false),
            reloads,
        };
        Ok(Self { shared: Arc::new(shared), reloads: Arc::new(Mutex::new(Some(asked))) })
    }

    /// Callers, usage and blocks.
    pub fn keeper(&self) -> &Arc<Keeper> {
        &self.shared.keeper
    }

    /// The gates as people see them.
    pub fn panel(&self) -> Panel {
        self.shared.panel()
    }

    /// Takes over other limits at once: the gate's part of the policy; groups, budgets, prices and the hold of the
    /// configuration. Where it listens, its upstreams and credentials stay as they were.
    ///
    /// # Errors
    /// A limit that lets nothing through; nothing changed.
    pub fn reconfigure(&self, gate: &GateConfig, config: &GatewayConfig) -> Result<(), ConfigError> {
        let gate = grouped(gate.clone(), config);
        gate.validate()?;
        for upstream in &self.shared.upstreams {
            upstream.gate.reconfigure(&gate)?;
        }
        self.shared.hold_ms.store(millis(config.hold), Ordering::Relaxed);
        self.shared.keeper.set_budget(config.budget.clone());
        Ok(())
    }

    /// Requests to read the configuration again, for the one who knows where it is. The first caller gets them.
    pub fn reloads(&self) -> Option<mpsc::Receiver<Reload>> {
        self.reloads.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Serves until `stop` is ready. Then nobody new is let in, whoever waits is told to come again, and answers under
    /// way may end within the grace.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let gates: Vec<(String, Gate)> = self
            .shared
            .upstreams
            .iter()
            .map(|upstream| (upstream.name.to_string(), upstream.gate.clone()))
            .collect();
        let mut connections = JoinSet::new();
        let accepting = self.accept_all(&listener, &mut connections);
        tokio::select! {
            () = stop => {}
            () = accepting => {}
            () = self.attend(&gates) => {}
        }
        drop(listener);
        self.shared.closing.send_replace(true);
        gates.iter().for_each(|(_, gate)| gate.close());
        let all_ended = async { while connections.join_next().await.is_some() {} };
        // What has not ended by then is cut, and its client knows.
        let _in_time = timeout(limits::GRACE, all_ended).await;
        connections.shutdown().await;
        self.shared.keeper.close().await;
    }

    async fn attend(&self, gates: &[(String, Gate)]) {
        let tidying = async {
            loop {
                tokio::time::sleep(limits::IDLE).await;
                self.shared.upstreams.iter().for_each(|upstream| upstream.links.tidy());
            }
        };
        tokio::select! {
            () = self.shared.keeper.attend(gates) => {}
            () = tidying => {}
        }
    }

    async fn accept_all(&self, listener: &TcpListener, connections: &mut JoinSet<()>) {
        let places = Connections::new(limits::CONNECTIONS, DESCRIPTORS);
        rota_net::accept_all(listener, &places, |stream, slot| {
            while connections.try_join_next().is_some() {}
            let shared = Arc::clone(&self.shared);
            connections.spawn(async move {
                tokio::select! {
                    () = connection(shared, stream, slot.requests()) => {}
                    () = slot.is_over() => {}
                }
            });
        })
        .await;
    }
}

/// One client, in whichever version of HTTP it speaks.
async fn connection(shared: Arc<Shared>, stream: TcpStream, requests: Requests) {
    let Ok(Some(is_http2)) = timeout(limits::HEAD, speaks_http2(&stream)).await else { return };
    let service = {
        let shared = Arc::clone(&shared);
        service_fn(move |request| {
            let (answer, underway) = (call::answer(Arc::clone(&shared), request), requests.begin());
            async move { answer.await.map(|response| underway.answered(response)) }
        })
    };
    let mut closing = pin!(shared.closing());
    let io = TokioIo::new(Patient::new(stream, limits::STALL));
    // A connection that breaks is the client's business.
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(limits::HEAD)
            .max_concurrent_streams(limits::STREAMS)
            .max_header_list_size(u32::try_from(limits::HEAD_BYTES).unwrap_or(u32::MAX))
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ended = connection.as_mut() => return,
            () = closing => connection.as_mut().graceful_shutdown(),
        }
        drop(connection.await);
    } else {
        let connection = http1::Builder::new()
            .timer(HeadTimer::default())
            .header_read_timeout(limits::HEAD)
            .max_buf_size(limits::HEAD_BYTES)
            // Heads and pieces are short: one buffer costs less than a list of them.
            .writev(false)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        let served = async {
            // Whoever is to wake this when the gateway goes down; it is asked once, not whenever something comes in.
            let mut told: Option<Waker> = None;
            let has_ended = poll_fn(|cx| {
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                let is_known = told.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
                if is_known && !*shared.closing.borrow() {
                    return Poll::Pending;
                }
                told = Some(cx.waker().clone());
                closing.as_mut().poll(cx).map(|()| false)
            });
            if !has_ended.await {
                connection.as_mut().graceful_shutdown();
                drop(connection.await);
            }
        };
        quietly(served).await;
    }
}

/// Looks at the first bytes without taking them; none if the client went away.
async fn speaks_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0_u8; 24];
    loop {
        let count = stream.peek(&mut first).await.ok().filter(|count| *count > 0)?;
        if first[..count] != PREFACE[..count] {
            return Some(false);
        }
        if count == PREFACE.len() {
            return Some(true);
        }
        tokio::time::sleep(PIECE).await;
    }
}

fn key_of(
    name: &str,
    upstream: &crate::config::UpstreamConfig,
    credentials: Credentials,
    variable: &dyn Fn(&str) -> Option<Secret>,
) -> Result<Option<Key>, StartFault> {
    let Some(key_env) = upstream.key_env.as_ref().filter(|_| credentials == Credentials::Inject) else {
        return Ok(None);
    };
    if upstream.url.is_exposed() {
        return Err(StartFault::Exposed { upstream: name.to_owned(), url: upstream.url.to_string() });
    }
    // Whoever uses only one provider has no key of the other; whoever calls it is told.
    let Some(key) = variable(key_env) else { return Ok(None) };
    Key::new(&key).map(Some).ok_or_else(|| StartFault::Key { variable: key_env.clone() })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The policy's limits, with the groups of the configuration in front.
fn grouped(mut gate: GateConfig, config: &GatewayConfig) -> GateConfig {
    let seconds = |secs: u32| Duration::from_secs(u64::from(secs));
    let named = config.groups.iter().map(|(name, group)| GroupConfig {
        name: name.clone(),
        models: group.models.clone(),
        max_requests_per_window: group.max_requests_per_window,
        rate_window: group.rate_window_secs.map(seconds),
        burst: group.burst,
        input_tokens_per_minute: group.max_input_tokens_per_minute,
        output_tokens_per_minute: group.max_output_tokens_per_minute,
    });
    let mut groups: Vec<GroupConfig> = named.collect();
    groups.extend(gate.groups.into_iter().filter(|group| !config.groups.contains_key(&group.name)));
    gate.groups = groups;
    gate
}
