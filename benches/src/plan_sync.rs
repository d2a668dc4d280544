//! plan-sync of 10,000 lines: the first run, and a second identical one.

use std::fmt::Write;
use std::time::Instant;

use crate::Result;
use crate::options::{Options, print_machine};
use crate::stats::median;
use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;
use rota_verbs::input::read;
use rota_verbs::plan_sync::SyncPlan;
use rota_verbs::{Context, Verb};

/// Runs it.
pub fn run(options: &Options) -> Result<()> {
    let folder = options.scratch()?;
    print_machine(folder.path());
    let lines = options.pick(1_000, 10_000);
    let plan = plan(lines)?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for round in 0..options.pick(1, 5) {
        let store = SqliteStore::open(&folder.path().join(format!("{round}.db")))?;
        let cx = Context::new(store);
        first.push(sync(&cx, &plan, lines)?);
        second.push(sync(&cx, &plan, 0)?);
    }
    println!("| lines | first run | second, identical run |");
    println!("|---|---|---|");
    println!("| {lines} | {:.2} s | {:.2} s |", median(&first), median(&second));
    Ok(())
}

/// Ten specs; every task but the first of ten waits for the one before it.
fn plan(lines: usize) -> Result<String> {
    let mut plan = String::new();
    for number in 0..lines {
        let spec = number % 10;
        write!(plan, r#"{{"id":"task-{number:05}","t":"Task {number}","d":"What is to be done.","p":2"#)?;
        write!(plan, r#","cat":"code","spec":"specs/{spec}.md","steps":["look","write","test"]"#)?;
        match number {
            number if number % 10 != 0 => writeln!(plan, r#","deps":["task-{:05}"]}}"#, number - 1)?,
            _ => writeln!(plan, r#","deps":[]}}"#)?,
        }
    }
    Ok(plan)
}

fn sync(cx: &Context, plan: &str, inserted: usize) -> Result<f64> {
    let input = SyncPlan { plan: plan.to_owned(), ..read("{\"plan\":\"\"}")? };
    let start = Instant::now();
    let synced = block_on(input.run(cx))?;
    let seconds = start.elapsed().as_secs_f64();
    if (synced.inserted, synced.updated, synced.deleted) != (inserted, 0, 0) {
        return Err(format!("unexpected counts: {synced:?}").into());
    }
    Ok(seconds)
}
