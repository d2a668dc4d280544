//! Certificates are verified by what the system trusts.

use std::sync::Arc;

use rota_daemon::config::TrackerKind;
use rota_store::Secret;
use rota_supervise::sources::gitea::Gitea;
use rota_supervise::sources::{Connection, Source, Trouble};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{LABEL, patience, tracker_config};

/// A server whose certificate nobody has signed but itself.
async fn self_signed() -> std::net::SocketAddr {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut bytes = [0; 1_024];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                assert_eq!(read, 0, "nothing may be said to a server that is not trusted");
                let _bye = stream.shutdown().await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_certificate_that_nobody_signed_is_refused_before_anything_is_said() {
    let address = self_signed().await;
    let config = tracker_config(TrackerKind::Gitea, format!("https://localhost:{}/api/v1", address.port()));
    let connection = Connection::new(&config, &Secret::from("secret"), patience()).unwrap();
    let source = Gitea::new(connection, config, LABEL.into());
    let trouble = source.check().await.unwrap_err();
    let Trouble::Unreachable { problem, .. } = &trouble else { panic!("{trouble}") };
    assert!(problem.contains("certificate") || problem.contains("UnknownIssuer"), "{problem}");
    assert_eq!(trouble.word(), "unreachable");
}
