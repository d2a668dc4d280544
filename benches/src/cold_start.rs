//! `rota task peek` and `rota task claim` as cold processes, beside a cold `sqlite3 FILE 'select …'`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, built_rota, print_machine};
use crate::stats::{median, median_ratio, verdict};

const TARGET: f64 = 3.0;
const SELECT: &str = "select id, title, description from tasks where queue = 1 and stage = 2 \
     order by sort_priority, kind, host, static_score, created_at, seq limit 5";

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    let rota = built_rota()?;
    if Command::new("sqlite3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err("sqlite3 is missing: install it first (Debian, Ubuntu: apt install sqlite3)".into());
    }
    print_machine(folder.path());
    println!("| tasks | | sqlite3 select | rota | ratio | target | |");
    println!("|---|---|---|---|---|---|---|");
    for tasks in options.pick([100, 1_000], [1_000, 100_000]) {
        let (ours, theirs) = (folder.path().join("ours.db"), folder.path().join("theirs.db"));
        drop(backlog::fill(&ours, "tasks", tasks, Shape::Runnable)?);
        rusqlite::Connection::open(&ours)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        // A file of its own: each cold sqlite3 tidies the log up on its way out, which would spare ours the work.
        std::fs::copy(&ours, &theirs)?;
        for verb in ["peek", "claim"] {
            measure(options, tasks, verb, &rota, &ours, &theirs)?;
        }
        for file in std::fs::read_dir(folder.path())? {
            std::fs::remove_file(file?.path())?;
        }
    }
    Ok(())
}

fn measure(
    options: &Options,
    tasks: usize,
    verb: &str,
    rota: &Path,
    ours: &Path,
    theirs: &Path,
) -> Result<()> {
    let (mut bare, mut own) = (Vec::new(), Vec::new());
    let store = format!("sqlite:{}", ours.display());
    for round in 0..options.pick(12, 202) {
        let sqlite = millis(Command::new("sqlite3").arg(theirs).arg(SELECT))?;
        let mut command = Command::new(rota);
        command.args(["task", verb, "--store", &store]);
        let ours = millis(command.env_remove("ROTA_STORE").env_remove("ROTA_CONFIG"))?;
        if round >= 2 {
            bare.push(sqlite);
            own.push(ours);
        }
    }
    let ratio = median_ratio(&own, &bare);
    let (bare, own) = (median(&bare), median(&own));
    let verdict = verdict(ratio <= TARGET);
    println!("| {tasks} | {verb} | {bare:.2} ms | {own:.2} ms | {ratio:.2} | ≤ {TARGET} | {verdict} |");
    Ok(())
}

/// From start to end of a process.
fn millis(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let millis = start.elapsed().as_secs_f64() * 1e3;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(millis)
}
