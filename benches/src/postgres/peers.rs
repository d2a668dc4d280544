//! Other queues, each by a small program in its own language that fills its queue, drains it and says how long that
//! took. `benches/peers/install` brings them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bench, said};
use crate::Result;

/// One way to use one peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// As the table says it.
    pub name: &'static str,
    script: &'static str,
    batch: usize,
    /// Jobs a second to expect, so that a round lasts about a second.
    pace: [usize; 3],
}

/// A program, where the others are scripts.
const APALIS: &str = "apalis/release/rota-bench-apalis";

/// Every peer that claims one job at a time.
pub const ONE_AT_A_TIME: [Peer; 4] = [
    Peer { name: "graphile-worker", script: "graphile.mjs", batch: 1, pace: [600, 1200, 1600] },
    Peer { name: "pg-boss, fetch 1", script: "pgboss.mjs", batch: 1, pace: [300, 700, 900] },
    Peer { name: "procrastinate", script: "procrastinate.py", batch: 1, pace: [200, 300, 300] },
    Peer { name: "apalis", script: APALIS, batch: 1, pace: [500, 800, 1000] },
];
/// Every peer that takes many at a time.
pub const BATCHES: [Peer; 2] = [
    Peer {
        name: "graphile-worker, local queue of 500",
        script: "graphile.mjs",
        batch: 500,
        pace: [10_000, 12_000, 12_000],
    },
    Peer { name: "pg-boss, fetch 100", script: "pgboss.mjs", batch: 100, pace: [8_000, 10_000, 10_000] },
];

/// Where they were installed; none if they were not.
pub fn installed() -> Option<PathBuf> {
    let folder = home().join("../../target/bench-peers");
    folder.join("ready").is_file().then_some(folder)
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

impl Peer {
    /// Jobs a second in one round; `size` is the place of the worker count in 1, 4, 16.
    pub fn round(&self, bench: &Bench, folder: &Path, workers: usize, size: usize) -> Result<f64> {
        let mut command = match self.script.rsplit_once('.') {
            None => Command::new(folder.join(self.script)),
            Some((_, suffix)) => {
                let interpreter = if suffix == "py" { "venv/bin/python" } else { "node_modules/.bin/node" };
                let mut command = Command::new(folder.join(interpreter));
                command.arg(home().join(self.script));
                command
            }
        };
        command.arg(bench.socket());
        command.args([workers, self.batch, self.pace[size]].map(|number| number.to_string()));
        command.env("NODE_PATH", folder.join("node_modules")).env("ROTA_PEERS", folder);
        let report = said(command)?;
        let line = report.lines().last().ok_or("a peer said nothing")?;
        let numbers =
            line.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
        let [jobs, seconds] = numbers[..] else { return Err("a peer gave no figures".into()) };
        Ok(jobs / seconds)
    }
}

/// What happens to a late worker, in the peers' words and ours; `ROTA` names our program if it is not in the PATH.
pub fn late(bench: &Bench) -> Result<()> {
    let folder = installed().ok_or("run benches/peers/install first")?;
    let mut command = Command::new(folder.join("node_modules/.bin/node"));
    command.arg(home().join("late-worker/run.mjs")).arg(bench.socket()).env("ROTA_PEERS", &folder);
    println!("{}", said(command)?);
    Ok(())
}
