//! Claim + done on SQLite (WAL, `synchronous=FULL`): the store beside a bare rusqlite loop that makes the same writes.

use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, print_machine};
use crate::stats::{median, median_ratio, verdict};
use crate::worker::{self, Mode, Share, Side};

const TARGET: f64 = 0.8;
const MODES: [(&str, Mode); 4] = [
    ("claim, done", Mode::Pair(1)),
    ("done and next claim in one", Mode::Fused),
    ("batches of 10", Mode::Pair(10)),
    ("batches of 100", Mode::Pair(100)),
];

/// What one side did in the rounds of one row.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    fairness: Vec<f64>,
    longest_ms: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, shares: &[Share]) {
        let tasks: f64 = shares.iter().map(|share| share.tasks).sum();
        let seconds = shares.iter().map(|share| share.seconds).fold(0.0, f64::max);
        let most = shares.iter().map(|share| share.tasks).fold(0.0, f64::max);
        let least = shares.iter().map(|share| share.tasks).fold(f64::INFINITY, f64::min);
        self.per_second.push(tasks / seconds);
        self.fairness.push(least / most);
        self.longest_ms.push(shares.iter().map(|share| share.longest_ms).fold(0.0, f64::max));
    }
}

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    print_machine(folder.path());
    let template = folder.path().join("template.db");
    drop(backlog::fill(&template, "tasks", options.pick(10_000, 40_000), Shape::Runnable)?);
    rusqlite::Connection::open(&template)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let rounds = options.pick(3, 7);
    let length = Duration::from_millis(options.pick(300, 800));
    println!(
        "| | processes | bare, tasks/s | rota, tasks/s | ratio | target | | least/most per process, bare | rota | longest turn, bare | rota |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, mode) in MODES {
        for processes in [1, 4] {
            let (mut bare, mut rota) = (Rounds::default(), Rounds::default());
            for round in 0..rounds {
                // Who goes first changes, so that neither side always follows the copying.
                let order = if round % 2 == 0 { [Side::Bare, Side::Rota] } else { [Side::Rota, Side::Bare] };
                for side in order {
                    let shares = one_round(&template, side, mode, processes, length)?;
                    if side == Side::Bare { &mut bare } else { &mut rota }.add(&shares);
                }
            }
            print_row(name, processes, &bare, &rota);
        }
    }
    Ok(())
}

fn one_round(
    template: &Path,
    side: Side,
    mode: Mode,
    processes: usize,
    length: Duration,
) -> Result<Vec<Share>> {
    let folder = tempfile::tempdir_in(template.parent().ok_or("no folder")?)?;
    let file = folder.path().join("rota.db");
    std::fs::copy(template, &file)?;
    std::fs::File::open(&file)?.sync_all()?;
    worker::run(side, mode, processes, &file, length)
}

fn print_row(name: &str, processes: usize, bare: &Rounds, rota: &Rounds) {
    let ratio = median_ratio(&rota.per_second, &bare.per_second);
    println!(
        "| {name} | {processes} | {:.0} | {:.0} | {ratio:.2} | ≥ {TARGET} | {} | {:.2} | {:.2} | {:.1} ms | {:.1} ms |",
        median(&bare.per_second),
        median(&rota.per_second),
        verdict(ratio >= TARGET),
        median(&bare.fairness),
        median(&rota.fairness),
        median(&bare.longest_ms),
        median(&rota.longest_ms),
    );
}
