//! Claim + done on SQLite (WAL, `synchronous=FULL`): the store in process, without an interface in front of it, beside a
//! bare rusqlite loop that makes the same writes. A note: `verbs` measures what a user can send.

use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, print_machine};
use crate::stats::{median, median_ratio, verdict};
use crate::worker::{Crew, Share, Side};

const TARGET: f64 = 0.8;
/// So that the backlog lasts for all slices.
const MOST_PER_SLICE: usize = 2_400;
const DETAILS: &str = "processor time per task, bare and rota | least/most per process | longest turn";
const BATCHES: [(&str, usize); 3] = [("claim, done", 1), ("batches of 10", 10), ("batches of 100", 100)];

/// What one side did in the rounds of one row.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    fairness: Vec<f64>,
    longest_ms: Vec<f64>,
    cpu_micros: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, shares: &[Share]) {
        let tasks: f64 = shares.iter().map(|share| share.tasks).sum();
        let seconds = shares.iter().map(|share| share.seconds).fold(0.0, f64::max);
        let most = shares.iter().map(|share| share.tasks).fold(0.0, f64::max);
        let least = shares.iter().map(|share| share.tasks).fold(f64::INFINITY, f64::min);
        self.cpu_micros.push(shares.iter().map(|share| share.cpu_micros).sum::<f64>() / tasks);
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
    drop(backlog::fill(&template, "tasks", options.pick(10_000, 60_000), Shape::Runnable)?);
    rusqlite::Connection::open(&template)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let slices = options.pick(3, 20);
    println!("| | processes | bare, tasks/s | rota, tasks/s | ratio | target | | {DETAILS} |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, batch) in BATCHES {
        for processes in [1, 4] {
            let (bare, rota) = take_turns(&template, batch, processes, slices)?;
            print_row(name, processes, &bare, &rota);
        }
    }
    Ok(())
}

/// Short slices, one side after the other: what else the machine does, it does to both.
fn take_turns(template: &Path, batch: usize, processes: usize, slices: usize) -> Result<(Rounds, Rounds)> {
    let folder = tempfile::tempdir_in(template.parent().ok_or("no folder")?)?;
    let start = |side: Side, name: &str| {
        let file = folder.path().join(name);
        std::fs::copy(template, &file)?;
        std::fs::File::open(&file)?.sync_all()?;
        Crew::start(side, batch, processes, &file, MOST_PER_SLICE / processes)
    };
    let (mut bare_crew, mut rota_crew) = (start(Side::Bare, "bare.db")?, start(Side::Rota, "rota.db")?);
    let (mut bare, mut rota) = (Rounds::default(), Rounds::default());
    // Four that poll for the lock sleep for up to 100 ms at a time: a slice must be longer than that.
    let length = Duration::from_millis(if processes == 1 { 150 } else { 400 });
    for slice in 0..slices {
        if slice % 2 == 0 {
            bare.add(&bare_crew.work(length)?);
            rota.add(&rota_crew.work(length)?);
        } else {
            rota.add(&rota_crew.work(length)?);
            bare.add(&bare_crew.work(length)?);
        }
    }
    bare_crew.stop()?;
    rota_crew.stop()?;
    Ok((bare, rota))
}

fn print_row(name: &str, processes: usize, bare: &Rounds, rota: &Rounds) {
    let ratio = median_ratio(&rota.per_second, &bare.per_second);
    let pair = |read: fn(&Rounds) -> &Vec<f64>| (median(read(bare)), median(read(rota)));
    let (bare_rate, rota_rate) = pair(|rounds| &rounds.per_second);
    let (bare_share, rota_share) = pair(|rounds| &rounds.fairness);
    let (bare_longest, rota_longest) = pair(|rounds| &rounds.longest_ms);
    let (bare_cpu, rota_cpu) = pair(|rounds| &rounds.cpu_micros);
    println!(
        "| {name} | {processes} | {bare_rate:.0} | {rota_rate:.0} | {ratio:.2} | ≥ {TARGET} | {} \
         | {bare_cpu:.0}, {rota_cpu:.0} µs | {bare_share:.2}, {rota_share:.2} | {bare_longest:.0}, {rota_longest:.0} ms |",
        verdict(ratio >= TARGET),
    );
}
