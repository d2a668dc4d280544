//! `rota task claim` and `rota task done` as cold processes, beside a cold client of the same database that selects 1.

use std::process::Command;
use std::time::Instant;

use super::stores::{Place, Template};
use super::{Build, Run};
use crate::Result;
use crate::server::rota_command;
use crate::stats::{median, median_ratio, verdict};

/// Tasks in the store.
const TASKS: usize = 1_000;

/// Beside `sqlite3`.
pub fn sqlite(run: &Run) -> Result<bool> {
    if run.wants_section("sqlite") {
        compare(run, "cold sqlite", run.sqlite(), "sqlite3 FILE 'select 1'", 3.0)?;
    }
    Ok(true)
}

/// Beside `psql`.
pub fn postgres(run: &Run) -> Result<bool> {
    if run.wants_section("postgres") {
        compare(run, "cold postgres", run.postgres()?, "psql -c 'select 1'", 1.5)?;
    }
    Ok(true)
}

/// A client that connects, selects 1 and ends.
fn bare(place: Place<'_>, theirs: &super::stores::Copied<'_>) -> Result<Command> {
    match place {
        Place::Postgres(bench, _) => {
            let mut command = bench.client("psql")?;
            command.args(["-qAtX", "-c", "select 1", "postgres"]);
            Ok(command)
        }
        Place::Sqlite(_) => {
            let mut command = Command::new("sqlite3");
            command.arg(theirs.file()).arg("select 1");
            Ok(command)
        }
    }
}

fn compare(run: &Run, section: &str, place: Place<'_>, bare_name: &str, most: f64) -> Result<()> {
    let is_wanted = |build: &&Build| run.wants(section, &format!("{} task", build.name));
    let templates: Vec<Template<'_>> =
        run.builds.iter().filter(is_wanted).map(|build| Template::new(place, build, TASKS)).collect();
    if templates.is_empty() {
        return Ok(());
    }
    // A store of its own for the bare client: each cold sqlite3 tidies the log up on its way out.
    let theirs = templates[0].copy()?;
    let stores = templates.iter().map(Template::copy).collect::<Result<Vec<_>>>()?;
    let mut bare_times = Vec::new();
    let mut times = vec![(Vec::new(), Vec::new()); templates.len()];
    for round in 0..if run.quick { 12 } else { 102 } {
        let select = millis(&mut bare(place, &theirs)?)?.0;
        let mut measured = Vec::new();
        for (template, store) in templates.iter().zip(&stores) {
            measured.push(claim_and_done(template, &store.url())?);
        }
        // The first rounds warm the caches of the machine.
        if round >= 2 {
            bare_times.push(select);
            for (times, (claim, done)) in times.iter_mut().zip(measured) {
                times.0.push(claim);
                times.1.push(done);
            }
        }
    }
    println!(
        "| {}, cold processes, {TASKS} tasks | ms | ratio | target | |\n|---|---|---|---|---|",
        place.name()
    );
    println!("| {bare_name} | {:.2} | | | |", median(&bare_times));
    for (template, (claims, dones)) in templates.iter().zip(&times) {
        for (verb, times) in [("claim", claims), ("done", dones)] {
            let (name, ratio) = (template.build().name, median_ratio(times, &bare_times));
            let (time, holds) = (median(times), verdict(ratio <= most));
            println!("| {name} task {verb} | {time:.2} | {ratio:.2} | ≤ {most} | {holds} |");
        }
    }
    println!();
    Ok(())
}

/// The milliseconds of each verb.
fn claim_and_done(template: &Template<'_>, store: &str) -> Result<(f64, f64)> {
    let rota = |arguments: &[&str]| {
        rota_command(&template.build().path, template.place().folder(), store, arguments)
    };
    let (claim, output) = millis(&mut rota(&["task", "claim", "--agent", "cold", "--json"]))?;
    let claimed: serde_json::Value = serde_json::from_slice(&output)?;
    let id = claimed["id"].as_str().ok_or("a claim without an id")?;
    let (done, _) = millis(&mut rota(&["task", "done", id, "--agent", "cold"]))?;
    Ok((claim, done))
}

/// From start to end of a process, and its output.
fn millis(command: &mut Command) -> Result<(f64, Vec<u8>)> {
    let began = Instant::now();
    let output = command.output()?;
    let millis = began.elapsed().as_secs_f64() * 1e3;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok((millis, output.stdout))
}
