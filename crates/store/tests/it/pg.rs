//! What the tests on PostgreSQL share: tasks, claims, and a look into the database.

use std::sync::Arc;

use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_core::{Json, TaskId};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::{Claim, Grant, Wanted};
use rota_store::intents::settle::Settle;
use rota_store::postgres::PostgresStore;
use rota_store::{Error, Fault, Outcome, Store};

pub fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(future)
}

pub fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

pub fn call() -> Call {
    Call::in_scope("default")
}

pub async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url).await.unwrap()
}

pub async fn add(store: &PostgresStore, ids: impl IntoIterator<Item = String>) -> Outcome<()> {
    let tasks = ids.into_iter().map(|name| NewTask::new(id(&name), "tasks", "T")).collect();
    store.perform(&Add { call: call(), tasks }).await.map(drop)
}

pub fn claim(agent: &str, ttl_ms: i64) -> Claim {
    Claim {
        call: call(),
        queue: "tasks".into(),
        limit: 1,
        agent: Some(agent.into()),
        ttl_ms: Some(ttl_ms),
        wanted: Wanted::default(),
        host: None,
    }
}

/// A claim of one category.
pub fn ordinary_claim(agent: &str) -> Claim {
    let specs = None;
    Claim { wanted: Wanted { category: Some("work".into()), specs }, ..claim(agent, 60_000) }
}

pub async fn add_work(store: &PostgresStore, name: &str) -> Outcome<()> {
    let task = NewTask { category: Some("work".into()), ..NewTask::new(id(name), "tasks", "T") };
    store.perform(&Add { call: call(), tasks: vec![task] }).await.map(drop)
}

pub fn done(grant: &Grant, result: &str) -> Settle {
    let caller = Caller { lease: grant.task.lease(), agent: grant.task.assignee.clone() };
    let result = Some(Json::from_stored(format!("\"{result}\"")));
    Settle::one(call(), grant.task.id.clone(), Command::Done { caller, result })
}

pub fn fault(outcome: Outcome<impl Sized>) -> Fault {
    match outcome {
        Err(Error::Fault(fault)) => fault,
        Err(other) => panic!("refused: {other}"),
        Ok(_) => panic!("it was done"),
    }
}

/// A connection of the test's own, beside the store.
pub async fn look(url: &str) -> Arc<tokio_postgres::Client> {
    let (base, schema) = url.split_once("&schema=").unwrap();
    let (client, connection) = tokio_postgres::connect(base, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = schema.split('&').next().unwrap();
    client.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
    Arc::new(client)
}
