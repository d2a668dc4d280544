//! apalis: fills its queue, drains it with so many workers of one process, says how long that took.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use apalis::prelude::*;
use apalis_postgres::{Config, PgConnectOptions, PostgresStorage};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;
use tokio::task::JoinSet;

struct Round {
    jobs: usize,
    seen: AtomicUsize,
    began: OnceLock<Instant>,
    all: Notify,
}

async fn noop(_: u32, round: Data<Arc<Round>>) -> Result<(), BoxDynError> {
    round.began.get_or_init(Instant::now);
    if round.seen.fetch_add(1, Ordering::Relaxed) + 1 == round.jobs {
        round.all.notify_one();
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, workers, batch, jobs] = &arguments[..] else {
        return Err("usage: rota-bench-apalis SOCKET WORKERS BATCH JOBS".into());
    };
    let (workers, batch, jobs): (u32, usize, u32) = (workers.parse()?, batch.parse()?, jobs.parse()?);
    let options = PgConnectOptions::new_without_pgpass().socket(socket).port(5432);
    let options = options.username("rota").database("postgres");
    // A worker uses one connection at a time; more of them only means more to prepare. The pool's ping before each use
    // is off: no other peer pays for one.
    let pool = PgPoolOptions::new().min_connections(workers).max_connections(workers);
    let pool = pool.test_before_acquire(false).connect_with(options).await?;

    PostgresStorage::setup(&pool).await?;
    sqlx::query("TRUNCATE apalis.jobs, apalis.workers").execute(&pool).await?;
    // The plain storage, without a poll strategy: after a job it says so and claims again at once. An interval or a
    // listener only wakes workers that found nothing, and here there is nothing only at the end. The other settings
    // are left alone: without `persist_results` jobs would never be finished, and `lock_tasks` costs nothing for a
    // job that is done as soon as it has begun.
    let config = Config::default().queue("bench").batch_size(batch);
    let mut storage = PostgresStorage::<u32>::new(&pool).with_config(config);
    let numbers: Vec<u32> = (0..jobs).collect();
    for some in numbers.chunks(5000) {
        storage.push_bulk(some.to_vec()).await?;
    }
    sqlx::query("ANALYZE apalis.jobs").execute(&pool).await?;
    sqlx::query("CHECKPOINT").execute(&pool).await?;

    let (seen, began, all) = (AtomicUsize::new(0), OnceLock::new(), Notify::new());
    let round = Arc::new(Round { jobs: jobs as usize, seen, began, all });
    let contexts: Vec<_> = (0..workers).map(|n| WorkerContext::new(&format!("bench-{n}"))).collect();
    let mut running = JoinSet::new();
    for context in &contexts {
        let worker = WorkerBuilder::new(context).backend(storage.clone()).data(Arc::clone(&round));
        running.spawn(worker.concurrency(1).build(noop).run());
    }
    tokio::select! {
        () = round.all.notified() => {}
        Some(ended) = running.join_next() => return Err(format!("a worker ended early: {ended:?}").into()),
    }
    for context in &contexts {
        context.stop()?;
    }
    // They end when their last completions are stored.
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let seconds = round.began.get().ok_or("no job came")?.elapsed().as_secs_f64();

    let count = "SELECT count(*), count(*) FILTER (WHERE status = 'Done' AND attempts = 1) FROM apalis.jobs";
    let (stored, done): (i64, i64) = sqlx::query_as(count).fetch_one(&pool).await?;
    let runs = round.seen.load(Ordering::Relaxed);
    if runs != round.jobs || stored != i64::from(jobs) || done != stored {
        return Err(format!("{runs} runs, {done} of {stored} jobs done, not {jobs}").into());
    }
    println!("{jobs} {seconds}");
    Ok(())
}
