//! Our side: workers and producers on the store, each at a connection of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rota_core::TaskId;
use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::{Claim, Grant, Wanted};
use rota_store::intents::settle::{Settle, Step};
use rota_store::postgres::PostgresStore;
use tokio::sync::Barrier;

use crate::Result;

/// How a worker goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Tasks in one claim.
    pub limit: usize,
    /// Whether what is held is settled together with the next claim, or by itself.
    pub fused: bool,
    /// Batches that a worker has in hand: with two it asks for the next while it is busy with the other.
    pub in_hand: usize,
    /// Whether each worker has a store of its own, as if it were a process of its own.
    pub apart: bool,
}

/// Turns that are not measured: statements get prepared, plans cached.
const WARM_UP: usize = 8;

/// A claim of the queue that is measured.
pub fn claim(agent: &str, limit: usize) -> Claim {
    Claim {
        call: Call { actor: Some(agent.to_owned()), ..Call::in_scope("default") },
        queue: "tasks".to_owned(),
        limit,
        agent: Some(agent.to_owned()),
        ttl_ms: None,
        wanted: Wanted::default(),
        host: None,
    }
}

async fn settle(
    store: &PostgresStore,
    claim: &Claim,
    held: Vec<Grant>,
    then: Option<Claim>,
) -> Result<Vec<Grant>> {
    let steps = held.into_iter().map(|grant| {
        let caller = Caller { agent: claim.agent.clone(), lease: grant.task.lease() };
        Step { id: grant.task.id, command: Command::Done { caller, result: None } }
    });
    let settle = Settle { call: claim.call.clone(), steps: steps.collect(), then };
    let settled = store.perform(&settle).await?;
    for step in settled.steps {
        step?;
    }
    Ok(settled.granted)
}

/// One turn: how many tasks it got done.
async fn turn(store: &PostgresStore, claim: &Claim, way: Way, held: &mut Vec<Grant>) -> Result<usize> {
    if way.fused {
        *held = settle(store, claim, std::mem::take(held), Some(claim.clone())).await?;
        return Ok(held.len());
    }
    let granted = store.perform(claim).await?;
    let count = granted.len();
    if count > 0 {
        settle(store, claim, granted, None).await?;
    }
    Ok(count)
}

async fn work(
    store: PostgresStore,
    agent: String,
    way: Way,
    length: Duration,
    start: Arc<Barrier>,
) -> Result<(usize, f64)> {
    let claim = claim(&agent, way.limit);
    let mut held = Vec::new();
    for _ in 0..WARM_UP {
        turn(&store, &claim, way, &mut held).await?;
    }
    start.wait().await;
    let (began, mut tasks) = (Instant::now(), 0);
    while began.elapsed() < length {
        let count = turn(&store, &claim, way, &mut held).await?;
        if count == 0 {
            return Err("the backlog ran out".into());
        }
        tasks += count;
    }
    Ok((tasks, began.elapsed().as_secs_f64()))
}

/// Tasks claimed and settled in a second by so many workers of one process.
pub async fn claims(url: &str, way: Way, workers: usize, length: Duration) -> Result<f64> {
    let store = PostgresStore::open(url).await?;
    let start = Arc::new(Barrier::new(workers * way.in_hand));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..workers * way.in_hand {
        let start = Arc::clone(&start);
        let store = if way.apart { PostgresStore::open(url).await? } else { store.clone() };
        running.spawn(async move {
            let done = work(store, format!("agent-{number}"), way, length, start).await;
            done.map_err(|error| error.to_string())
        });
    }
    sum(running).await
}

async fn sum(mut running: tokio::task::JoinSet<std::result::Result<(usize, f64), String>>) -> Result<f64> {
    let mut per_second = 0.0;
    while let Some(ended) = running.join_next().await {
        let (count, seconds) = ended??;
        per_second += count as f64 / seconds;
    }
    Ok(per_second)
}

/// The time of each of so many claims of one task, in microseconds.
pub async fn claim_times(store: &PostgresStore, count: usize) -> Result<Vec<f64>> {
    let claim = claim("agent-1", 1);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        let granted = store.perform(&claim).await?;
        times.push(crate::stats::micros(began.elapsed()));
        if granted.len() != 1 {
            return Err("the backlog ran out".into());
        }
    }
    Ok(times)
}

fn new_task(id: &str) -> Result<NewTask> {
    let mut task = NewTask::new(TaskId::new(id)?, "tasks", "A new task");
    task.description = Some("What is to be done, in one sentence of the usual length.".to_owned());
    task.category = Some("code".to_owned());
    Ok(task)
}

async fn produce(
    store: PostgresStore,
    producer: usize,
    length: Duration,
    start: Arc<Barrier>,
) -> Result<(usize, f64)> {
    let add = |number: usize| -> Result<Add> {
        let tasks = vec![new_task(&format!("new-{producer}-{number:012}"))?];
        Ok(Add { call: Call::in_scope("default"), tasks })
    };
    let mut number = 0;
    for _ in 0..WARM_UP {
        let next = add(number)?;
        store.perform(&next).await?;
        number += 1;
    }
    start.wait().await;
    let began = Instant::now();
    while began.elapsed() < length {
        let next = add(number)?;
        store.perform(&next).await?;
        number += 1;
    }
    Ok((number - WARM_UP, began.elapsed().as_secs_f64()))
}

/// Tasks added in a second, one a call, by so many producers of one process.
pub async fn inserts(url: &str, producers: usize, length: Duration) -> Result<f64> {
    let store = PostgresStore::open(url).await?;
    let start = Arc::new(Barrier::new(producers));
    let mut running = tokio::task::JoinSet::new();
    for producer in 0..producers {
        let (store, start) = (store.clone(), Arc::clone(&start));
        running.spawn(async move {
            let done = produce(store, producer, length, start).await;
            done.map_err(|error| error.to_string())
        });
    }
    sum(running).await
}

/// Rows a second of one call that adds so many.
pub async fn bulk(store: &PostgresStore, count: usize, round: usize) -> Result<f64> {
    let tasks = (0..count).map(|number| new_task(&format!("bulk-{round}-{number:07}")));
    let add = Add { call: Call::in_scope("default"), tasks: tasks.collect::<Result<Vec<_>>>()? };
    let began = Instant::now();
    store.perform(&add).await?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}
