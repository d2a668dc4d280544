//! How often a verb waits for a PostgreSQL server, counted on the wire.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rota_core::transition::Command;
use rota_core::{Caller, LeaseId};
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::claim::Claim;
use rota_store::intents::iterate::Begin;
use rota_store::intents::read::Peek;
use rota_store::intents::settle::{Settle, Step, StepAndView};
use rota_store::intents::sync_leases::{Awaiting, SyncLeases, SyncLoops};
use rota_store::postgres::PostgresStore;
use rota_store::{AnyStore, Store};
use rota_testbed::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::pg::{call, claim, id};

/// Counts how often a client speaks after the server has spoken.
#[derive(Clone, Default)]
struct Counter {
    trips: Arc<AtomicUsize>,
    server_spoke: Arc<AtomicBool>,
    /// How long a message is on its way.
    latency: Duration,
}

impl Counter {
    async fn copy(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_server: bool) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let spoke = self.server_spoke.swap(is_server, Ordering::SeqCst);
            if !is_server && spoke {
                self.trips.fetch_add(1, Ordering::SeqCst);
            }
            if !self.latency.is_zero() {
                tokio::time::sleep(self.latency).await;
            }
            if to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    /// A socket in a folder of its own, in front of the server's.
    fn listen(&self, server: &Path) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (upstream, counter) = (server.join(".s.PGSQL.5432"), self.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&upstream).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(counter.clone().copy(from_client, to_server, false));
                tokio::spawn(counter.clone().copy(from_server, to_client, true));
            }
        });
        folder
    }

    /// Round trips since the last call.
    fn take(&self) -> usize {
        // The next message of the client begins a trip, whatever was said before.
        self.server_spoke.store(true, Ordering::SeqCst);
        self.trips.swap(0, Ordering::SeqCst)
    }
}

fn step(task: &rota_core::Task, command: fn(Caller) -> Command) -> StepAndView {
    let lease = LeaseId { task: task.id.clone(), fence: task.fence };
    let step = Step { id: task.id.clone(), command: command(Caller { agent: None, lease: Some(lease) }) };
    StepAndView { call: call(), step, then: None }
}

async fn add(store: &PostgresStore, name: &str) {
    let tasks = vec![NewTask::new(id(name), "tasks", "Title")];
    store.perform(&Add { call: call(), tasks }).await.unwrap();
}

/// One task from its creation to its end; the trips of each verb.
async fn life(store: &PostgresStore, counter: &Counter, name: &str) -> [usize; 6] {
    counter.take();
    add(store, name).await;
    let created = counter.take();
    let peek = Peek { call: call(), queue: "tasks".into(), limit: 5, wanted: Default::default(), host: None };
    store.perform(&peek).await.unwrap();
    let peeked = counter.take();
    let granted = store.perform(&claim("w", 60_000)).await.unwrap().remove(0);
    let claimed = counter.take();
    let renew = step(&granted.task, |caller| Command::Renew { caller, ttl_ms: None });
    store.perform(&renew).await.unwrap();
    let renewed = counter.take();
    let next = format!("{name}-next");
    add(store, &next).await;
    counter.take();
    let done = step(&granted.task, |caller| Command::Done { caller, result: None });
    let (_, next) = store.perform(&StepAndView { then: Some(claim("w", 60_000)), ..done }).await.unwrap();
    let done_and_next = counter.take();
    let done = step(&next.unwrap().task, |caller| Command::Done { caller, result: None });
    store.perform(&done).await.unwrap();
    [created, peeked, claimed, renewed, done_and_next, counter.take()]
}

/// A process that knows nothing claims within four waits, and the row of a queue with a ceiling is locked in the one before
/// the last.
#[test]
fn a_cold_claim_locks_its_queue_for_one_round_trip() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let counter = Counter::default();
        let folder = counter.listen(Server::shared().socket_folder());
        let url = Server::shared().fresh_url();
        let schema = url.split_once("&schema=").unwrap().1;
        let url = format!("postgres://rota@/postgres?host={}&schema={schema}", folder.path().display());
        let warm = PostgresStore::open(&url).await.unwrap();
        let tasks = vec![NewTask::new(id("a"), "runs", "Title")];
        warm.perform(&Add { call: call(), tasks }).await.unwrap();
        let cold = PostgresStore::open(&url).await.unwrap();
        // The connection is there, and so is what was asked to open the store.
        counter.take();
        let claim = Claim { queue: "runs".into(), ..claim("w", 60_000) };
        assert_eq!(cold.perform(&claim).await.unwrap().len(), 1);
        assert_eq!(counter.take(), 3, "what there is, locks and choice, writes and COMMIT");
    });
}

/// A process that knows the policy and the queue waits twice for the server; `peek` at most four times.
#[test]
fn verbs_wait_for_the_server_twice() {
    // On one thread everything that a flush has is written before the server can answer the first statement of it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let counter = Counter::default();
        let folder = counter.listen(Server::shared().socket_folder());
        let url = Server::shared().fresh_url();
        let schema = url.split_once("&schema=").unwrap().1;
        let url = format!("postgres://rota@/postgres?host={}&schema={schema}", folder.path().display());
        let store = PostgresStore::open(&url).await.unwrap();
        // The queue is made, the policy is not known, and statements are prepared at their third use.
        for name in ["first", "second", "third", "fourth"] {
            life(&store, &counter, name).await;
        }
        let [created, peeked, claimed, renewed, done_and_next, done] = life(&store, &counter, "last").await;
        assert_eq!([created, claimed, renewed, done_and_next, done], [2; 5]);
        assert!(peeked <= 4, "{peeked}");
    });
}

/// Callers of one process far away from the server share their round trips: a claim and a done of each of sixteen callers
/// take a few of them, not four for each caller.
#[test]
fn callers_far_from_the_server_share_round_trips() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let counter = Counter { latency: Duration::from_millis(50), ..Counter::default() };
        let folder = counter.listen(Server::shared().socket_folder());
        let url = Server::shared().fresh_url();
        let schema = url.split_once("&schema=").unwrap().1;
        let far = format!("postgres://rota@/postgres?host={}&schema={schema}", folder.path().display());
        let near = PostgresStore::open(&url).await.unwrap();
        for number in 0..80 {
            add(&near, &format!("t{number}")).await;
        }
        let store = AnyStore::from(PostgresStore::open(&far).await.unwrap()).batched();
        let mut trips = 0;
        // Statements are prepared at their third use, so the first rounds take more.
        for _ in 0..5 {
            counter.take();
            let callers = (0..16).map(|number| {
                let store = store.clone();
                tokio::spawn(async move {
                    let grants = store.perform(&claim(&format!("w{number}"), 60_000)).await.unwrap();
                    let done = step(&grants[0].task, |caller| Command::Done { caller, result: None });
                    store.perform(&done).await.unwrap();
                })
            });
            for caller in callers.collect::<Vec<_>>() {
                caller.await.unwrap();
            }
            trips = counter.take();
        }
        assert!(trips <= 10, "{trips} round trips for 32 calls");
    });
}

/// Beginning loops locks the row of their queue for one round trip: everything that is read after the lock is read ahead in
/// its flush, whatever the loops' priorities, kinds, parents and blockers; writes and COMMIT are the next flush.
#[test]
fn beginning_loops_locks_their_queue_for_one_round_trip() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let counter = Counter::default();
        let folder = counter.listen(Server::shared().socket_folder());
        let url = Server::shared().fresh_url();
        let schema = url.split_once("&schema=").unwrap().1;
        let url = format!("postgres://rota@/postgres?host={}&schema={schema}", folder.path().display());
        let store = PostgresStore::open(&url).await.unwrap();
        let claim =
            |limit| Claim { queue: "loops".into(), limit, host: Some("one".into()), ..claim("w", 60_000) };
        let begin = |limit| Begin::new(claim(limit), ["plan", "spec"].map(str::to_owned).to_vec(), true);
        let add = async |tasks| store.perform(&Add { call: call(), tasks }).await;
        let of_kind = |name: &str, kind: &str| NewTask {
            kind: Some(kind.into()),
            ..NewTask::new(id(name), "loops", "T")
        };
        for round in 0..4 {
            let name = |name: &str| format!("{name}-{round}");
            let (parent, urgent) = (of_kind(&name("parent"), "plan"), NewPriority::Given(0));
            add(vec![parent.clone()]).await.unwrap();
            let granted = store.perform(&begin(1)).await.unwrap().granted.remove(0);
            let done = step(&granted.task, |caller| Command::Done { caller, result: None });
            store.perform(&done).await.unwrap();
            let tasks = vec![
                NewTask { parent: Some(parent.id.clone()), ..of_kind(&name("child"), "spec") },
                NewTask { deps: vec![parent.id.clone()], ..of_kind(&name("follows"), "plan") },
                NewTask { priority: urgent, ..of_kind(&name("urgent"), "spec") },
            ];
            add(tasks).await.unwrap();
            counter.take();
            let begun = store.perform(&begin(9)).await.unwrap().granted;
            let trips = counter.take();
            assert_eq!(begun.len(), 3, "{begun:?}");
            // Another round, so that statements are prepared.
            assert!(round < 3 || trips == 2, "{trips}: the lock and all reads, then writes and COMMIT");
            for grant in &begun {
                let done = step(&grant.task, |caller| Command::Done { caller, result: None });
                store.perform(&done).await.unwrap();
            }
        }
        // A tick looks before it locks.
        let settle = Settle { call: call(), steps: Vec::new(), then: None };
        let awaiting = Some(Awaiting { after_seq: 0, limit: 9 });
        let loops = SyncLoops { awaiting, ..SyncLoops::looking(begin(9)) };
        let tick = SyncLeases { settle, loops: Some(loops) };
        for round in 0..4 {
            add(vec![of_kind(&format!("tick-{round}"), "spec")]).await.unwrap();
            counter.take();
            assert_eq!(store.perform(&tick).await.unwrap().settled.granted.len(), 1);
        }
        assert!(counter.take() <= 5, "clock, queue, artifacts, then the lock, then COMMIT");
    });
}

/// A settlement that dependents or children wait for reads and shifts all of them in one more wait.
#[test]
fn a_settlement_with_dependents_waits_for_the_server_three_times() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let counter = Counter::default();
        let folder = counter.listen(Server::shared().socket_folder());
        let url = Server::shared().fresh_url();
        let schema = url.split_once("&schema=").unwrap().1;
        let url = format!("postgres://rota@/postgres?host={}&schema={schema}", folder.path().display());
        let store = PostgresStore::open(&url).await.unwrap();
        let mut trips = 0;
        // Statements are prepared at their third use.
        for round in 0..4 {
            add(&store, &format!("a{round}")).await;
            let mut blocked = NewTask::new(id(&format!("z{round}")), "other", "Title");
            blocked.deps = vec![id(&format!("a{round}"))];
            store.perform(&Add { call: call(), tasks: vec![blocked] }).await.unwrap();
            let granted = store.perform(&claim("w", 60_000)).await.unwrap().remove(0);
            counter.take();
            let done = step(&granted.task, |caller| Command::Done { caller, result: None });
            store.perform(&done).await.unwrap();
            trips = counter.take();
        }
        assert_eq!(trips, 3, "what there is, dependents and children, writes and COMMIT");
    });
}
