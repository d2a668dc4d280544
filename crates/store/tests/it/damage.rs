//! S8: files that are damaged, foreign, too new, forbidden or full. Each is the right fault, never a panic, and never an
//! empty queue in disguise.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use rota_conformance::check::find_disagreement;
use rota_conformance::lab::{after, at, claim, new};
use rota_conformance::program::Dice;
use rota_conformance::{Lab, Snapshot};
use rota_core::UnixMillis;
use rota_store::intents::Call;
use rota_store::intents::add::Add;
use rota_store::intents::policy::PublishPolicy;
use rota_store::sqlite::SqliteStore;
use rota_store::{Error, Fault, Store};
use rota_testbed::block_on;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::children::{Child, Stage, command, in_role};
use crate::subjects::{Sqlite, quick_folder};

const TASKS: usize = 60;

fn call() -> Call {
    Call::in_scope("default").at(at(1))
}

fn fault(error: Error) -> Fault {
    match error {
        Error::Fault(fault) => fault,
        Error::Refused(refusal) => panic!("{refusal}"),
    }
}

/// Everything a user would do with a database: open it, read it, claim from it. How many tasks there are.
fn use_it(path: &Path) -> Result<usize, Fault> {
    let store = SqliteStore::open(path)?;
    let picture =
        block_on(store.perform(&Snapshot { scope: "default".into(), now: at(1) })).map_err(fault)?;
    block_on(store.perform(&claim(at(1), 1))).map_err(fault)?;
    Ok(picture.rows.len())
}

/// A sound database, all of it in one file.
fn sound() -> (TempDir, PathBuf) {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.add(at(0), &(0..TASKS).map(|number| new(&format!("t{number}"))).collect::<Vec<_>>());
    lab.add(at(0), &[after("last", &["t0", "t1"])]);
    lab.take(at(0), "t5");
    let folder = quick_folder();
    let path = folder.path().join("sound.db");
    let connection = Connection::open(lab.store.path()).unwrap();
    connection.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    assert_eq!(use_it(&copy(&path, folder.path().join("used.db"))).unwrap(), TASKS + 1);
    (folder, path)
}

fn copy(from: &Path, to: PathBuf) -> PathBuf {
    for leftover in ["-wal", "-shm", "-turn"] {
        let mut path = to.clone().into_os_string();
        path.push(leftover);
        if Path::new(&path).exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::copy(from, &to).unwrap();
    to
}

/// S8: cut off anywhere, also between pages, also in the header.
#[test]
fn a_truncated_file_is_corrupt() {
    let (folder, path) = sound();
    let whole = std::fs::read(&path).unwrap();
    let lengths =
        [1, 15, 16, 24, 99, 100, 511, 512, 4_095, 4_096, 4_097, whole.len() - 4_096, whole.len() - 1];
    for length in lengths.into_iter().chain((1..8).map(|part| whole.len() * part / 8)) {
        let cut = copy(&path, folder.path().join("cut.db"));
        std::fs::write(&cut, &whole[..length]).unwrap();
        let used = use_it(&cut);
        // Without its last byte the last page is whole for SQLite, and what stood there cannot be read.
        let is_last = length == whole.len() - 1;
        let is_fault = matches!(used, Err(Fault::Corrupt { .. }))
            || is_last && matches!(used, Err(Fault::Unreadable { .. }));
        assert!(is_fault, "{length} bytes: {used:?}");
    }
}

/// S8: a file of something else, or of nothing readable.
#[test]
fn random_bytes_are_no_database() {
    let folder = quick_folder();
    let path = folder.path().join("rota.db");
    let mut dice = Dice::new(1);
    for length in [1, 10, 100, 1_000, 4_096, 10_000] {
        let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(dice.below(256)).unwrap()).collect();
        for bytes in [bytes, b"{\"tasks\": []}\n".to_vec()] {
            std::fs::write(&path, &bytes).unwrap();
            let used = use_it(&path);
            assert!(matches!(used, Err(Fault::Corrupt { .. })), "{length} bytes: {used:?}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was not written to");
        }
    }
}

/// S8: one flipped bit anywhere: a fault, or found by checking the file and the journal; what nobody can find loses no
/// task. Never a panic.
#[test]
fn a_flipped_bit_is_a_fault_or_found() {
    let (folder, path) = sound();
    let whole = std::fs::read(&path).unwrap();
    let mut dice = Dice::new(2);
    let (mut faults, mut found) = (0, 0);
    for round in 0..400 {
        // Every page gets its share, and so do the headers of pages, where it hurts.
        let page = round % (whole.len() / 4_096);
        let within = if round % 3 == 0 { dice.below(112) } else { dice.below(4_096) };
        let byte = page * 4_096 + usize::try_from(within).unwrap();
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << dice.below(8);
        let damaged = copy(&path, folder.path().join("flipped.db"));
        std::fs::write(&damaged, &flipped).unwrap();
        let used = catch_unwind(AssertUnwindSafe(|| use_it(&damaged)));
        match used.unwrap_or_else(|_| panic!("byte {byte} of {}: it panicked", damaged.display())) {
            Err(_) => faults += 1,
            Ok(_) if is_found(&copy(&write(&damaged, &flipped), folder.path().join("found.db"))) => {
                found += 1
            }
            Ok(tasks) => assert_eq!(tasks, TASKS + 1, "byte {byte}: tasks are gone and nobody knows"),
        }
    }
    assert!(faults > 10 && found > 10, "{faults} faults, {found} found by looking");
}

fn write(path: &Path, bytes: &[u8]) -> PathBuf {
    std::fs::write(path, bytes).unwrap();
    path.to_owned()
}

/// Whether SQLite's own check or the journal shows the damage.
fn is_found(path: &Path) -> bool {
    let connection = Connection::open(path).unwrap();
    let said = connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    drop(connection);
    if said.as_deref() != Ok("ok") {
        return true;
    }
    let Ok(store) = SqliteStore::open(path) else { return true };
    let picture = block_on(store.perform(&Snapshot { scope: "default".into(), now: at(1) }));
    picture.is_ok_and(|picture| find_disagreement(&picture).is_err())
}

/// S8: values that Rota cannot have written are named, and stop what would decide by them.
#[test]
fn unreadable_values_are_faults() {
    for (damage, wanted) in [
        ("UPDATE tasks SET status = 'exploded' WHERE id = 't3'", "store_unreadable"),
        ("UPDATE tasks SET fence = -1 WHERE id = 't3'", "store_unreadable"),
        ("UPDATE tasks SET steps = '[' WHERE id = 't3'", "store_unreadable"),
        ("UPDATE journal SET kind = 'exploded' WHERE seq = 3", "store_unreadable"),
        ("UPDATE journal SET data = '{' WHERE seq = 3", "store_unreadable"),
        ("DROP TABLE edges", "store_failed"),
        ("INSERT INTO policies VALUES ('default', 1, 'x', '{\"queues\":7}', 0, NULL)", "policy_unreadable"),
    ] {
        let (_folder, path) = sound();
        Connection::open(&path).unwrap().execute_batch(damage).unwrap();
        let used = use_it(&path);
        assert_eq!(used.as_ref().map_err(Fault::code), Err(wanted), "{damage}: {used:?}");
    }
}

/// DESIGN 5: an unreadable policy stops whatever would decide by it, and publishing a readable one repairs it.
#[test]
fn an_unreadable_policy_can_be_replaced() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.publish(at(0), r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#);
    lab.add(at(0), &[new("a"), new("b")]);
    Connection::open(lab.store.path()).unwrap().execute_batch("UPDATE policies SET document = '{'").unwrap();
    let lab = lab.another();
    for refused in
        [lab.run(&claim(at(1), 1)).map(drop), lab.run(&Add { call: call(), tasks: vec![] }).map(drop)]
    {
        assert!(matches!(refused, Err(Error::Fault(Fault::UnreadablePolicy { .. }))), "{refused:?}");
    }
    let policy = rota_core::Policy::parse(r#"{"queues":{"tasks":{"maxConcurrent":1}}}"#).unwrap();
    lab.ok(&PublishPolicy { call: call(), policy, based_on: None });
    assert_eq!(lab.claim(at(1), 9), ["a"]);
    assert_eq!(lab.another().claim(at(1), 9), Vec::<String>::new());
}

/// S8: a newer schema is refused with both numbers, and left as it is.
#[test]
fn a_newer_schema_is_refused() {
    let (_folder, path) = sound();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = std::fs::read(&path).unwrap();
    let used = use_it(&path);
    let known_here = rota_store::sqlite::SCHEMA;
    assert!(matches!(used, Err(Fault::TooNew { found: 99, known, .. }) if known == known_here), "{used:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// S8: another program's database is refused whatever number it gives its schema, and left as it is.
#[test]
fn a_foreign_database_is_refused() {
    for version in [0, 1, 7, 99] {
        for application in [0, 42] {
            let folder = quick_folder();
            let path = folder.path().join("rota.db");
            let connection = Connection::open(&path).unwrap();
            connection
                .execute_batch("CREATE TABLE tasks (id TEXT); INSERT INTO tasks VALUES ('mine')")
                .unwrap();
            connection.pragma_update(None, "user_version", version).unwrap();
            connection.pragma_update(None, "application_id", application).unwrap();
            drop(connection);
            let before = std::fs::read(&path).unwrap();
            let used = use_it(&path);
            assert!(matches!(used, Err(Fault::Foreign { .. })), "version {version}: {used:?}");
            assert_eq!(std::fs::read(&path).unwrap(), before);
        }
    }
}

/// S8: what is no place for a file.
#[test]
fn folders_and_missing_folders_are_named() {
    let folder = quick_folder();
    let used = use_it(folder.path());
    assert!(matches!(used, Err(Fault::IsDirectory { .. })), "{used:?}");
    let used = use_it(&folder.path().join("no/such/rota.db"));
    assert!(
        matches!(&used, Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound),
        "{used:?}"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let used = use_it(&file.join("rota.db"));
    assert!(matches!(used, Err(Fault::Io { .. })), "{used:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made");
}

/// S8, P1: with its log deleted the database opens at the last checkpoint: whole transactions, in order, none in part.
#[test]
fn a_deleted_log_leaves_whole_transactions() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.add(at(0), &[new("a"), after("b", &["a"])]);
    lab.take(at(1), "a");
    let checkpoint = lab.picture(at(5)).normal();
    let connection = Connection::open(lab.store.path()).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    lab.add(at(2), &[new("c"), after("d", &["c"])]);
    lab.must(at(2), "a", rota_core::transition::Command::Delete);
    assert_ne!(lab.picture(at(5)).normal(), checkpoint);
    let folder = quick_folder();
    let path = copy(lab.store.path(), folder.path().join("rota.db"));
    let opened = Lab { subject: &subject, store: SqliteStore::open(&path).unwrap() };
    assert_eq!(opened.picture(at(5)).normal(), checkpoint);
    opened.check();
    assert_eq!(opened.claim(at(5), 9), Vec::<String>::new());
}

/// S8: no page more: the verb fails as full, nothing of it is kept, and with room again the store goes on.
#[test]
fn a_full_disk_keeps_nothing_and_passes() {
    let subject = Sqlite::default();
    let lab = Lab::new(&subject);
    lab.add(at(0), &[new("a"), new("b")]);
    let before = lab.picture(at(1)).normal();
    lab.store.limit_pages(1);
    let many = Add { call: call(), tasks: (0..500).map(|number| new(&format!("n{number}"))).collect() };
    let full = lab.run(&many);
    assert!(matches!(full, Err(Error::Fault(Fault::Full { .. }))), "{full:?}");
    assert_eq!(lab.picture(at(1)).normal(), before);
    lab.check();
    lab.store.limit_pages(1_000_000);
    assert_eq!(lab.ok(&many).len(), 500);
    lab.check();
}

/// The role `reporter`: uses a database, then adds to it, and says how both went.
pub fn report(stage: &Stage) {
    let tasks = match SqliteStore::open(&stage.store) {
        Ok(store) => {
            let picture =
                block_on(store.perform(&Snapshot { scope: "default".into(), now: UnixMillis::MAX }));
            stage.say(
                &picture.map_or_else(|error| fault(error).code().into(), |seen| seen.rows.len().to_string()),
            );
            let tasks = (0..2_000).map(|number| new(&format!("{}{number}", stage.extra))).collect();
            block_on(store.perform(&Add { call: call(), tasks })).map(|added| added.len())
        }
        Err(fault) => Err(Error::Fault(fault)),
    };
    stage.say(&tasks.map_or_else(|error| fault(error).code().to_owned(), |added| added.to_string()));
}

fn heard(mut command: Process) -> Vec<String> {
    command.env_remove("ROTA_CRASH_POINT");
    let mut child = Child::spawn(command);
    let mut answers = Vec::new();
    while let Some(answer) = child.hear() {
        answers.push(answer);
    }
    let (status, words) = child.end();
    assert!(status.success(), "{words}");
    answers
}

/// S8: writes that fail in the middle, by a limit on the size of files: a fault, and the file is as it was.
#[test]
fn a_write_that_fails_in_the_middle_keeps_nothing() {
    let (folder, path) = sound();
    let pages = std::fs::metadata(&path).unwrap().len() / 512;
    let mut shell = Process::new("sh");
    // The limit counts 512 bytes each; without the trap the system would end the process.
    shell.args(["-c", "trap '' XFSZ; ulimit -f \"$0\" && exec \"$@\""]).arg((pages + 200).to_string());
    shell.arg(std::env::current_exe().unwrap());
    let answers = heard(in_role(shell, "reporter", &path, "n"));
    assert_eq!(answers, [&*(TASKS + 1).to_string(), "store_failed"]);
    assert_eq!(use_it(&path).unwrap(), TASKS + 1);
    assert!(!is_found(&copy(&path, folder.path().join("copy.db"))));
}

/// S8: a real file system without space, where this system lets us make one.
#[test]
fn a_small_file_system_fills_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut unshare = Process::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    let script = "mount -t tmpfs -o size=512k rota \"$0\" && exec \"$@\"";
    let probe = Process::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "rota"])
        .arg(folder.path())
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        // Not allowed here; the two tests above show the same with a limit on pages and on files.
        return;
    }
    unshare.arg(script).arg(folder.path()).arg(std::env::current_exe().unwrap());
    let answers = heard(in_role(unshare, "reporter", &folder.path().join("rota.db"), "n"));
    assert_eq!(answers, ["0", "store_full"]);
}

/// S8: a file that may be read and not written: what reads works or says so, what writes is refused as read-only or
/// forbidden, and nothing changes. Root may write anything, so as root the child is somebody else.
#[test]
fn a_read_only_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let (_folder, sound) = sound();
    for (file, folder_mode) in [(0o444, 0o555), (0o444, 0o777), (0o000, 0o755)] {
        let folder = quick_folder();
        let path = copy(&sound, folder.path().join("rota.db"));
        let allow = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        allow(&path, file);
        allow(folder.path(), folder_mode);
        let before = std::fs::read(&path).ok();
        let mut command = if rustix::process::geteuid().is_root() {
            // Past folders that only root may enter: the child runs what this process runs.
            let mut command = in_role(Process::new("/proc/self/exe"), "reporter", &path, "n");
            command.uid(65_534).gid(65_534);
            command
        } else {
            command("reporter", &path, "n")
        };
        command.current_dir("/");
        let answers = heard(command);
        allow(folder.path(), 0o755);
        let last = answers.last().map(String::as_str);
        assert!(matches!(last, Some("store_read_only" | "store_forbidden")), "{file:o}: {answers:?}");
        assert!(answers.len() < 2 || answers[0] == (TASKS + 1).to_string(), "{answers:?}");
        assert_eq!(std::fs::read(&path).ok(), before);
    }
}
