//! TLS to providers, trusting whom the system trusts, and the certificates of `SSL_CERT_FILE` where it is set.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Only HTTP/1.1 is spoken: one call, one connection, so a call that is given up ends with its connection.
pub(crate) fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // The system may have certificates that nobody can read; those are not needed.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
