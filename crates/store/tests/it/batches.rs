//! Group commit: a batch equals its calls one after the other, and each caller hears the truth.

use proptest::prelude::*;
use rota_conformance::lab::{after, held, id, in_queue, new};
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, Task, TaskId};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::batch::{Batch, BatchCall};
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::edges::Block;
use rota_store::intents::iterate::Tasks;
use rota_store::intents::settle::{Settle, Step, StepAndView};
use rota_store::memory::MemoryStore;
use rota_store::sqlite::SqliteStore;
use rota_store::{Access, AnyStore, Error, Fault, Intent, Store, Tx};
use rota_testbed::Server;

use crate::pg::{open, run};
use crate::proxy::{Cut, Proxy};
use crate::subjects::quick_folder;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn call() -> Call {
    Call::in_scope("default")
}

fn claim(queue: &str, limit: usize) -> Claim {
    let (agent, wanted) = (Some("w".to_owned()), Wanted::default());
    Claim { call: call(), queue: queue.to_owned(), limit, agent, ttl_ms: Some(600_000), wanted, host: None }
}

fn command(which: usize, caller: Caller) -> Command {
    match which {
        0 | 1 => Command::Done { caller, result: None },
        2 => Command::Renew { caller, ttl_ms: None },
        3 => Command::Release { caller },
        4 => Command::Fail { caller, reason: None, default_reason: FAILED_REASON },
        _ => Command::Park { caller, reason: "a reason".to_owned() },
    }
}

fn step() -> impl Strategy<Value = Step> {
    (0..NAMES.len(), 1..4_u64, 0..6_usize).prop_map(|(name, fence, which)| {
        let caller = held(NAMES[name], fence);
        Step { id: id(NAMES[name]), command: command(which, caller) }
    })
}

fn batch_call() -> impl Strategy<Value = BatchCall> {
    let queue = prop_oneof![Just("tasks"), Just("runs")];
    let then = (prop::option::of(1..2_usize), queue.clone())
        .prop_map(|(limit, queue)| limit.map(|limit| claim(queue, limit)));
    let add = |(name, queue): (usize, &'static str)| {
        BatchCall::Add(Add { call: call(), tasks: vec![in_queue(NAMES[name], queue)] })
    };
    prop_oneof![
        3 => (1..4_usize, queue.clone()).prop_map(|(limit, queue)| BatchCall::Claim(claim(queue, limit))),
        4 => (step(), then.clone()).prop_map(|(step, then)| BatchCall::Step(StepAndView { call: call(), step, then })),
        2 => (prop::collection::vec(step(), 1..4), then)
            .prop_map(|(steps, then)| BatchCall::Settle(Settle { call: call(), steps, then })),
        2 => (0..NAMES.len(), queue).prop_map(add),
    ]
}

/// Debug text without times and insertion numbers, which differ from run to run.
pub fn shown(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let digits = |digit: char| digit.is_ascii_digit();
    ["UnixMillis(", " seq: "].into_iter().fold(text, |text, before| {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + before + "_" + part.trim_start_matches(digits))
    })
}

async fn tasks(store: &impl Store) -> Vec<Task> {
    let ids = NAMES.iter().chain(&["waits", "linked"]).map(|name| id(name)).collect();
    let mut tasks = store.perform(&Tasks { call: call(), ids }).await.unwrap();
    tasks.sort_by(|left, right| left.id.cmp(&right.id));
    tasks
}

/// Some tasks that others wait for, so that a settlement means something for them.
async fn begin(store: &impl Store) {
    let tasks = vec![new("a"), new("b"), in_queue("c", "runs"), after("waits", &["a", "b"]), new("linked")];
    store.perform(&Add { call: call(), tasks }).await.unwrap();
}

/// The calls in batches of these sizes, and the same calls each alone on the reference.
async fn batches_equal_their_calls(store: &impl Store, calls: &[BatchCall], sizes: &[usize]) {
    let reference = MemoryStore::new();
    begin(store).await;
    begin(&reference).await;
    let (mut rest, mut sizes) = (calls, sizes.iter().cycle());
    while !rest.is_empty() {
        let (batch, later) = rest.split_at((*sizes.next().unwrap_or(&1)).clamp(1, rest.len()));
        let heard = store.perform(&Batch { calls: batch }).await.unwrap();
        for (call, heard) in batch.iter().zip(heard) {
            let alone = reference.perform(&Batch { calls: std::slice::from_ref(call) }).await.unwrap();
            assert_eq!(shown(&heard), shown(&alone[0]), "{call:?}");
        }
        rest = later;
    }
    assert_eq!(shown(&tasks(store).await), shown(&tasks(&reference).await));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_equals_its_calls(
        calls in prop::collection::vec(batch_call(), 1..24),
        sizes in prop::collection::vec(1..8_usize, 1..4),
    ) {
        run(async {
            batches_equal_their_calls(&MemoryStore::new(), &calls, &sizes).await;
            let folder = quick_folder();
            let sqlite = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
            batches_equal_their_calls(&sqlite, &calls, &sizes).await;
            let postgres = open(&Server::shared().fresh_url()).await;
            batches_equal_their_calls(&postgres, &calls, &sizes).await;
        });
    }
}

/// Every store behind a batcher.
async fn batched(folder: &tempfile::TempDir) -> Vec<AnyStore> {
    let sqlite = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
    let postgres = open(&Server::shared().fresh_url()).await;
    let stores: [AnyStore; 3] = [MemoryStore::new().into(), sqlite.into(), postgres.into()];
    stores.map(AnyStore::batched).into()
}

fn done(task: &Task) -> StepAndView {
    let caller = Caller { agent: None, lease: task.lease() };
    let step = Step { id: task.id.clone(), command: Command::Done { caller, result: None } };
    StepAndView { call: call(), step, then: None }
}

/// Two producers of each id, then workers that claim and finish until nothing is left.
async fn crowd(store: &AnyStore) {
    const TASKS: usize = 60;
    let producers = (0..2 * TASKS).map(|index| {
        let store = store.clone();
        tokio::spawn(async move {
            let tasks = vec![NewTask::new(id(&format!("t{}", index / 2)), "tasks", "T")];
            store.perform(&Add { call: call(), tasks }).await
        })
    });
    let mut added = 0;
    for producer in producers.collect::<Vec<_>>() {
        match producer.await.unwrap() {
            Ok(_) => added += 1,
            Err(Error::Refused(refusal)) => assert_eq!(refusal.code(), "duplicate_id"),
            Err(Error::Fault(fault)) => panic!("{fault}"),
        }
    }
    assert_eq!(added, TASKS);
    let workers = (0..16).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut finished: Vec<TaskId> = Vec::new();
            while let Some(grant) = store.perform(&claim("tasks", 1)).await.unwrap().pop() {
                let (view, _) = store.perform(&done(&grant.task)).await.unwrap();
                assert_eq!(view.task.fence.get(), 1);
                finished.push(view.task.id);
            }
            finished
        })
    });
    let mut finished = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        finished.extend(worker.await.unwrap());
    }
    finished.sort();
    finished.dedup();
    assert_eq!(finished.len(), TASKS);
}

#[test]
fn callers_share_transactions() {
    run(async {
        let folder = quick_folder();
        for store in batched(&folder).await {
            crowd(&store).await;
        }
    });
}

/// Callers that go away: what was acknowledged stands, and every call happened whole or not at all.
#[test]
fn callers_that_go_away() {
    run(async {
        let folder = quick_folder();
        for store in batched(&folder).await {
            let callers: Vec<_> = (0..80)
                .map(|index| {
                    let store = store.clone();
                    tokio::spawn(async move {
                        let tasks = vec![new(&format!("x{index}")), new(&format!("y{index}"))];
                        store.perform(&Add { call: call(), tasks }).await.map(drop)
                    })
                })
                .collect();
            for caller in callers.iter().skip(1).step_by(2) {
                caller.abort();
            }
            let mut acknowledged = Vec::new();
            for (index, caller) in callers.into_iter().enumerate() {
                if let Ok(added) = caller.await {
                    added.unwrap();
                    acknowledged.push(index);
                }
            }
            // A call after all of them, so that none of them is under way.
            store.perform(&Add { call: call(), tasks: vec![new("last")] }).await.unwrap();
            for index in 0..80 {
                let ids = vec![id(&format!("x{index}")), id(&format!("y{index}"))];
                let found = store.perform(&Tasks { call: call(), ids }).await.unwrap().len();
                assert!(found == 2 || found == 0 && !acknowledged.contains(&index), "{index}: {found}");
            }
        }
    });
}

/// A call whose intent cannot be carried out does not take the others of its batch along.
#[test]
fn a_failing_batch_is_split() {
    run(async {
        let server = Server::shared();
        let proxy = Proxy::before(server.socket_folder());
        let url = server.fresh_url();
        let schema = url.split_once("&schema=").unwrap().1;
        let store = AnyStore::from(open(&proxy.url(schema, "")).await).batched();
        store.perform(&Add { call: call(), tasks: vec![new("first")] }).await.unwrap();
        for cut in [Cut::Before, Cut::After] {
            proxy.cut_once_at("COMMIT", cut);
            let callers: Vec<_> = (0..12)
                .map(|index| {
                    let store = store.clone();
                    let tasks = vec![new(&format!("{cut:?}{index}"))];
                    tokio::spawn(async move { store.perform(&Add { call: call(), tasks }).await.map(drop) })
                })
                .collect();
            for (index, caller) in callers.into_iter().enumerate() {
                let ids = vec![id(&format!("{cut:?}{index}"))];
                let answer = caller.await.unwrap();
                let is_there = !store.perform(&Tasks { call: call(), ids }).await.unwrap().is_empty();
                match answer {
                    Ok(()) => assert!(is_there, "{cut:?} {index}"),
                    Err(Error::Fault(Fault::OutcomeUnknown { .. })) => {}
                    Err(error) => panic!("{cut:?} {index}: {error}"),
                }
            }
        }
        assert_eq!(proxy.cuts(), 2);
    });
}

/// The task that carries out batches may end with its runtime: later calls start another one.
#[test]
fn a_runtime_that_ends_takes_nobody_along() {
    let folder = quick_folder();
    let store = AnyStore::from(SqliteStore::open(&folder.path().join("rota.db")).unwrap()).batched();
    for round in 0..20 {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        for index in 0..8 {
            let (store, tasks) = (store.clone(), vec![new(&format!("r{round}-{index}"))]);
            runtime.spawn(async move { store.perform(&Add { call: call(), tasks }).await.map(drop) });
        }
        runtime.shutdown_timeout(std::time::Duration::from_secs(60));
        run(async {
            let tasks = vec![new(&format!("after-{round}"))];
            store.perform(&Add { call: call(), tasks }).await.unwrap();
        });
    }
}

/// More expired leases, and more tasks that have cooled down, than one read ahead takes.
#[test]
fn more_than_is_read_ahead() {
    const TASKS: usize = 1_100;
    run(async {
        let store = open(&Server::shared().fresh_url()).await;
        let clock = store.begin(Access::Write).await.unwrap().clock().await.unwrap();
        let task = |index: usize| NewTask {
            not_before: Some(rota_core::UnixMillis::new(clock.get() + 1)),
            ..new(&format!("t{index}"))
        };
        let tasks = (0..TASKS).map(task).collect();
        // At a time when they cool down.
        store.perform(&Add { call: call().at(clock), tasks }).await.unwrap();
        store.perform(&claim("tasks", 1)).await.unwrap();
        let all = Claim { ttl_ms: Some(1), ..claim("tasks", TASKS) };
        assert_eq!(store.perform(&all).await.unwrap().len(), TASKS - 1);
        let again = store.perform(&all).await.unwrap();
        assert_eq!(again.len(), TASKS - 1);
        assert!(again.iter().all(|grant| grant.task.fence.get() == 2));
    });
}

#[test]
fn which_calls_are_batched() {
    let answered = claim("tasks", 1).batched();
    assert!(matches!(answered, Some(BatchCall::Claim(_))));
    let with_time = Claim { call: call().at(rota_core::UnixMillis::new(1)), ..claim("tasks", 1) };
    assert!(with_time.batched().is_none(), "calls with a time of their own are not batched");
    let linked = Add { call: call(), tasks: vec![after("b", &["a"])] };
    assert!(linked.batched().is_none(), "an addition that may be refused after a write is not batched");
}

/// A panic inside a batch: every call of it has an unknown outcome, nothing of it happened, and the next calls go on.
#[tokio::test]
async fn a_panic_in_a_batch_leaves_no_caller_without_an_answer() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let panics = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&panics);
    let store = AnyStore::from(MemoryStore::with_clock(Arc::new(move || {
        assert!(!told.swap(false, Ordering::SeqCst), "the clock is broken");
        rota_store::clock::system_now()
    })));
    let store = store.batched();
    let add = |name: &str| Add { call: call(), tasks: vec![NewTask::new(id(name), "tasks", "Title")] };
    store.perform(&add("before")).await.unwrap();
    panics.store(true, Ordering::SeqCst);
    let (a, b, c) = (add("a"), add("b"), add("c"));
    let answers = tokio::join!(store.perform(&a), store.perform(&b), store.perform(&c));
    for answer in [&answers.0, &answers.1, &answers.2] {
        // The first caller's batch panicked; calls that came later were in a batch of their own.
        assert!(matches!(answer, Ok(_) | Err(Error::Fault(Fault::OutcomeUnknown { .. }))), "{answer:?}");
    }
    assert!(matches!(answers.0, Err(Error::Fault(Fault::OutcomeUnknown { .. }))), "{:?}", answers.0);
    let ids = ["before", "a", "b", "c"].map(id).to_vec();
    let found = store.perform(&Tasks { call: call(), ids }).await.unwrap();
    assert_eq!(found.len(), 1 + [answers.1.is_ok(), answers.2.is_ok()].iter().filter(|ok| **ok).count());
    store.perform(&add("after")).await.unwrap();
}

/// A task is released in the batch that settles its blocker: it has no open blocker afterwards, on every store.
#[test]
fn a_blocker_settled_in_the_same_batch_counts() {
    run(async {
        let folder = quick_folder();
        let stores = [
            AnyStore::from(MemoryStore::new()),
            AnyStore::from(SqliteStore::open(&folder.path().join("rota.db")).unwrap()),
            AnyStore::from(open(&Server::shared().fresh_url()).await),
        ];
        for store in stores {
            let tasks = ["a", "b"].map(|name| NewTask::new(id(name), "tasks", "Title")).to_vec();
            store.perform(&Add { call: call(), tasks }).await.unwrap();
            assert_eq!(store.perform(&claim("tasks", 2)).await.unwrap().len(), 2);
            store.perform(&Block { call: call(), task: id("b"), by: id("a") }).await.unwrap();
            let step = |name: &str, which| {
                let step = Step { id: id(name), command: command(which, held(name, 1)) };
                BatchCall::Step(StepAndView { call: call(), step, then: None })
            };
            let calls = [step("a", 0), step("b", 3)];
            let answers = store.perform(&Batch { calls: &calls }).await.unwrap();
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            let granted = store.perform(&claim("tasks", 2)).await.unwrap();
            assert_eq!(granted.iter().map(|grant| grant.task.id.as_str()).collect::<Vec<_>>(), ["b"]);
        }
    });
}
