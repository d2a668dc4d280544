//! The least that a proxy on hyper does: it reads a head, passes it on over a connection that it keeps for this client,
//! and passes on what comes back. No gate, no token, no header looked at, no byte counted.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self as client, SendRequest};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::Result;

/// Listens, says on which port, and passes on until it is killed.
pub fn be_bare_hyper(arguments: &[String]) -> Result<()> {
    let [upstream] = arguments else { return Err("bare-hyper: wrong arguments".into()) };
    let upstream: SocketAddr = upstream.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        loop {
            let (stream, _) = listener.accept().await?;
            // A client that breaks off is none of ours.
            tokio::spawn(async move { drop(serve(stream, upstream).await) });
        }
    })
}

async fn serve(stream: TcpStream, upstream: SocketAddr) -> Result<()> {
    stream.set_nodelay(true)?;
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
