//! PostgreSQL with fsync on: the store beside pgbench scripts that make the same writes, beside the bare pair, and
//! beside other queues.
//!
//! `claims`, `peers`, `batches`, `sizes`, `inserts` and `late` are runs of their own; `batches` is what `peers` measures of
//! batches, with more rounds, and `batches 4 Rota` is that for 4 workers and whose name has this word.

use std::time::Duration;

use rota_store::postgres::PostgresStore;

use super::{Bench, peers, rota};
use crate::Result;
use crate::options::Options;
use crate::stats::{median, median_ratio, verdict};

const WORKERS: [usize; 3] = [1, 4, 16];

/// The benchmark.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bench = Bench::start()?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, PostgreSQL {}, fsync on\n", bench.version()?);
    let what = options.rest.first().map_or("claims", String::as_str);
    match what {
        "claims" => claims(&bench, options, &runtime, false),
        "peers" => claims(&bench, options, &runtime, true),
        "batches" => {
            schemas(&bench, &runtime)?;
            let wanted = options.rest.get(2);
            let of_interest = |(name, _): &Named| wanted.is_none_or(|wanted| name.contains(wanted.as_str()));
            let subjects: Vec<Named> = batches(true).into_iter().filter(of_interest).collect();
            if subjects.is_empty() || sizes_of(options).is_empty() {
                return Err(format!("nobody to measure: {}", options.rest[1..].join(" ")).into());
            }
            in_batches(&bench, options, &runtime, &subjects, options.pick(1, 5))
        }
        "sizes" => sizes(&bench, options, &runtime),
        "inserts" => inserts(&bench, options, &runtime),
        "late" => peers::late(&bench),
        other => Err(format!("unknown: '{other}' (claims, peers, batches, sizes, inserts or late)").into()),
    }
}

/// Somebody to measure.
#[derive(Clone, Copy)]
enum Subject {
    Same(&'static str, usize),
    Bare,
    Rota(rota::Way),
    Peer(peers::Peer),
}

impl Subject {
    fn round(
        self,
        bench: &Bench,
        runtime: &tokio::runtime::Runtime,
        size: usize,
        length: Duration,
    ) -> Result<f64> {
        let workers = WORKERS[size];
        let seconds = length.as_secs_f64().max(1.0) as usize;
        match self {
            Self::Same(script, batch) => {
                bench.script("fill.sql", "same", backlog(batch, seconds))?;
                Ok(bench.pgbench(script, "same", workers, length)? * batch as f64)
            }
            Self::Bare => {
                bench.script("bare_fill.sql", "bare", backlog(1, seconds))?;
                bench.pgbench("bare_pair.sql", "bare", workers, length)
            }
            Self::Rota(way) => {
                bench.script("fill.sql", "rota", backlog(way.limit, seconds))?;
                runtime.block_on(rota::claims(&bench.url("rota"), way, workers, length))
            }
            Self::Peer(peer) => {
                let folder = peers::installed().ok_or("run benches/peers/install first")?;
                peer.round(bench, &folder, workers, size)
            }
        }
    }
}

/// Tasks to begin a round with: more than anyone gets done.
fn backlog(batch: usize, seconds: usize) -> usize {
    let per_second = match batch {
        1 => 12_000,
        10 => 25_000,
        _ => 50_000,
    };
    per_second * seconds + 2 * 16 * 8 * batch
}

fn schemas(bench: &Bench, runtime: &tokio::runtime::Runtime) -> Result<()> {
    for schema in ["same", "rota"] {
        runtime.block_on(PostgresStore::open(&bench.url(schema)))?;
    }
    Ok(())
}

type Named = (&'static str, Subject);

/// The figures of each subject, round by round.
fn measure(
    bench: &Bench,
    runtime: &tokio::runtime::Runtime,
    subjects: &[Named],
    size: usize,
    rounds: usize,
) -> Result<Vec<Vec<f64>>> {
    let mut figures = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        for place in 0..subjects.len() {
            // Who goes first changes from round to round.
            let index = (place + round) % subjects.len();
            figures[index].push(subjects[index].1.round(bench, runtime, size, Duration::from_secs(1))?);
        }
    }
    Ok(figures)
}

/// Places of the worker counts to measure.
fn sizes_of(options: &Options) -> Vec<usize> {
    let is_wanted = |place: &usize| match options.rest.get(1) {
        Some(workers) => WORKERS[*place].to_string() == *workers,
        None => !options.quick || *place == 1,
    };
    (0..WORKERS.len()).filter(is_wanted).collect()
}

fn claims(
    bench: &Bench,
    options: &Options,
    runtime: &tokio::runtime::Runtime,
    with_peers: bool,
) -> Result<()> {
    schemas(bench, runtime)?;
    let singles = singles(with_peers);
    let rounds = options.pick(1, if with_peers { 2 } else { 4 });
    println!("One task per claim, tasks/s (times the same writes by pgbench)\n");
    let sizes = sizes_of(options);
    let mut table = Vec::new();
    for &size in &sizes {
        table.push(measure(bench, runtime, &singles, size, rounds)?);
    }
    print_table(&singles, &sizes, &table);
    for (place, &size) in sizes.iter().enumerate() {
        let (same, bare) = (&table[place][0], &table[place][1]);
        let best = (2..5)
            .map(|ours| (median_ratio(&table[place][ours], same), median_ratio(&table[place][ours], bare)));
        let (to_same, to_bare) = best.fold((0.0_f64, 0.0_f64), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        println!(
            "{} workers: {to_same:.2} of the same writes (≥ 0.8: {}), {to_bare:.2} of the bare pair (≥ 0.5: {})",
            WORKERS[size],
            verdict(to_same >= 0.8),
            verdict(to_bare >= 0.5)
        );
    }
    in_batches(bench, options, runtime, &batches(with_peers), rounds)
}

fn in_batches(
    bench: &Bench,
    options: &Options,
    runtime: &tokio::runtime::Runtime,
    batches: &[Named],
    rounds: usize,
) -> Result<()> {
    println!("\nBatches, tasks/s (times the same writes by pgbench, batches of 100)\n");
    let sizes = sizes_of(options);
    let mut table = Vec::new();
    for &size in &sizes {
        table.push(measure(bench, runtime, batches, size, rounds)?);
    }
    print_table(batches, &sizes, &table);
    Ok(())
}

fn ours(limit: usize, fused: bool) -> rota::Way {
    rota::Way { limit, fused, in_hand: 1, apart: false }
}

fn singles(with_peers: bool) -> Vec<Named> {
    let mut list = vec![
        ("pgbench, the same writes", Subject::Same("same_pair.sql", 1)),
        ("pgbench, bare claim and delete", Subject::Bare),
        ("Rota, claim, then done", Subject::Rota(ours(1, false))),
        ("Rota, done and next claim in one", Subject::Rota(ours(1, true))),
        ("the same, each worker by itself", Subject::Rota(rota::Way { apart: true, ..ours(1, true) })),
    ];
    if with_peers {
        list.extend(peers::ONE_AT_A_TIME.map(|peer| (peer.name, Subject::Peer(peer))));
    }
    list
}

fn batches(with_peers: bool) -> Vec<Named> {
    let mut list = vec![
        ("pgbench, the same writes, 100", Subject::Same("same_pair_100.sql", 100)),
        ("Rota, claim 100, then done", Subject::Rota(ours(100, false))),
        ("Rota, done and the next 100 in one", Subject::Rota(ours(100, true))),
        ("the same, two batches in hand", Subject::Rota(rota::Way { in_hand: 2, ..ours(100, true) })),
    ];
    if with_peers {
        list.extend(peers::BATCHES.map(|peer| (peer.name, Subject::Peer(peer))));
    } else {
        list.push(("pgbench, the same writes, 10", Subject::Same("same_pair_10.sql", 10)));
        list.push(("Rota, claim 10, then done", Subject::Rota(ours(10, false))));
        list.push(("Rota, done and the next 10 in one", Subject::Rota(ours(10, true))));
    }
    list
}

fn print_table(subjects: &[Named], sizes: &[usize], table: &[Vec<Vec<f64>>]) {
    let heads: Vec<String> = sizes.iter().map(|size| format!(" {} |", WORKERS[*size])).collect();
    println!("| workers |{}\n|---|{}", heads.concat(), "---|".repeat(sizes.len()));
    for (index, (name, _)) in subjects.iter().enumerate() {
        let cells = table.iter().map(|figures| {
            let ratio = median_ratio(&figures[index], &figures[0]);
            format!(" {:.0} ({ratio:.2} ×) |", median(&figures[index]))
        });
        println!("| {name} |{}", cells.collect::<String>());
    }
    println!();
}

fn sizes(bench: &Bench, options: &Options, runtime: &tokio::runtime::Runtime) -> Result<()> {
    let counts: [usize; 3] = options.pick([1_000, 10_000, 50_000], [10_000, 100_000, 1_000_000]);
    let mut stores = Vec::new();
    for count in counts {
        let schema = format!("size_{count}");
        let store = runtime.block_on(PostgresStore::open(&bench.url(&schema)))?;
        bench.script("held_back.sql", &schema, count)?;
        runtime.block_on(rota::claim_times(&store, 10))?;
        stores.push((store, Vec::new()));
    }
    let (rounds, claims) = (options.pick(3, 11), options.pick(10, 50));
    for round in 0..rounds {
        for place in 0..stores.len() {
            let (store, times) = &mut stores[(place + round) % counts.len()];
            times.push(median(&runtime.block_on(rota::claim_times(store, claims))?));
        }
    }
    println!("| tasks, 90 % held back and sorting first | one claim | times the smallest |\n|---|---|---|");
    for (count, (_, times)) in counts.iter().zip(&stores) {
        let ratio = median_ratio(times, &stores[0].1);
        println!("| {count} | {:.2} ms | {ratio:.2} × |", median(times) / 1e3);
    }
    let ratio = median_ratio(&stores[2].1, &stores[0].1);
    println!("\n≤ 1.5 times: {}", verdict(ratio <= 1.5));
    Ok(())
}

fn inserts(bench: &Bench, options: &Options, runtime: &tokio::runtime::Runtime) -> Result<()> {
    schemas(bench, runtime)?;
    let (rounds, length) = (options.pick(1, 7), Duration::from_secs(options.pick(1, 2)));
    let (mut same, mut ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for place in 0..2 {
            if (round + place) % 2 == 0 {
                bench.script("fill.sql", "same", 1_000)?;
                same.push(bench.pgbench("same_insert.sql", "same", 16, length)?);
            } else {
                bench.script("fill.sql", "rota", 1_000)?;
                ours.push(runtime.block_on(rota::inserts(&bench.url("rota"), 16, length))?);
            }
        }
    }
    let ratio = median_ratio(&ours, &same);
    println!("| 16 producers, one task a call | tasks/s |\n|---|---|");
    println!("| pgbench, insert with one journal row | {:.0} |", median(&same));
    println!("| Rota, add | {:.0} ({ratio:.2} ×) |\n\n≥ 0.8: {}\n", median(&ours), verdict(ratio >= 0.8));
    bulk(bench, rounds, runtime)
}

fn bulk(bench: &Bench, rounds: usize, runtime: &tokio::runtime::Runtime) -> Result<()> {
    const COUNT: usize = 10_000;
    let store = runtime.block_on(PostgresStore::open(&bench.url("rota")))?;
    bench.script("fill.sql", "rota", 1_000)?;
    bench.script("fill.sql", "same", 1_000)?;
    let (mut copied, mut copied_both, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    let copy = |name: &str| -> Result<f64> {
        let millis = bench.script(name, "same", COUNT)?;
        let millis: f64 = millis.lines().last().ok_or("no time of COPY")?.parse()?;
        Ok(COUNT as f64 * 1e3 / millis)
    };
    for round in 0..=rounds {
        let figures =
            (copy("copy.sql")?, copy("copy_both.sql")?, runtime.block_on(rota::bulk(&store, COUNT, round))?);
        // The first one of each prepares and extends files.
        if round > 0 {
            copied.push(figures.0);
            copied_both.push(figures.1);
            ours.push(figures.2);
        }
    }
    let ratio = median_ratio(&ours, &copied);
    println!("| 10,000 tasks in one call | rows/s |\n|---|---|");
    println!("| bare COPY into the task table and its ids, no journal | {:.0} |", median(&copied));
    println!("| bare COPY into those and the journal | {:.0} |", median(&copied_both));
    println!("| Rota, add | {:.0} ({ratio:.2} ×) |", median(&ours));
    println!("\n≥ 50,000 rows/s: {}", verdict(median(&ours) >= 50_000.0));
    Ok(())
}
