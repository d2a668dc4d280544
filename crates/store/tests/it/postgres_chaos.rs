//! Sixteen workers, a connection cut every few hundred messages, and a server that crashes five times (P1, P2, S9): every
//! outcome that was acknowledged is there afterwards, and every fence was granted once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rota_store::postgres::PostgresStore;
use rota_store::{Error, Store};
use rota_testbed::{Durability, Server};
use tokio::sync::watch;

use crate::pg::{add, claim, done, look, open, run};
use crate::proxy::{Cut, Proxy};

const WORKERS: usize = 16;
const TASKS: usize = 2_000;
const CRASHES: usize = 5;
/// Acknowledged outcomes between two crashes.
const BETWEEN: usize = 40;

/// What a worker was told.
#[derive(Default)]
struct Told {
    /// Task, fence.
    granted: Vec<(String, i64)>,
    /// Task, fence, result.
    done: Vec<(String, i64, String)>,
    faults: BTreeMap<&'static str, usize>,
    refused: usize,
}

struct World {
    store: PostgresStore,
    stop: AtomicBool,
    acknowledged: watch::Sender<usize>,
}

impl Told {
    fn failed(&mut self, error: &Error) {
        match error {
            Error::Fault(fault) => {
                assert_eq!(fault.exit_code(), 75, "{fault}");
                *self.faults.entry(fault.code()).or_default() += 1;
            }
            // The lease ran out meanwhile, or it was done although we did not hear of it.
            Error::Refused(_) => self.refused += 1,
        }
    }
}

async fn work(world: Arc<World>, number: usize) -> Told {
    let mut told = Told::default();
    let agent = format!("w{number}");
    while !world.stop.load(Ordering::SeqCst) {
        let grants = match world.store.perform(&claim(&agent, 5_000)).await {
            Ok(grants) => grants,
            Err(error) => {
                told.failed(&error);
                continue;
            }
        };
        for grant in grants {
            let (task, fence) = (grant.task.id.to_string(), grant.task.fence.get().cast_signed());
            told.granted.push((task.clone(), fence));
            let result = format!("{agent}-{fence}");
            match world.store.perform(&done(&grant, &result)).await {
                Ok(settled) if settled.steps[0].is_ok() => {
                    told.done.push((task, fence, result));
                    world.acknowledged.send_modify(|count| *count += 1);
                }
                Ok(_) => told.refused += 1,
                Err(error) => told.failed(&error),
            }
        }
    }
    told
}

/// The same numbers in every run.
fn random(seed: u64) -> impl FnMut() -> u64 + Send {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

async fn check(url: &str, told: &[Told]) {
    let client = look(url).await;
    let twice = "SELECT task, fence FROM journal WHERE kind = 'granted' GROUP BY 1, 2 HAVING count(*) > 1";
    assert!(client.query(twice, &[]).await.unwrap().is_empty());
    let mut seen = BTreeMap::new();
    for (worker, told) in told.iter().enumerate() {
        for (task, fence) in &told.granted {
            let before = seen.insert((task.clone(), *fence), worker);
            assert_eq!(before, None, "{task} {fence} was granted to two workers");
            let text = "SELECT data::json -> 'changes' ->> 'assignee' FROM journal \
                 WHERE kind = 'granted' AND task = $1 AND fence = $2";
            let row = client.query_one(text, &[task, fence]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("w{worker}"), "{task} {fence}");
        }
        for (task, fence, result) in &told.done {
            let text = "SELECT status, fence, result FROM tasks WHERE id = $1";
            let row = client.query_one(text, &[task]).await.unwrap();
            let found = (row.get::<_, String>(0), row.get::<_, i64>(1), row.get::<_, Option<String>>(2));
            assert_eq!(found, ("done".to_owned(), *fence, Some(format!("\"{result}\""))), "{task}");
        }
    }
    let gaps = "SELECT task FROM journal GROUP BY task HAVING max(number) <> count(*)";
    assert!(client.query(gaps, &[]).await.unwrap().is_empty(), "the journal of a task has a gap");
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_granted_twice() {
    let server = Arc::new(Server::start(Durability::Full).unwrap());
    run(async {
        let proxy = Proxy::before(server.socket_folder());
        let store = open(&proxy.url("s", "")).await;
        let ids: Vec<String> = (0..TASKS).map(|number| format!("t{number}")).collect();
        add(&store, ids).await.unwrap();
        let mut next = random(0x5eed);
        proxy.cut_by(move |_, _| match next() % 400 {
            0 => Some(Cut::Before),
            1 => Some(Cut::After),
            _ => None,
        });
        let (acknowledged, mut count) = watch::channel(0);
        let world = Arc::new(World { store, stop: AtomicBool::new(false), acknowledged });
        let workers: Vec<_> =
            (0..WORKERS).map(|number| tokio::spawn(work(Arc::clone(&world), number))).collect();
        for crash in 1..=CRASHES {
            let enough = count.wait_for(|count| *count >= crash * BETWEEN);
            tokio::time::timeout(Duration::from_secs(240), enough).await.unwrap().unwrap();
            let server = Arc::clone(&server);
            let restarted = tokio::task::spawn_blocking(move || {
                server.crash();
                server.up()
            });
            restarted.await.unwrap().unwrap();
        }
        let enough = count.wait_for(|count| *count >= (CRASHES + 1) * BETWEEN);
        tokio::time::timeout(Duration::from_secs(240), enough).await.unwrap().unwrap();
        world.stop.store(true, Ordering::SeqCst);
        let mut told = Vec::new();
        for worker in workers {
            told.push(worker.await.unwrap());
        }
        assert!(proxy.cuts() > 5, "{} cuts", proxy.cuts());
        proxy.heal();
        check(&server.url("s"), &told).await;
        let done: usize = told.iter().map(|told| told.done.len()).sum();
        let faults: Vec<_> =
            told.iter().map(|told| &told.faults).filter(|faults| !faults.is_empty()).collect();
        println!("{done} done, {} cuts, {CRASHES} crashes, faults {faults:?}", proxy.cuts());
    });
}
