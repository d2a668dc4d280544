//! `rota work --jobs 4 -- true` on SQLite, beside bare loops that claim, spawn `true`, wait for it and settle: two
//! commits with the same writes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::bare::Bare;
use crate::options::{Options, built_rota, print_machine};
use crate::stats::{median, median_ratio, verdict};

const TARGET: f64 = 0.7;
const JOBS: usize = 4;

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    let rota = built_rota()?;
    print_machine(folder.path());
    let tasks = options.pick(100, 1_000);
    let template = folder.path().join("template.db");
    drop(backlog::fill(&template, "tasks", tasks, Shape::Runnable)?);
    rusqlite::Connection::open(&template)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let (mut alone, mut together, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    let per_second = |seconds: f64| tasks as f64 / seconds;
    for round in 0..options.pick(3, 9) {
        let measured = [
            on_copy(&template, |file| bare_loops(file, 1))?,
            on_copy(&template, |file| bare_loops(file, JOBS))?,
            on_copy(&template, |file| rota_work(&rota, file))?,
        ];
        if round > 0 {
            alone.push(per_second(measured[0]));
            together.push(per_second(measured[1]));
            ours.push(per_second(measured[2]));
        }
    }
    println!("| bare loops | bare, tasks/s | rota work --jobs {JOBS}, tasks/s | ratio | target | |");
    println!("|---|---|---|---|---|---|");
    for (loops, bare) in [(1, &alone), (JOBS, &together)] {
        let ratio = median_ratio(&ours, bare);
        let (bare, ours) = (median(bare), median(&ours));
        let verdict = verdict(ratio >= TARGET);
        println!("| {loops} | {bare:.0} | {ours:.0} | {ratio:.2} | ≥ {TARGET} | {verdict} |");
    }
    Ok(())
}

/// The seconds that something takes on a fresh copy of a file, and that nothing was left open.
pub fn on_copy(template: &Path, measure: impl Fn(&Path) -> Result<()>) -> Result<f64> {
    let folder = tempfile::tempdir_in(template.parent().ok_or("no folder")?)?;
    let file = folder.path().join("rota.db");
    std::fs::copy(template, &file)?;
    std::fs::File::open(&file)?.sync_all()?;
    let start = Instant::now();
    measure(&file)?;
    let seconds = start.elapsed().as_secs_f64();
    let undone = "SELECT count(*) FROM tasks WHERE status <> 'done'";
    let undone: i64 = rusqlite::Connection::open(&file)?.query_row(undone, [], |row| row.get(0))?;
    if undone == 0 { Ok(seconds) } else { Err(format!("{undone} tasks are not done").into()) }
}

/// Bare loops at once on one file until nothing is left.
pub fn bare_loops(file: &Path, loops: usize) -> Result<()> {
    let one = |number: usize| -> std::result::Result<(), String> {
        let bare = Bare::open(file, &format!("agent-{number}")).map_err(|error| error.to_string())?;
        loop {
            match bare.claim_and_settle(spawn_true) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..loops).map(|number| scope.spawn(move || one(number))).collect();
        for thread in threads {
            thread.join().map_err(|_| "a loop panicked")??;
        }
        Ok(())
    })
}

/// Runs the program that does nothing.
pub fn spawn_true() -> Result<()> {
    let status = Command::new("true").stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err("true is false".into()) }
}

fn rota_work(rota: &Path, file: &Path) -> Result<()> {
    let mut command = Command::new(rota);
    command.args(["work", "--until-empty", "--jobs", &JOBS.to_string()]);
    command.arg("--store").arg(format!("sqlite:{}", file.display())).args(["--", "true"]);
    command.env_remove("ROTA_CONFIG").env_remove("ROTA_SCOPE");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err("rota work failed".into()) }
}
