//! An HTTP client for single requests: each has a connection of its own, and redirects are not followed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls;

/// How long connecting may take, TLS included.
const CONNECT: Duration = Duration::from_secs(10);

/// Any error of a request.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An HTTP server, and a path on it.
#[derive(Clone)]
pub struct Target {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// The path with its query.
    pub path: String,
}

impl Target {
    /// Reads `http://…` and `https://…`, without user info.
    pub fn parse(address: &str) -> Option<Self> {
        let parts = address.parse::<Uri>().ok()?.into_parts();
        let scheme = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS)?;
        let authority = parts.authority.filter(|authority| !authority.as_str().contains('@'))?;
        let path = parts.path_and_query.map_or("/".to_owned(), |path| path.to_string());
        (!authority.host().is_empty()).then_some(Self { scheme, authority, path })
    }

    /// Connects within ten seconds.
    pub async fn connect(&self) -> Result<Box<dyn Stream>, BoxError> {
        tokio::time::timeout(CONNECT, self.connect_unbounded()).await.map_err(|_| "no connection")?
    }

    async fn connect_unbounded(&self) -> Result<Box<dyn Stream>, BoxError> {
        let is_tls = self.scheme == Scheme::HTTPS;
        let port = self.authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = self.authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned())?;
        let config = tls::client_config(tls::system_roots())?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    /// Posts a body and returns the status of the response.
    pub async fn post(&self, headers: &[(&str, String)], body: Vec<u8>) -> Result<StatusCode, BoxError> {
        let mut request = Request::post(&self.path).header(HOST, self.authority.as_str());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        // The body of the response is not used.
        Ok(exchange(self.connect().await?, request, 64 * 1_024).await?.0)
    }
}

/// Sends one request and reads the response, whose body may have up to `limit` bytes.
pub async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<(StatusCode, Bytes), BoxError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let answered = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        Ok((head.status, Limited::new(body, limit).collect().await?.to_bytes()))
    };
    let (mut answered, mut connection) = (std::pin::pin!(answered), std::pin::pin!(connection));
    let mut closed = false;
    std::future::poll_fn(|cx| {
        // An error of the connection reaches the caller through the response.
        closed = closed || connection.as_mut().poll(cx).is_ready();
        answered.as_mut().poll(cx)
    })
    .await
}

/// A connection, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
