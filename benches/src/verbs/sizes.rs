//! The time of one claim over HTTP at 10,000 and at 1,000,000 tasks, nine of ten of which are blocked or cooling down and
//! sort first. Only this build: the stores are filled in process, because a plan cannot make a task cool down.

use rota_store::postgres::PostgresStore;
use rota_store::sqlite::SqliteStore;

use super::client::Claimer;
use super::stores::{Copied, Place};
use super::{Build, Run};
use crate::Result;
use crate::backlog::{Shape, fill_store};
use crate::stats::{median, median_ratio, verdict};

/// On SQLite.
pub fn sqlite(run: &Run) -> Result<bool> {
    if run.sizes && run.wants_section("sqlite") && run.wants("sizes sqlite", "rota, claim") {
        compare(run, run.sqlite())?;
    }
    Ok(true)
}

/// On PostgreSQL.
pub fn postgres(run: &Run) -> Result<bool> {
    if run.sizes && run.wants_section("postgres") && run.wants("sizes postgres", "rota, claim") {
        compare(run, run.postgres()?)?;
    }
    Ok(true)
}

fn filled(place: Place<'_>, tasks: usize) -> Result<Copied<'_>> {
    let store = place.empty()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match place {
            Place::Postgres(..) => {
                let opened = PostgresStore::open(&store.url()).await?;
                fill_store(&opened, "tasks", tasks, Shape::MostlyHeldBack).await
            }
            Place::Sqlite(_) => {
                let opened = SqliteStore::open(&store.file())?;
                fill_store(&opened, "tasks", tasks, Shape::MostlyHeldBack).await
            }
        }
    })?;
    store.settle()?;
    Ok(store)
}

fn compare(run: &Run, place: Place<'_>) -> Result<()> {
    let sizes = if run.quick { [1_000, 10_000] } else { [10_000, 1_000_000] };
    let (rounds, claims) = if run.quick { (3, 10) } else { (11, 50) };
    let build: &Build = &run.builds[0];
    let stores = sizes.iter().map(|tasks| filled(place, *tasks)).collect::<Result<Vec<_>>>()?;
    let servers = stores.iter().map(|store| store.serve(build)).collect::<Result<Vec<_>>>()?;
    let mut claimers = servers.iter().map(Claimer::connect).collect::<Result<Vec<_>>>()?;
    let mut times = [Vec::new(), Vec::new()];
    for claimer in &mut claimers {
        claimer.times(10)?;
    }
    for round in 0..rounds {
        for place in 0..sizes.len() {
            let index = (place + round) % sizes.len();
            times[index].push(median(&claimers[index].times(claims)?));
        }
    }
    println!("| {}, 90 % held back | one claim over HTTP |\n|---|---|", place.name());
    for (tasks, times) in sizes.iter().zip(&times) {
        println!("| {tasks} tasks | {:.2} ms |", median(times) / 1e3);
    }
    let ratio = median_ratio(&times[1], &times[0]);
    println!("\nlargest / smallest: {ratio:.2} (target ≤ 1.5: {})\n", verdict(ratio <= 1.5));
    Ok(())
}
