//! `sched lease --limit 100` from 10,000 and from 1,000,000 entries, each one transaction, in turns; and a plan.

use std::time::Instant;

use rota_core::Policy;
use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::claim::Grant;
use rota_store::intents::lease_plan::PlanLeases;
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::sched::Lease;
use rota_store::intents::settle::{Settle, Step};
use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;

use crate::Result;
use crate::backlog::{self, Shape};
use crate::options::{Options, print_machine};
use crate::stats::{median, micros, verdict};

const TARGET: f64 = 1.5;
const LEASES: usize = 100;

/// One backlog and how long leases and plans took on it.
struct Size {
    entries: usize,
    store: SqliteStore,
    leases: Vec<f64>,
    plans: Vec<f64>,
}

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    print_machine(folder.path());
    let mut sizes = Vec::new();
    for entries in options.pick([1_000, 10_000], [10_000, 1_000_000]) {
        let path = folder.path().join(format!("{entries}.db"));
        let store = backlog::fill(&path, "runs", entries, Shape::Runnable)?;
        let policy = Policy::parse(&format!(r#"{{"queues":{{"runs":{{"maxConcurrent":{LEASES}}}}}}}"#))?;
        block_on(store.perform(&PublishPolicy { call: call(), policy, based_on: None }))?;
        eprintln!("filled {entries}");
        sizes.push(Size { entries, store, leases: Vec::new(), plans: Vec::new() });
    }
    let (warm, rounds) = options.pick((1, 5), (5, 100));
    for round in 0..warm + rounds {
        for size in &mut sizes {
            let took = lease(&size.store)?;
            if round >= warm {
                size.leases.push(took);
            }
            if round % 10 == 0 {
                size.plans.push(plan(&size.store)?);
            }
        }
    }
    print(&sizes);
    Ok(())
}

fn call() -> Call {
    Call::in_scope("default")
}

/// Microseconds of one transaction that grants a hundred, given back afterwards.
fn lease(store: &SqliteStore) -> Result<f64> {
    let lease =
        Lease { call: call(), queue: "runs".to_owned(), limit: Some(LEASES), agent: None, host: None };
    let start = Instant::now();
    let leased = block_on(store.perform(&lease))?;
    let took = micros(start.elapsed());
    if leased.granted.len() != LEASES {
        return Err(format!("{} leases", leased.granted.len()).into());
    }
    let step = |grant: &Grant| Step {
        id: grant.task.id.clone(),
        command: Command::Release { caller: Caller { agent: None, lease: grant.task.lease() } },
    };
    let steps = leased.granted.iter().map(step).collect();
    block_on(store.perform(&Settle { call: call(), steps, then: None }))?;
    Ok(took)
}

/// Microseconds of one plan, which also counts what it does not list.
fn plan(store: &SqliteStore) -> Result<f64> {
    let plan = PlanLeases { call: call(), queue: "runs".to_owned(), limit: Some(LEASES), host: None };
    let start = Instant::now();
    block_on(store.perform(&plan))?;
    Ok(micros(start.elapsed()))
}

fn print(sizes: &[Size]) {
    println!("| entries | lease of {LEASES}, durable | plan of {LEASES} with 1,000 listed |");
    println!("|---|---|---|");
    for size in sizes {
        let (leases, plans) = (median(&size.leases) / 1_000.0, median(&size.plans) / 1_000.0);
        println!("| {} | {leases:.2} ms | {plans:.1} ms |", size.entries);
    }
    if let [first, .., last] = sizes {
        let ratio = median(&last.leases) / median(&first.leases);
        println!("| largest / smallest (target ≤ {TARGET}: {}) | {ratio:.2} | |", verdict(ratio <= TARGET));
    }
}
