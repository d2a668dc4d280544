//! The HTTP API: every verb of the [registry](rota_verbs::registry) below `/api/v1`, with the JSON that the command line prints.
//!
//! A call runs on a thread of its own under one of a limited number of turns, so that a store that makes it wait holds
//! up nobody else; only one task is read from a file where the connections are, because that takes less time than to hand
//! it on. The server can stand alone or be one task of a program that does more: [`serve_api`] takes a
//! listener, an authenticator and what tells it to stop.

mod access;
mod cycles;
mod events;
mod meter;
mod openapi;
mod operations;
mod request;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use rota_auth::{Authenticator, Caller, Denied};
use rota_core::supervisor::Standing;
use rota_gateway::panel::Panel;
use rota_verbs::policy::ListPolicies;
use rota_verbs::registry::Failure;
use rota_verbs::{Context, Payload, Said, Verb, mirror, settle};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use meter::Meter;
pub use operations::{Operation, PREFIX};
pub use request::{SURROUNDINGS, takes, typed};

use crate::client::Target;
use crate::listen::{Answer, Problem, serve};
use events::{Hub, Wanted};
use request::Asked;
use trace::{Begun, Tracer};

/// The longest body: a plan of some ten thousand tasks.
const BODY_BYTES: usize = 16 * 1_024 * 1_024;
/// The journal, as it goes on.
const EVENTS: &str = "/api/v1/events";
/// The gates, as `rota gate status --json` prints them.
pub const GATE: &str = "/api/v1/gate";
/// The description of all this.
const OPENAPI: &str = "/api/v1/openapi.json";
/// Calls under way at once; more wait.
const CALLS: u32 = 16;
/// How long the first scrape waits until everything was counted.
const FIRST_COUNT: Duration = Duration::from_millis(500);
/// How long calls that are under way may take when the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// What a server works with.
pub struct Settings {
    /// The store, the scope and the host, unless a call says otherwise.
    pub context: Context,
    /// Where the copy of the policy is written; none for nowhere.
    pub policy_file: Option<PathBuf>,
    /// Who knows the gates; none where there are none.
    pub gates: Option<Gates>,
    /// Whether only agents are served, with the tokens of their leases.
    pub agents_only: bool,
    /// Reads where the supervisor's cycles stand; none where none is configured.
    pub cycles: Option<Cycles>,
}

/// Reads where the supervisor's cycles stand, on a thread that may wait.
pub type Cycles = Arc<dyn Fn() -> Option<Standing> + Send + Sync>;

/// Asks the gateway, on a thread that may wait; none where nobody runs one.
pub type Gates = Arc<dyn Fn() -> Option<Panel> + Send + Sync>;

/// The server: one for all its callers.
#[derive(Clone)]
pub struct Api {
    settings: Arc<Settings>,
    calls: Arc<Semaphore>,
    hub: Hub,
    meter: Meter,
    stop: CancellationToken,
    tracer: Option<Tracer>,
}

impl Api {
    /// On a store.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            calls: Arc::new(Semaphore::new(CALLS as usize)),
            hub: Hub::default(),
            meter: Meter::default(),
            stop: CancellationToken::new(),
            tracer: None,
        }
    }

    /// With spans for a collector; to be called on the runtime that serves.
    pub fn with_traces(self, target: Target) -> Self {
        let tracer = Some(Tracer::start(target, self.stop.clone()));
        Self { tracer, ..self }
    }

    /// Who sent a request; nobody in particular where everybody may look.
    fn admit(auth: &Authenticator, parts: &Parts) -> Result<Option<Caller>, Denied> {
        if is_open(parts.uri.path()) {
            return auth.check_address(parts).map(|()| None);
        }
        auth.authenticate(parts).map(Some)
    }

    async fn answer(self: Arc<Self>, parts: Parts, body: Bytes, caller: Option<Caller>) -> Answer {
        let begun = self.tracer.as_ref().map(|_| Begun::of(&parts));
        let answer = self.route(&parts, body, caller).await.unwrap_or_else(|problem| problem.response());
        if let Some((tracer, begun)) = self.tracer.as_ref().zip(begun) {
            tracer.end(begun, answer.status().as_u16());
        }
        answer
    }

    async fn route(&self, parts: &Parts, body: Bytes, caller: Option<Caller>) -> Result<Answer, Problem> {
        let path = parts.uri.path();
        match path {
            "/healthz" => return plain(parts, "ok\n"),
            "/readyz" => return self.ready(parts).await,
            _ => {}
        }
        let Some(caller) = caller else { return Err(Problem::from(Denied::Token)) };
        let is_operator = caller == Caller::Operator;
        if is_operator && self.settings.agents_only {
            let detail = "this address serves only agents with a lease token; use `rota serve` or the store";
            return Err(Problem::new(StatusCode::FORBIDDEN, "agents_only", detail));
        }
        let read_only =
            || if parts.method == http::Method::GET { Ok(()) } else { Err(not_allowed(&["GET"])) };
        let operators_only = || if is_operator { Ok(()) } else { Err(operators_alone(path)) };
        match path {
            "/metrics" => {
                read_only().and_then(|()| operators_only())?;
                return Ok(self.metrics().await);
            }
            GATE => {
                read_only().and_then(|()| operators_only())?;
                return self.gate().await;
            }
            OPENAPI => {
                read_only().and_then(|()| operators_only())?;
                return Ok(answer("application/json", format!("{:#}\n", openapi::document())));
            }
            EVENTS => {
                read_only().and_then(|()| operators_only())?;
                let mut query = request::query_once(parts)?;
                let wanted = Wanted::read(parts, &mut query)?;
                if let Some(name) = query.keys().find(|name| name.as_str() != "scope") {
                    return Err(request::unknown_parameter(name));
                }
                let cx = request::context(&self.settings.context, &query)?;
                return self.hub.stream(cx, wanted, self.stop.clone()).await;
            }
            _ => {}
        }
        let below = path.strip_prefix(PREFIX).ok_or_else(|| not_found(path))?;
        let (operation, named) = operations::find(&parts.method, below)
            .map_err(|methods| if methods.is_empty() { not_found(path) } else { not_allowed(&methods) })?;
        let asked = request::read(operation, &named, parts, &body)?;
        let text = self.call(operation, asked, caller).await?;
        Ok(answer("application/json", text))
    }

    /// Whether the store answers.
    async fn ready(&self, parts: &Parts) -> Result<Answer, Problem> {
        match (ListPolicies {}).run(&self.settings.context).await {
            Ok(_) => plain(parts, "ready\n"),
            Err(error) => Err(problem(&Said::of(&error))),
        }
    }

    /// What is measured. The first one who asks waits for a moment that everything was counted; on a large store what
    /// is counted comes with the next scrape.
    async fn metrics(&self) -> Answer {
        self.meter.ask();
        drop(tokio::time::timeout(FIRST_COUNT, self.meter.counted()).await);
        answer("text/plain; version=0.0.4; charset=utf-8", self.meter.text())
    }

    /// How the gates are now.
    async fn gate(&self) -> Result<Answer, Problem> {
        let gates = self.settings.gates.clone();
        let asked = tokio::task::spawn_blocking(move || gates.and_then(|gates| gates())).await;
        match asked.map_err(|failed| internal(&failed.to_string()))? {
            Some(panel) => Ok(answer("application/json", Payload::new(panel).to_text())),
            None => {
                Err(Problem::new(StatusCode::NOT_FOUND, "no_gateway", "no gateway runs here")
                    .with_exit_code(2))
            }
        }
    }

    /// What is measured here, for whoever measures more.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    async fn call(
        &self,
        operation: &'static Operation,
        asked: Asked,
        caller: Caller,
    ) -> Result<String, Problem> {
        let turn = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| stopping())?;
        let start = Instant::now();
        let settings = Arc::clone(&self.settings);
        let mut gone = Gone::default();
        let is_gone = Arc::clone(&gone.flag);
        // A task of its own: a call goes on when its caller goes away.
        let called = tokio::spawn(async move {
            let _turn = turn;
            perform(&settings, operation, &asked, &caller, &is_gone).await
        });
        let text = called.await.map_err(|failed| internal(&failed.to_string()))?;
        gone.is_answered = true;
        let refusal = text.as_ref().err().map(|problem| problem.code().to_owned());
        self.meter.note_call(operation.route.name, start.elapsed(), refusal.as_deref());
        text
    }

    /// Waits until no call is under way, for a bounded time, and lets none begin any more.
    async fn rest(&self) {
        // What is still under way after that is cut off like by a crash: it was not acknowledged.
        drop(tokio::time::timeout(GRACE, self.calls.acquire_many(CALLS)).await);
        self.calls.close();
    }
}

/// Serves until `stop` says so; calls that are under way are answered first.
pub async fn serve_api(
    api: Api,
    listener: TcpListener,
    auth: Authenticator,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let ending = stop.clone();
    let measured = tokio::spawn(api.meter.clone().run(Arc::clone(&api.settings), api.stop.clone()));
    let (each, last) = (Arc::new(api.clone()), api);
    let rest = async move {
        ending.cancelled().await;
        last.rest().await;
        // Streams of events would never end by themselves.
        last.stop.cancel();
        drop(measured.await);
    };
    let admit = move |parts: &Parts| Api::admit(&auth, parts);
    let handler = move |parts, body, caller| Arc::clone(&each).answer(parts, body, caller);
    tokio::join!(serve(listener, admit, BODY_BYTES, handler, stop), rest).0
}

async fn perform(
    settings: &Settings,
    operation: &Operation,
    asked: &Asked,
    caller: &Caller,
    gone: &AtomicBool,
) -> Result<String, Problem> {
    let cx = request::context(&settings.context, &asked.surroundings)?;
    let cx = match caller {
        Caller::Operator => cx,
        Caller::Lease(claim) => access::narrow(claim, operation, asked, cx).await?,
    };
    let done = (operation.run)(&cx, &asked.input).await.map_err(|failure| match failure {
        Failure::Shape(error) => Problem::new(StatusCode::BAD_REQUEST, "bad_request", error.to_string()),
        Failure::Verb(error) => problem(&operation.report(&error)),
    })?;
    if let Some(file) = settings.policy_file.as_ref().filter(|_| operation.publishes) {
        // The store decides, so a copy that cannot be written is no failure of what was done.
        drop(mirror::write(&cx, file).await);
    }
    if gone.load(Ordering::Acquire) {
        // The caller has gone, so nobody would work under these leases before they expire. One that cannot be released
        // expires.
        for lease in &done.leases.granted {
            drop(settle::release_granted(&cx, lease).await);
        }
    }
    Ok(done.text)
}

/// Notices that the caller went away: its request is dropped before it was answered.
#[derive(Default)]
struct Gone {
    flag: Arc<AtomicBool>,
    is_answered: bool,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.flag.store(!self.is_answered, Ordering::Release);
    }
}

fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

fn answer(kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn plain(parts: &Parts, text: &'static str) -> Result<Answer, Problem> {
    if parts.method == http::Method::GET || parts.method == http::Method::HEAD {
        return Ok(answer("text/plain; charset=utf-8", text));
    }
    Err(not_allowed(&["GET", "HEAD"]))
}

fn not_found(path: &str) -> Problem {
    let detail = format!("nothing is at {}", rota_core::text::escaped(path));
    Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
}

fn not_allowed(methods: &[&str]) -> Problem {
    let allowed = methods.join(", ");
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("allowed here: {allowed}"),
    );
    match HeaderValue::from_str(&allowed) {
        Ok(allowed) => problem.with_header(ALLOW, allowed),
        Err(_) => problem,
    }
}

fn operators_alone(path: &str) -> Problem {
    access::forbidden("lease_may_not".into(), format!("a lease token may not read {path}"))
}

fn stopping() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is about to end").with_exit_code(75)
}

fn internal(detail: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
}

/// What a verb says, over HTTP.
fn problem(said: &Said) -> Problem {
    let status = match (said.is_fault(), said.exit_code, said.code.as_ref()) {
        (true, 75, _) => StatusCode::SERVICE_UNAVAILABLE,
        (true, ..) => StatusCode::INTERNAL_SERVER_ERROR,
        (
            _,
            _,
            "task_not_found" | "blocker_not_found" | "edge_not_found" | "agent_not_found" | "issue_not_found"
            | "entry_not_found" | "unknown_queue" | "unknown_dependency",
        ) => StatusCode::NOT_FOUND,
        (_, _, "bad_value" | "bad_name" | "bad_line" | "bad_policy") => StatusCode::BAD_REQUEST,
        (_, _, "agents_may_not_create" | "agent_limit" | "force_under_lease") => StatusCode::FORBIDDEN,
        _ => StatusCode::CONFLICT,
    };
    Problem::said(status, said)
}
