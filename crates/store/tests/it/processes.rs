//! What only real processes on one file can show: S1, S3, S4, and many who open a fresh folder at once.

use std::path::Path;
use std::sync::Barrier;

use rota_conformance::check::{check_everything, grants_in_commit_order};
use rota_conformance::lab::{at, claim, done, fail, holder, id, new};
use rota_conformance::{Lab, Picture, Snapshot};
use rota_core::lease::{Caller, LeaseId};
use rota_core::policy::Policy;
use rota_core::transition::Command;
use rota_core::{Fence, Refusal, Status, TaskId, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::add::Add;
use rota_store::intents::claim::{Grant, ReclaimExpired};
use rota_store::intents::edges::Block;
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::read::PlanStatus;
use rota_store::intents::settle::{Settle, Step};
use rota_store::sqlite::SqliteStore;
use rota_store::{Error, Intent, Outcome, Store};
use rota_testbed::block_on;

use crate::children::{Child, Stage};
use crate::subjects::{Sqlite, quick_folder};

const PROCESSES: usize = 4;
const THREADS: usize = 8;
const TASKS: usize = 5_000;
const CEILING: usize = 10;
const ROUNDS: usize = 500;

fn call() -> Call {
    Call::in_scope("default").at(at(1))
}

#[track_caller]
fn ok<I: Intent>(store: &SqliteStore, intent: &I) -> I::Output {
    match block_on(store.perform(intent)) {
        Ok(output) => output,
        Err(error) => panic!("{error}"),
    }
}

fn picture(store: &SqliteStore, now: UnixMillis) -> Picture {
    ok(store, &Snapshot { scope: "default".into(), now })
}

/// Lets nobody commit more leases than the ceiling, whatever the program believes.
fn guard_ceiling(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let trigger = format!(
        "CREATE TRIGGER ceiling AFTER UPDATE OF status ON tasks WHEN new.status = 'active' BEGIN
             SELECT raise(ABORT, 'over the ceiling') WHERE
                 (SELECT count(*) FROM tasks WHERE queue = new.queue AND status = 'active') > {CEILING};
         END"
    );
    connection.execute_batch(&trigger).unwrap();
}

/// S1, P2, P3: 32 claimers in four processes, 5,000 tasks, a ceiling of ten. Each fence is granted once, never are
/// eleven active (a trigger would abort, and the journal in commit order shows it), and everything gets done.
#[test]
fn claimers_in_four_processes_share_a_ceiling() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    let policy =
        Policy::parse(&format!(r#"{{"queues":{{"tasks":{{"maxConcurrent":{CEILING}}}}}}}"#)).unwrap();
    ok(&store, &PublishPolicy { call: call(), policy, based_on: None });
    let tasks = (0..TASKS).map(|number| new(&format!("t{number}"))).collect();
    ok(&store, &Add { call: call(), tasks });
    guard_ceiling(&path);
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| Child::start("claimers", &path, "")).collect();
    children.iter_mut().for_each(|child| assert_eq!(child.must_hear(), "ready"));
    children.iter_mut().for_each(|child| child.tell("go"));
    let reports = children.iter_mut().map(|child| child.must_hear().parse::<usize>().unwrap());
    let settled: usize = reports.sum();
    for child in children {
        let (status, words) = child.end();
        assert!(status.success(), "{words}");
    }
    let picture = picture(&store, at(1));
    let tasks = || picture.rows.values().map(|row| &row.task);
    assert!(tasks().all(|task| task.status == Status::Done));
    let grants: u64 = tasks().map(|task| task.fence.get()).sum();
    assert_eq!(settled as u64, grants, "every grant was settled by the one who had it");
    assert_eq!(grants as usize, TASKS + TASKS / 10, "one task in ten failed once");
    assert_eq!(grants_in_commit_order(&picture, Some(CEILING)), Ok(()));
    assert!(grants_in_commit_order(&picture, Some(CEILING - 1)).is_err(), "the ceiling was reached");
    check_everything(&picture);
}

/// The role `claimers`: eight threads that claim, settle and claim the next until nothing is left.
pub fn claim_until_done(stage: &Stage) {
    let store = SqliteStore::open(&stage.store).unwrap();
    stage.say("ready");
    assert_eq!(stage.cue().as_deref(), Some("go"));
    let barrier = Barrier::new(THREADS);
    let settled: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (store, barrier) = (store.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    work(&store, number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    stage.say(&settled.to_string());
}

/// One claimer. Half of them claim and settle apart, half settle and claim in one transaction.
fn work(store: &SqliteStore, number: usize) -> usize {
    let mut settled = 0;
    let mut held: Vec<Grant> = Vec::new();
    let mut empty_in_row = 0;
    loop {
        if held.is_empty() {
            held = ok(store, &claim(at(1), 1 + number % 3));
        }
        let steps: Vec<Step> = held.drain(..).map(|grant| outcome_of(&grant)).collect();
        empty_in_row = if steps.is_empty() { empty_in_row + 1 } else { 0 };
        if empty_in_row % 50 == 49 && is_all_done(store) {
            return settled;
        }
        if steps.is_empty() {
            continue;
        }
        let then = number.is_multiple_of(2).then(|| claim(at(1), 1));
        let after = ok(store, &Settle { call: call(), steps, then });
        assert!(after.steps.iter().all(Result::is_ok), "{:?}", after.steps);
        settled += after.steps.len();
        held = after.granted;
    }
}

/// Every tenth task fails the first time.
fn outcome_of(grant: &Grant) -> Step {
    let caller = holder(&grant.task);
    let is_tenth = grant.task.id.as_str().ends_with('7') && grant.task.fence == Fence::new(1);
    let command = if is_tenth { fail(caller) } else { done(caller) };
    Step { id: grant.task.id.clone(), command }
}

fn is_all_done(store: &SqliteStore) -> bool {
    let counts = PlanStatus { call: call(), queue: "tasks".into(), wanted: Default::default() };
    ok(store, &counts).iter().all(|count| count.status == Status::Done)
}

/// Two children that play `racer`, each with its half of what is raced.
fn racers(path: &Path, left: &str, right: &str) -> [Child; 2] {
    let mut both = [Child::start("racer", path, left), Child::start("racer", path, right)];
    both.iter_mut().for_each(|child| assert_eq!(child.must_hear(), "ready"));
    both
}

fn round(both: &mut [Child; 2], number: usize) -> (String, String) {
    // Who is told first changes from round to round.
    let [left, right] = both;
    let order = if number.is_multiple_of(2) { [&mut *left, &mut *right] } else { [&mut *right, &mut *left] };
    order.into_iter().for_each(|child| child.tell(&number.to_string()));
    (left.must_hear(), right.must_hear())
}

fn finish(both: [Child; 2]) {
    for child in both {
        let (status, words) = child.end();
        assert!(status.success(), "{words}");
    }
}

/// The role `racer`: does its half of each round that it is told the number of.
pub fn race(stage: &Stage) {
    let store = SqliteStore::open(&stage.store).unwrap();
    stage.say("ready");
    while let Some(number) = stage.cue() {
        let (a, b) = (id(&format!("a{number}")), id(&format!("b{number}")));
        let said = match stage.extra.as_str() {
            "a by b" => heard(block_on(store.perform(&Block { call: call(), task: a, by: b }))),
            "b by a" => heard(block_on(store.perform(&Block { call: call(), task: b, by: a }))),
            "done a" => settle(&store, a, done),
            "done b" => settle(&store, b, done),
            "renew a" => settle(&store, a, |caller| Command::Renew { caller, ttl_ms: Some(60_000) }),
            "reclaim" => {
                let reclaim = ReclaimExpired { call: call(), queue: "tasks".into() };
                let ids = ok(&store, &reclaim);
                format!("reclaimed {}", ids.len())
            }
            other => panic!("there is no race '{other}'"),
        };
        stage.say(&said);
    }
}

fn settle(store: &SqliteStore, task: TaskId, command: impl Fn(Caller) -> Command) -> String {
    let caller = Caller::lease(LeaseId { task: task.clone(), fence: Fence::new(1) });
    let settled = ok(store, &Settle::one(call(), task, command(caller)));
    heard(settled.steps.into_iter().next().unwrap().map_err(Error::Refused))
}

fn heard<T>(outcome: Outcome<T>) -> String {
    match outcome {
        Ok(_) => "ok".into(),
        Err(Error::Refused(refusal)) => refusal.code().into(),
        Err(Error::Fault(fault)) => panic!("{fault}"),
    }
}

fn pairs(store: &SqliteStore) {
    let tasks = (0..ROUNDS).flat_map(|round| [new(&format!("a{round}")), new(&format!("b{round}"))]);
    ok(store, &Add { call: call(), tasks: tasks.collect() });
}

/// S4, P7: two processes write the two halves of a circle at once; exactly one is refused, 500 times.
#[test]
fn two_processes_write_two_halves_of_a_circle() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    pairs(&store);
    let mut both = racers(&path, "a by b", "b by a");
    for number in 0..ROUNDS {
        let mut said: [String; 2] = round(&mut both, number).into();
        said.sort();
        assert_eq!(said, ["ok", "would_cycle"], "round {number}");
    }
    finish(both);
    let picture = picture(&store, at(1));
    assert_eq!(picture.edges.len(), ROUNDS);
    check_everything(&picture);
}

/// S4, P7: two processes settle both last blockers at once; no child is stranded, 500 times.
#[test]
fn two_processes_settle_both_last_blockers() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    pairs(&store);
    let child = |round: usize| {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        rota_conformance::lab::after(&format!("c{round}"), &[&a, &b])
    };
    ok(&store, &Add { call: call(), tasks: (0..ROUNDS).map(child).collect() });
    assert_eq!(ok(&store, &claim(at(1), 9_999)).len(), 2 * ROUNDS);
    let mut both = racers(&path, "done a", "done b");
    for number in 0..ROUNDS {
        assert_eq!(round(&mut both, number), ("ok".into(), "ok".into()), "round {number}");
    }
    finish(both);
    assert_eq!(ok(&store, &claim(at(1), 9_999)).len(), ROUNDS, "every child was woken");
    let picture = picture(&store, at(1));
    assert_eq!(grants_in_commit_order(&picture, None), Ok(()));
    check_everything(&picture);
}

/// S3, P2: one process renews at the instant another reclaims; exactly one wins, and the holder learns which.
#[test]
fn two_processes_renew_and_reclaim() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut both = racers(&path, "renew a", "reclaim");
    for number in 0..ROUNDS {
        let name = format!("a{number}");
        ok(&store, &Add { call: call(), tasks: vec![new(&name)] });
        let granted = ok(&store, &rota_store::intents::claim::Claim { ttl_ms: Some(0), ..claim(at(1), 1) });
        assert_eq!(granted[0].task.id, id(&name));
        let said = round(&mut both, number);
        let (renewed, reclaimed) = (said.0.as_str(), said.1.as_str());
        assert!(
            matches!((renewed, reclaimed), ("ok", "reclaimed 0") | ("lease_lost", "reclaimed 1")),
            "round {number}: {said:?}"
        );
        ok(&store, &Settle::one(call(), id(&name), Command::Delete));
    }
    finish(both);
    check_everything(&picture(&store, at(1)));
}

/// The role `opener`: opens a database that may not exist yet, and adds a task of its own.
pub fn open_and_add(stage: &Stage) {
    stage.say("ready");
    assert_eq!(stage.cue().as_deref(), Some("go"));
    let store = match SqliteStore::open(&stage.store) {
        Ok(store) => store,
        Err(fault) => return stage.say(&format!("fault {fault}")),
    };
    let added = block_on(store.perform(&Add { call: call(), tasks: vec![new(&stage.extra)] }));
    stage.say(&heard(added));
}

/// P1, DESIGN 6: eight processes open a fresh folder at once: one schema, no error, everybody's task is there.
#[test]
fn eight_processes_open_a_fresh_folder() {
    for round in 0..6 {
        let folder = if round % 2 == 0 { quick_folder() } else { tempfile::tempdir().unwrap() };
        let path = folder.path().join("rota.db");
        let mut children: Vec<Child> =
            (0..8).map(|number| Child::start("opener", &path, &format!("t{number}"))).collect();
        children.iter_mut().for_each(|child| assert_eq!(child.must_hear(), "ready"));
        children.iter_mut().for_each(|child| child.tell("go"));
        for child in &mut children {
            assert_eq!(child.must_hear(), "ok", "round {round}");
        }
        children.into_iter().for_each(|child| drop(child.end()));
        let connection = rusqlite::Connection::open(&path).unwrap();
        let number = |text: &str| connection.query_row(text, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("PRAGMA user_version"), rota_store::sqlite::SCHEMA);
        assert_eq!(number("SELECT count(*) FROM tasks"), 8);
        check_everything(&picture(&SqliteStore::open(&path).unwrap(), at(1)));
    }
}

/// A writer that never comes back for a while keeps nobody from reading, and the next writer gets its turn.
#[test]
fn readers_go_on_while_a_writer_holds_its_turn() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.add(at(0), &[new("a")]);
    let writing = block_on(lab.store.begin(rota_store::Access::Write)).unwrap();
    let other = lab.another();
    assert_eq!(other.task("a").status, Status::Open);
    let (sent, waiting) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sent.send(()).unwrap();
            other.add(at(1), &[new("b")]);
        });
        waiting.recv().unwrap();
        assert_eq!(lab.another().picture(at(1)).rows.len(), 1, "the other waits for its turn");
        drop(writing);
    });
    assert_eq!(lab.picture(at(1)).rows.len(), 2);
    let refused = lab.refused(&Add { call: call(), tasks: vec![new("b")] });
    assert_eq!(refused, Refusal::DuplicateId { id: id("b") });
}

/// P1: SQLite's own lock is the truth: a writer begins only when a program that knows nothing of the turnstile is done,
/// and sees what it wrote.
#[test]
fn a_stranger_without_the_turnstile_is_waited_for() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.add(at(0), &[new("a")]);
    let stranger = rusqlite::Connection::open(lab.store.path()).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE; UPDATE tasks SET title = 'theirs'").unwrap();
    let (begun, hears) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut tx = block_on(lab.store.begin(rota_store::Access::Write)).unwrap();
            begun.send(()).unwrap();
            let seen = block_on(rota_store::Tx::task(&mut tx, "default", &id("a"))).unwrap().unwrap();
            seen.task.title
        });
        // A writer that does not wait says so at once.
        let early = hears.recv_timeout(std::time::Duration::from_millis(300));
        assert!(early.is_err(), "it began beside another writer");
        stranger.execute_batch("COMMIT").unwrap();
        assert_eq!(writer.join().unwrap(), "theirs");
    });
}
