//! Whom we talk to: certificates, judged as strictly as `sslmode` says.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::url::{Encryption, Roots, SslMode};

/// What to check of a server's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// Builds the client's side. The error is for people.
pub(super) fn client(encryption: &Encryption) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let check = match encryption.mode {
        SslMode::VerifyFull => Check::AuthorityAndName,
        SslMode::VerifyCa => Check::Authority,
        _ => Check::Nothing,
    };
    let verifier = Arc::new(Verifier::new(check, &encryption.roots, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match &encryption.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("sslkey {}: {error}", key.display()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("sslcert: {error}"))?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let named = |problem: String| format!("{}: {problem}", path.display());
    let list = CertificateDer::pem_file_iter(path).map_err(|error| named(error.to_string()))?;
    let list = list.collect::<Result<Vec<_>, _>>().map_err(|error| named(error.to_string()))?;
    if list.is_empty() { Err(named("no certificate in it".to_owned())) } else { Ok(list) }
}

#[derive(Debug)]
struct Verifier {
    check: Check,
    /// None if nothing is checked.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates of the file: a server that shows one of them is trusted, as OpenSSL does.
    pinned: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(check: Check, roots: &Roots, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let provider = Arc::clone(provider);
        if check == Check::Nothing {
            return Ok(Self { check, inner: None, pinned: Vec::new(), provider });
        }
        let mut store = RootCertStore::empty();
        let pinned = match roots {
            Roots::File(path) => certificates(path).map_err(|problem| format!("sslrootcert {problem}"))?,
            Roots::System => Vec::new(),
        };
        let trusted = match roots {
            Roots::File(_) => pinned.clone(),
            Roots::System => rustls_native_certs::load_native_certs().certs,
        };
        store.add_parsable_certificates(trusted);
        if store.is_empty() {
            return Err("no certificate to trust: give one with sslrootcert=FILE".to_owned());
        }
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { check, inner: Some(inner), pinned, provider })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        if self.pinned.iter().any(|pinned| pinned == end_entity) {
            if self.check == Check::AuthorityAndName {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&parsed, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, when everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Authority => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
