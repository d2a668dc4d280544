//! apalis: works off a backlog with so many workers of one process, or adds jobs; arguments as in common.mjs.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_postgres::{Config, PgConnectOptions, PgPool, PostgresStorage};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Round {
    jobs: u32,
    seen: AtomicU32,
    began: OnceLock<Instant>,
    first: Notify,
    all: Notify,
}

async fn noop(_: u32, round: Data<Arc<Round>>) -> Result<(), BoxDynError> {
    if round.began.set(Instant::now()).is_ok() {
        round.first.notify_one();
    }
    if round.seen.fetch_add(1, Ordering::Relaxed) + 1 == round.jobs {
        round.all.notify_one();
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, mode, workers, batch, jobs, limit] = &arguments[..] else {
        return Err("usage: rota-bench-apalis SOCKET drain|add WORKERS BATCH JOBS SECONDS".into());
    };
    let (workers, batch, jobs): (u32, usize, u32) = (workers.parse()?, batch.parse()?, jobs.parse()?);
    let limit = Duration::from_secs_f64(limit.parse()?);
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
    let storage = PostgresStorage::<u32>::new(&pool).with_config(config);
    let (count, seconds) = if mode == "add" {
        produce(&storage, workers, limit).await?
    } else {
        drain(&storage, &pool, workers, jobs, limit).await?
    };
    println!("{count} {seconds}");
    Ok(())
}

async fn produce(storage: &PostgresStorage<u32>, producers: u32, limit: Duration) -> Outcome<(u32, f64)> {
    let mut warm = storage.clone();
    for number in 0..8 * producers {
        warm.push(number).await?;
    }
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..producers {
        let mut storage = storage.clone();
        running.spawn(async move {
            let mut count = 0;
            while began.elapsed() < limit {
                storage.push(count).await.map_err(|error| error.to_string())?;
                count += 1;
            }
            Ok::<u32, String>(count)
        });
    }
    let mut count = 0;
    while let Some(ended) = running.join_next().await {
        count += ended??;
    }
    Ok((count, began.elapsed().as_secs_f64()))
}

async fn drain(
    storage: &PostgresStorage<u32>,
    pool: &PgPool,
    workers: u32,
    jobs: u32,
    limit: Duration,
) -> Outcome<(u32, f64)> {
    let numbers: Vec<u32> = (0..jobs).collect();
    let mut filler = storage.clone();
    for some in numbers.chunks(5000) {
        filler.push_bulk(some.to_vec()).await?;
    }
    sqlx::query("ANALYZE apalis.jobs").execute(pool).await?;
    sqlx::query("CHECKPOINT").execute(pool).await?;

    let (seen, began) = (AtomicU32::new(0), OnceLock::new());
    let round = Arc::new(Round { jobs, seen, began, first: Notify::new(), all: Notify::new() });
    let contexts: Vec<_> = (0..workers).map(|n| WorkerContext::new(&format!("bench-{n}"))).collect();
    let mut running = JoinSet::new();
    for context in &contexts {
        let worker = WorkerBuilder::new(context).backend(storage.clone()).data(Arc::clone(&round));
        running.spawn(worker.concurrency(1).build(noop).run());
    }
    let time_is_up = async {
        round.first.notified().await;
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        () = round.all.notified() => {}
        () = time_is_up => {}
        Some(ended) = running.join_next() => return Err(format!("a worker ended early: {ended:?}").into()),
    }
    let seconds = round.began.get().ok_or("no job came")?.elapsed().as_secs_f64();
    Ok((round.seen.load(Ordering::Relaxed), seconds))
}
