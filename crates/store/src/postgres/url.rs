//! `postgres://…` as libpq reads it: where the server is, how to get in, which schema is ours.
//!
//! What the URL leaves open comes from libpq's environment (`PGHOST`, `PGPASSWORD`, `PGSSLMODE` …) and its file of
//! passwords. A few parameters are Rota's own: `schema`, `pool`, `pool_wait` and `prepare`. A password is never part of a
//! message.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::passfile::Passfile;
use super::{TIMEOUT, prepare::Prepare};
use crate::fault::Fault;

/// Connections of one process, unless `pool` says otherwise.
const POOL_SIZE: usize = 32;
/// How long one host may take to let us in, where nobody says otherwise.
const CONNECT: Duration = Duration::from_secs(10);
/// The most that `pool` may say.
const POOL_MOST: usize = 1_000;

/// Where servers keep their sockets.
pub(super) const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// How a variable of the environment is read.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// libpq's `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS only if the server insists.
    Allow,
    /// TLS if the server has it.
    Prefer,
    /// TLS; whoever it is, unless a root certificate is given.
    Require,
    /// TLS with a server that a trusted authority knows.
    VerifyCa,
    /// The same, and it is the host we asked for.
    VerifyFull,
}

/// Whom to trust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Roots {
    /// What the system trusts.
    System,
    /// A file of certificates.
    File(PathBuf),
}

/// How to encrypt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Encryption {
    pub mode: SslMode,
    pub roots: Roots,
    /// Our own certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A parsed URL. It holds the password inside `config` and is never shown.
pub(super) struct Target {
    pub config: Config,
    /// Passwords per host, for when `config` has none.
    pub passwords: Passfile,
    pub encryption: Encryption,
    /// Host, port and database: never the password.
    pub place: String,
    pub schema: String,
    pub pool_size: usize,
    pub pool_wait: Duration,
    pub connect_timeout: Duration,
    pub prepare: Prepare,
}

fn bad(problem: impl Into<String>) -> Fault {
    Fault::BadUrl { problem: problem.into() }
}

/// What is not tokio-postgres's to read.
#[derive(Default)]
struct Own {
    values: Vec<(&'static str, String)>,
}

const OWN: [&str; 9] =
    ["schema", "pool", "pool_wait", "prepare", "sslmode", "sslrootcert", "sslcert", "sslkey", "passfile"];

impl Own {
    fn get(&self, key: &str) -> Option<&str> {
        self.values.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| value.as_str())
    }
}

impl Target {
    /// Reads a URL, and the environment for what it leaves open.
    pub fn parse(url: &str, environment: Environment<'_>) -> Result<Self, Fault> {
        refuse_raw_at(url)?;
        let (base, own) = take_own(url)?;
        let base = with_port(base, environment)?;
        let mut config = Config::from_str(&base).map_err(|error| bad(readable(&error)))?;
        fill(&mut config, environment)?;
        let connect_timeout = *config.get_connect_timeout().unwrap_or(&CONNECT);
        if config.get_application_name().is_none() {
            config.application_name("rota");
        }
        let encryption = encryption(&own, environment)?;
        let schema = own.get("schema").unwrap_or("rota").to_owned();
        if !is_plain(&schema) {
            return Err(bad("schema must be letters, digits and '_', and not begin with a digit"));
        }
        let pool_wait = number(&own, "pool_wait", 1..=3_600)?.unwrap_or(TIMEOUT.as_secs() as usize);
        Ok(Self {
            place: place(&config),
            passwords: Passfile::read(passfile(&own, environment)),
            encryption,
            schema,
            pool_size: number(&own, "pool", 1..=POOL_MOST)?.unwrap_or(POOL_SIZE),
            pool_wait: Duration::from_secs(pool_wait as u64),
            connect_timeout,
            prepare: match own.get("prepare") {
                None | Some("auto") => Prepare::auto(),
                Some("on") => Prepare::on(),
                Some("off") => Prepare::off(),
                Some(_) => return Err(bad("prepare must be auto, on or off")),
            },
            config,
        })
    }
}

fn number(own: &Own, key: &str, range: std::ops::RangeInclusive<usize>) -> Result<Option<usize>, Fault> {
    let Some(text) = own.get(key) else { return Ok(None) };
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(bad(format!("{key} must be a number from {} to {}", range.start(), range.end()))),
    }
}

/// Takes out of the URL what tokio-postgres would not understand.
fn take_own(url: &str) -> Result<(String, Own), Fault> {
    let mut own = Own::default();
    let head = hosts_of(url);
    let Some(start) = url[head..].find('?').map(|at| head + at) else { return Ok((url.to_owned(), own)) };
    let (base, query) = (&url[..start], &url[start + 1..]);
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match OWN.iter().find(|name| **name == key) {
            Some(name) => own.values.push((name, decoded(value)?)),
            None => rest.push(pair),
        }
    }
    let base = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((base, own))
}

fn decoded(text: &str) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(bad("a '%' in a parameter is not followed by two digits"));
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
    }
    String::from_utf8(bytes).map_err(|_| bad("a parameter is not UTF-8"))
}

/// Where the hosts begin: behind user and password, which end at the '@', if it comes before any '/'.
fn hosts_of(url: &str) -> usize {
    let start = url.find("//").map_or(0, |at| at + 2);
    let end = url[start..].find(['@', '/']).map(|at| start + at);
    end.filter(|end| url[*end..].starts_with('@')).map_or(start, |at| at + 1)
}

/// A password that is not escaped would be taken for a host, a database or a parameter, and be named as such.
fn refuse_raw_at(url: &str) -> Result<(), Fault> {
    let rest = &url[hosts_of(url)..];
    let named = rest.split('?').next().unwrap_or_default();
    if named.contains('@') || url.matches('@').count() > 1 {
        return Err(bad("it has an '@' too many: write %40 for '@' and %2F for '/' inside a password"));
    }
    Ok(())
}

/// Why the URL could not be read.
fn readable(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    format!("{error}{source}")
}

/// What the URL leaves open.
fn fill(config: &mut Config, environment: Environment<'_>) -> Result<(), Fault> {
    if config.get_user().is_none()
        && let Some(user) = environment("PGUSER")
    {
        config.user(user);
    }
    if config.get_password().is_none()
        && let Some(password) = environment("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_dbname().is_none()
        && let Some(name) = environment("PGDATABASE")
    {
        config.dbname(name);
    }
    if config.get_connect_timeout().is_none()
        && let Some(text) = environment("PGCONNECT_TIMEOUT")
    {
        let seconds = text.parse().map_err(|_| bad("PGCONNECT_TIMEOUT is no number"))?;
        config.connect_timeout(Duration::from_secs(seconds));
    }
    if config.get_ports().is_empty()
        && let Some(port) = port(environment)?
    {
        config.port(port);
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let named = environment("PGHOST").filter(|hosts| !hosts.is_empty());
        let port = config.get_ports().first().copied().unwrap_or(5432);
        for host in named.as_deref().unwrap_or_else(|| default_host(port)).split(',') {
            config.host(host);
        }
    }
    Ok(())
}

fn port(environment: Environment<'_>) -> Result<Option<u16>, Fault> {
    let text = environment("PGPORT").filter(|text| !text.is_empty());
    text.map(|text| text.trim().parse().map_err(|_| bad("PGPORT is no port"))).transpose()
}

/// Hosts that are named without a port get that of the environment: tokio-postgres would say 5432.
fn with_port(base: String, environment: Environment<'_>) -> Result<String, Fault> {
    let Some(port) = port(environment)? else { return Ok(base) };
    let start = hosts_of(&base);
    let end = base[start..].find(['/', '?']).map_or(base.len(), |at| start + at);
    let hosts = &base[start..end];
    if hosts.is_empty() {
        return Ok(base);
    }
    // The colons inside the brackets of an IPv6 address are none of a port.
    let has_port = |host: &str| host.rfind(':') > host.rfind(']');
    let named = hosts.split(',').map(|host| match has_port(host) {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    });
    let named = named.collect::<Vec<_>>().join(",");
    Ok(format!("{}{named}{}", &base[..start], &base[end..]))
}

/// A socket where servers keep it, else this machine by name.
fn default_host(port: u16) -> &'static str {
    let socket = |folder: &&str| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists();
    SOCKET_FOLDERS.into_iter().find(socket).unwrap_or("localhost")
}

fn encryption(own: &Own, environment: Environment<'_>) -> Result<Encryption, Fault> {
    let given = |key: &str, variable: &str| {
        own.get(key).map(str::to_owned).or_else(|| environment(variable)).filter(|text| !text.is_empty())
    };
    let mode = given("sslmode", "PGSSLMODE").map(|word| mode(&word)).transpose()?;
    let roots = match given("sslrootcert", "PGSSLROOTCERT") {
        Some(word) if word == "system" => Some(Roots::System),
        Some(path) => Some(Roots::File(path.into())),
        None => default_roots(environment),
    };
    let mode = match (mode, &roots) {
        // What anyone can have a certificate of must at least have the right name.
        (None, Some(Roots::System)) => SslMode::VerifyFull,
        (Some(mode), Some(Roots::System)) if mode < SslMode::VerifyFull => {
            return Err(bad("sslrootcert=system needs sslmode=verify-full"));
        }
        (Some(SslMode::Require), Some(Roots::File(_))) => SslMode::VerifyCa,
        (mode, _) => mode.unwrap_or(SslMode::Prefer),
    };
    let identity = match (given("sslcert", "PGSSLCERT"), given("sslkey", "PGSSLKEY")) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        _ => return Err(bad("sslcert and sslkey go together")),
    };
    Ok(Encryption { mode, roots: roots.unwrap_or(Roots::System), identity })
}

/// Where libpq looks for passwords.
fn passfile(own: &Own, environment: Environment<'_>) -> Option<PathBuf> {
    let named = own.get("passfile").map(str::to_owned).or_else(|| environment("PGPASSFILE"));
    match named.filter(|path| !path.is_empty()) {
        Some(path) => Some(path.into()),
        None => Some(Path::new(&environment("HOME")?).join(".pgpass")),
    }
}

/// The file that libpq trusts if it is there.
fn default_roots(environment: Environment<'_>) -> Option<Roots> {
    let path = Path::new(&environment("HOME")?).join(".postgresql/root.crt");
    path.is_file().then_some(Roots::File(path))
}

fn mode(word: &str) -> Result<SslMode, Fault> {
    Ok(match word {
        "disable" => SslMode::Disable,
        "allow" => SslMode::Allow,
        "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => return Err(bad("sslmode must be disable, allow, prefer, require, verify-ca or verify-full")),
    })
}

fn is_plain(name: &str) -> bool {
    name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn place(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map_or("localhost".to_owned(), ToString::to_string),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("postgres://{host}:{port}/{}", config.get_dbname().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, variables: &[(&str, &str)]) -> Result<Target, String> {
        let environment =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Target::parse(url, &environment).map_err(|fault| fault.to_string())
    }

    fn target(url: &str, variables: &[(&str, &str)]) -> Target {
        match read(url, variables) {
            Ok(target) => target,
            Err(problem) => panic!("{url}: {problem}"),
        }
    }

    #[test]
    fn the_url_comes_before_the_environment() {
        let variables =
            [("PGUSER", "eve"), ("PGPASSWORD", "hush"), ("PGDATABASE", "other"), ("PGPORT", "6543")];
        let all = target("postgres://ann:secret@db.example:5433/work?schema=mine&pool=4", &variables);
        assert_eq!(all.place, "postgres://db.example:5433/work");
        assert_eq!((all.config.get_user(), all.schema.as_str(), all.pool_size), (Some("ann"), "mine", 4));
        assert_eq!(all.config.get_password(), Some(&b"secret"[..]));
        let few = target("postgres://db.example", &variables);
        assert_eq!(few.place, "postgres://db.example:6543/other");
        assert_eq!((few.config.get_user(), few.schema.as_str(), few.pool_size), (Some("eve"), "rota", 32));
        assert_eq!(few.config.get_password(), Some(&b"hush"[..]));
        assert_eq!(target("postgres://[::1]/x", &[("PGPORT", "7")]).place, "postgres://::1:7/x");
        assert_eq!(target("postgres://a:1,b/x", &[("PGPORT", "7")]).config.get_ports(), [1, 7]);
        assert_eq!(target("postgres:///x", &[("PGHOST", "/run/pg")]).place, "postgres:///run/pg:5432/x");
        assert_eq!(target("postgresql://u@/x?host=/a%20b&port=7", &[]).place, "postgres:///a b:7/x");
        assert_eq!(target("postgres://u:a?b@h/x?schema=s", &[]).config.get_password(), Some(&b"a?b"[..]));
        assert_eq!(target("postgres://h/x?application_name=a@b&schema=s", &[]).schema, "s");
    }

    #[test]
    fn sslmode_is_read_as_libpq_reads_it() {
        let file = || Roots::File("/ca.pem".into());
        let cases = [
            ("", "", SslMode::Prefer, Roots::System),
            ("", "require", SslMode::Require, Roots::System),
            ("sslmode=disable", "require", SslMode::Disable, Roots::System),
            ("sslmode=allow", "", SslMode::Allow, Roots::System),
            ("sslmode=require&sslrootcert=/ca.pem", "", SslMode::VerifyCa, file()),
            ("sslmode=prefer&sslrootcert=/ca.pem", "", SslMode::Prefer, file()),
            ("sslmode=verify-ca&sslrootcert=/ca.pem", "", SslMode::VerifyCa, file()),
            ("sslmode=verify-full&sslrootcert=%2Fca.pem", "", SslMode::VerifyFull, file()),
            ("sslrootcert=system", "", SslMode::VerifyFull, Roots::System),
        ];
        for (query, variable, mode, roots) in cases {
            let read = target(&format!("postgres://h/d?{query}"), &[("PGSSLMODE", variable)]).encryption;
            assert_eq!((read.mode, read.roots), (mode, roots), "{query} {variable}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_password_is() {
        let cases = [
            ("postgres://u:hunter2@h/d?schema=a-b", "schema must be"),
            ("postgres://u:hunter2@h/d?pool=0", "pool must be a number from 1 to 1000"),
            ("postgres://u:hunter2@h/d?sslmode=maybe", "sslmode must be"),
            ("postgres://u:hunter2@h/d?sslcert=/a", "sslcert and sslkey go together"),
            ("postgres://u:hunter2@h/d?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
            ("postgres://u:hunter2@h/d?prepare=yes", "prepare must be"),
            ("postgres://u:hunter2@h/d?nonsense=1", "nonsense"),
            ("postgres://u:hunter2@h:port/d", "port"),
            ("postgres://u:hun@ter2?hunter2=1@h:port/d", "%40"),
            ("postgres://u:hun@hunter2@h/d", "%40"),
            ("postgres://u:hun/hunter2@h/d", "%2F"),
            ("postgres://u:hunter2@h/d?sslmode=%zz", "two digits"),
        ];
        for (url, said) in cases {
            let Err(problem) = read(url, &[]) else { panic!("{url} is taken") };
            assert!(problem.contains(said), "{url}: {problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }
}
