//! The listeners. [`rota_auth`] authenticates every request before anything is routed; the interfaces behind it decide
//! nothing and return what the verbs return.
//!
//! - [`http`]: the verbs below `/api/v1`. [`client`]: asking such a server.
//! - [`listen`]: connections, and a limit on each thing a caller can send or hold.
//! - [`notify`]: webhooks and commands that are told what needs somebody.
//! - [`mcp`]: the Model Context Protocol, over stdio and HTTP.
//!
//! A program that serves calls [`prepare`] before it opens its store, and then runs everything on that runtime.

pub mod client;
pub mod http;
pub mod listen;
pub mod mcp;
pub mod notify;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Raises the limit of open files.
pub fn prepare() -> std::io::Result<()> {
    // Each connection is a descriptor; the soft limit is for programs that cannot count beyond it.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if rustix::process::setrlimit(rustix::process::Resource::Nofile, most).is_err() {
        // Fewer connections, then.
    }
    Ok(())
}

/// How long a server that is away is waited for after the signal.
const PARTING: std::time::Duration = std::time::Duration::from_secs(20);

/// Says when to stop: at the first TERM or INT.
pub fn stop_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.cancel();
        // Calls that wait for a server that is away are not waited for much longer.
        rota_store::postgres::stop_waiting_after(PARTING);
    });
    Ok(stop)
}
