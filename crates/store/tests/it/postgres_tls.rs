//! `sslmode` on real servers: with TLS, without it, with the wrong name, with an unknown authority.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rota_store::Fault;
use rota_store::postgres::PostgresStore;
use rota_testbed::{Durability, Extra, Server};

use crate::pg::{look, run};

/// An authority and a server's certificate that it signed.
struct Signed {
    authority: String,
    certificate: String,
    key: String,
}

fn signed(name: &str) -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "Test authority");
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap().pem();
    Signed { authority, certificate, key: key.serialize_pem() }
}

struct Bed {
    server: Server,
    folder: tempfile::TempDir,
}

impl Bed {
    fn start(signed: Option<&Signed>, hba: &str) -> Self {
        let mut extra = Extra { tcp: true, ..Extra::default() };
        extra.files.push(("pg_hba.conf".to_owned(), format!("local all all trust\n{hba}\n")));
        if let Some(signed) = signed {
            extra.settings.push("ssl=on".to_owned());
            extra.files.push(("server.crt".to_owned(), signed.certificate.clone()));
            extra.files.push(("server.key".to_owned(), signed.key.clone()));
        }
        let server = Server::start_with(Durability::None, extra).unwrap();
        Self { server, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Whether the connection is encrypted, or the fault's code.
    fn open(&self, host: &str, query: &str) -> Result<bool, (&'static str, String)> {
        let url = format!("postgres://rota:hunter2@{host}:{}/postgres?{query}", self.server.port());
        run(async {
            let store = PostgresStore::open(&url).await.map_err(|fault: Fault| {
                assert!(!fault.to_string().contains("hunter2"), "{fault}");
                (fault.code(), fault.to_string())
            })?;
            let client = look(&self.server.url("rota")).await;
            let text = "SELECT bool_or(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                 WHERE a.application_name = 'rota'";
            let row = client.query_one(text, &[]).await.unwrap();
            drop(store);
            Ok(row.get::<_, Option<bool>>(0).unwrap())
        })
    }
}

fn check(bed: &Bed, cases: &[(&str, String, Result<bool, &str>)]) {
    for (host, query, expected) in cases {
        let got = bed.open(host, query);
        let seen = got.as_ref().copied().map_err(|(code, _)| *code);
        assert_eq!(seen, *expected, "{host} {query}: {got:?}");
    }
}

#[test]
fn a_server_with_tls() {
    let signed = signed("localhost");
    let bed = Bed::start(Some(&signed), "host all all 127.0.0.1/32 trust");
    let ours = format!("sslrootcert={}", bed.file("ours.pem", &signed.authority).display());
    let other = format!("sslrootcert={}", bed.file("other.pem", &self::signed("x").authority).display());
    let itself = format!("sslrootcert={}", bed.file("itself.pem", &signed.certificate).display());
    let cases = [
        ("localhost", "sslmode=disable".to_owned(), Ok(false)),
        ("localhost", "sslmode=allow".to_owned(), Ok(false)),
        ("localhost", String::new(), Ok(true)),
        ("localhost", "sslmode=prefer".to_owned(), Ok(true)),
        ("localhost", "sslmode=require".to_owned(), Ok(true)),
        ("127.0.0.1", "sslmode=require".to_owned(), Ok(true)),
        ("localhost", format!("sslmode=require&{ours}"), Ok(true)),
        ("localhost", format!("sslmode=require&{other}"), Err("store_untrusted")),
        ("localhost", format!("sslmode=verify-ca&{ours}"), Ok(true)),
        ("127.0.0.1", format!("sslmode=verify-ca&{ours}"), Ok(true)),
        ("localhost", format!("sslmode=verify-ca&{other}"), Err("store_untrusted")),
        ("localhost", format!("sslmode=verify-full&{ours}"), Ok(true)),
        ("127.0.0.1", format!("sslmode=verify-full&{ours}"), Err("store_untrusted")),
        ("localhost", format!("sslmode=verify-full&{other}"), Err("store_untrusted")),
        ("localhost", "sslmode=verify-full".to_owned(), Err("store_untrusted")),
        ("localhost", format!("sslmode=verify-full&{itself}"), Ok(true)),
        ("127.0.0.1", format!("sslmode=verify-full&{itself}"), Err("store_untrusted")),
        ("localhost", "sslmode=verify-full&sslrootcert=/nowhere.pem".to_owned(), Err("store_untrusted")),
    ];
    check(&bed, &cases);
}

#[test]
fn a_server_without_tls() {
    let bed = Bed::start(None, "host all all 127.0.0.1/32 trust");
    let ours = format!("sslrootcert={}", bed.file("ours.pem", &signed("localhost").authority).display());
    let cases = [
        ("localhost", "sslmode=disable".to_owned(), Ok(false)),
        ("localhost", "sslmode=allow".to_owned(), Ok(false)),
        ("localhost", "sslmode=prefer".to_owned(), Ok(false)),
        ("localhost", "sslmode=require".to_owned(), Err("store_untrusted")),
        ("localhost", format!("sslmode=verify-ca&{ours}"), Err("store_untrusted")),
        ("localhost", format!("sslmode=verify-full&{ours}"), Err("store_untrusted")),
    ];
    check(&bed, &cases);
}

#[test]
fn a_server_that_insists_on_one_of_them() {
    let signed = signed("localhost");
    let only = Bed::start(Some(&signed), "hostssl all all 127.0.0.1/32 trust");
    let cases = [
        ("localhost", "sslmode=disable".to_owned(), Err("store_failed")),
        ("localhost", "sslmode=allow".to_owned(), Ok(true)),
        ("localhost", "sslmode=prefer".to_owned(), Ok(true)),
    ];
    check(&only, &cases);
    let never = Bed::start(Some(&signed), "hostnossl all all 127.0.0.1/32 trust");
    let cases = [
        ("localhost", "sslmode=prefer".to_owned(), Ok(false)),
        ("localhost", "sslmode=require".to_owned(), Err("store_failed")),
    ];
    check(&never, &cases);
}
