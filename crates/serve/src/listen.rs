//! Connections. Everything a caller can send or hold has a limit: how many connections, how long the head and the body of
//! a request may take, how long the body is. Every request is authenticated before its body is read.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use rota_auth::{Caller, Denied};
use rota_net::{Connections, Slot};
use rota_verbs::error_report::Nature;
use rota_verbs::{Said, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connections at once, as far as the system lets us have so many.
const CONNECTIONS: usize = 2_048;
/// How long the head of a request may take, also of the next one on a connection that is kept.
const HEAD: Duration = Duration::from_secs(30);
/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(30);
/// How long answers may take when the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// What comes back.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Listens on an address.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// A refusal as it is written: RFC 9457, and what the command line needs to say the same.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// `about:blank`: the code says it.
    pub r#type: Word,
    /// The status in words.
    pub title: Word,
    /// The status.
    pub status: u16,
    /// One line.
    pub detail: String,
    /// A stable word.
    pub code: Word,
    /// More than the one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How a program ends with it.
    pub exit_code: u8,
    /// A refusal, an answer, or the world that failed.
    pub nature: Nature,
}

/// A refusal over HTTP, as RFC 9457 writes it.
pub struct Problem {
    status: StatusCode,
    said: Box<Said>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    /// With a stable word and a sentence.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let said = Said {
            message: detail.into(),
            hint: None,
            code: code.into(),
            exit_code: 1,
            nature: Nature::Refusal,
        };
        Self::said(status, &said)
    }

    /// What a verb says.
    pub fn said(status: StatusCode, said: &Said) -> Self {
        Self { status, said: Box::new(said.clone()), header: None }
    }

    /// Its stable word.
    pub fn code(&self) -> &str {
        &self.said.code
    }

    /// With a header of its own.
    pub fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some(Box::new((name, value))), ..self }
    }

    /// How a program ends with it, where that is not 1.
    pub fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.said.exit_code = exit_code;
        self
    }

    /// As an answer.
    pub fn response(&self) -> Answer {
        let told = Told {
            r#type: "about:blank".into(),
            title: self.status.canonical_reason().unwrap_or_default().into(),
            status: self.status.as_u16(),
            detail: self.said.message.clone(),
            code: self.said.code.clone(),
            hint: self.said.hint.clone(),
            exit_code: self.said.exit_code,
            nature: self.said.nature,
        };
        let body = rota_core::text::json_escaped(serde_json::to_string(&told).unwrap_or_default());
        let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some((name, value)) = self.header.as_deref() {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        Self::new(denied.status(), denied.word(), denied.to_string())
    }
}

/// Serves the requests that `auth` accepts, each with its caller, until `stop` is told; requests under way then end.
pub async fn serve<D, H, F>(
    listener: TcpListener,
    auth: D,
    body_bytes: usize,
    handler: H,
    stop: CancellationToken,
) -> std::io::Result<()>
where
    D: Fn(&Parts) -> Result<Option<Caller>, Denied> + Send + Sync + 'static,
    H: Fn(Parts, Bytes, Option<Caller>) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let ending = GracefulShutdown::new();
    let connections = Connections::new(CONNECTIONS, 1);
    let both = Arc::new((auth, handler));
    let serve = |stream: TcpStream, slot: Slot| {
        let (both, requests) = (Arc::clone(&both), slot.requests());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let (both, underway) = (Arc::clone(&both), requests.begin());
            async move {
                let (auth, handler) = both.as_ref();
                let (parts, body) = request.into_parts();
                let caller = match auth(&parts) {
                    Ok(caller) => caller,
                    Err(denied) => return Ok(underway.answered(Problem::from(denied).response())),
                };
                // The body of a request without a token is not awaited, so it cannot hold a connection open.
                if caller.is_none() {
                    let answer = handler(parts, Bytes::new(), None).await;
                    return Ok(underway.of_stranger().answered(answer));
                }
                let answer = answer(body_bytes, handler, parts, body, caller).await;
                Ok::<_, Infallible>(underway.answered(answer))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let connection = ending.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                // A connection that breaks is the caller's business.
                _ended = connection => {}
                () = slot.is_over() => {}
            }
        });
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = rota_net::accept_all(&listener, &connections, serve) => {}
    }
    drop(listener);
    drop(tokio::time::timeout(GRACE, ending.shutdown()).await);
    Ok(())
}

/// Reads the body and has the request answered.
async fn answer<H, F>(
    body_bytes: usize,
    handler: &H,
    parts: Parts,
    body: Incoming,
    caller: Option<Caller>,
) -> Answer
where
    H: Fn(Parts, Bytes, Option<Caller>) -> F,
    F: Future<Output = Answer>,
{
    if body.is_end_stream() {
        return handler(parts, Bytes::new(), caller).await;
    }
    let body = tokio::time::timeout(BODY, Limited::new(body, body_bytes).collect()).await;
    let problem = match body {
        Ok(Ok(body)) => return handler(parts, body.to_bytes(), caller).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is longer than {body_bytes} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", detail)
        }
        Ok(Err(error)) => Problem::new(StatusCode::BAD_REQUEST, "body_unreadable", error.to_string()),
        Err(_) => Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body took too long"),
    };
    problem.response()
}
