//! A plan that takes long, and settlements of tasks that it leaves alone.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use async_trait::async_trait;
use rota_core::plan_sync;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::Grant;
use rota_store::intents::plan_sync::{PlanCounts, PlanSync};
use rota_store::sqlite::SqliteStore;
use rota_store::{AnyStore, AnyTx, Intent, Outcome, Store, Tx};
use rota_testbed::Server;

use crate::pg::{call, claim, done, id, open, run};
use crate::subjects::quick_folder;

/// A plan that is held between its writes and its COMMIT.
struct Held {
    plan: PlanSync,
    has_written: Sender<()>,
    may_end: Mutex<Receiver<()>>,
}

#[async_trait]
impl Intent for Held {
    type Output = PlanCounts;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<PlanCounts> {
        let counts = self.plan.run(tx).await?;
        // Writes go to a server with the next read.
        tx.queues("default").await?;
        self.has_written.send(()).unwrap();
        tokio::task::block_in_place(|| self.may_end.lock().unwrap().recv()).unwrap();
        Ok(counts)
    }
}

/// Adds a task that no plan knows, and claims it.
async fn leased(store: &AnyStore) -> Grant {
    let tasks = vec![NewTask::new(id("alone"), "tasks", "Title")];
    store.perform(&Add { call: call(), tasks }).await.unwrap();
    store.perform(&claim("w", 600_000)).await.unwrap().remove(0)
}

fn plan() -> PlanSync {
    let line = |number| format!("{{\"id\":\"p{number}\",\"t\":\"P\",\"spec\":\"s.md\"}}\n");
    let text: String = (0..2_000).map(line).collect();
    let lines = plan_sync::read(text.as_bytes()).unwrap().lines;
    PlanSync { call: call(), queue: "tasks".into(), lines, specs: None, dry_run: false }
}

/// Begins a plan on the same store; returns when it has written everything.
fn begin(store: &AnyStore) -> (tokio::task::JoinHandle<Outcome<PlanCounts>>, Sender<()>) {
    let ((has_written, written), (end, may_end)) = (channel(), channel());
    let (store, held) = (store.clone(), Held { plan: plan(), has_written, may_end: Mutex::new(may_end) });
    let planned = tokio::spawn(async move { store.perform(&held).await });
    tokio::task::block_in_place(|| written.recv()).unwrap();
    (planned, end)
}

/// On PostgreSQL the settlement ends while the plan is still under way.
#[test]
fn a_settlement_does_not_wait_for_a_plan_on_a_server() {
    run(async {
        let store = AnyStore::from(open(&Server::shared().fresh_url()).await);
        let grant = leased(&store).await;
        let (planned, end) = begin(&store);
        // Less than a lock is waited for.
        let settled =
            tokio::time::timeout(Duration::from_secs(20), store.perform(&done(&grant, "fine"))).await;
        settled.unwrap().unwrap().steps.remove(0).unwrap();
        end.send(()).unwrap();
        assert_eq!(planned.await.unwrap().unwrap().inserted, 2_000);
    });
}

/// On SQLite it waits, and is not refused.
#[test]
fn a_settlement_waits_for_a_plan_on_a_file() {
    run(async {
        let folder = quick_folder();
        let store = AnyStore::from(SqliteStore::open(&folder.path().join("rota.db")).unwrap());
        let grant = leased(&store).await;
        let (planned, end) = begin(&store);
        let (store, settle) = (store.clone(), done(&grant, "fine"));
        let settled = tokio::spawn(async move { store.perform(&settle).await });
        end.send(()).unwrap();
        settled.await.unwrap().unwrap().steps.remove(0).unwrap();
        assert_eq!(planned.await.unwrap().unwrap().inserted, 2_000);
    });
}
