//! The least that a proxy on hyper does: it reads a head, passes it on over a connection that it keeps for this client,
//! and passes on what comes back. No gate, no token, no header looked at, no byte counted.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self as client, SendRequest};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::stub::listen;
use crate::Result;

/// The body of the proxy.
pub fn be_bare_hyper(arguments: &[String]) -> Result<()> {
    let [upstream] = arguments else { return Err("bare-hyper: wrong arguments".into()) };
    let upstream: SocketAddr = upstream.parse()?;
    listen(move |stream| serve(stream, upstream))
}

async fn serve(stream: TcpStream, upstream: SocketAddr) -> Result<()> {
    let onward = TcpStream::connect(upstream).await?;
    onward.set_nodelay(true)?;
    let (sender, connection) = client::handshake(TokioIo::new(onward)).await?;
    tokio::spawn(connection);
    let sender = Mutex::new(sender);
    let service = service_fn(|request| pass(&sender, request));
    Ok(server::Builder::new().serve_connection(TokioIo::new(stream), service).await?)
}

async fn pass(
    sender: &Mutex<SendRequest<Incoming>>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Incoming>, hyper::Error> {
    let mut sender = sender.lock().await;
    sender.ready().await?;
    sender.send_request(request).await
}
