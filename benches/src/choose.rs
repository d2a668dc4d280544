//! The time to choose the next loop among a million that may all run: the heads of the buckets through the store, and
//! core's choice among them.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, print_machine};
use crate::stats::{median, micros, verdict};
use rota_core::policy::QueuePolicy;
use rota_core::rank::{self, Rankable};
use rota_core::select::{self, Candidate, Room};
use rota_store::sqlite::SqliteStore;
use rota_store::{Access, Filter, HeadQuery, Store, Tx, clock};
use rota_testbed::block_on;

const TARGET_MICROS: f64 = 100.0;

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let queue = options.rest.first().map_or("loops", String::as_str).to_owned();
    let folder = options.scratch()?;
    print_machine(folder.path());
    let tasks = options.pick(10_000, 1_000_000);
    let store = backlog::fill(&folder.path().join("rota.db"), &queue, tasks, Shape::Runnable)?;
    let (warm, rounds) = options.pick((10, 50), (100, 2_000));
    let (mut whole, mut core, mut heads) = (Vec::new(), Vec::new(), 0);
    for round in 0..warm + rounds {
        let (count, all, choosing) = choose(&store, &queue)?;
        heads = count;
        if round >= warm {
            whole.push(all);
            core.push(choosing);
        }
    }
    let (whole, core) = (median(&whole), median(&core));
    println!(
        "| queue {queue} | tasks | heads | heads from the store + choosing | choosing alone | target | |"
    );
    println!("|---|---|---|---|---|---|---|");
    let verdict = verdict(whole <= TARGET_MICROS);
    println!("| | {tasks} | {heads} | {whole:.1} µs | {core:.2} µs | ≤ {TARGET_MICROS} µs | {verdict} |");
    Ok(())
}

/// How many heads there were, the microseconds of it all, and those of core's part.
fn choose(store: &SqliteStore, name: &str) -> Result<(usize, f64, f64)> {
    let policy = QueuePolicy::built_in(name);
    let filter = Filter::default();
    let mut tx = block_on(store.begin(Access::Read))?;
    let queue = block_on(tx.queue("default", name, false))?.ok_or("no queue")?;
    let start = Instant::now();
    let now = clock::system_now();
    let query = HeadQuery {
        queue: queue.key,
        bucketed: policy.is_bucketed(),
        after: None,
        per_bucket: 1,
        now,
        overdue_before: rank::overdue_before(&policy, now),
        host: Some("here"),
        full_kinds: &[],
        only_kinds: None,
        filter: &filter,
    };
    let level = block_on(tx.heads(&query))?.ok_or("nothing to choose from")?;
    let candidates: Vec<Candidate> = level
        .rows
        .iter()
        .map(|row| Candidate {
            id: row.task.id.clone(),
            kind: row.task.kind.clone(),
            rankable: Rankable::of(&row.task, &policy),
        })
        .collect();
    let count = candidates.len();
    let choosing = Instant::now();
    let chosen = select::select(candidates, &mut Room::new(&policy, BTreeMap::new()), &policy, now, 1);
    let (all, core) = (micros(start.elapsed()), micros(choosing.elapsed()));
    if chosen.len() != 1 {
        return Err("nothing was chosen".into());
    }
    Ok((count, all, core))
}
