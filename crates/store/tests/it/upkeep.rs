//! Doctor, export, import, backup and prune, on every store.

use std::io::{BufRead, Cursor as Bytes};
use std::path::PathBuf;
use std::sync::Mutex;

use rota_core::lease::Caller;
use rota_core::transition::Command;
use rota_core::{Fence, Refusal, Status, TaskId, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::carry::{Export, Output, Source};
use rota_store::intents::claim::{ClaimById, Wanted};
use rota_store::intents::doctor::{Examine, Problem, Repair, Survey};
use rota_store::intents::follow::{Follow, Tail};
use rota_store::intents::import::Import;
use rota_store::intents::policy::PublishPolicy;
use rota_store::intents::prune::{Place, Prune, Pruned};
use rota_store::intents::read::Show;
use rota_store::intents::settle::Settle;
use rota_store::memory::MemoryStore;
use rota_store::postgres::PostgresStore;
use rota_store::sqlite::SqliteStore;
use rota_store::{Error, Fault, Store};
use rota_testbed::block_on;

fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

fn call(at: i64) -> Call {
    Call::in_scope("default").at(UnixMillis::new(at))
}

async fn grant<S: Store>(store: &S, name: &str, agent: &str, at: i64) {
    let (id, agent) = (id(name), Some(agent.to_owned()));
    let claim = ClaimById { call: call(at), id, agent, ttl_ms: None, wanted: Wanted::default(), host: None };
    store.perform(&claim).await.unwrap();
}

async fn finish<S: Store>(store: &S, name: &str, at: i64) {
    grant(store, name, "x", at).await;
    let done = Command::Done { caller: Caller::agent("x"), result: None };
    store.perform(&Settle::one(call(at), id(name), done)).await.unwrap().steps.remove(0).unwrap();
}

/// `a` done, `b` and `c` wait for it one after the other, `d` active, `e` parked, another scope beside it.
async fn fill<S: Store>(store: &S) {
    let after = |name: &str, deps: &[&str]| NewTask {
        deps: deps.iter().map(|dep| id(dep)).collect(),
        steps: vec!["one \u{1f600}".into(), "two".into()],
        ..NewTask::new(id(name), "tasks", "T \" \\ \u{e4}")
    };
    let tasks =
        vec![after("a", &[]), after("b", &["a"]), after("c", &["b", "a"]), after("d", &[]), after("e", &[])];
    store.perform(&Add { call: call(1_000), tasks }).await.unwrap();
    finish(store, "a", 2_000).await;
    let park = Command::Park { caller: Caller::default(), reason: "why\nnot".into() };
    store.perform(&Settle::one(call(3_000), id("e"), park)).await.unwrap().steps.remove(0).unwrap();
    let elsewhere = Call { scope: "other".into(), ..call(1_500) };
    let run = NewTask::new(id("run"), "runs", "R");
    store.perform(&Add { call: elsewhere, tasks: vec![run] }).await.unwrap();
    grant(store, "d", "y", 4_000).await;
}

async fn export<S: Store>(store: &S) -> String {
    let sink = Output { path: PathBuf::from("memory"), writer: Mutex::new(Vec::new()) };
    store.perform(&Export { call: call(0), only: None, sink: &sink }).await.unwrap();
    String::from_utf8(sink.writer.into_inner().unwrap()).unwrap()
}

struct Text(String);

impl Source for Text {
    fn open(&self) -> Result<Box<dyn BufRead + Send>, Fault> {
        Ok(Box::new(Bytes::new(self.0.clone().into_bytes())))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("text")
    }
}

async fn import<S: Store>(store: &S, text: &str) -> Result<(), Error> {
    store.perform(&Import { call: call(5_000), source: &Text(text.to_owned()) }).await.map(drop)
}

async fn problems<S: Store>(store: &S) -> Vec<Problem> {
    let surveyed = store.perform(&Survey { call: call(5_000), whole: true }).await.unwrap();
    let mut found = surveyed.problems;
    for scope in surveyed.scopes {
        let call = Call { scope, ..call(5_000) };
        found.extend(store.perform(&Examine { call, after: 0 }).await.unwrap().problems);
    }
    found
}

async fn carried<A: Store, B: Store>(from: &A, to: &B) {
    let text = export(from).await;
    import(to, &text).await.unwrap();
    assert_eq!(export(to).await, text);
    assert_eq!(problems(to).await, []);
    let Err(Error::Refused(refusal)) = import(to, &text).await else { panic!("the store is not empty") };
    assert!(refusal.to_string().contains("'default' (queues: tasks), 'other' (queues: runs)"), "{refusal}");
    assert_eq!(export(to).await, text);
}

/// An export in which no event has a number.
fn without_event_numbers(text: &str) -> Vec<String> {
    let rest = |line: &str| match line.strip_prefix("{\"event\":{\"seq\":") {
        Some(line) => line.trim_start_matches(|digit: char| digit.is_ascii_digit()).to_owned(),
        None => line.to_owned(),
    };
    text.lines().map(rest).collect()
}

/// What one store exports another takes in, and exports the same bytes; numbers go on behind.
#[test]
fn there_and_back() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| SqliteStore::open(&folder.path().join(name)).unwrap();
    let (memory, first, second) = (MemoryStore::new(), file("first.db"), file("second.db"));
    runtime.block_on(async {
        let url = rota_testbed::Server::shared().fresh_url();
        let server = PostgresStore::open(&url).await.unwrap();
        fill(&first).await;
        assert_eq!(problems(&first).await, []);
        carried(&first, &server).await;
        carried(&server, &second).await;
        carried(&second, &memory).await;
        finish(&server, "b", 6_000).await;
        finish(&second, "b", 6_000).await;
        finish(&memory, "b", 6_000).await;
        let grown = export(&second).await;
        assert_eq!(export(&memory).await, grown);
        // A server gives numbers out in steps.
        let server_grown = export(&server).await;
        assert_eq!(without_event_numbers(&server_grown), without_event_numbers(&grown));
        assert_eq!(problems(&server).await, []);
    });
}

/// A line that is wrong, missing or too many loads nothing and is named.
#[test]
fn a_damaged_file_loads_nothing() {
    let full = block_on(async {
        let store = MemoryStore::new();
        fill(&store).await;
        export(&store).await
    });
    let lines: Vec<&str> = full.lines().collect();
    let all_but = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(number, _)| *number != left_out);
        kept.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
    let check = |text: &str, wanted: &str| {
        let Err(Error::Refused(refusal)) = block_on(import(&store, text)) else {
            panic!("{wanted} was taken")
        };
        assert!(matches!(refusal, Refusal::BadLine { .. }), "{refusal}");
        assert!(refusal.to_string().contains(wanted), "{refusal}");
        assert_eq!(block_on(export(&store)).lines().count(), 2, "something was loaded");
    };
    for number in 1..lines.len() {
        let cut = lines[..number].join("\n") + "\n";
        check(&cut, "cut off");
        let half = format!("{cut}{}", &lines[number][..lines[number].len() / 2]);
        check(&half, &format!("line {}:", number + 1));
        check(&all_but(number), "line ");
    }
    check(&all_but(0), "line 1: the first line of an export is missing");
    check("", "line 1:");
    check(&format!("{full}x\n"), &format!("line {}: something follows", lines.len() + 1));
    check(
        &full.replace("\"schemaVersion\":1,\"scopes\"", "\"schemaVersion\":9,\"scopes\""),
        "schemaVersion is 9",
    );
    for (kind, wanted) in [("event", "is there twice"), ("task", "is there twice")] {
        let begin = format!("{{\"{kind}\":");
        let place = lines.iter().position(|line| line.starts_with(&begin)).unwrap();
        check(&again(&lines, place, |line| line.to_owned()), &format!("line {}: ", place + 2));
        check(&again(&lines, place, |line| line.to_owned()), wanted);
    }
    block_on(import(&store, &full)).unwrap();
    assert_eq!(block_on(export(&store)), full);
}

/// The lines with one of them a second time behind itself, changed.
fn again(lines: &[&str], place: usize, change: impl Fn(&str) -> String) -> String {
    let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    lines.insert(place + 1, change(&lines[place]));
    lines.join("\n") + "\n"
}

/// Two events of one task with the same number, two policies with the same: a bad line by its number, on every store.
#[test]
fn what_is_numbered_twice_is_a_bad_line() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let memory = MemoryStore::new();
        fill(&memory).await;
        let policy = rota_core::Policy::parse("{}").unwrap();
        memory.perform(&PublishPolicy { call: call(4_500), policy, based_on: None }).await.unwrap();
        let full = export(&memory).await;
        let lines: Vec<&str> = full.lines().collect();
        let server = PostgresStore::open(&rota_testbed::Server::shared().fresh_url()).await.unwrap();
        let file = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
        let another_number = |line: &str| line.replacen("\"seq\":1,", "\"seq\":99,", 1);
        for (begin, wanted) in [
            ("{\"event\":{\"seq\":1,", "task 'a' has its event 1 twice"),
            ("{\"policy\":", "policy 1 is there twice"),
        ] {
            let place = lines.iter().position(|line| line.starts_with(begin)).unwrap();
            let text = again(&lines, place, another_number);
            let wanted = format!("line {}: {wanted}", place + 2);
            for outcome in [
                import(&MemoryStore::new(), &text).await,
                import(&file, &text).await,
                import(&server, &text).await,
            ] {
                let Err(Error::Refused(refusal)) = outcome else { panic!("{outcome:?}") };
                assert_eq!(refusal.to_string(), wanted);
            }
        }
    });
}

/// What no foreign key guards on a server, the doctor does.
#[test]
fn the_doctor_finds_tasks_without_a_queue() {
    let url = rota_testbed::Server::shared().fresh_url();
    crate::pg::run(async {
        let store = PostgresStore::open(&url).await.unwrap();
        fill(&store).await;
        assert_eq!(problems(&store).await, []);
        let client = crate::pg::look(&url).await;
        let harm = "UPDATE tasks SET queue = queue + 900 WHERE id = 'e'";
        let repair = "UPDATE tasks SET queue = queue - 900 WHERE id = 'e'";
        let wanted = "task e of scope default names queue 901, which is not there";
        client.batch_execute(harm).await.unwrap();
        let found: Vec<String> = problems(&store).await.into_iter().map(|found| found.problem).collect();
        assert!(found.iter().any(|problem| problem == wanted), "{found:?}");
        client.batch_execute(repair).await.unwrap();
        assert_eq!(problems(&store).await, []);
    });
}

/// Tampering is found; what is derived, or told by the journal, is repaired.
#[test]
fn the_doctor_finds_and_repairs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    block_on(fill(&store));
    let before = block_on(export(&store));
    let tamper = |text: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(text).unwrap();
    for (text, check) in [
        ("UPDATE tasks SET open_blockers = 7 WHERE id = 'c'", "blockers"),
        ("UPDATE tasks SET stage = 2 WHERE id = 'c'", "derived"),
        ("UPDATE tasks SET stage = 1 WHERE id = 'b'", "derived"),
        ("UPDATE tasks SET sort_priority = 9 WHERE id = 'b'", "derived"),
        ("UPDATE tasks SET ready_at = 9, static_score = 9, guarded = 1 WHERE id = 'b'", "derived"),
        ("UPDATE tasks SET title = 'other', attempts = 4 WHERE id = 'a'", "journal"),
        ("UPDATE tasks SET status = 'open' WHERE id = 'd'", "journal"),
        ("DELETE FROM edges WHERE task = 'c' AND blocker = 'b'", "journal"),
        ("INSERT INTO edges VALUES ('default', 'd', 'e')", "journal"),
    ] {
        tamper(text);
        let found = block_on(problems(&store));
        assert!(
            found.iter().any(|problem| problem.check == check && problem.repair.is_some()),
            "{text}: {found:?}"
        );
        let tasks = found.into_iter().filter_map(|problem| problem.task).collect();
        block_on(store.perform(&Repair { call: call(5_000), tasks })).unwrap();
        assert_eq!(block_on(problems(&store)), [], "{text}");
        assert_eq!(block_on(export(&store)), before, "{text}");
    }
    // An end that is gone, and a journal that was changed: found, and what cannot be derived is left alone.
    tamper("PRAGMA foreign_keys = OFF; INSERT INTO edges VALUES ('default', 'd', 'ghost')");
    let found = block_on(problems(&store));
    assert!(found.iter().any(|problem| problem.check == "edges"), "{found:?}");
    assert!(found.iter().any(|problem| problem.check == "integrity"), "{found:?}");
    block_on(store.perform(&Repair { call: call(5_000), tasks: vec![id("d")] })).unwrap();
    assert_eq!(block_on(problems(&store)), []);
    tamper("DELETE FROM journal WHERE task = 'a' AND number = 2");
    let found = block_on(problems(&store));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].check, found[0].repair.as_ref()), ("journal", None));
}

async fn prune<S: Store>(store: &S, unchanged_since: i64) -> Pruned {
    let mut total = Pruned::default();
    let mut next = Some(Place::START);
    while let Some(place) = next {
        let unchanged_since = UnixMillis::new(unchanged_since);
        let batch = Prune { call: call(90_000), unchanged_since, place };
        let (pruned, then) = store.perform(&batch).await.unwrap();
        total.tasks += pruned.tasks;
        total.needed += pruned.needed;
        total.events += pruned.events;
        next = then;
    }
    total
}

async fn prunes<S: Store>(store: &S) {
    fill(store).await;
    assert_eq!(prune(store, 500).await, Pruned::default(), "nothing is that old");
    assert_eq!(prune(store, 10_000).await, Pruned { tasks: 0, needed: 1, events: 7 }, "b and c wait for a");
    assert_eq!(problems(store).await, []);
    finish(store, "b", 20_000).await;
    finish(store, "c", 20_000).await;
    let tail = Tail { call: call(0), task: None, limit: 1 };
    let (mut newest, mut cursor) = store.perform(&tail).await.unwrap();
    // Other tests have transactions on the same server.
    while newest.first().is_none_or(|event| event.task != Some(id("c")) || event.to != Some(Status::Done)) {
        (newest, cursor) = store.perform(&tail).await.unwrap();
    }
    assert_eq!(prune(store, 30_000).await.tasks, 3, "a chain goes as a whole");
    assert_eq!(problems(store).await, []);
    let Err(Error::Refused(Refusal::TaskNotFound { .. })) =
        store.perform(&Show { call: call(0), id: id("a") }).await.map(drop)
    else {
        panic!("a is gone")
    };
    store
        .perform(&Add { call: call(40_000), tasks: vec![NewTask::new(id("a"), "tasks", "Again")] })
        .await
        .unwrap();
    let (view, _) = store.perform(&Show { call: call(40_000), id: id("a") }).await.unwrap();
    assert_eq!((view.task.fence, view.task.status), (Fence::new(1), Status::Open));
    finish(store, "a", 41_000).await;
    let (view, _) = store.perform(&Show { call: call(41_000), id: id("a") }).await.unwrap();
    assert_eq!(view.task.fence, Fence::new(2), "a fence is never given twice");
    let mut kinds = Vec::new();
    while kinds.len() < 4 {
        let (events, next) =
            store.perform(&Follow { call: call(0), after: cursor, limit: 100 }).await.unwrap();
        kinds.extend(events.iter().map(|(_, event)| event.kind.word()));
        cursor = next;
    }
    assert_eq!(kinds, ["pruned", "created", "granted", "done"], "a follower misses nothing");
    assert_eq!(problems(store).await, []);
}

/// Old finished tasks go, what others need stays, fences go on, the journal still folds.
#[test]
fn old_things_go() {
    block_on(prunes(&MemoryStore::new()));
    let folder = tempfile::tempdir().unwrap();
    block_on(prunes(&SqliteStore::open(&folder.path().join("rota.db")).unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = rota_testbed::Server::shared().fresh_url();
        prunes(&PostgresStore::open(&url).await.unwrap()).await;
    });
}

/// A backup is a store of its own, with what was there.
#[test]
fn a_backup_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("rota.db")).unwrap();
    block_on(fill(&store));
    let copy = folder.path().join("copy.db");
    store.backup(&copy).unwrap();
    let before = block_on(export(&store));
    block_on(finish(&store, "b", 6_000));
    let restored = SqliteStore::open(&copy).unwrap();
    assert_eq!(block_on(export(&restored)), before);
    assert_eq!(block_on(problems(&restored)), []);
    assert!(store.backup(&folder.path().join("no/such/folder.db")).is_err());
}
