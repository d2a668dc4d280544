//! Claim and done over HTTP, beside other queues on PostgreSQL.

use super::client::{Way, load};
use super::stores::Template;
use super::table::{Round, Row, Table};
use super::{BACKLOG, Build, CALLERS, Run};
use crate::Result;
use crate::postgres::in_process;
use crate::postgres::peers::{GRAPHILE, LOCAL_QUEUE, ONE_AT_A_TIME};

const WAYS: [(&str, Way); 2] =
    [("claim then done", Way::ClaimThenDone), ("done with next", Way::DoneWithNext)];
/// Least ratios to graphile-worker by callers, for each way.
const TARGETS: [[(usize, f64); 3]; 2] = [[(1, 0.5), (4, 0.75), (16, 1.5)], [(1, 0.85), (4, 1.2), (16, 2.0)]];
/// The store without an interface in front of it.
const IN_PROCESS: [(&str, in_process::Way); 3] = [
    ("note: in process, claim then done", in_process::Way { limit: 1, next: false }),
    ("note: in process, done with next", in_process::Way { limit: 1, next: true }),
    ("note: in process, claim 100 then done 100", in_process::Way { limit: 100, next: false }),
];

fn row_name(build: &Build, way: &str) -> String {
    format!("{}, HTTP, {way}", build.name)
}

fn templates<'a>(run: &'a Run, place: super::Place<'a>) -> Vec<Template<'a>> {
    run.builds.iter().map(|build| Template::new(place, build, BACKLOG)).collect()
}

fn http_rows<'t>(run: &'t Run, section: &str, templates: &'t [Template<'_>]) -> Vec<Row<'t>> {
    let mut rows = Vec::new();
    for template in templates {
        for (text, way) in WAYS {
            let name = row_name(template.build(), text);
            if run.wants(section, &name) {
                let measure = move |callers| {
                    let store = template.copy()?;
                    load(&store.serve(template.build())?, way, callers, run.length)
                };
                rows.push(Row { name, measure: Box::new(measure) });
            }
        }
    }
    rows
}

/// HTTP on PostgreSQL beside every peer, and the notes.
pub fn postgres(run: &Run) -> Result<bool> {
    const SECTION: &str = "claims postgres";
    if !run.wants_section("postgres") {
        return Ok(true);
    }
    let bench = run.bench()?;
    let templates = templates(run, run.postgres()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = http_rows(run, SECTION, &templates);
    let queues = ONE_AT_A_TIME.map(|peer| (peer.name.to_owned(), peer));
    let note = (format!("note: {}", LOCAL_QUEUE.name), LOCAL_QUEUE);
    for (name, peer) in queues.into_iter().chain([note]).filter(|(name, _)| run.wants(SECTION, name)) {
        let measure = move |callers| Ok(Round::rate(peer.drain(bench, callers, BACKLOG, run.length)?));
        rows.push(Row { name, measure: Box::new(measure) });
    }
    let (ours, runtime) = (&templates[0], &runtime);
    for (name, way) in IN_PROCESS.into_iter().filter(|(name, _)| run.wants(SECTION, name)) {
        let measure = move |callers| {
            let store = ours.copy()?;
            let rate = runtime.block_on(in_process::claims(&store.url(), way, callers, run.length))?;
            Ok(Round::rate(rate))
        };
        rows.push(Row { name: name.to_owned(), measure: Box::new(measure) });
    }
    const LIMIT: &str = "note: pgbench, bare claim and delete";
    if run.wants(SECTION, LIMIT) {
        let measure = move |callers| Ok(Round::rate(bench.bare_pairs(callers, 100_000, run.length)?));
        rows.push(Row { name: LIMIT.to_owned(), measure: Box::new(measure) });
    }
    if rows.is_empty() {
        return Ok(true);
    }
    let table = Table::measure(&rows, &CALLERS, run.rounds);
    let all_measured = table.print("PostgreSQL, one task at a time", "callers", GRAPHILE);
    for ((text, _), targets) in WAYS.iter().zip(TARGETS) {
        table.target(&row_name(&run.builds[0], text), GRAPHILE, &targets);
    }
    for (name, _) in &IN_PROCESS[..2] {
        table.target(name, GRAPHILE, &[(4, 1.0), (16, 1.0)]);
    }
    table.target(IN_PROCESS[2].0, &format!("note: {}", LOCAL_QUEUE.name), &[(4, 0.9), (16, 0.9)]);
    println!();
    Ok(all_measured)
}

/// HTTP on SQLite.
pub fn sqlite(run: &Run) -> Result<bool> {
    if !run.wants_section("sqlite") {
        return Ok(true);
    }
    let templates = templates(run, run.sqlite());
    let rows = http_rows(run, "claims sqlite", &templates);
    if rows.is_empty() {
        return Ok(true);
    }
    let base = row_name(run.baseline().unwrap_or(&run.builds[0]), WAYS[0].0);
    let table = Table::measure(&rows, &CALLERS, run.rounds);
    let all_measured = table.print("SQLite, one task at a time", "callers", &base);
    if run.baseline().is_some() {
        table.target(&row_name(&run.builds[0], WAYS[0].0), &base, &[(16, 2.5)]);
        println!();
    }
    Ok(all_measured)
}
