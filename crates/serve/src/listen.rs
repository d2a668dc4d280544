//! Connections. Everything a caller can send or hold has a limit: how many connections, how long the head and the body of
//! a request may take, how long the body is. Every request passes the door before its body is read.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use rota_door::{Denied, Door};

/// Connections at once; more wait in the system's line.
const CONNECTIONS: usize = 256;
/// How long the head of a request may take, also of the next one on a connection that is kept.
const HEAD: Duration = Duration::from_secs(30);
/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(30);
/// How long answers may take when the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait when the system has no more descriptors.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// What comes back.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Listens on an address.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// A refusal over HTTP, as RFC 9457 writes it.
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl Problem {
    /// With a stable word and a sentence.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    /// As an answer.
    pub fn response(&self) -> Answer {
        let body = serde_json::json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        Self::new(denied.status(), denied.word(), denied.to_string())
    }
}

/// Serves requests that pass the door until `stop` says so, then lets those under way end.
pub async fn serve<H, F>(
    listener: TcpListener,
    door: Door,
    body_bytes: usize,
    handler: H,
    stop: CancellationToken,
) where
    H: Fn(Request<Full<Bytes>>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let ending = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let Ok((stream, slot)) = accepted else {
            tokio::time::sleep(SHORT_OF_DESCRIPTORS).await;
            continue;
        };
        let (door, handler) = (door.clone(), handler.clone());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let (door, handler) = (door.clone(), handler.clone());
            async move { Ok::<_, Infallible>(admit(&door, body_bytes, handler, request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let connection = ending.watch(connection);
        tokio::spawn(async move {
            let _slot = slot;
            // A connection that breaks is the caller's business.
            drop(connection.await);
        });
    }
    drop(listener);
    drop(tokio::time::timeout(GRACE, ending.shutdown()).await);
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, slot))
}

/// The door first, then the body, then whoever answers.
async fn admit<H, F>(door: &Door, body_bytes: usize, handler: H, request: Request<Incoming>) -> Answer
where
    H: Fn(Request<Full<Bytes>>) -> F,
    F: Future<Output = Answer>,
{
    let (parts, body) = request.into_parts();
    if let Err(denied) = door.check(&parts) {
        return Problem::from(denied).response();
    }
    let body = tokio::time::timeout(BODY, Limited::new(body, body_bytes).collect()).await;
    let problem = match body {
        Ok(Ok(body)) => return handler(Request::from_parts(parts, Full::new(body.to_bytes()))).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is longer than {body_bytes} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", detail)
        }
        Ok(Err(error)) => Problem::new(StatusCode::BAD_REQUEST, "body_unreadable", error.to_string()),
        Err(_) => Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body took too long"),
    };
    problem.response()
}
