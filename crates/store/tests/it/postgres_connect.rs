//! Servers that are away, silent or read-only when we connect or afterwards, and clients that vanish.

use std::time::{Duration, Instant};

use rota_core::policy::Policy;
use rota_store::intents::policy::PublishPolicy;
use rota_store::postgres::PostgresStore;
use rota_store::{Access, Store, Tx};
use rota_testbed::{Durability, Extra, Link, Server};

use crate::pg::{add, call, claim, fault, open, run};

/// A URL with several hosts, each a folder and a port.
fn hosts(list: &[(&str, u16)], rest: &str) -> String {
    let list: Vec<String> =
        list.iter().map(|(folder, port)| format!("{}:{port}", folder.replace('/', "%2F"))).collect();
    format!("postgres://rota@{}/postgres?{rest}", list.join(","))
}

fn read_only() -> Server {
    let settings = vec!["default_transaction_read_only=on".to_owned()];
    Server::start_with(Durability::None, Extra { settings, ..Extra::default() }).unwrap()
}

/// A client that vanishes while it holds a queue with a ceiling holds up the others for seconds, not for a minute.
#[test]
fn a_vanished_client_gives_its_queue_back() {
    let server = Server::start(Durability::None).unwrap();
    let link = Link::to(&server).unwrap();
    run(async {
        let store = open(&server.url("s")).await;
        let policy = Policy::parse(r#"{"queues":{"tasks":{"maxConcurrent":5}}}"#).unwrap();
        store.perform(&PublishPolicy { call: call(), policy, based_on: None }).await.unwrap();
        add(&store, ["a".into(), "b".into()]).await.unwrap();
        let behind_the_link = open(&link.url("s")).await;
        let mut holding = behind_the_link.begin(Access::Write).await.unwrap();
        assert!(holding.queue("default", "tasks", true).await.unwrap().is_some());
        link.silence();
        let since = Instant::now();
        let granted = store.perform(&claim("x", 60_000)).await.unwrap();
        let waited = since.elapsed();
        assert_eq!(granted.len(), 1);
        assert!(waited > Duration::from_secs(1), "the lock was held: {waited:?}");
        assert!(waited < Duration::from_secs(20), "{waited:?}");
        link.cut();
        drop(holding);
    });
}

/// A standby counts as away, and the next host is tried, without `target_session_attrs`.
#[test]
fn the_next_host_is_tried_after_a_read_only_one() {
    let (standby, primary) = (read_only(), Server::start(Durability::None).unwrap());
    let folder = |server: &Server| server.socket_folder().display().to_string();
    let url = hosts(&[(&folder(&standby), standby.port()), (&folder(&primary), primary.port())], "schema=s");
    run(async {
        let store = open(&url).await;
        add(&store, ["a".into()]).await.unwrap();
        assert_eq!(store.perform(&claim("x", 60_000)).await.unwrap().len(), 1);
        let Err(fault) = PostgresStore::open(&standby.url("s")).await else { panic!("it was opened") };
        assert_eq!((fault.exit_code(), fault.code()), (75, "store_away"));
        assert!(fault.to_string().contains("read-only"), "{fault}");
    });
}

/// Waits until a standby has everything that its primary has.
async fn caught_up(primary: &Server, standby: &Server) {
    let end = "SELECT pg_current_wal_flush_lsn()::text";
    let end: String = crate::pg::look(&primary.url("s")).await.query_one(end, &[]).await.unwrap().get(0);
    let there = crate::pg::look(&standby.url("s")).await;
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn");
    let wait = async {
        while !there.query_one(&replayed, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
}

/// A real standby: it is passed over while it streams, and the same store goes on with it once it is promoted.
#[test]
fn a_streaming_standby_takes_over() {
    let primary = Server::start(Durability::None).unwrap();
    run(async { drop(open(&primary.url("s")).await) });
    let standby = primary.standby().unwrap();
    let folder = |server: &Server| server.socket_folder().display().to_string();
    let url = hosts(&[(&folder(&standby), standby.port()), (&folder(&primary), primary.port())], "schema=s");
    run(async {
        let store = open(&url).await;
        add(&store, ["a".into(), "b".into()]).await.unwrap();
        let first = store.perform(&claim("x", 60_000)).await.unwrap().remove(0);
        let Err(fault) = PostgresStore::open(&standby.url("s")).await else { panic!("it was opened") };
        assert_eq!((fault.exit_code(), fault.code()), (75, "store_away"));
        assert!(fault.to_string().contains("read-only"), "{fault}");
        caught_up(&primary, &standby).await;
        primary.crash();
        let promoted = crate::pg::look(&standby.url("s")).await;
        promoted.query_one("SELECT pg_promote()", &[]).await.unwrap();
        let second = store.perform(&claim("y", 60_000)).await.unwrap().remove(0);
        assert_eq!(
            (first.task.id.as_str(), second.task.id.as_str()),
            ("a", "b"),
            "the lease of 'a' came along"
        );
        store.perform(&crate::pg::done(&first, "fine")).await.unwrap().steps.remove(0).unwrap();
    });
}

/// A primary that becomes read-only under us, and the standby that takes its place: no worker ends with 25006.
#[test]
fn a_demoted_server_is_left() {
    let (first, second) =
        (Server::start(Durability::None).unwrap(), Server::start(Durability::None).unwrap());
    let folder = |server: &Server| server.socket_folder().display().to_string();
    let url = hosts(&[(&folder(&first), first.port()), (&folder(&second), second.port())], "schema=s");
    run(async {
        drop(open(&second.url("s")).await);
        let store = open(&url).await;
        add(&store, ["a".into()]).await.unwrap();
        // Several idle connections, all of them to the first.
        let many: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.perform(&claim("x", 60_000)).await.unwrap().len() })
            })
            .collect();
        for one in many {
            one.await.unwrap();
        }
        let admin = crate::pg::look(&first.url("s")).await;
        admin.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let demoted = async {
            loop {
                let row = admin.query_one("SHOW default_transaction_read_only", &[]).await.unwrap();
                if row.get::<_, &str>(0) == "on" {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), demoted).await.unwrap();
        add(&store, ["b".into()]).await.unwrap();
        let there = open(&second.url("s")).await;
        assert_eq!(there.perform(&claim("y", 60_000)).await.unwrap().len(), 1, "it went to the second");
    });
}

/// A server that is away when we connect is waited for, as one is that goes away later.
#[test]
fn a_server_that_is_away_at_connect_is_waited_for() {
    let server = Server::start(Durability::None).unwrap();
    let url = server.url("s");
    run(async { drop(open(&url).await) });
    server.crash();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(async { PostgresStore::open(&url).await.map(drop) }));
        std::thread::park_timeout(Duration::from_secs(2));
        server.up().unwrap();
        waiting.join().unwrap().unwrap();
    });
    server.crash();
    let since = Instant::now();
    let Err(fault) = run(async { PostgresStore::open(&url).await }) else { panic!("it is there") };
    assert_eq!(fault.code(), "store_away");
    let waited = since.elapsed();
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(60), "{waited:?}");
    let since = Instant::now();
    server.up().unwrap();
    run(async {
        let store = open(&url).await.impatient();
        server.crash();
        let fault = fault_of(add(&store, ["a".into()]).await);
        assert_eq!(fault.code(), "store_away");
    });
    assert!(since.elapsed() < Duration::from_secs(60));
}

fn fault_of(outcome: rota_store::Outcome<()>) -> rota_store::Fault {
    fault(outcome)
}

/// A host that takes connections and says nothing does not take the time of the next one.
#[test]
fn a_black_hole_is_passed_over() {
    let server = Server::start(Durability::None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let hole = std::os::unix::net::UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    let there = server.socket_folder().display().to_string();
    let url = hosts(
        &[(&folder.path().display().to_string(), 5432), (&there, server.port())],
        "schema=s&connect_timeout=2&pool_wait=20",
    );
    let since = Instant::now();
    run(async {
        let store = open(&url).await;
        add(&store, ["a".into()]).await.unwrap();
    });
    assert!(since.elapsed() > Duration::from_secs(1), "the first was tried");
    drop(hole);
}

/// What `rota doctor` goes by: an asynchronous standby may lack what was acknowledged, a synchronous one has it.
#[test]
fn what_a_promoted_standby_keeps() {
    let primary = Server::start(Durability::None).unwrap();
    let standby = primary.standby().unwrap();
    run(async {
        let store = open(&primary.url("s")).await;
        assert!(!store.replication().await.unwrap().keeps_what_was_acknowledged());
        let admin = crate::pg::look(&primary.url("s")).await;
        admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let wait = async {
            while !store.replication().await.unwrap().keeps_what_was_acknowledged() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
        add(&store, ["a".into()]).await.unwrap();
        primary.crash();
        let promoted = crate::pg::look(&standby.url("s")).await;
        promoted.query_one("SELECT pg_promote()", &[]).await.unwrap();
        // It waits for a standby of its own no more.
        promoted.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
        promoted.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let store = open(&standby.url("s")).await;
        assert_eq!(
            store.perform(&claim("x", 60_000)).await.unwrap().len(),
            1,
            "what was acknowledged is there"
        );
    });
}
