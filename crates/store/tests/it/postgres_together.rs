//! Calls of one process that come at the same time go to the server together, and each is answered as if it had come alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_core::{Json, Status};
use rota_store::conformance::Lab;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::claim::{Claim, Grant};
use rota_store::intents::settle::{Settle, Step};
use rota_store::postgres::PostgresStore;
use rota_store::{Access, Error, ListFilter, Outcome, Store, Tx};
use rota_testbed::Server;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::pg::{add, call, claim, done, id, look, open, run};
use crate::subjects::Postgres;

/// More than are at work at a time.
const CROWD: usize = 24;

fn agent(number: usize) -> String {
    format!("agent \"{number}\"")
}

fn by(agent: &str) -> Claim {
    Claim { call: Call { actor: Some(agent.to_owned()), ..call() }, ..claim(agent, 60_000) }
}

/// Settles what is held, with the agent's own name as the result, and claims the next.
fn turn(held: &Grant, then: Claim) -> Settle {
    let agent = then.agent.clone();
    let result = agent.as_ref().map(Json::of);
    let caller = Caller { lease: held.task.lease(), agent };
    let step = Step { id: held.task.id.clone(), command: Command::Done { caller, result } };
    Settle { call: then.call.clone(), steps: vec![step], then: Some(then) }
}

/// How many steps were acknowledged, for those who wait for some.
fn counter() -> Arc<watch::Sender<usize>> {
    Arc::new(watch::Sender::new(0))
}

/// Takes turns until nothing is left; how many got done.
async fn work(store: PostgresStore, agent: String, served: Arc<watch::Sender<usize>>) -> usize {
    let mut held = store.perform(&by(&agent)).await.unwrap();
    let mut count = 0;
    while let Some(grant) = held.pop() {
        assert_eq!(grant.task.assignee.as_deref(), Some(agent.as_str()));
        let mut settled = store.perform(&turn(&grant, by(&agent))).await.unwrap();
        let task = settled.steps.pop().unwrap().unwrap();
        assert_eq!((&task.id, task.status), (&grant.task.id, Status::Done));
        assert_eq!(task.result, Some(Json::of(&agent)));
        held = settled.granted;
        served.send_modify(|served| *served += 1);
        count += 1;
    }
    count
}

async fn all<T: 'static>(mut crowd: JoinSet<T>) -> Vec<T> {
    let mut answers = Vec::new();
    while let Some(answer) = crowd.join_next().await {
        answers.push(answer.unwrap());
    }
    answers
}

/// Adds one after the other; every fifth id is everybody's. Whose addition was taken.
async fn produce(store: PostgresStore, number: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for round in 0..20 {
        let name = if round % 5 == 0 { format!("same-{round}") } else { format!("own-{number}-{round}") };
        let mut task = NewTask::new(id(&name), "tasks", &format!("Task {name}"));
        task.payload = (round % 2 == 0).then(|| Json::of(&number));
        match store.perform(&Add { call: call(), tasks: vec![task] }).await {
            Ok(added) => {
                assert_eq!(added[0].id.as_str(), name);
                taken.push(name);
            }
            Err(Error::Refused(refusal)) => assert!(refusal.to_string().contains(&name), "{refusal}"),
            Err(Error::Fault(fault)) => panic!("{fault}"),
        }
    }
    taken
}

#[test]
fn each_is_answered_as_if_it_had_come_alone() {
    let url = Server::shared().fresh_url();
    let store = run(async {
        let store = open(&url).await;
        add(&store, ["first".to_owned()]).await.unwrap();
        let mut crowd = JoinSet::new();
        (0..CROWD).for_each(|number| drop(crowd.spawn(produce(store.clone(), number))));
        let mut taken: Vec<String> = all(crowd).await.concat();
        taken.sort_unstable();
        // Sixteen of each producer's own, and four that one of them got.
        assert_eq!(taken.len(), CROWD * 16 + 4);
        let mut distinct = taken.clone();
        distinct.dedup();
        assert_eq!(taken, distinct);

        let (mut crowd, served) = (JoinSet::new(), counter());
        for number in 0..CROWD {
            crowd.spawn(work(store.clone(), agent(number), Arc::clone(&served)));
        }
        assert_eq!(all(crowd).await.iter().sum::<usize>(), taken.len() + 1);
        let client = look(&url).await;
        let wrong = "SELECT count(*) FROM tasks t JOIN events e ON e.scope = t.scope AND e.task = t.id \
             WHERE e.kind <> 'created' AND (e.actor <> t.assignee OR t.result <> to_json(t.assignee)::text)";
        assert_eq!(client.query_one(wrong, &[]).await.unwrap().get::<_, i64>(0), 0);
        let shared = "SELECT (SELECT count(*) FROM journal WHERE cardinality(events) > 1), \
             (SELECT count(*) FROM journal j WHERE 1 < (SELECT count(DISTINCT e.actor) FROM unnest(j.events) e))";
        let row = client.query_one(shared, &[]).await.unwrap();
        let (together, of_many) = (row.get::<_, i64>(0), row.get::<_, i64>(1));
        assert!(
            together > of_many && of_many > 0,
            "{together} rows of several events, {of_many} of several agents"
        );
        store
    });
    Lab { subject: &Postgres, store }.check();
}

/// A step that is given twice in the same moment is taken once.
#[test]
fn the_same_step_is_taken_once() {
    run(async {
        let store = open(&Server::shared().fresh_url()).await;
        add(&store, (0..CROWD).map(|number| format!("t-{number}"))).await.unwrap();
        let mut crowd = JoinSet::new();
        for number in 0..CROWD {
            let held = store.perform(&by(&agent(number))).await.unwrap().pop().unwrap();
            for result in ["a", "b", "c", "d"] {
                let (store, step) = (store.clone(), done(&held, result));
                crowd
                    .spawn(async move { (result, store.perform(&step).await.unwrap().steps.pop().unwrap()) });
            }
        }
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        for (given, task) in all(crowd).await {
            let Ok(task) = task else { continue };
            assert_eq!(task.result, Some(Json::of(&given)), "what was acknowledged is what is kept");
            *taken.entry(task.id.to_string()).or_default() += 1;
        }
        assert_eq!(taken.len(), CROWD);
        assert!(taken.values().all(|count| *count == 1), "{taken:?}");
    });
}

/// Callers that go away in the middle keep nobody from being served.
#[test]
fn who_goes_away_is_not_waited_for() {
    let url = Server::shared().fresh_url();
    let store = run(async {
        let store = open(&url).await;
        add(&store, (0..400).map(|number| format!("t-{number:03}"))).await.unwrap();
        let (mut crowd, mut staying, served) = (JoinSet::new(), JoinSet::new(), counter());
        for number in 0..CROWD {
            crowd.spawn(work(store.clone(), agent(number), Arc::clone(&served)));
        }
        for number in 0..4 {
            staying.spawn(work(store.clone(), agent(CROWD + number), Arc::clone(&served)));
        }
        served.subscribe().wait_for(|served| *served > 2 * CROWD).await.unwrap();
        drop(crowd);
        let served: usize = all(staying).await.iter().sum();
        assert!(served > 0);
        let left = list(&store).await;
        let of = |status: Status| left.iter().filter(|(_, found)| *found == status).count();
        // Each of those who went away may have been granted one.
        assert_eq!(of(Status::Open), 0, "{left:?}");
        assert!(of(Status::Active) <= CROWD);
        assert_eq!(of(Status::Active) + of(Status::Done), 400);
        store
    });
    Lab { subject: &Postgres, store }.check();
}

async fn list(store: &PostgresStore) -> Vec<(String, Status)> {
    let mut tx = store.begin(Access::Read).await.unwrap();
    let rows = tx.list("default", &ListFilter::default()).await.unwrap();
    rows.into_iter().map(|row| (row.task.id.to_string(), row.task.status)).collect()
}

/// Works until nothing is left, whatever happens to the connections; what was acknowledged.
async fn persist(store: PostgresStore, agent: String, served: Arc<watch::Sender<usize>>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    loop {
        let held = match store.perform(&by(&agent)).await {
            Ok(mut held) => held.pop(),
            Err(error) => {
                assert!(is_passing(&error), "{error}");
                continue;
            }
        };
        let Some(held) = held else { return acknowledged };
        match settle(&store, &done(&held, "kept")).await {
            Ok(()) => {
                acknowledged.push(held.task.id.to_string());
                served.send_modify(|served| *served += 1);
            }
            Err(error) => assert!(is_passing(&error), "{error}"),
        }
    }
}

async fn settle(store: &PostgresStore, step: &Settle) -> Outcome<()> {
    let settled = store.perform(step).await?;
    settled.steps.into_iter().for_each(|step| drop(step.unwrap()));
    Ok(())
}

fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Fault(fault) if fault.exit_code() == 75)
}

/// Connections are cut while calls go together: nothing acknowledged is lost, nothing is granted or settled twice.
#[test]
fn cut_connections_cost_nothing() {
    let url = Server::shared().fresh_url();
    let store = run(async {
        let store = open(&url).await;
        add(&store, (0..600).map(|number| format!("t-{number:03}"))).await.unwrap();
        let client = look(&url).await;
        let (mut crowd, served) = (JoinSet::new(), counter());
        for number in 0..CROWD {
            crowd.spawn(persist(store.clone(), agent(number), Arc::clone(&served)));
        }
        let mut told = served.subscribe();
        drop(served);
        let cutter = tokio::spawn(async move {
            // Those that ever looked at our tables.
            let cut = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
                 WHERE pid <> pg_backend_pid() AND query LIKE '%' || current_schema() || '.%' \
                 ORDER BY random() LIMIT 1) p";
            let (mut count, mut round) = (0, 1);
            // Until nobody is left who could be served.
            while told.wait_for(|served| *served > 10 * round).await.is_ok() {
                count += client.query_one(cut, &[]).await.unwrap().get::<_, i64>(0);
                round += 1;
            }
            count
        });
        let acknowledged: Vec<String> = all(crowd).await.concat();
        let cut = cutter.await.unwrap();
        assert!(cut > 5, "only {cut} connections were cut");
        let states: BTreeMap<String, Status> = list(&store).await.into_iter().collect();
        for name in &acknowledged {
            assert_eq!(states[name], Status::Done, "{name}");
        }
        let mut distinct = acknowledged.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), acknowledged.len());
        assert!(!states.values().any(|status| *status == Status::Open));
        // No connection went back to the pool in the middle of something.
        let client = look(&url).await;
        let left = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' \
             AND query LIKE '%' || current_schema() || '%'";
        assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
        store
    });
    Lab { subject: &Postgres, store }.check();
}
