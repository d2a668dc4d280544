//! `POST /api/v1/tasks` from 16 producers, beside the additions of other queues on PostgreSQL.

use super::client::{Way, load};
use super::stores::Place;
use super::table::{Round, Row, Table};
use super::{Build, Run};
use crate::Result;
use crate::postgres::peers::{GRAPHILE, ONE_AT_A_TIME};

const PRODUCERS: usize = 16;

fn row_name(build: &Build) -> String {
    format!("{}, HTTP, one task per call", build.name)
}

fn http_rows<'a>(run: &'a Run, section: &str, place: Place<'a>) -> Vec<Row<'a>> {
    let row = |build: &'a Build| {
        let measure = move |producers| {
            let store = place.empty()?;
            load(&store.serve(build)?, Way::Add, producers, run.length)
        };
        Row { name: row_name(build), measure: Box::new(measure) }
    };
    run.builds.iter().map(row).filter(|row| run.wants(section, &row.name)).collect()
}

/// On PostgreSQL.
pub fn postgres(run: &Run) -> Result<bool> {
    const SECTION: &str = "additions postgres";
    if !run.wants_section("postgres") {
        return Ok(true);
    }
    let bench = run.bench()?;
    let mut rows = http_rows(run, SECTION, run.postgres()?);
    for peer in ONE_AT_A_TIME.into_iter().filter(|peer| run.wants(SECTION, peer.name)) {
        let measure = move |producers| Ok(Round::rate(peer.add(bench, producers, run.length)?));
        rows.push(Row { name: peer.name.to_owned(), measure: Box::new(measure) });
    }
    if rows.is_empty() {
        return Ok(true);
    }
    let table = Table::measure(&rows, &[PRODUCERS], run.rounds);
    let all_measured = table.print("PostgreSQL, additions", "producers", GRAPHILE);
    for peer in ONE_AT_A_TIME {
        table.target(&row_name(&run.builds[0]), peer.name, &[(PRODUCERS, 1.0)]);
    }
    println!();
    Ok(all_measured)
}

/// On SQLite.
pub fn sqlite(run: &Run) -> Result<bool> {
    if !run.wants_section("sqlite") {
        return Ok(true);
    }
    let rows = http_rows(run, "additions sqlite", run.sqlite());
    if rows.is_empty() {
        return Ok(true);
    }
    let base = row_name(run.baseline().unwrap_or(&run.builds[0]));
    let table = Table::measure(&rows, &[PRODUCERS], run.rounds);
    Ok(table.print("SQLite, additions", "producers", &base))
}
