//! Makes connections: finds the host, agrees on encryption as `sslmode` says, logs in, and sees who answers.

use std::future::poll_fn;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Manager, Metrics, Pool, QueueMode, RecycleError, RecycleResult, Timeouts};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage};

use super::connection::Connection;
use super::url::{SslMode, Target};
use super::wire::{Stream, Wire};
use super::{TIMEOUT, faults};
use crate::fault::Fault;
use crate::secret::Secret;

/// "May we encrypt?", as the protocol asks it.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Makes and keeps the connections of a pool.
pub(super) struct Connector {
    target: Target,
    /// Built when first needed: most never encrypt.
    tls: OnceLock<Arc<ClientConfig>>,
    /// Counts the notifications that any of its connections gets.
    told: watch::Sender<u64>,
}

/// The settings of every transaction, as `SET` of a session or, behind a pooler, as `SET LOCAL`. Plans are made for tables
/// as they may become, not for an empty one; a statement without an index must not be compiled at every call (JIT).
///
/// The server ends a session whose client vanished in the middle of a transaction, and with it the locks: after five
/// idle seconds, or when what it sends is not acknowledged for ten.
pub(super) fn settings(set: &str, schema: &str) -> String {
    let fixed = [
        ("lock_timeout", "'30s'"),
        ("statement_timeout", "'60s'"),
        ("idle_in_transaction_session_timeout", "'5s'"),
        ("enable_seqscan", "off"),
        ("jit", "off"),
    ];
    let fixed = fixed.map(|(name, value)| format!("; {set} {name} = {value}")).concat();
    format!("; {set} search_path = {schema}{fixed}")
}

/// Settings that only a session has.
const SESSION_SETTINGS: &str = "SET tcp_user_timeout = '10s'; SET tcp_keepalives_idle = 10; \
     SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3";

/// How long a silent server is believed to be there: what we sent is not acknowledged, or nothing comes at all.
const SILENCE: Duration = Duration::from_secs(10);

/// One way to try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Encrypted,
    /// Encrypted if the server has it.
    Either,
}

/// Why one way did not work.
struct Failed {
    fault: Fault,
    /// Another way may.
    because_of_the_way: bool,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, because_of_the_way: false }
    }
}

impl Connector {
    /// A pool that connects to a target when it is first asked.
    pub fn pool(target: Target) -> Result<Pool<Self>, Fault> {
        let timeouts = Timeouts {
            wait: Some(target.pool_wait),
            // Each host has its own time: one that swallows everything must not take that of the next one.
            create: None,
            recycle: Some(TIMEOUT),
        };
        let (place, size) = (target.place.clone(), target.pool_size);
        let connector = Self { target, tls: OnceLock::new(), told: watch::Sender::new(0) };
        // The last one first: what its process of the server has at hand is still warm.
        let built = Pool::builder(connector)
            .max_size(size)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .queue_mode(QueueMode::Lifo)
            .build();
        built.map_err(|error| Fault::Away { place, problem: error.to_string() })
    }

    /// Changes with every notification.
    pub fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    fn away(&self, problem: impl ToString) -> Fault {
        Fault::Away { place: self.target.place.clone(), problem: problem.to_string() }
    }

    fn untrusted(&self, problem: impl Into<String>) -> Fault {
        Fault::Untrusted { place: self.target.place.clone(), problem: problem.into() }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Fault> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let built = super::tls::client(&self.target.encryption).map_err(|problem| self.untrusted(problem))?;
        Ok(Arc::clone(self.tls.get_or_init(|| built)))
    }

    /// Hosts in the order of the URL, the first one that lets us in.
    async fn connect(&self) -> Result<Connection, Fault> {
        let config = &self.target.config;
        let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let count = hosts.len().max(addresses.len());
        let mut last = self.away("no host is named");
        for index in 0..count {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            let host = match (hosts.get(index), addresses.get(index)) {
                (Some(host), _) => host.clone(),
                (None, Some(address)) => Host::Tcp(address.to_string()),
                (None, None) => continue,
            };
            let address = addresses.get(index).map(ToString::to_string);
            let connecting = self.connect_to(&host, address.as_deref(), port);
            match tokio::time::timeout(self.target.connect_timeout, connecting).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(fault)) => last = fault,
                Err(_) => last = self.away("it does not answer"),
            }
        }
        Err(last)
    }

    async fn connect_to(&self, host: &Host, address: Option<&str>, port: u16) -> Result<Connection, Fault> {
        let (first, second) = match (host, self.target.encryption.mode) {
            (Host::Unix(_), _) | (_, SslMode::Disable) => (Way::Plain, None),
            (_, SslMode::Allow) => (Way::Plain, Some(Way::Encrypted)),
            (_, SslMode::Prefer) => (Way::Either, Some(Way::Plain)),
            _ => (Way::Encrypted, None),
        };
        let failed = match self.log_in(host, address, port, first).await {
            Ok(client) => return Ok(client),
            Err(failed) => failed,
        };
        match second.filter(|_| failed.because_of_the_way) {
            Some(way) => self.log_in(host, address, port, way).await.map_err(|failed| failed.fault),
            None => Err(failed.fault),
        }
    }

    async fn log_in(
        &self,
        host: &Host,
        address: Option<&str>,
        port: u16,
        way: Way,
    ) -> Result<Connection, Failed> {
        let stream = match host {
            Host::Unix(folder) => Stream::Unix(self.unix(folder, port).await?),
            Host::Tcp(name) => {
                let stream = self.tcp(address.unwrap_or(name), port).await?;
                self.agree(stream, name, way).await?
            }
        };
        let (wire, served) = Wire::new(stream);
        // Encryption is agreed on already, below what tokio-postgres sees.
        let mut config = self.target.config.clone();
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        if config.get_password().is_none()
            && let Some(password) = self.password(host, port)
        {
            config.password(password.expose());
        }
        let (client, mut connection) = config.connect_raw(wire, NoTls).await.map_err(|error| Failed {
            because_of_the_way: error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION),
            fault: faults::of(&self.target.place, error),
        })?;
        let told = self.told.clone();
        let task = tokio::spawn(async move {
            // Whoever uses the connection learns of its end by its own statement.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    told.send_modify(|count| *count += 1);
                }
            }
        });
        let client = Connection::new(client, task);
        self.look(&client, served.by()).await?;
        Ok(client)
    }

    /// What the file of passwords has for this host.
    fn password(&self, host: &Host, port: u16) -> Option<&Secret> {
        let user = self.target.config.get_user().unwrap_or_default();
        let database = self.target.config.get_dbname().unwrap_or(user);
        self.target.passwords.password(host, port, database, user)
    }

    /// Whether this is the server itself, and one that can be written to: a standby counts as away, so that the next
    /// host is tried, unless the URL asks for one.
    async fn look(&self, client: &Client, served_by: i32) -> Result<(), Fault> {
        let text = "SELECT pg_backend_pid(), current_setting('transaction_read_only')";
        let [process, read_only] = self.words(client, text).await?;
        if read_only == "on" && self.target.config.get_target_session_attrs() != TargetSessionAttrs::ReadOnly
        {
            return Err(self.away("the server is read-only"));
        }
        self.target.prepare.decide(process.parse() == Ok(served_by));
        if self.target.prepare.by_name() {
            let text = format!("{SESSION_SETTINGS}{}", settings("SET", &self.target.schema));
            let set = client.batch_execute(&text).await;
            set.map_err(|error| faults::of(&self.target.place, error))?;
        }
        Ok(())
    }

    /// The first row of an answer; empty words where there is none.
    async fn words<const COUNT: usize>(&self, client: &Client, text: &str) -> Result<[String; COUNT], Fault> {
        let answer = client.simple_query(text).await;
        let answer = answer.map_err(|error| faults::of(&self.target.place, error))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let word = |index| row.and_then(|row| row.get(index)).unwrap_or_default().to_owned();
        Ok(std::array::from_fn(word))
    }

    async fn unix(&self, folder: &Path, port: u16) -> Result<UnixStream, Fault> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        UnixStream::connect(path).await.map_err(|error| self.away(error))
    }

    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, Fault> {
        let stream = TcpStream::connect((host, port)).await.map_err(|error| self.away(error))?;
        let set = stream.set_nodelay(true);
        set.map_err(|error| self.away(error))?;
        // A server that is gone without a word is noticed, also while we wait for an answer.
        keep_watch(&stream).map_err(|error| self.away(error))?;
        Ok(stream)
    }

    /// Asks the server to encrypt, where we want that.
    async fn agree(&self, mut stream: TcpStream, name: &str, way: Way) -> Result<Stream, Failed> {
        if way == Way::Plain {
            return Ok(Stream::Tcp(stream));
        }
        let mut answer = [0];
        let asked = async {
            stream.write_all(&SSL_REQUEST).await?;
            stream.read_exact(&mut answer).await
        };
        asked.await.map_err(|error| self.away(error))?;
        match (answer[0], way) {
            (b'S', _) => {}
            (b'N', Way::Either) => return Ok(Stream::Tcp(stream)),
            (b'N', _) => {
                return Err(self.untrusted("the server does not encrypt, and sslmode demands it").into());
            }
            _ => return Err(self.untrusted("this is no PostgreSQL server").into()),
        }
        let server_name = ServerName::try_from(name.to_owned());
        let server_name =
            server_name.map_err(|_| self.untrusted("the host's name cannot be in a certificate"))?;
        let connector = tokio_rustls::TlsConnector::from(self.tls()?);
        match connector.connect(server_name, stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(error) => Err(Failed {
                fault: match error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
                    true => self.untrusted(format!("TLS failed: {error}")),
                    false => self.away(format!("TLS failed: {error}")),
                },
                because_of_the_way: true,
            }),
        }
    }
}

fn keep_watch(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 3)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

impl Manager for Connector {
    type Type = Connection;
    type Error = Fault;

    async fn create(&self) -> Result<Connection, Fault> {
        self.connect().await
    }

    async fn recycle(&self, client: &mut Connection, _: &Metrics) -> RecycleResult<Fault> {
        if client.is_closed() { Err(RecycleError::message("the connection is closed")) } else { Ok(()) }
    }
}
