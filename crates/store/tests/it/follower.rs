//! A follower of the journal misses nothing and sees nothing twice, whoever commits first.

use std::collections::BTreeSet;
use std::sync::Arc;

use rota_core::event::{Event, EventKind};
use rota_core::{Task, TaskId, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::follow::{Follow, Tail};
use rota_store::memory::MemoryStore;
use rota_store::postgres::PostgresStore;
use rota_store::sqlite::SqliteStore;
use rota_store::{Access, Cursor, Store, Tx};
use rota_testbed::block_on;

const WRITERS: usize = 16;
const ROUNDS: usize = 25;

fn event(name: &str) -> Event {
    let mut task = Task::new("default", TaskId::new(name).unwrap(), "tasks", "T", UnixMillis::new(1));
    task.events = 1;
    Event::of_change(EventKind::Created, None, &task)
}

async fn write<S: Store>(store: &S, name: &str) {
    let mut tx = store.begin(Access::Write).await.unwrap();
    tx.append(&event(name)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn follow<S: Store>(store: &S, after: Cursor, limit: usize) -> (Vec<String>, Cursor) {
    let follow = Follow { call: Call::in_scope("default"), after, limit };
    let (events, cursor) = store.perform(&follow).await.unwrap();
    // Each event has the cursor behind it: whoever stopped there goes on with the next.
    assert!(events.windows(2).all(|two| two[0].0 < two[1].0));
    assert!(events.last().is_none_or(|(last, _)| *last == cursor));
    let events = events.into_iter().map(|(_, event)| event).collect();
    // The text form is what a client sends back.
    (names(events), cursor.to_string().parse().unwrap())
}

async fn tail<S: Store>(store: &S, limit: usize) -> (Vec<String>, Cursor) {
    let tail = Tail { call: Call::in_scope("default"), task: None, limit };
    let (events, cursor) = store.perform(&tail).await.unwrap();
    (names(events), cursor)
}

/// Waits until a follower would have been given this one: other tests have transactions on the same server.
async fn settled<S: Store>(store: &S, newest: &str) {
    while tail(store, 1).await.0 != [newest] {
        tokio::task::yield_now().await;
    }
}

fn names(events: Vec<Event>) -> Vec<String> {
    events.into_iter().map(|event| event.task.unwrap().to_string()).collect()
}

async fn in_pages<S: Store>(store: &S) {
    assert_eq!(follow(store, Cursor::START, 10).await.0, Vec::<String>::new());
    for name in ["a", "b", "c", "d"] {
        write(store, name).await;
    }
    settled(store, "d").await;
    let (first, cursor) = follow(store, Cursor::START, 3).await;
    assert_eq!(first, ["a", "b", "c"]);
    let (second, end) = follow(store, cursor, 3).await;
    assert_eq!(second, ["d"]);
    assert_eq!(follow(store, end, 3).await.0, Vec::<String>::new());
    let (newest, behind) = tail(store, 2).await;
    assert_eq!(newest, ["c", "d"]);
    assert_eq!(tail(store, 0).await.0, Vec::<String>::new());
    write(store, "e").await;
    settled(store, "e").await;
    assert_eq!(follow(store, end, 3).await.0, ["e"]);
    assert_eq!(follow(store, behind, 3).await.0, ["e"]);
}

#[test]
fn pages_and_tails() {
    block_on(in_pages(&MemoryStore::new()));
    let folder = tempfile::tempdir().unwrap();
    block_on(in_pages(&SqliteStore::open(&folder.path().join("rota.db")).unwrap()));
    on_server(async |store| in_pages(&store).await);
}

fn on_server(test: impl AsyncFnOnce(PostgresStore)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let url = rota_testbed::Server::shared().fresh_url();
        test(PostgresStore::open(&url).await.unwrap()).await;
    });
}

/// A later number that is committed first is held back until the earlier one has ended, either way.
#[test]
fn waits_for_who_began_before() {
    on_server(async |store| {
        let mut slow = store.begin(Access::Write).await.unwrap();
        slow.append(&event("slow")).await.unwrap();
        // A write is sent with the next read.
        slow.clock().await.unwrap();
        let mut undone = store.begin(Access::Write).await.unwrap();
        undone.append(&event("undone")).await.unwrap();
        undone.clock().await.unwrap();
        write(&store, "fast").await;
        let (early, cursor) = follow(&store, Cursor::START, 10).await;
        assert_eq!(early, Vec::<String>::new(), "'slow' could still come before it");
        assert_eq!(tail(&store, 10).await.0, Vec::<String>::new());
        let (_, behind) = tail(&store, 10).await;
        slow.commit().await.unwrap();
        settled(&store, "slow").await;
        assert_eq!(follow(&store, cursor, 10).await.0, ["slow"], "'undone' is still open");
        drop(undone);
        let mut seen = Vec::new();
        let mut from_tail = Vec::new();
        let (mut at, mut tail_at) = (cursor, behind);
        // The rollback of a dropped transaction is on its way.
        while seen.len() < 2 || from_tail.len() < 2 {
            let (more, next) = follow(&store, at, 10).await;
            (seen, at) = ([seen, more].concat(), next);
            let (more, next) = follow(&store, tail_at, 10).await;
            (from_tail, tail_at) = ([from_tail, more].concat(), next);
        }
        assert_eq!(seen, ["slow", "fast"]);
        assert_eq!(from_tail, ["slow", "fast"]);
    });
}

/// Reads until everything was seen, and a little further.
async fn collect<S: Store>(store: &S) -> Vec<String> {
    let (mut seen, mut cursor) = (Vec::new(), Cursor::START);
    while seen.len() < WRITERS * ROUNDS {
        let (more, next) = follow(store, cursor, 7).await;
        seen.extend(more);
        cursor = next;
        tokio::task::yield_now().await;
    }
    seen.extend(follow(store, cursor, 7).await.0);
    seen
}

fn check(seen: &[String]) {
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (WRITERS * ROUNDS, WRITERS * ROUNDS));
}

/// Sixteen writers at once; in each round everyone has written before the first commits, and the last to have
/// written commits first.
#[test]
fn sixteen_writers_on_a_server() {
    on_server(async |store| {
        let follower = tokio::spawn({
            let store = store.clone();
            async move { collect(&store).await }
        });
        for round in 0..ROUNDS {
            let written = Arc::new(tokio::sync::Barrier::new(WRITERS));
            let mut writers = tokio::task::JoinSet::new();
            for writer in 0..WRITERS {
                let (store, written) = (store.clone(), Arc::clone(&written));
                writers.spawn(async move {
                    let mut tx = store.begin(Access::Write).await.unwrap();
                    tx.append(&event(&format!("r{round}w{writer}"))).await.unwrap();
                    if writer % 2 == 0 {
                        written.wait().await;
                        tx.commit().await.unwrap();
                    } else {
                        tx.commit().await.unwrap();
                        written.wait().await;
                    }
                });
            }
            while let Some(ended) = writers.join_next().await {
                ended.unwrap();
            }
        }
        check(&follower.await.unwrap());
    });
}

#[test]
fn sixteen_writers_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rota.db");
    let seen = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = &path;
            scope.spawn(move || {
                let store = SqliteStore::open(path).unwrap();
                for round in 0..ROUNDS {
                    block_on(write(&store, &format!("r{round}w{writer}")));
                }
            });
        }
        scope.spawn(|| block_on(collect(&SqliteStore::open(&path).unwrap()))).join().unwrap()
    });
    check(&seen);
}

/// A listener is told of a commit, and writers only notify while one is there.
#[test]
fn a_listener_is_woken() {
    on_server(async |store| {
        let mut listener = store.listen().await.unwrap();
        let long = std::time::Duration::from_secs(600);
        write(&store, "a").await;
        listener.wait(long).await;
        // A second one, while the first holds the lock, and after it is gone.
        let mut second = store.listen().await.unwrap();
        write(&store, "b").await;
        listener.wait(long).await;
        second.wait(long).await;
    });
}

#[test]
fn a_change_of_the_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
    let mut version = store.data_version().unwrap();
    let long = std::time::Duration::from_secs(600);
    block_on(version.wait(long)).unwrap();
    block_on(write(&store, "a"));
    block_on(version.wait(long)).unwrap();
    block_on(version.wait(std::time::Duration::ZERO)).unwrap();
}
