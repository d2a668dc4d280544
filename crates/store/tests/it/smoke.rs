//! One task from plan to done, the shortest way through every store.

use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_core::{Status, TaskId, UnixMillis};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::settle::Settle;
use rota_store::memory::MemoryStore;
use rota_store::sqlite::SqliteStore;
use rota_testbed::block_on;

fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

async fn go<S: Store>(store: &S) {
    let call = Call::in_scope("default").at(UnixMillis::new(1_000));
    let a = NewTask::new(id("a"), "tasks", "A");
    let b = NewTask { deps: vec![id("a")], ..NewTask::new(id("b"), "tasks", "B") };
    store.perform(&Add { call: call.clone(), tasks: vec![a, b] }).await.unwrap();
    let claim = Claim {
        call: call.clone(),
        queue: "tasks".into(),
        limit: 5,
        agent: Some("x".into()),
        ttl_ms: None,
        wanted: Wanted::default(),
        host: None,
    };
    let grants = store.perform(&claim).await.unwrap();
    assert_eq!(grants.iter().map(|g| g.task.id.as_str()).collect::<Vec<_>>(), ["a"]);
    let done = Command::Done { caller: Caller::agent("x"), result: None };
    let settled =
        store.perform(&Settle { then: Some(claim), ..Settle::one(call, id("a"), done) }).await.unwrap();
    assert_eq!(settled.steps[0].as_ref().unwrap().status, Status::Done);
    assert_eq!(settled.granted[0].task.id.as_str(), "b");
}

#[test]
fn both() {
    block_on(go(&MemoryStore::new()));
    let folder = tempfile::tempdir().unwrap();
    block_on(go(&SqliteStore::open(&folder.path().join("rota.db")).unwrap()));
}

#[test]
fn postgres() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = rota_testbed::Server::shared().fresh_url();
        let store = rota_store::postgres::PostgresStore::open(&url).await.unwrap();
        go(&store).await;
    });
}
