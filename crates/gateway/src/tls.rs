//! TLS to providers.

use std::sync::Arc;

use rota_net::tls;
use tokio_rustls::TlsConnector;

/// Only HTTP/1.1 is spoken: one call, one connection, so a call that is given up ends with its connection.
pub(crate) fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut config = tls::client_config(tls::system_roots())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
