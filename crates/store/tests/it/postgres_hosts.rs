//! Processes of several hosts on one server: none gets what another has, and together they keep a ceiling (P2, P3, S1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rota_core::policy::Policy;
use rota_core::{Status, TaskId};
use rota_store::Store;
use rota_store::intents::claim::{Claim, Grant};
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::read::PlanStatus;
use rota_store::intents::settle::Settle;
use rota_store::postgres::PostgresStore;
use rota_testbed::{Durability, Extra, Server};

use crate::children::{self, Child, Stage};
use crate::pg::{add, call, claim, done, look, open, run};

const TASKS: usize = 10_000;
const PROCESSES: usize = 24;
const CEILING: usize = 10;

/// The role `fleet`: workers of the host that `HOSTNAME` names claim, settle and claim the next until everything is done.
/// Then it says which leases it had.
pub fn be_a_fleet(stage: &Stage) {
    let (workers, most): (usize, usize) = match stage.extra.split_once(' ') {
        Some((workers, most)) => (workers.parse().unwrap(), most.parse().unwrap()),
        None => panic!("how many workers, and how many tasks at a time?"),
    };
    let host = std::env::var("HOSTNAME").unwrap();
    run(async {
        let store = open(stage.store.to_str().unwrap()).await;
        stage.say("ready");
        assert_eq!(stage.cue().as_deref(), Some("go"));
        let workers: Vec<_> = (0..workers)
            .map(|number| {
                let limit = 1 + number % most;
                let agent = format!("{host}/{number}");
                let claim = Claim { limit, host: Some(host.clone()), ..claim(&agent, 600_000) };
                tokio::spawn(work(store.clone(), claim, number % 2 == 0))
            })
            .collect();
        let mut leases = Vec::new();
        for worker in workers {
            leases.extend(worker.await.unwrap());
        }
        stage.say(&leases.join(" "));
    });
}

/// One worker: settles and claims apart, or both in one go.
async fn work(store: PostgresStore, claim: Claim, at_once: bool) -> Vec<String> {
    let mut leases = Vec::new();
    let mut held: Vec<Grant> = Vec::new();
    loop {
        if held.is_empty() {
            held = store.perform(&claim).await.unwrap();
        }
        if held.is_empty() && is_all_done(&store).await {
            return leases;
        }
        leases.extend(held.iter().map(|grant| grant.task.lease().unwrap().to_string()));
        let steps: Vec<_> = held.iter().flat_map(|grant| done(grant, "fine").steps).collect();
        held.clear();
        if !steps.is_empty() {
            let settle = Settle { call: call(), steps, then: at_once.then(|| claim.clone()) };
            let settled = store.perform(&settle).await.unwrap();
            assert!(settled.steps.iter().all(Result::is_ok), "{:?}", settled.steps);
            held = settled.granted;
        }
    }
}

async fn is_all_done(store: &PostgresStore) -> bool {
    let counts = PlanStatus { call: call(), queue: "tasks".into(), wanted: Default::default() };
    store.perform(&counts).await.unwrap().iter().all(|count| count.status == Status::Done)
}

/// Starts a fleet for each host, lets them go together, and returns the leases of each.
fn fleets(url: &str, hosts: &[String], extra: &str) -> Vec<Vec<String>> {
    let start = |host: &String| {
        let mut command = children::command("fleet", Path::new(url), extra);
        command.env("HOSTNAME", host);
        Child::spawn(command)
    };
    let mut fleets: Vec<Child> = hosts.iter().map(start).collect();
    fleets.iter_mut().for_each(|fleet| assert_eq!(fleet.must_hear(), "ready"));
    fleets.iter_mut().for_each(|fleet| fleet.tell("go"));
    let leases = fleets.iter_mut().map(|fleet| {
        let words = fleet.must_hear();
        words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    });
    let leases = leases.collect();
    for fleet in fleets {
        let (status, words) = fleet.end();
        assert!(status.success(), "{words}");
    }
    leases
}

/// P2: two hosts, 10,000 claims: no task goes to both, every grant is the one that the journal has, and nothing is left.
#[test]
fn two_hosts_never_get_the_same_task() {
    let url = Server::shared().fresh_url();
    run(async { add(&open(&url).await, (0..TASKS).map(|number| format!("t{number}"))).await.unwrap() });
    let hosts = ["north".to_owned(), "south".to_owned()];
    let leases = fleets(&url, &hosts, "6 1");
    let mut holders: BTreeMap<&str, &str> = BTreeMap::new();
    for (host, leases) in hosts.iter().zip(&leases) {
        assert!(leases.len() > TASKS / 20, "{host} had only {} of {TASKS}", leases.len());
        for lease in leases {
            let other = holders.insert(lease, host);
            assert_eq!(other, None, "{lease} was granted to {host}, too");
        }
    }
    assert_eq!(holders.len(), TASKS);
    run(async {
        let text = "SELECT 'lease-' || task || '-' || fence, data::json -> 'changes' ->> 'assignee' FROM journal \
             WHERE kind = 'granted'";
        let rows = look(&url).await.query(text, &[]).await.unwrap();
        assert_eq!(rows.len(), TASKS);
        for row in rows {
            let (lease, agent): (String, String) = (row.get(0), row.get(1));
            let host = agent.split('/').next();
            assert_eq!(holders.get(lease.as_str()).copied(), host, "{lease} is {agent}'s in the journal");
        }
    });
}

/// What each commit did to tasks, in the order of the commits: the server's log of changes, decoded.
async fn commits(client: &tokio_postgres::Client) -> Vec<Vec<(TaskId, String)>> {
    let text = "SELECT data FROM pg_logical_slot_get_changes('commits', NULL, NULL, 'skip-empty-xacts', '1')";
    let mut commits = Vec::new();
    let mut current = Vec::new();
    for row in client.query(text, &[]).await.unwrap() {
        let line: &str = row.get(0);
        if line.starts_with("COMMIT") {
            commits.push(std::mem::take(&mut current));
        } else if line.starts_with("table s.tasks: ") {
            let value = |name: &str| {
                let rest = line.split_once(&format!(" {name}[text]:'")).unwrap().1;
                rest.split('\'').next().unwrap().to_owned()
            };
            current.push((TaskId::new(&value("id")).unwrap(), value("status")));
        }
    }
    commits
}

/// P3: 24 processes, a ceiling of ten: no commit leaves eleven leases, ten are reached, and everything gets done.
#[test]
fn twenty_four_processes_keep_a_ceiling_of_ten() {
    let extra = Extra { settings: vec!["wal_level=logical".to_owned()], ..Extra::default() };
    let server = Server::start_with(Durability::None, extra).unwrap();
    let url = server.url("s");
    let tasks = 1_200;
    run(async {
        let store = open(&url).await;
        let policy = format!(r#"{{"queues":{{"tasks":{{"maxConcurrent":{CEILING}}}}}}}"#);
        let policy = Policy::parse(&policy).unwrap();
        store.perform(&PublishPolicy { call: call(), policy, based_on: None }).await.unwrap();
        add(&store, (0..tasks).map(|number| format!("t{number}"))).await.unwrap();
        let slot = "SELECT pg_create_logical_replication_slot('commits', 'test_decoding')";
        look(&url).await.query(slot, &[]).await.unwrap();
    });
    let hosts: Vec<String> = (0..PROCESSES).map(|number| format!("host{number}")).collect();
    let leases = fleets(&url, &hosts, "2 3");
    let leases: Vec<String> = leases.into_iter().flatten().collect();
    assert_eq!((leases.len(), leases.iter().collect::<BTreeSet<_>>().len()), (tasks, tasks));
    let commits = run(async { commits(&*look(&url).await).await });
    let (mut active, mut most) = (BTreeSet::new(), 0);
    for (number, changes) in commits.iter().enumerate() {
        for (task, status) in changes {
            if status == "active" {
                active.insert(task)
            } else {
                active.remove(task)
            };
        }
        assert!(active.len() <= CEILING, "commit {number} leaves {} leases", active.len());
        most = most.max(active.len());
    }
    assert_eq!((most, active.len()), (CEILING, 0));
}
