//! PostgreSQL when the world fails (S9): away, restarted, cut in the middle and in COMMIT, races. What was not committed
//! is tried again, what was is found again, and nothing is granted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rota_core::Status;
use rota_store::intents::claim::{Claim, Grant};
use rota_store::intents::settle::Settle;
use rota_store::postgres::PostgresStore;
use rota_store::{Access, Store};
use rota_testbed::{Durability, Server};

use crate::pg::{add, add_work, claim, done, fault, id, look, open, ordinary_claim, run};
use crate::proxy::{Cut, Proxy};

fn fresh_schema() -> String {
    let url = Server::shared().fresh_url();
    url.split_once("&schema=").unwrap().1.to_owned()
}

/// How many grants and tasks there are.
async fn counts(client: &tokio_postgres::Client) -> (i64, i64) {
    let text = "SELECT (SELECT count(*) FROM journal WHERE kind = 'granted'), (SELECT count(*) FROM tasks)";
    let row = client.query_one(text, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn a_server_that_is_away_is_told() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("postgres://rota:hunter2@/postgres?host={}", folder.path().display());
        let Err(fault) = PostgresStore::open(&url).await else { panic!("it is there") };
        assert_eq!((fault.exit_code(), fault.code()), (75, "store_away"));
        let said = format!("{fault} {fault:?}");
        assert!(said.contains("is away") && !said.contains("hunter2"), "{said}");
    });
}

#[test]
fn an_exhausted_pool_is_busy_after_a_bounded_wait() {
    run(async {
        let url = format!("{}&pool=1&pool_wait=1", Server::shared().fresh_url());
        let store = open(&url).await;
        add(&store, ["a".into()]).await.unwrap();
        let held = store.begin(Access::Write).await.unwrap();
        let started = Instant::now();
        let fault = fault(store.perform(&claim("x", 60_000)).await);
        assert_eq!((fault.exit_code(), fault.code()), (75, "store_busy"));
        assert!(started.elapsed() >= Duration::from_secs(1));
        drop(held);
        assert_eq!(store.perform(&claim("x", 60_000)).await.unwrap().len(), 1);
    });
}

#[test]
fn a_restart_is_survived_by_idle_connections() {
    let server = Server::start(Durability::None).unwrap();
    run(async {
        let store = open(&server.url("s")).await;
        add(&store, ["a".into(), "b".into()]).await.unwrap();
        server.crash();
        server.up().unwrap();
        assert_eq!(store.perform(&ordinary_claim("x")).await.unwrap().len(), 0);
        assert_eq!(store.perform(&claim("x", 60_000)).await.unwrap().len(), 1);
        server.crash();
        let started = Instant::now();
        let fault = fault(add(&store, ["c".into()]).await);
        assert_eq!((fault.exit_code(), fault.code()), (75, "store_away"));
        assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    });
}

#[test]
fn a_lost_answer_to_commit_is_found_by_reading_back() {
    run(async {
        for cut in [Cut::Before, Cut::After] {
            let (proxy, schema) = (Proxy::before(Server::shared().socket_folder()), fresh_schema());
            let store = open(&proxy.url(&schema, "")).await;
            add_work(&store, "a").await.unwrap();
            proxy.cut_once_at("COMMIT", cut);
            let granted = store.perform(&ordinary_claim("x")).await.unwrap();
            assert_eq!(proxy.cuts(), 1, "{cut:?}");
            assert_eq!(granted[0].task.fence.get(), 1, "{cut:?}");
            let client = look(&Server::shared().url(&schema)).await;
            assert_eq!(counts(&client).await, (1, 1), "{cut:?}");
        }
    });
}

#[test]
fn a_commit_that_is_still_at_work_is_waited_for() {
    run(async {
        let (proxy, schema) = (Proxy::before(Server::shared().socket_folder()), fresh_schema());
        let store = open(&proxy.url(&schema, "")).await;
        let client = look(&Server::shared().url(&schema)).await;
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext(TG_TABLE_SCHEMA)); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON tasks DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION slow(); \
             SELECT pg_advisory_lock(hashtext(current_schema()))";
        client.batch_execute(slow).await.unwrap();
        proxy.cut_once_at("COMMIT", Cut::After);
        let adding = tokio::spawn(async move { add_work(&store, "a").await });
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND objid = hashtext(current_schema())::bigint::bit(32)::bigint::oid";
        until(|| async { client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1 }).await;
        until(|| async { proxy.cuts() == 1 }).await;
        assert!(!adding.is_finished());
        client.batch_execute("SELECT pg_advisory_unlock(hashtext(current_schema()))").await.unwrap();
        adding.await.unwrap().unwrap();
        assert_eq!(counts(&client).await, (0, 1));
    });
}

/// Looks again until it is so; not for ever.
async fn until<F: Future<Output = bool>>(so: impl Fn() -> F) {
    let looked = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), looked).await.unwrap();
}

/// Cuts at each message of an addition and a claim in turn, until there is none left to cut at.
async fn sweep(cut: Cut) {
    let (proxy, schema) = (Proxy::before(Server::shared().socket_folder()), fresh_schema());
    let store = open(&proxy.url(&schema, "")).await;
    let client = look(&Server::shared().url(&schema)).await;
    let mut at = 0;
    loop {
        let seen = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&seen);
        proxy.cut_by(move |_, _| (counter.fetch_add(1, Ordering::SeqCst) == at).then_some(cut));
        add_work(&store, &format!("t{at}")).await.unwrap();
        let granted = store.perform(&ordinary_claim("x")).await.unwrap();
        assert_eq!(granted[0].task.id, id(&format!("t{at}")));
        assert_eq!(granted[0].task.fence.get(), 1);
        let so_far = i64::try_from(at).unwrap() + 1;
        assert_eq!(counts(&client).await, (so_far, so_far), "{cut:?} at message {at}");
        at += 1;
        if seen.load(Ordering::SeqCst) < at {
            break;
        }
    }
    assert!(at > 20, "{at} messages");
}

#[test]
fn a_cut_before_any_message_costs_nothing() {
    run(sweep(Cut::Before));
}

#[test]
fn a_cut_after_any_message_costs_nothing() {
    run(sweep(Cut::After));
}

/// Three tasks, of which two are claimed: the first claim learns the policy and compiles, the second goes at once.
async fn warmed_up(url: &str) -> (PostgresStore, Vec<Grant>) {
    let store = open(url).await;
    add(&store, ["a".into(), "b".into(), "c".into()]).await.unwrap();
    add(&store, ["d".into()]).await.unwrap();
    let mut held = store.perform(&claim("x", 60_000)).await.unwrap();
    held.extend(store.perform(&claim("x", 60_000)).await.unwrap());
    (store, held)
}

/// Everything that is done by one statement, and what must be in the journal after it: grants, ends and additions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AtOnce {
    Claim,
    ClaimTwo,
    Done,
    DoneAndNext,
    Add,
}

async fn do_at_once(store: &PostgresStore, what: AtOnce, held: &[Grant]) -> (usize, usize, usize) {
    match what {
        AtOnce::Claim => (store.perform(&claim("x", 60_000)).await.unwrap().len(), 0, 0),
        AtOnce::ClaimTwo => {
            let two = Claim { limit: 2, ..claim("x", 60_000) };
            (store.perform(&two).await.unwrap().len(), 0, 0)
        }
        AtOnce::Done => {
            let settled = store.perform(&done(&held[0], "fine")).await.unwrap();
            let task = settled.steps[0].as_ref().unwrap();
            assert_eq!((task.status, task.queue.as_str()), (Status::Done, "tasks"));
            (0, 1, 0)
        }
        AtOnce::DoneAndNext => {
            let both = Settle { then: Some(claim("x", 60_000)), ..done(&held[0], "fine") };
            let settled = store.perform(&both).await.unwrap();
            assert_eq!(settled.steps[0].as_ref().unwrap().id, held[0].task.id);
            assert_eq!(settled.granted[0].task.status, Status::Active);
            (settled.granted.len(), 1, 0)
        }
        AtOnce::Add => {
            add(store, ["e".into(), "f".into()]).await.unwrap();
            (0, 0, 2)
        }
    }
}

/// S9, P1, P2: the answer to a statement that is a transaction of its own is lost, before or after it was done: what was
/// done is found, what was not is done once, and the caller sees no difference.
#[test]
fn a_lost_answer_of_what_is_done_at_once_is_found_by_reading_back() {
    run(async {
        let all = [AtOnce::Claim, AtOnce::ClaimTwo, AtOnce::Done, AtOnce::DoneAndNext, AtOnce::Add];
        for (what, cut) in all.into_iter().flat_map(|what| [(what, Cut::Before), (what, Cut::After)]) {
            let (proxy, schema) = (Proxy::before(Server::shared().socket_folder()), fresh_schema());
            let (store, held) = warmed_up(&proxy.url(&schema, "")).await;
            proxy.cut_once_at_work(cut);
            let (grants, ends, additions) = do_at_once(&store, what, &held).await;
            assert_eq!(proxy.cuts(), 1, "{what:?} {cut:?}");
            proxy.heal();
            let client = look(&Server::shared().url(&schema)).await;
            let count = |kind: &'static str| {
                let client = &client;
                async move {
                    let text = "SELECT count(*) FROM journal WHERE kind = $1";
                    usize::try_from(client.query_one(text, &[&kind]).await.unwrap().get::<_, i64>(0)).unwrap()
                }
            };
            let found = (count("granted").await, count("done").await, count("created").await);
            assert_eq!(found, (2 + grants, ends, 4 + additions), "{what:?} {cut:?}");
            assert!(grants + ends + additions > 0, "{what:?}");
        }
    });
}

/// One that still waits for a lock when its connection is gone is ended, and then done anew: never twice.
#[test]
fn a_lost_statement_that_is_still_at_work_is_ended() {
    run(async {
        let (proxy, schema) = (Proxy::before(Server::shared().socket_folder()), fresh_schema());
        let (store, held) = warmed_up(&proxy.url(&schema, "")).await;
        let client = look(&Server::shared().url(&schema)).await;
        client.batch_execute("BEGIN; SELECT 1 FROM tasks WHERE id = 'a' FOR UPDATE").await.unwrap();
        proxy.cut_once_at_work(Cut::After);
        let settling = tokio::spawn(async move { store.perform(&done(&held[0], "fine")).await });
        until(|| async { proxy.cuts() == 1 }).await;
        client.batch_execute("COMMIT").await.unwrap();
        assert!(settling.await.unwrap().unwrap().steps[0].is_ok());
        let text = "SELECT count(*) FROM journal WHERE kind = 'done'";
        assert_eq!(client.query_one(text, &[]).await.unwrap().get::<_, i64>(0), 1);
    });
}

/// A trigger that raises an error the first few times that a task is changed.
fn trap(code: &str, times: i64) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval(format('%I.sprung', TG_TABLE_SCHEMA)) <= {times} \
         THEN RAISE EXCEPTION 'sprung' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$; \
         SELECT setval('sprung', 1, false)"
    )
}

#[test]
fn races_are_run_again_and_not_for_ever() {
    run(async {
        for code in ["40001", "40P01", "57P01"] {
            let url = Server::shared().fresh_url();
            let store = open(&url).await;
            add(&store, ["a".into(), "b".into()]).await.unwrap();
            store.perform(&claim("x", 60_000)).await.unwrap();
            add_work(&store, "w").await.unwrap();
            let client = look(&url).await;
            client.batch_execute("CREATE SEQUENCE sprung").await.unwrap();
            client.batch_execute(&trap(code, 3)).await.unwrap();
            let arm = "CREATE TRIGGER spring BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION spring()";
            client.batch_execute(arm).await.unwrap();
            let at_once = store.perform(&claim("x", 60_000)).await.unwrap();
            assert_eq!(at_once[0].task.id, id("b"), "{code}");
            client.batch_execute(&trap(code, 3)).await.unwrap();
            let ordinary = store.perform(&ordinary_claim("x")).await.unwrap();
            assert_eq!(ordinary[0].task.id, id("w"), "{code}");
            // A server that is always on its way out is waited for longer; the restart shows that.
            if code != "57P01" {
                add(&store, ["c".into()]).await.unwrap();
                client.batch_execute(&trap(code, 1_000_000)).await.unwrap();
                let fault = fault(store.perform(&claim("x", 60_000)).await);
                assert_eq!((fault.exit_code(), fault.code()), (75, "store_contended"), "{code}");
            }
            assert_eq!(counts(&client).await.0, 3, "{code}");
        }
    });
}

#[test]
fn a_backend_that_is_ended_in_the_middle_is_no_loss() {
    run(async {
        let url = Server::shared().fresh_url();
        let store = open(&url).await;
        add(&store, ["a".into()]).await.unwrap();
        let client = look(&url).await;
        client.batch_execute("BEGIN; SELECT 1 FROM tasks FOR UPDATE").await.unwrap();
        let edited = store.clone();
        let deleting = tokio::spawn(async move {
            use rota_store::intents::settle::Settle;
            let delete = rota_core::transition::Command::Delete;
            edited.perform(&Settle::one(crate::pg::call(), id("a"), delete)).await
        });
        // From outside: within a transaction, who is active is seen as it was at the first look.
        let beside = look(&url).await;
        let holder: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE $1 = ANY(pg_blocking_pids(pid)) AND wait_event_type = 'Lock'";
        until(|| async { !beside.query(end, &[&holder]).await.unwrap().is_empty() }).await;
        client.batch_execute("COMMIT").await.unwrap();
        assert!(deleting.await.unwrap().unwrap().steps[0].is_ok());
    });
}
