//! One connection to a tracker: bounded calls, statuses with a meaning, limits of the tracker obeyed, answers that did
//! not change not fetched again. Redirections are not followed: the token goes to the configured address only.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rota_net::{encode, tls};
use rota_store::Secret;
use rustls::RootCertStore;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{Patience, Trouble};
use rota_daemon::config::{TrackerConfig, TrackerKind};

/// The longest answer that is read.
const BODY_BYTES: usize = 64 * 1_024 * 1_024;
/// Answers that are kept to be asked for conditionally.
const KEPT: usize = 64;
/// Longer answers are not kept.
const KEPT_BYTES: usize = 1_024 * 1_024;
/// Tries of a call that may pass.
const TRIES: u32 = 3;
/// The longest limit that is believed.
const LIMIT_SECS: u64 = 3_600;

/// A tracker on a server.
pub struct Connection {
    kind: TrackerKind,
    base: String,
    repository: String,
    authorization: HeaderValue,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    patience: Patience,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The tracker wants to be left alone until then.
    limited_until: Option<Instant>,
    /// Answers by address, with what tells whether they are still right.
    kept: BTreeMap<String, (HeaderValue, Answer)>,
}

/// An answer that is what was hoped for.
#[derive(Clone)]
pub(super) struct Answer {
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What to call.
pub(super) struct Call<'a> {
    pub method: Method,
    pub path: &'a str,
    pub body: Option<serde_json::Value>,
}

impl<'a> Call<'a> {
    pub fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: None }
    }
}

/// Why no connection could be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// A token with a line break, say.
    #[error("the token cannot be sent: it has characters that no header may have")]
    BadToken,
    /// The system's certificates cannot be read.
    #[error("the certificates this system trusts: {0}")]
    Certificates(#[from] std::io::Error),
}

impl Connection {
    /// Prepares one; nothing is sent yet.
    pub fn new(config: &TrackerConfig, token: &Secret, patience: Patience) -> Result<Self, ConnectionError> {
        let scheme = if config.kind == TrackerKind::Gitea { "token" } else { "Bearer" };
        let text = format!("{scheme} {}", token.expose().trim());
        let mut authorization = HeaderValue::from_str(&text).map_err(|_| ConnectionError::BadToken)?;
        authorization.set_sensitive(true);
        let connector = connector(config.api_base.starts_with("https://"))?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(15))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            kind: config.kind,
            base: config.api_base.clone(),
            repository: format!("/repos/{}/{}", encode(&config.owner), encode(&config.repo)),
            authorization,
            client,
            patience,
            state: Mutex::default(),
        })
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// The path of something in the repository.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.repository)
    }

    /// The path of an address that the server gave us; none if it leads elsewhere.
    pub(super) fn own_path<'a>(&self, address: &'a str) -> Option<&'a str> {
        address.strip_prefix(self.base.as_str()).filter(|path| path.starts_with('/'))
    }

    /// Calls, and again where that may help.
    pub(super) async fn call(&self, call: Call<'_>) -> Result<Answer, Trouble> {
        let mut pause = self.patience.pause;
        let mut tries = 1;
        loop {
            match self.once(&call).await {
                Err(trouble) if trouble.may_pass() && tries < TRIES => {
                    tokio::time::sleep(pause).await;
                    (tries, pause) = (tries + 1, pause * 2);
                }
                called => return called,
            }
        }
    }

    /// Calls once.
    pub(super) async fn once(&self, call: &Call<'_>) -> Result<Answer, Trouble> {
        let what = format!("{} {}", call.method, call.path.split('?').next().unwrap_or_default());
        if let Some(wait) = self.limit() {
            return Err(Trouble::RateLimited { what, wait });
        }
        let waited = self.patience.call;
        let sent = tokio::time::timeout(waited, self.send(call, &what)).await;
        let (status, answer) = sent.map_err(|_| Trouble::TimedOut { what: what.clone(), waited })??;
        self.note_limit(status, &answer.headers);
        if status == StatusCode::NOT_MODIFIED
            && let Some((_, kept)) = self.state().kept.get(call.path)
        {
            return Ok(kept.clone());
        }
        if !status.is_success() {
            return Err(self.meaning(what, status, &answer));
        }
        self.keep(call, &answer);
        Ok(answer)
    }

    async fn send(&self, call: &Call<'_>, what: &str) -> Result<(StatusCode, Answer), Trouble> {
        let unreachable = |problem: String| Trouble::Unreachable { what: what.to_owned(), problem };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base, call.path))
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::USER_AGENT, concat!("rota/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, self.accepts());
        if self.kind == TrackerKind::GitHub {
            request = request.header("x-github-api-version", "2022-11-28");
        }
        if call.method == Method::GET
            && let Some((tag, _)) = self.state().kept.get(call.path)
        {
            request = request.header(header::IF_NONE_MATCH, tag.clone());
        }
        let body = match &call.body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(body)).map_err(|error| unreachable(error.to_string()))?;
        let response =
            self.client.request(request).await.map_err(|error| unreachable(with_causes(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES).collect().await;
        let body = body.map_err(|error| unreachable(error.to_string()))?.to_bytes();
        Ok((head.status, Answer { headers: head.headers, body }))
    }

    fn accepts(&self) -> &'static str {
        match self.kind {
            TrackerKind::Gitea => "application/json",
            TrackerKind::GitHub => "application/vnd.github+json",
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, call: &Call<'_>, answer: &Answer) {
        let Some(tag) = answer.headers.get(header::ETAG).filter(|_| call.method == Method::GET) else {
            return;
        };
        if answer.body.len() > KEPT_BYTES {
            return;
        }
        let kept = &mut self.state().kept;
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(call.path.to_owned(), (tag.clone(), answer.clone()));
    }

    /// How long the tracker still wants to be left alone.
    fn limit(&self) -> Option<Duration> {
        let until = self.state().limited_until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    fn note_limit(&self, status: StatusCode, headers: &HeaderMap) {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let is_spent = number("x-ratelimit-remaining") == Some(0);
        let retry_after = number("retry-after");
        let is_limit = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::FORBIDDEN && (is_spent || retry_after.is_some()))
            || (status.is_success() && is_spent);
        if !is_limit {
            return;
        }
        let now = u64::try_from(rota_store::clock::system_now().get() / 1_000).unwrap_or(0);
        let until_reset = number("x-ratelimit-reset").map(|reset| reset.saturating_sub(now));
        let seconds = retry_after.or(until_reset.filter(|_| is_spent)).unwrap_or(60).min(LIMIT_SECS);
        self.state().limited_until = Some(Instant::now() + Duration::from_secs(seconds));
    }

    fn meaning(&self, what: String, status: StatusCode, answer: &Answer) -> Trouble {
        if let Some(wait) = self.limit() {
            return Trouble::RateLimited { what, wait };
        }
        let code = status.as_u16();
        let is_json = answer
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("json"));
        match code {
            401 | 403 => Trouble::Forbidden { what, status: code },
            404 | 410 if is_json || answer.body.is_empty() => Trouble::NotFound { what, status: code },
            404 | 410 => Trouble::Odd {
                what,
                problem: format!("{code} and no JSON: is api_base the address of the API?"),
            },
            409 | 412 => Trouble::Conflict { what, status: code },
            423 => Trouble::Locked { what },
            300..=399 => Trouble::Odd {
                what,
                problem: format!("{code}: redirections are not followed: set api_base to where it leads"),
            },
            400..=499 => Trouble::Refused { what, status: code },
            _ => Trouble::Failed { what, status: code },
        }
    }
}

impl Answer {
    /// The JSON in it.
    pub fn json<T: DeserializeOwned>(&self, what: &str) -> Result<T, Trouble> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let html = self.body.trim_ascii_start().starts_with(b"<");
            let problem = if html {
                "an HTML page came instead of JSON: a proxy's, or api_base is not the address of the API"
                    .to_owned()
            } else {
                format!("the answer cannot be read: {error}")
            };
            Trouble::Odd { what: what.to_owned(), problem }
        })
    }

    /// A header that is a whole number.
    pub fn number(&self, name: HeaderName) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.trim().parse().ok()
    }
}

/// Trusts the certificates that this system trusts; without TLS they are not loaded.
fn connector(has_tls: bool) -> Result<HttpsConnector<HttpConnector>, ConnectionError> {
    let roots = if has_tls { tls::system_roots() } else { RootCertStore::empty() };
    if has_tls && roots.is_empty() {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    let config = tls::client_config(roots).map_err(io::Error::other)?;
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config);
    let builder = if has_tls { builder.https_only() } else { builder.https_or_http() };
    Ok(builder.enable_http1().build())
}

/// An error and what it comes from: the first one alone says little.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
