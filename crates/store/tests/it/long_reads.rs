//! Reads of our own that keep SQLite's log from being reset: they end themselves before it is too long.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rota_core::TaskId;
use rota_store::intents::Call;
use rota_store::intents::add::{Add, NewTask};
use rota_store::intents::carry::{Export, Sink};
use rota_store::sqlite::{LOG_LIMIT_BYTES, SqliteStore};
use rota_store::{Error, Fault, Store};
use rota_testbed::block_on;
use rusqlite::Connection;

use crate::subjects::quick_folder;

/// Adds tasks that take this many bytes together, in transactions of a megabyte.
fn fill(store: &SqliteStore, prefix: &str, megabytes: usize) {
    let text = "x".repeat(50_000);
    for round in 0..megabytes {
        let tasks = (0..10).map(|number| NewTask {
            description: Some(text.clone()),
            ..NewTask::new(TaskId::new(&format!("{prefix}{round}-{number}")).unwrap(), "tasks", "T")
        });
        block_on(store.perform(&Add { call: Call::in_scope("default"), tasks: tasks.collect() })).unwrap();
    }
}

fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log).metadata().unwrap().len()
}

/// Takes the lines of an export; while it takes the first one, another process writes until the log is long.
struct SlowSink<'a> {
    path: &'a Path,
    lines: Mutex<usize>,
}

impl Sink for SlowSink<'_> {
    fn line(&self, _text: &str) -> Result<(), Fault> {
        let mut lines = self.lines.lock().unwrap();
        *lines += 1;
        if *lines == 1 {
            let since = Instant::now();
            let writer = SqliteStore::open(self.path).unwrap();
            let mut round = 0;
            while log_bytes(self.path) < LOG_LIMIT_BYTES / 2 {
                fill(&writer, &format!("late{round}-"), 1);
                round += 1;
                assert!(round < 500, "the log does not grow: {}", log_bytes(self.path));
            }
            // Longer than any read that is left alone.
            while since.elapsed() < Duration::from_secs(1) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// An export during which others write half the limit is ended with a fault that may pass, and the next writer begins the
/// log anew.
#[test]
fn an_export_that_takes_too_long_is_ended() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    fill(&store, "t", 20);
    let sink = SlowSink { path: &path, lines: Mutex::new(0) };
    let call = Call::in_scope("default");
    let ended = block_on(store.perform(&Export { call, only: None, sink: &sink }));
    let Err(Error::Fault(fault)) = ended else { panic!("it went on") };
    assert_eq!((fault.code(), fault.exit_code()), ("store_read_ended", 75), "{fault}");
    assert!(log_bytes(&path) <= LOG_LIMIT_BYTES, "{}", log_bytes(&path));
    fill(&store, "then", 2);
    assert!(log_bytes(&path) < LOG_LIMIT_BYTES / 2, "{}", log_bytes(&path));
    // With nobody writing beside it, the same read is left alone however long it takes.
    let quiet = SlowSink { path: &path, lines: Mutex::new(1) };
    let call = Call::in_scope("default");
    block_on(store.perform(&Export { call, only: None, sink: &quiet })).unwrap();
}

/// A backup beside a log that stays long is tried again and given up, and leaves no half of itself behind.
#[test]
fn a_backup_that_takes_too_long_is_ended() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let store = SqliteStore::open(&path).unwrap();
    // Above the number of pages that are copied in one step.
    fill(&store, "t", 24);
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM tasks").unwrap();
    let mut round = 0;
    while log_bytes(&path) <= LOG_LIMIT_BYTES / 2 {
        fill(&store, &format!("late{round}-"), 1);
        round += 1;
    }
    let copy = folder.path().join("copy.db");
    let fault = store.backup(&copy).unwrap_err();
    assert_eq!((fault.code(), fault.exit_code()), ("store_read_ended", 75), "{fault}");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("copy.db")), "{left:?}");
    drop(reader);
    fill(&store, "then", 1);
    store.backup(&copy).unwrap();
    assert_eq!(
        Connection::open(&copy)
            .unwrap()
            .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
            .unwrap(),
        "ok"
    );
}
