//! TLS to a provider: by certificates that the system trusts, and by no others.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;

use rota_testbed::provider::{Provider, answer as say, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Running, answer, config, operator};
use crate::support::Lab;

const REPLY: &str = r#"{"id":"msg_1","type":"message","usage":{"input_tokens":12,"output_tokens":5}}"#;

/// Serves each connection over TLS; says where, and shows its certificate.
fn tls_server<F>(serve: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static) -> (String, String)
where
    F: Future<Output = ()> + Send + 'static,
{
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                // Whoever does not trust us has gone.
                if let Ok(client) = acceptor.accept(client).await {
                    tokio::spawn(serve(client));
                }
            }
        });
    });
    (url, made.cert.pem())
}

/// A provider behind TLS.
fn tls_before(provider: &Provider) -> (String, String) {
    let behind = provider.url().trim_start_matches("http://").to_owned();
    tls_server(move |mut client| {
        let behind = behind.clone();
        async move {
            let mut provider = TcpStream::connect(&behind).await.unwrap();
            // A side that breaks off ends both.
            drop(tokio::io::copy_bidirectional(&mut client, &mut provider).await);
        }
    })
}

/// A gateway that trusts a certificate.
fn trusting(lab: &Lab, certificate: &str) -> Running {
    let trusted = lab.path().join("trusted.pem");
    std::fs::write(&trusted, certificate).unwrap();
    let mut command = lab.command();
    command.arg("gateway").env("ANTHROPIC_API_KEY", "k").env("SSL_CERT_FILE", trusted);
    Running::of(&mut command)
}

fn configure(lab: &Lab, provider: &Provider, url: &str, more: &str) {
    let config = config(provider, more).replace(&provider.url(), url);
    std::fs::write(lab.path().join("rota.yml"), config).unwrap();
}

/// Calls with short and long bodies, whole answers and streams, on one connection.
#[test]
fn a_provider_is_asked_over_tls() {
    let provider = Provider::start(|seen| {
        if seen.wants_stream() { stream(&["data: 1\n\n", "data: 2\n\n"]) } else { say(200, &[], REPLY) }
    });
    let (url, certificate) = tls_before(&provider);
    let lab = Lab::new();
    configure(&lab, &provider, &url, "");
    let running = trusting(&lab, &certificate);
    let address = running.url.trim_start_matches("http://");
    for (length, is_stream) in [(10, false), (10, true), (20_000_000, false), (20_000_000, true), (10, false)]
    {
        let body = format!(r#"{{"model":"m","stream":{is_stream},"x":"{}"}}"#, "y".repeat(length));
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {}\r\nconnection: close\r\n",
            operator(lab.path())
        );
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        let got = answer(client);
        let wanted = if is_stream { "data: 2" } else { REPLY };
        assert!(got.starts_with("HTTP/1.1 200 ") && got.contains(wanted), "{length} {is_stream}: {got}");
        let seen = provider.seen();
        let last = seen.last().unwrap();
        assert_eq!((last.body.len(), last.header("x-api-key")), (body.len(), Some("k")));
    }
    assert_eq!(provider.connections().0, 1, "one connection for all of them");
}

#[test]
fn a_certificate_that_nobody_signed_gets_no_key() {
    let provider = Provider::start(|_| say(200, &[], REPLY));
    let (url, _) = tls_before(&provider);
    let lab = Lab::new();
    configure(&lab, &provider, &url, "  hold_secs: 1\n");
    let running = Running::start(&lab);
    let got = answer(running.ask(&operator(lab.path())));
    assert!(got.starts_with("HTTP/1.1 429 "), "{got}");
    assert_eq!((provider.connections().0, provider.seen().len()), (0, 0));
}

/// Over TLS an end must be said: an answer that ends with its connection, and whose connection just goes away, was cut.
#[test]
fn an_end_that_was_not_said_is_a_cut() {
    for is_said in [true, false] {
        let (url, certificate) = tls_server(move |mut client| async move {
            assert!(client.read(&mut [0; 4_096]).await.unwrap() > 0);
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it").await.unwrap();
            client.flush().await.unwrap();
            if is_said {
                client.shutdown().await.unwrap();
            } else {
                client.get_mut().0.shutdown().await.unwrap();
            }
            // Until the other side goes.
            drop(client.read(&mut [0; 16]).await);
        });
        let (lab, provider) = (Lab::new(), Provider::start(|_| Vec::new()));
        configure(&lab, &provider, &url, "");
        let running = trusting(&lab, &certificate);
        let got = answer(running.ask(&operator(lab.path())));
        let is_whole = got.ends_with("0\r\n\r\n");
        assert!(got.contains("half of it") && is_whole == is_said, "{is_said}: {got}");
    }
}
