//! The time of one claim at growing backlogs of which nine tenths may not run and sort first. Arguments: the queue,
//! `tasks` (plain order) or `loops` (scores, ceiling, guard).

use std::time::Instant;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, print_machine};
use crate::stats::{median, micros, verdict};
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::sqlite::SqliteStore;
use rota_store::{Access, Intent, Store};
use rota_testbed::block_on;

const TARGET: f64 = 1.5;

/// One backlog and how long claims took on it.
struct Size {
    tasks: usize,
    store: SqliteStore,
    deciding: Vec<f64>,
    durable: Vec<f64>,
}

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let queue = options.rest.first().map_or("tasks", String::as_str).to_owned();
    let folder = options.scratch()?;
    print_machine(folder.path());
    let mut sizes = Vec::new();
    for tasks in options.pick([1_000, 10_000, 100_000], [10_000, 100_000, 1_000_000]) {
        let start = Instant::now();
        let path = folder.path().join(format!("{tasks}.db"));
        let store = backlog::fill(&path, &queue, tasks, Shape::MostlyHeldBack)?;
        eprintln!("filled {tasks} in {:.1} s", start.elapsed().as_secs_f64());
        sizes.push(Size { tasks, store, deciding: Vec::new(), durable: Vec::new() });
    }
    // A few before it counts: caches and statements are warm in a process that lives.
    let (warm, rounds) = options.pick((5, 20), (20, 300));
    for round in 0..warm + rounds {
        for size in &mut sizes {
            let (deciding, durable) = measure(&size.store, &queue)?;
            if round >= warm {
                size.deciding.push(deciding);
                size.durable.push(durable);
            }
        }
    }
    print(&queue, &sizes);
    Ok(())
}

/// Microseconds of everything but the commit, undone afterwards; and of a whole claim.
fn measure(store: &SqliteStore, queue: &str) -> Result<(f64, f64)> {
    let claim = Claim {
        call: Call::in_scope("default"),
        queue: queue.to_owned(),
        limit: 1,
        agent: Some("agent".to_owned()),
        ttl_ms: None,
        wanted: Wanted::default(),
        host: Some("here".to_owned()),
    };
    let start = Instant::now();
    let mut tx = block_on(store.begin(Access::Write))?;
    let granted = block_on(claim.run(&mut tx))?.len();
    let deciding = micros(start.elapsed());
    drop(tx);
    let start = Instant::now();
    let committed = block_on(store.perform(&claim))?;
    let durable = micros(start.elapsed());
    if granted != 1 || committed.len() != 1 {
        return Err("nothing left to claim".into());
    }
    let [grant] = &committed[..] else { return Err("more than one".into()) };
    let release = rota_store::intents::settle::Settle::one(
        claim.call.clone(),
        grant.task.id.clone(),
        rota_core::transition::Command::Done {
            caller: rota_core::lease::Caller { agent: claim.agent.clone(), lease: grant.task.lease() },
            result: None,
        },
    );
    block_on(store.perform(&release))?;
    Ok((deciding, durable))
}

fn print(queue: &str, sizes: &[Size]) {
    println!("| queue {queue}, tasks | deciding and writing | with the durable commit |");
    println!("|---|---|---|");
    for size in sizes {
        println!("| {} | {:.0} µs | {:.0} µs |", size.tasks, median(&size.deciding), median(&size.durable));
    }
    if let (Some(first), Some(last)) = (sizes.first(), sizes.last()) {
        let deciding = median(&last.deciding) / median(&first.deciding);
        let durable = median(&last.durable) / median(&first.durable);
        let holds = deciding <= TARGET && durable <= TARGET;
        println!(
            "| largest / smallest (target ≤ {TARGET}: {}) | {deciding:.2} | {durable:.2} |",
            verdict(holds)
        );
    }
}
