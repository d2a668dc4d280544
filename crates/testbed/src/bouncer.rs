//! A throw-away PgBouncer in transaction mode before a server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use crate::{NoServer, Owner, START, Server, free_port, program};

/// A running PgBouncer; it ends with this value, or with the process that started it however that ends.
#[derive(Debug)]
pub struct Bouncer {
    port: u16,
    /// A shell that ends it when its standard input is closed, as it is when we are gone.
    keeper: Child,
}

impl Bouncer {
    /// Whether it can keep track of prepared statements: since 1.21.
    pub fn can_keep_track() -> Result<bool, NoServer> {
        let output = std::process::Command::new(find()?).arg("--version").output();
        let output = output.map_err(|error| NoServer(format!("pgbouncer: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.lines().next().and_then(|line| line.strip_prefix("PgBouncer "));
        let mut numbers = version.unwrap_or_default().split('.').map(|part| part.trim().parse::<u32>());
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor) >= (1, 21)),
            _ => Err(NoServer(format!("pgbouncer's version cannot be read: {text}"))),
        }
    }

    /// Before a server, with so many connections to it, and so many prepared statements that it keeps track of.
    pub fn before(server: &Server, connections: usize, statements: usize) -> Result<Self, NoServer> {
        let track = match Self::can_keep_track()? {
            true => format!("max_prepared_statements={statements}\n"),
            false if statements == 0 => String::new(),
            false => return Err(NoServer("this pgbouncer cannot keep track of statements".to_owned())),
        };
        let owner = Owner::pick()?;
        let made = tempfile::Builder::new().prefix("rota-pgbouncer-").tempdir();
        let folder = made.map_err(|error| NoServer(error.to_string()))?.keep();
        owner.give(&folder)?;
        let port = free_port()?;
        let settings = format!(
            "[databases]\npostgres = user=rota host={} port={}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\n\
             unix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size={connections}\n\
             max_client_conn=500\n{track}",
            server.socket_folder().display(),
            server.port()
        );
        let file = folder.join("pgbouncer.ini");
        owner.write(&file, &settings)?;
        let script =
            r#""$1" "$2" 2>&1 <&- & it=$!; exec >&-; read -r word; kill -INT $it; wait $it; rm -rf "$3""#;
        let mut command = owner.command(Path::new("/bin/sh"));
        command.args(["-c", script, "sh"]).arg(find()?).arg(&file).arg(&folder).current_dir(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = command.spawn().map_err(|error| NoServer(format!("pgbouncer: {error}")))?;
        wait_until_up(&mut keeper)?;
        Ok(Self { port, keeper })
    }

    /// A URL through it with a given schema.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://rota@127.0.0.1:{}/postgres?sslmode=disable&schema={schema}", self.port)
    }
}

fn find() -> Result<PathBuf, NoServer> {
    let debian = Path::new("/usr/sbin/pgbouncer");
    if debian.is_file() { Ok(debian.to_owned()) } else { program("pgbouncer") }
}

fn wait_until_up(keeper: &mut Child) -> Result<(), NoServer> {
    let Some(out) = keeper.stdout.take() else {
        return Err(NoServer("pgbouncer's output is not there".to_owned()));
    };
    let (told, ready) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            // Nobody listens any more once it is up; the pipe must be drained all the same.
            drop(told.send(line));
        }
    });
    let mut said = Vec::new();
    loop {
        let Ok(line) = ready.recv_timeout(START) else { return Err(NoServer(said.join("\n"))) };
        if line.contains("process up") {
            return Ok(());
        }
        said.push(line);
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let ended = self.keeper.wait();
        assert!(ended.is_ok(), "pgbouncer's keeper ends: {ended:?}");
    }
}
