//! The store without an interface in front of it: the upper bound of what `rota serve` can reach. These rows are notes,
//! because no user can send them.

use std::time::{Duration, Instant};

use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Grant, Wanted};
use rota_store::intents::settle::{Settle, Step};
use rota_store::postgres::PostgresStore;
use tokio::task::JoinSet;

use crate::Result;

/// How a worker claims and settles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Tasks in one claim.
    pub limit: usize,
    /// Whether a settlement claims the next tasks in the same transaction.
    pub next: bool,
}

/// Turns that are not measured: statements get prepared, plans cached.
const WARM_UP: usize = 8;

struct Worker {
    store: PostgresStore,
    claim: Claim,
    way: Way,
    held: Vec<Grant>,
}

impl Worker {
    fn new(store: PostgresStore, number: usize, way: Way) -> Self {
        let agent = format!("agent-{number}");
        let claim = Claim {
            call: Call { actor: Some(agent.clone()), ..Call::in_scope("default") },
            queue: "tasks".to_owned(),
            limit: way.limit,
            agent: Some(agent),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: None,
        };
        Self { store, claim, way, held: Vec::new() }
    }

    async fn settle(&self, held: Vec<Grant>, then: Option<Claim>) -> Result<Vec<Grant>> {
        let steps = held.into_iter().map(|grant| {
            let caller = Caller { agent: self.claim.agent.clone(), lease: grant.task.lease() };
            Step { id: grant.task.id, command: Command::Done { caller, result: None } }
        });
        let settle = Settle { call: self.claim.call.clone(), steps: steps.collect(), then };
        let settled = self.store.perform(&settle).await?;
        for step in settled.steps {
            step?;
        }
        Ok(settled.granted)
    }

    /// The number of tasks that were claimed, and settled now or by the next turn; 0 when the backlog is empty.
    async fn turn(&mut self) -> Result<usize> {
        if self.way.next {
            let held = std::mem::take(&mut self.held);
            self.held = self.settle(held, Some(self.claim.clone())).await?;
            return Ok(self.held.len());
        }
        let granted = self.store.perform(&self.claim).await?;
        let count = granted.len();
        if count > 0 {
            self.settle(granted, None).await?;
        }
        Ok(count)
    }

    async fn work(&mut self, length: Duration) -> Result<usize> {
        let (began, mut tasks) = (Instant::now(), 0);
        while began.elapsed() < length {
            let count = self.turn().await?;
            if count == 0 {
                break;
            }
            tasks += count;
        }
        Ok(tasks)
    }
}

/// Tasks per second that `workers` of one process claim and settle, until the time is up or the backlog is empty.
pub async fn claims(url: &str, way: Way, workers: usize, length: Duration) -> Result<f64> {
    let store = PostgresStore::open(url).await?;
    let mut warming = JoinSet::new();
    for number in 0..workers {
        let mut worker = Worker::new(store.clone(), number, way);
        warming.spawn(async move {
            for _ in 0..WARM_UP {
                worker.turn().await.map_err(|error| error.to_string())?;
            }
            Ok::<Worker, String>(worker)
        });
    }
    let warm = warming.join_all().await.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for mut worker in warm {
        running.spawn(async move { worker.work(length).await.map_err(|error| error.to_string()) });
    }
    let counts = running.join_all().await.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(counts.iter().sum::<usize>() as f64 / began.elapsed().as_secs_f64())
}
