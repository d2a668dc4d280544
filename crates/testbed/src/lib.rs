//! What tests need around them: a scripted provider of models ([`provider`]), and a PostgreSQL server.
//!
//! A throw-away PostgreSQL server from the installed programs: as an ordinary user, also when root runs the tests, on
//! a Unix socket, gone with the process that started it however that ends.

mod bouncer;
pub mod dialogue;
mod link;
pub mod provider;
pub mod tracker;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

pub use bouncer::Bouncer;
pub use link::Link;

/// Waits for a future on the one runtime of a test program.
///
/// # Panics
/// Where the runtime cannot be made, or inside of one.
pub fn block_on<F: Future>(future: F) -> F::Output {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap_or_else(|error| panic!("runtime: {error}"))
    });
    runtime.block_on(future)
}

/// How long a server may take to come up.
const START: Duration = Duration::from_secs(240);

/// Whether writes must survive a crash of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// fsync on: for tests and figures about durability.
    Full,
    /// fsync off: for everything else.
    None,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    port: u16,
    durability: Durability,
    /// More settings, each `name=value`.
    settings: Vec<String>,
    running: Mutex<Option<Running>>,
    schemas: AtomicU64,
}

/// What a server is made of, where a test needs more than the usual.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Settings, each `name=value`.
    pub settings: Vec<String>,
    /// Files beside its data, by name: certificates, keys (readable by the server alone), `pg_hba.conf`.
    pub files: Vec<(String, String)>,
    /// Whether it listens on a free port of the loopback, too.
    pub tcp: bool,
}

#[derive(Debug)]
struct Running {
    /// A shell that ends the server when its standard input is closed, as it is when we are gone.
    keeper: Child,
    postmaster: u32,
}

/// Why no server could be started.
#[derive(Debug)]
pub struct NoServer(pub String);

impl std::fmt::Display for NoServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no PostgreSQL server: {} (the README's test command installs it)", self.0)
    }
}

impl std::error::Error for NoServer {}

impl Server {
    /// One server for all tests of a process, without fsync.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match Self::start(Durability::None) {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        })
    }

    /// A server of one's own.
    pub fn start(durability: Durability) -> Result<Self, NoServer> {
        Self::start_with(durability, Extra::default())
    }

    /// A server of one's own, with more than the usual.
    pub fn start_with(durability: Durability, extra: Extra) -> Result<Self, NoServer> {
        let owner = Owner::pick()?;
        let folder = tempfile::Builder::new()
            .prefix("rota-pg-")
            .tempdir()
            .map_err(|error| NoServer(error.to_string()))?;
        let folder = folder.keep();
        owner.give(&folder)?;
        let mut settings = extra.settings;
        let port = if extra.tcp { free_port()? } else { 5432 };
        if extra.tcp {
            settings.push("listen_addresses=127.0.0.1".to_owned());
        }
        let running = Mutex::new(None);
        let server = Self { folder, port, durability, settings, running, schemas: AtomicU64::new(0) };
        server.initialise(&owner)?;
        for (name, text) in extra.files {
            owner.write(&server.data().join(name), &text)?;
        }
        server.up()?;
        Ok(server)
    }

    /// A standby that streams from this server, asynchronously, and takes connections that only read.
    pub fn standby(&self) -> Result<Self, NoServer> {
        let owner = Owner::pick()?;
        let folder = tempfile::Builder::new().prefix("rota-pg-").tempdir();
        let folder = folder.map_err(|error| NoServer(error.to_string()))?.keep();
        owner.give(&folder)?;
        let (durability, running) = (self.durability, Mutex::new(None));
        let standby = Self {
            folder,
            port: 5432,
            durability,
            settings: Vec::new(),
            running,
            schemas: AtomicU64::new(0),
        };
        let mut copy = owner.command(&program("pg_basebackup")?);
        copy.args(["--username=rota", "--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-h"]);
        copy.arg(&self.folder).args(["-p", &self.port.to_string(), "-D"]).arg(standby.data());
        let output = copy.current_dir(&standby.folder).output();
        let output = output.map_err(|error| NoServer(format!("pg_basebackup: {error}")))?;
        if !output.status.success() {
            return Err(NoServer(format!("pg_basebackup: {}", String::from_utf8_lossy(&output.stderr))));
        }
        standby.up()?;
        Ok(standby)
    }

    /// Its port, on the loopback where it listens there, and in the name of its socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its socket is.
    pub fn socket_folder(&self) -> &Path {
        &self.folder
    }

    /// A URL with a schema that nobody else has.
    pub fn fresh_url(&self) -> String {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        self.url(&format!("s{}_{number}", std::process::id()))
    }

    /// A URL with a given schema.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://rota@/postgres?host={}&port={}&schema={schema}", self.folder.display(), self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn initialise(&self, owner: &Owner) -> Result<(), NoServer> {
        let mut command = owner.command(&program("initdb")?);
        command.args([
            "--auth=trust",
            "--username=rota",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "-D",
        ]);
        let output = command.arg(self.data()).current_dir(&self.folder).output();
        let output = output.map_err(|error| NoServer(format!("initdb: {error}")))?;
        if !output.status.success() {
            return Err(NoServer(format!("initdb: {}", String::from_utf8_lossy(&output.stderr))));
        }
        Ok(())
    }

    /// Starts it, or starts it again.
    pub fn up(&self) -> Result<(), NoServer> {
        let owner = Owner::pick()?;
        let fsync = if self.durability == Durability::Full { "on" } else { "off" };
        // The server is a child of a shell that waits for us: when our end of the pipe closes, it stops the server
        // and takes the folder away, unless we are stopping it ourselves.
        let script = r#""$1" -D "$2" -k "$3" -p "$4" -c listen_addresses= -c fsync="$5" -c max_connections=300 \
            -c shared_buffers=128MB -c logging_collector=off -c log_min_messages=log 2>&1 <&- &
            server=$!; echo "postmaster $server"; read -r word; kill -QUIT $server 2>/dev/null; wait $server
            [ "$word" = keep ] || rm -rf "$3""#;
        // What is set last holds.
        let more: Vec<String> = self.settings.iter().map(|setting| format!("-c '{setting}'")).collect();
        let script = script.replace("2>&1 <&-", &format!("{} 2>&1 <&-", more.join(" ")));
        let mut command = owner.command(Path::new("/bin/sh"));
        command.args(["-c", &script, "sh"]).arg(program("postgres")?).arg(self.data()).arg(&self.folder);
        command.arg(self.port.to_string()).arg(fsync).current_dir(&self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = command.spawn().map_err(|error| NoServer(format!("postgres: {error}")))?;
        let Some(out) = keeper.stdout.take() else {
            return Err(NoServer("its output is not there".to_owned()));
        };
        let (told, ready) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Nobody listens any more once it is up; the pipe must be drained all the same.
                drop(told.send(line));
            }
        });
        let mut postmaster = 0;
        let mut said = Vec::new();
        loop {
            let Ok(line) = ready.recv_timeout(START) else { return Err(NoServer(said.join("\n"))) };
            if let Some(pid) = line.strip_prefix("postmaster ") {
                postmaster = pid.trim().parse().unwrap_or(0);
            }
            // A standby says "read-only connections".
            if line.contains("database system is ready to accept") {
                break;
            }
            said.push(line);
        }
        let running = Running { keeper, postmaster };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Stops it at once, as a crash would: no checkpoint, connections cut.
    pub fn crash(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { mut keeper, .. }) = running else { return };
        if let Some(mut stdin) = keeper.stdin.take() {
            let told = stdin.write_all(b"keep\n");
            assert!(told.is_ok(), "the server's keeper is there: {told:?}");
        }
        let ended = keeper.wait();
        assert!(ended.is_ok(), "the server's keeper ends: {ended:?}");
    }

    /// The server's own process.
    pub fn postmaster(&self) -> Option<u32> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|running| running.postmaster)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            assert!(error.kind() == std::io::ErrorKind::NotFound, "the folder can be removed: {error}");
        }
    }
}

/// A program of the server: in the PATH, or where Debian keeps them.
pub fn program(name: &str) -> Result<PathBuf, NoServer> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = versions().collect();
    folders.extend(std::env::split_paths(&in_path));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| NoServer(format!("'{name}' is not installed")))
}

fn versions() -> impl Iterator<Item = PathBuf> {
    let list = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = list.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.into_iter().rev()
}

/// Who the server runs as: a server refuses to be root.
struct Owner {
    ids: Option<(u32, u32)>,
}

impl Owner {
    fn pick() -> Result<Self, NoServer> {
        let home = std::fs::metadata("/proc/self").map_err(|error| NoServer(error.to_string()))?;
        if std::os::unix::fs::MetadataExt::uid(&home) != 0 {
            return Ok(Self { ids: None });
        }
        let users = std::fs::read_to_string("/etc/passwd").map_err(|error| NoServer(error.to_string()))?;
        let ids = ["postgres", "nobody"].into_iter().find_map(|name| ids_of(&users, name));
        ids.map(|ids| Self { ids: Some(ids) }).ok_or_else(|| NoServer("no user to run it as".to_owned()))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command.env("LC_ALL", "C");
        command
    }

    /// A file that only the server can read.
    fn write(&self, path: &Path, text: &str) -> Result<(), NoServer> {
        let written = std::fs::write(path, text)
            .and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)))
            .and_then(|()| match self.ids {
                Some((user, group)) => std::os::unix::fs::chown(path, Some(user), Some(group)),
                None => Ok(()),
            });
        written.map_err(|error| NoServer(format!("{}: {error}", path.display())))
    }

    fn give(&self, folder: &Path) -> Result<(), NoServer> {
        let given = match self.ids {
            Some((user, group)) => std::os::unix::fs::chown(folder, Some(user), Some(group)),
            None => Ok(()),
        };
        let opened = given.and_then(|()| std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)));
        opened.map_err(|error| NoServer(format!("{}: {error}", folder.display())))
    }
}

/// A port of the loopback that nobody has just now.
pub fn free_port() -> Result<u16, NoServer> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| NoServer(error.to_string()))
}

fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
