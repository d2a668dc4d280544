//! Databases of earlier releases open for ever. Each schema has its file under `tests/fixtures`.
//!
//! A new one is made with `ROTA_WRITE_FIXTURE=1 cargo test -p rota-store --test it fixture::` before the schema changes
//! again; a file that was released is never made anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rota_core::transition::Command;
use rota_core::{Json, Status};
use rota_store::conformance::lab::{after, at, claim, done, fail, held, holder, id, in_queue, new, of_kind};
use rota_store::conformance::{Lab, Subject, check_everything};
use rota_store::intents::add::NewTask;
use rota_store::intents::agents::{DeregisterAgent, RegisterAgent};
use rota_store::intents::policy::PauseQueue;
use rota_store::sqlite::{SCHEMA, SqliteStore};

use crate::subjects::{Sqlite, quick_folder};

fn fixture(schema: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-{schema}.db"))
}

/// Every state, edges, a hierarchy, a policy, agents, a paused queue, texts of every kind.
pub fn fill<S: Subject>(lab: &Lab<'_, S>) {
    lab.publish(
        at(0),
        r#"{"queues":{"tasks":{"maxAttempts":3,"backoff":{"baseMs":60000,"factor":1.5,"capMs":90000}}}}"#,
    );
    let full = NewTask {
        description: Some("two\nlines, Grüße 😀".into()),
        category: Some("cat".into()),
        steps: vec!["one".into(), "two".into()],
        spec_ref: Some("spec".into()),
        reference: Some("ref".into()),
        payload: Json::parse(r#"{"kept":[1.50,null]}"#).ok(),
        ..new("open")
    };
    let names = ["active", "paused", "done", "failed", "parked", "invalidated", "deleted", "cooling"];
    lab.add(at(0), &[full]);
    lab.add(at(0), &names.map(new));
    lab.add(at(0), &[after("blocked", &["active", "done", "deleted"]), in_queue("run", "runs")]);
    let child = NewTask { parent: Some(id("root")), ..of_kind("child", "loops", "spec") };
    lab.add(at(1), &[of_kind("root", "loops", "plan"), child]);
    lab.take(at(2), "active");
    lab.must(at(2), "paused", Command::Pause);
    let task = lab.take(at(2), "done");
    let result = Json::parse(r#"{"commit":"abc"}"#).ok();
    lab.must(at(3), "done", Command::Done { caller: holder(&task), result });
    let task = lab.take(at(3), "failed");
    lab.must(at(3), "failed", Command::Exhaust { caller: holder(&task), reason: "out of iterations".into() });
    lab.must(at(3), "parked", Command::Park { caller: Default::default(), reason: "look at it".into() });
    lab.must(at(3), "invalidated", Command::Cancel);
    lab.must(at(3), "deleted", Command::Delete);
    let task = lab.take(at(4), "cooling");
    lab.must(at(4), "cooling", fail(holder(&task)));
    let agents = [1, 2].map(|pid| lab.ok(&RegisterAgent { call: lab.call(at(5)), pid, host: "host".into() }));
    lab.ok(&DeregisterAgent { call: lab.call(at(6)), id: agents[0].id.clone() });
    lab.ok(&PauseQueue { call: lab.call(at(6)), queue: "runs".into(), paused: true });
}

/// Where a fixture is asked for, makes that of the current schema in one file.
#[test]
fn write_where_asked() {
    if std::env::var_os("ROTA_WRITE_FIXTURE").is_none() {
        return;
    }
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    fill(&lab);
    let path = fixture(SCHEMA);
    let connection = rusqlite::Connection::open(lab.store.path()).unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    connection.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
}

/// S8: a database of every schema so far opens, holds what was put into it, agrees with its journal, and goes on.
#[test]
fn every_schema_opens_and_goes_on() {
    for schema in 1..SCHEMA {
        opens_and_goes_on(schema);
    }
}

fn opens_and_goes_on(schema: i64) {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    std::fs::copy(fixture(schema), &path).unwrap();
    let subject = Sqlite::default();
    holds_and_goes_on(&Lab { subject: &subject, store: SqliteStore::open(&path).unwrap() });
}

/// Whether everything is there that [`fill`] made, and work goes on.
pub fn holds_and_goes_on<S: Subject>(lab: &Lab<'_, S>) {
    lab.check();
    let picture = lab.picture(at(10));
    let states: BTreeSet<Status> = picture.rows.values().map(|row| row.task.status).collect();
    assert_eq!(states.len(), Status::ALL.len(), "a task in every state");
    for status in Status::ALL {
        assert_eq!(picture.task(status.word()).status, status);
    }
    let open = picture.task("open");
    assert_eq!(open.description.as_deref(), Some("two\nlines, Grüße 😀"));
    assert_eq!(open.payload.as_ref().map(Json::as_str), Some(r#"{"kept":[1.50,null]}"#));
    assert_eq!(picture.task("done").result.as_ref().map(Json::as_str), Some(r#"{"commit":"abc"}"#));
    assert_eq!(picture.task("cooling").next_eligible_at, Some(at(64)));
    assert_eq!(picture.open_blockers(&id("blocked")), [id("active")]);
    assert_eq!((picture.task("child").depth, picture.policies.len(), picture.agents.len()), (1, 1, 2));
    assert!(picture.queues.iter().any(|queue| queue.row.name == "runs" && queue.row.paused));
    lab.must(at(20), "active", done(held("active", 1)));
    assert_eq!(lab.claimed(&claim(at(20), 9)), ["open", "blocked"]);
    assert_eq!(lab.claimed(&claim(at(64), 9)), ["cooling"]);
    check_everything(&lab.picture(at(64)));
}
