//! PostgreSQL: a throw-away server with fsync on, reached through one Unix socket.

pub mod in_process;
pub mod peers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rota_testbed::{Durability, Server, program};

use crate::Result;
use crate::options::Options;

/// Runs `postgres late`: a late worker, beside other queues.
pub fn run(options: &Options) -> Result<()> {
    match options.rest.first().map(String::as_str) {
        Some("late") => peers::late(&Bench::start()?),
        _ => Err("usage: rota-benches postgres late".into()),
    }
}

/// The server of one run, and the scripts it is measured with.
pub struct Bench {
    server: Server,
    scripts: PathBuf,
}

impl Bench {
    /// Starts a server.
    pub fn start() -> Result<Self> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("postgres");
        Ok(Self { server: Server::start(Durability::Full)?, scripts })
    }

    /// The URL of a store in one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://rota@/{database}?host={}&port={}", self.socket().display(), self.server.port())
    }

    /// Where the socket is.
    pub fn socket(&self) -> &Path {
        self.server.socket_folder()
    }

    /// A client program of the server: the real one, not a wrapper of the distribution.
    pub fn client(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(program(name)?);
        command.arg("-h").arg(self.socket()).args(["-U", "rota"]);
        Ok(command)
    }

    /// Runs one line of SQL in a database.
    pub fn sql(&self, database: &str, text: &str) -> Result<String> {
        let mut command = self.client("psql")?;
        command.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-c", text, database]);
        output_of(command)
    }

    /// Transactions per second of the least that a queue needs: `clients` that claim a row and delete it.
    pub fn bare_pairs(&self, clients: usize, backlog: usize, length: Duration) -> Result<f64> {
        let mut fill = self.client("psql")?;
        fill.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-v", &format!("count={backlog}"), "-f"]);
        fill.arg(self.scripts.join("bare_fill.sql")).arg("postgres");
        output_of(fill)?;
        let mut command = self.client("pgbench")?;
        let threads = clients.min(2).to_string();
        command.args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", &threads, "-T"]);
        // pgbench counts whole seconds.
        command.arg(length.as_secs().max(1).to_string()).arg("-f").arg(self.scripts.join("bare_pair.sql"));
        command.arg("postgres");
        let report = output_of(command)?;
        let line = report.lines().find(|line| line.starts_with("tps = ")).ok_or("pgbench gave no figure")?;
        Ok(line.split_whitespace().nth(2).ok_or("pgbench gave no figure")?.parse()?)
    }

    /// The version of the server.
    pub fn version(&self) -> Result<String> {
        self.sql("postgres", "SHOW server_version")
    }
}

/// Runs a command to its end; its output, or an error with what it wrote to standard error.
pub fn output_of(mut command: Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
