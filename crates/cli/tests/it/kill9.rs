//! kill -9 on claiming and settling processes (P1, P2, X1): what was acknowledged is there, nothing was granted twice.
//!
//! Threads run the real binary on one store and end it at seeded moments; a server is stopped at once and started again
//! meanwhile. `ROTA_KILL9_ROUNDS` sets how many processes
//! are killed, `ROTA_KILL9_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rota_core::event::{Event, EventKind, Folded, fold};
use rota_core::transition::Verb;
use rota_core::{Status, Task, TaskId};
use rota_store::{Access, AnyTx, EventFilter, Intent, ListFilter, Outcome, Store, Tx};
use rota_testbed::block_on;

use rota_testbed::{Durability, Server};

use crate::support::Lab;

const WORKERS: u64 = 4;
/// How often a server is restarted in a run.
const RESTARTS: u64 = 20;

/// SplitMix64: small, seeded, good enough to choose moments.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// What workers were told, and so must find again.
#[derive(Default)]
struct Told {
    granted: Vec<String>,
    done: Vec<String>,
    failed: Vec<String>,
    kills: u64,
}

struct Worker<'a> {
    lab: &'a Lab,
    name: String,
    random: Random,
    /// How long a process lately took: the range of moments.
    lately: Duration,
    kills_left: &'a AtomicU64,
    /// What else happens with every kill, by how many are left.
    disturb: &'a (dyn Fn(u64) + Sync),
    told: Told,
}

pub fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn rounds() -> u64 {
    variable("ROTA_KILL9_ROUNDS", 200)
}

#[test]
fn acknowledged_is_there_and_nothing_is_granted_twice() {
    let lab = Lab::new();
    kill_and_judge(&lab, &|_| {});
    let connection = rusqlite::Connection::open(lab.database()).unwrap();
    let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
}

/// The same on PostgreSQL with fsync, whose server is stopped at once and started again twenty times under load.
#[test]
fn clients_are_killed_and_the_server_restarts() {
    let server = Server::start(Durability::Full).unwrap();
    let restarts = Mutex::new(0);
    kill_and_judge(&Lab::on(server.url("rota")), &|kills_left| {
        if kills_left.is_multiple_of((rounds() / RESTARTS).max(1)) {
            // One at a time: others may have come this far meanwhile.
            let mut restarts = restarts.lock().unwrap();
            server.crash();
            server.up().unwrap();
            *restarts += 1;
        }
    });
    assert!(restarts.into_inner().unwrap() >= RESTARTS);
}

fn kill_and_judge(lab: &Lab, disturb: &(dyn Fn(u64) + Sync)) {
    let rounds = rounds();
    let seed = variable("ROTA_KILL9_SEED", RandomState::new().hash_one(rounds));
    println!("kill9: ROTA_KILL9_SEED={seed} ROTA_KILL9_ROUNDS={rounds}");
    let line =
        |number: u64| format!("{{\"id\":\"t{number}\",\"t\":\"Task {number}\",\"p\":{}}}\n", number % 3);
    let plan: String = (0..rounds * 2 + 50).map(line).collect();
    lab.feed("task plan-sync", plan.as_bytes()).ok();
    let begun = Instant::now();
    lab.line("task claim t0").ok();
    let usual = begun.elapsed();
    let kills_left = AtomicU64::new(rounds);
    let worker = |number: u64| Worker {
        lab,
        name: format!("w{number}"),
        random: Random(seed.wrapping_add(number.wrapping_mul(0x1234_5678_9abc_def1))),
        lately: usual,
        kills_left: &kills_left,
        disturb,
        told: Told::default(),
    };
    let told: Vec<Told> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|number| scope.spawn(move || worker(number).work())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(told.iter().map(|told| told.kills).sum::<u64>() >= rounds, "seed {seed}");
    let everything = block_on(lab.open().perform(&ReadAll)).unwrap();
    judge(&everything, &told, seed);
    let doctor = lab.line("doctor").ok();
    assert!(doctor.ends_with("nothing is wrong\n"), "{doctor}, seed {seed}");
    assert_eq!(lab.line("task claim").code, 0, "work goes on");
}

impl Worker<'_> {
    fn work(mut self) -> Told {
        while self.kills_left.load(Ordering::Relaxed) > 0 {
            let lease = if self.random.below(3) == 0 { "0" } else { "600" };
            let name = self.name.clone();
            let (output, _) = self.run(&["task", "claim", "--agent", &name, "--lease", lease]);
            // The whole answer was printed, or nobody was told anything.
            let Some(lease) = output.lines().find_map(|line| line.strip_prefix("lease_id: ")) else {
                continue;
            };
            if output.contains("\nretry_count: ") && output.ends_with('\n') {
                self.told.granted.push(lease.to_owned());
                self.settle(lease);
            }
        }
        self.told
    }

    fn settle(&mut self, lease: &str) {
        let id = lease.trim_start_matches("lease-").rsplit_once('-').unwrap().0;
        let verb = if self.random.below(4) == 0 { "fail" } else { "done" };
        for _ in 0..3 {
            let (output, killed) = self.run(&["task", verb, id, "--lease-id", lease]);
            if output == format!("{verb} {id}\n") || output == format!("failed {id}\n") {
                let list = if verb == "done" { &mut self.told.done } else { &mut self.told.failed };
                list.push(lease.to_owned());
                return;
            }
            // Refused: it was settled by the process that was killed, or lost to somebody else.
            if !killed {
                return;
            }
        }
    }

    /// Runs the binary; half of the time ends it at a random moment. Returns what it printed.
    fn run(&mut self, arguments: &[&str]) -> (String, bool) {
        let mut command = self.lab.command();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let kill = self.random.below(2) == 0;
        if kill {
            // Most moments near the end, where it commits and answers.
            let range = u64::try_from(self.lately.as_micros()).unwrap();
            let moment = range / 2 + self.random.below(range * 3 / 4);
            std::thread::sleep(Duration::from_micros(moment));
            child.kill().unwrap();
        }
        let output = drain(&mut child);
        let status = child.wait().unwrap();
        let killed = status.code().is_none();
        if !kill {
            self.lately = (self.lately * 3 + begun.elapsed()) / 4;
        }
        if killed {
            self.told.kills += 1;
            let one_less = |left: u64| left.checked_sub(1);
            let before = self.kills_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            if let Ok(kills_left) = before {
                (self.disturb)(kills_left);
            }
        }
        (output, killed)
    }
}

fn drain(child: &mut Child) -> String {
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    output
}

struct Everything {
    tasks: BTreeMap<TaskId, Task>,
    events: Vec<Event>,
}

struct ReadAll;

#[async_trait]
impl Intent for ReadAll {
    type Output = Everything;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Everything> {
        let rows = tx.list("default", &ListFilter::default()).await?;
        let tasks = rows.into_iter().map(|row| (row.task.id.clone(), row.task)).collect();
        Ok(Everything { tasks, events: tx.events("default", &EventFilter::default()).await? })
    }
}

fn judge(everything: &Everything, told: &[Told], seed: u64) {
    let mut folded: BTreeMap<TaskId, Folded> = BTreeMap::new();
    let mut ends: BTreeMap<String, Vec<EventKind>> = BTreeMap::new();
    let mut grants: BTreeSet<String> = BTreeSet::new();
    for event in &everything.events {
        let Some(id) = &event.task else { continue };
        let before = folded.remove(id);
        folded.insert(id.clone(), fold(before, event).unwrap());
        let Some(lease) = event.lease().map(|lease| lease.to_string()) else { continue };
        if event.kind == EventKind::Step(Verb::Claim) {
            assert!(grants.insert(lease.clone()), "{lease} was granted twice, seed {seed}");
        } else if event.data.outcome.is_some() {
            ends.entry(lease).or_default().push(event.kind);
        }
    }
    for (id, task) in &everything.tasks {
        assert_eq!(&folded[id].task, task, "the journal folds to the tables, seed {seed}");
    }
    for (lease, kinds) in &ends {
        assert_eq!(kinds.len(), 1, "{lease} ended as {kinds:?}, seed {seed}");
    }
    let all = |list: fn(&Told) -> &Vec<String>| told.iter().flat_map(list).cloned().collect::<Vec<String>>();
    let granted = all(|told| &told.granted);
    assert_eq!(
        granted.iter().collect::<BTreeSet<_>>().len(),
        granted.len(),
        "one lease, two holders, seed {seed}"
    );
    for lease in &granted {
        assert!(grants.contains(lease), "{lease} was acknowledged and is not there, seed {seed}");
    }
    for (verb, leases) in [(Verb::Done, all(|told| &told.done)), (Verb::Fail, all(|told| &told.failed))] {
        for lease in leases {
            assert_eq!(ends.get(&lease), Some(&vec![EventKind::Step(verb)]), "{lease}, seed {seed}");
            let id = TaskId::from_stored(lease[6..].rsplit_once('-').unwrap().0.into());
            assert!(
                verb != Verb::Done || everything.tasks[&id].status == Status::Done,
                "{lease}, seed {seed}"
            );
        }
    }
    println!(
        "kill9: {} kills, {} grants and {} outcomes acknowledged, {} grants journalled",
        told.iter().map(|told| told.kills).sum::<u64>(),
        granted.len(),
        all(|told| &told.done).len() + all(|told| &told.failed).len(),
        grants.len()
    );
}
