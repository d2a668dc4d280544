//! What PostgreSQL does in one round trip is what the reference does step by step: answers, rows and journal.

use rota_core::event::Event;
use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_core::{Json, TaskId, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::settle::{Settle, Step};
use rota_store::memory::MemoryStore;
use rota_store::postgres::PostgresStore;

use rota_store::{Access, EventFilter, Store, Tx};

fn call(now: i64) -> Call {
    Call { actor: Some("someone".into()), ..Call::in_scope("default").at(UnixMillis::new(now)) }
}

fn new(id: &str) -> NewTask {
    NewTask::new(TaskId::new(id).unwrap(), "tasks", &format!("Task {id}"))
}

fn full(id: &str) -> NewTask {
    NewTask {
        kind: Some("odd".into()),
        priority: NewPriority::Given(1),
        description: Some("d \"quoted\" \\ ü".into()),
        category: Some("code".into()),
        steps: vec!["one".into(), "two, 'three'".into()],
        spec_ref: Some("spec.md".into()),
        reference: Some("ref".into()),
        payload: Some(Json::of(&vec![1, 2])),
        ..new(id)
    }
}

fn claim(now: i64, limit: usize, agent: &str) -> Claim {
    Claim {
        call: call(now),
        queue: "tasks".into(),
        limit,
        agent: Some(agent.into()),
        ttl_ms: Some(10_000),
        wanted: Wanted::default(),
        host: None,
    }
}

fn done(id: &str, agent: &str, result: Option<Json>) -> Step {
    let command = Command::Done { caller: Caller::agent(agent), result };
    Step { id: TaskId::new(id).unwrap(), command }
}

/// Everything that a caller hears, and then the journal.
async fn story<S: Store>(store: &S) -> (Vec<String>, Vec<Event>) {
    let mut heard = Vec::new();
    let later = NewTask { not_before: Some(UnixMillis::new(50_000)), ..new("later") };
    let past = NewTask { not_before: Some(UnixMillis::new(500)), ..new("past") };
    let waits = NewTask { deps: vec![TaskId::new("a").unwrap()], ..new("waits") };
    let batches = [
        vec![new("a")],
        vec![full("b"), later, past, new("e")],
        vec![new("f"), new("b")],
        vec![new("g"), new("g")],
        vec![waits],
        vec![NewTask { queue: "runs".into(), ..new("run") }],
        vec![NewTask { queue: "runs".into(), ..new("run-2") }],
    ];
    for (at, tasks) in (1..).zip(batches) {
        heard.push(format!("{:?}", store.perform(&Add { call: call(1_000 * at), tasks }).await));
    }
    heard.push(format!("{:?}", store.perform(&claim(10_000, 2, "x")).await));
    let steps = vec![done("b", "x", Some(Json::of(&"ok"))), done("a", "y", None), done("nobody", "x", None)];
    let settle = Settle { call: call(11_000), steps, then: Some(claim(11_000, 1, "x")) };
    heard.push(format!("{:?}", store.perform(&settle).await));
    let settle = Settle { call: call(12_000), steps: vec![done("a", "x", None)], then: None };
    heard.push(format!("{:?}", store.perform(&settle).await));
    heard.push(format!("{:?}", store.perform(&claim(13_000, 5, "x")).await));
    // The leases ran out: they are taken back before anything is granted, but for the one that is settled here.
    let steps = vec![done("e", "x", None)];
    let settle = Settle { call: call(40_000), steps, then: Some(claim(40_000, 1, "z")) };
    heard.push(format!("{:?}", store.perform(&settle).await));
    heard.push(format!("{:?}", store.perform(&claim(60_000, 9, "z")).await));
    heard.push(format!("{:?}", store.perform(&claim(60_001, 9, "z")).await));
    let mut tx = store.begin(Access::Read).await.unwrap();
    let events = tx.events("default", &EventFilter::default()).await.unwrap();
    (heard, events.into_iter().map(|event| Event { seq: 0, ..event }).collect())
}

#[test]
fn as_step_by_step() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (expected, expected_events) = story(&MemoryStore::new()).await;
        let url = rota_testbed::Server::shared().fresh_url();
        let (heard, events) = story(&PostgresStore::open(&url).await.unwrap()).await;
        for (heard, expected) in heard.iter().zip(&expected) {
            assert_eq!(heard, expected);
        }
        for (event, expected) in events.iter().zip(&expected_events) {
            assert_eq!(event, expected);
        }
        assert_eq!(events.len(), expected_events.len());
    });
}
