//! PostgreSQL: a throw-away server with fsync on, the bare limit by pgbench, ours by the store, peers by their own
//! programs. Everything goes through one Unix socket.

mod peers;
mod rota;
mod run;

pub use run::run;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rota_testbed::{Durability, Server, program};

use crate::Result;

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

    /// What the store connects to.
    pub fn url(&self, schema: &str) -> String {
        self.server.url(schema)
    }

    /// Where the socket is.
    pub fn socket(&self) -> &Path {
        self.server.socket_folder()
    }

    fn client(&self, name: &str, schema: &str) -> Result<Command> {
        let mut command = Command::new(program(name)?);
        command.arg("-h").arg(self.socket()).args(["-U", "rota"]);
        command.env("PGOPTIONS", format!("-c search_path={schema}"));
        Ok(command)
    }

    /// Runs one of our scripts with psql; returns what it says.
    pub fn script(&self, name: &str, schema: &str, count: usize) -> Result<String> {
        let mut command = self.client("psql", schema)?;
        command.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-v", &format!("schema={schema}")]);
        command.args(["-v", &format!("count={count}"), "-f"]).arg(self.scripts.join(name)).arg("postgres");
        said(command)
    }

    /// Runs one line of SQL.
    pub fn sql(&self, text: &str) -> Result<String> {
        let mut command = self.client("psql", "public")?;
        command.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-c", text, "postgres"]);
        said(command)
    }

    /// Runs one of our pgbench scripts, prepared, and returns transactions a second without the connecting.
    pub fn pgbench(&self, name: &str, schema: &str, clients: usize, length: Duration) -> Result<f64> {
        let mut command = self.client("pgbench", schema)?;
        let threads = clients.min(2).to_string();
        command.args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", &threads, "-T"]);
        // pgbench counts whole seconds.
        command.arg(length.as_secs().max(1).to_string()).arg("-f").arg(self.scripts.join(name));
        let report = said({
            command.arg("postgres");
            command
        })?;
        let line = report.lines().find(|line| line.starts_with("tps = ")).ok_or("pgbench gave no figure")?;
        Ok(line.split_whitespace().nth(2).ok_or("pgbench gave no figure")?.parse()?)
    }

    /// Which server it is.
    pub fn version(&self) -> Result<String> {
        self.sql("SHOW server_version")
    }
}

/// Runs a command to its end; its output, or an error with all that it said.
pub fn said(mut command: Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
