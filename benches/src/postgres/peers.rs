//! Other queues, each driven by a small program in its own language. `benches/peers/install` installs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Bench, output_of};
use crate::Result;
use crate::options::built_rota;

/// One way to use one peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its row in the tables.
    pub name: &'static str,
    script: &'static str,
    batch: usize,
}

/// A program, where the others are scripts.
const APALIS: &str = "apalis/release/rota-bench-apalis";

/// The row that the others are compared with.
pub const GRAPHILE: &str = "graphile-worker";
/// Graphile-worker with batches.
pub const LOCAL_QUEUE: Peer =
    Peer { name: "graphile-worker, local queue of 500", script: "graphile.mjs", batch: 500 };
/// Every peer that claims one job at a time.
pub const ONE_AT_A_TIME: [Peer; 4] = [
    Peer { name: GRAPHILE, script: "graphile.mjs", batch: 1 },
    Peer { name: "pg-boss, fetch 1", script: "pgboss.mjs", batch: 1 },
    Peer { name: "procrastinate", script: "procrastinate.py", batch: 1 },
    Peer { name: "apalis", script: APALIS, batch: 1 },
];

/// The folder they were installed in; none if they were not.
fn installed() -> Result<PathBuf> {
    let folder = home().join("../../target/bench-peers");
    if folder.join("ready").is_file() { Ok(folder) } else { Err("run benches/peers/install first".into()) }
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

impl Peer {
    /// Jobs per second that `workers` of one process work off, out of a backlog of `jobs`.
    pub fn drain(&self, bench: &Bench, workers: usize, jobs: usize, length: Duration) -> Result<f64> {
        self.round(bench, "drain", workers, jobs, length)
    }

    /// Jobs per second that `producers` of one process add, one per call.
    pub fn add(&self, bench: &Bench, producers: usize, length: Duration) -> Result<f64> {
        self.round(bench, "add", producers, 0, length)
    }

    fn round(&self, bench: &Bench, mode: &str, workers: usize, jobs: usize, length: Duration) -> Result<f64> {
        let folder = installed()?;
        let mut command = match self.script.rsplit_once('.') {
            None => Command::new(folder.join(self.script)),
            Some((_, suffix)) => {
                let interpreter = if suffix == "py" { "venv/bin/python" } else { "node_modules/.bin/node" };
                let mut command = Command::new(folder.join(interpreter));
                command.arg(home().join(self.script));
                command
            }
        };
        command.arg(bench.socket()).arg(mode);
        command.args([workers, self.batch, jobs].map(|number| number.to_string()));
        command.arg(length.as_secs_f64().to_string());
        command.env("NODE_PATH", folder.join("node_modules")).env("ROTA_PEERS", &folder);
        let report = output_of(command)?;
        let line = report.lines().last().ok_or("a peer printed nothing")?;
        let numbers =
            line.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
        let [jobs, seconds] = numbers[..] else { return Err("a peer gave no figures".into()) };
        Ok(jobs / seconds)
    }
}

/// A late worker, with the peers and with Rota.
pub fn late(bench: &Bench) -> Result<()> {
    let folder = installed()?;
    let mut command = Command::new(folder.join("node_modules/.bin/node"));
    command.arg(home().join("late-worker/run.mjs")).arg(bench.socket()).env("ROTA_PEERS", &folder);
    command.env("ROTA", built_rota()?);
    println!("{}", output_of(command)?);
    Ok(())
}
