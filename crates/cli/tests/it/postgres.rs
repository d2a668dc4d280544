//! The same verbs on a server: every family answers as on a file, a server that is away is no empty queue, and a password
//! is never said.

use std::path::Path;
use std::process::{Command, Output};

use rota_testbed::{Durability, Extra, Server, program};

use crate::support::Lab;

/// Every family of verbs once, with refusals, at times that are given.
const SCRIPT: &str = r#"
    @0 task create a "Write it" --priority 1 --description "two lines" --category code
    @0 task create b "Review it" --deps a
    @0 task create a Again
    @0 task create c C --deps nobody
    @1 task plan-sync
    | {"id":"p1","t":"Planned","p":1,"spec":"one"}
    | {"id":"p2","t":"Planned later","p":3,"spec":"one","deps":["p1"]}
    @1 task plan-sync --dry-run
    | {"id":"p1","t":"Planned otherwise","p":1,"spec":"one"}
    @1 task plan-status
    @2 task peek
    @3 task claim --agent x
    @4 task renew a --agent x --lease 900
    @4 task done a --agent y
    @5 task done a --agent x --result "{\"commit\":\"abc\"}"
    @5 task done a --agent x
    @6 task claim b --agent x
    @7 task fail b --agent x --reason "no time"
    @8 task claim b --agent z --json
    @9 task release b --agent z
    @10 task block p1 --by b
    @10 task block b --by p1
    @11 task unblock p1 --by b
    @12 task update p1 --title "Planned again"
    @13 task pause p1
    @14 task resume p1
    @15 task park p2 --reason "look at it"
    @16 task reset p2
    @17 task delete p2
    @18 task undelete p2
    @19 task show b
    @19 task deps p2
    @19 task attempts b
    @19 task list --all
    @20 task claim --lease 10 --agent x
    @40 task claim p1 --agent y
    @41 why p2
    @41 why b --json
    @42 queue add --id run-1 --app review --repo . --priority 5
    @42 queue list
    @43 sched plan
    @43 sched lease --limit 1
    @44 sched complete lease-run-1-1
    @45 queue pause
    @46 queue resume
    @47 sched policy set --maxConcurrent 2 --maxAttempts 3
    @48 policy show
    @48 policy history
    @49 sched policy show
    @50 log -n 5
    @50 task claim --spec "none*"
    doctor
    @99999 prune --older-than 1h
    doctor --json
"#;

/// A line of the journal without its number: those of a server have gaps, where something was refused. A line that names
/// the schema without its number, too: each store counts its own.
fn without_number(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_event = words.len() > 2 && words[0].starts_with("2026-") && words[1].parse::<u64>().is_ok();
    let is_schema = words.len() > 1 && ["schema", "\"schema\":"].contains(&words[0]);
    if is_event || is_schema {
        words.remove(1);
    }
    words.join(" ")
}

/// Without what a doctor has to say of a server only.
fn without_notes(text: &str) -> String {
    let mut is_note = false;
    let kept = text.lines().filter(|line| {
        let is_first = line.starts_with("  \"notes\": [");
        let is_dropped = is_note || is_first || line.starts_with("note: synchronous_standby_names is ''");
        is_note = (is_note || is_first) && !line.starts_with("  ]");
        !is_dropped
    });
    kept.map(|line| format!("{line}\n")).collect()
}

#[test]
fn every_family_answers_as_on_a_file() {
    let (file, server) = (Lab::new(), Lab::on(Server::shared().fresh_url()));
    let (expected, said) = (file.transcript(SCRIPT), server.transcript(SCRIPT));
    assert_eq!(said.matches("fences can be issued a second time").count(), 2, "both doctors say so: {said}");
    let said = without_notes(&said);
    for (said, expected) in said.lines().zip(expected.lines()) {
        assert_eq!(without_number(said), without_number(expected));
    }
    assert_eq!(said.lines().count(), expected.lines().count());
    let refused = expected.matches("\n[1]").count() + expected.matches("\n[2]").count();
    let lines = expected.lines().filter(|line| line.starts_with("$ ")).count();
    assert!((4..lines / 4).contains(&refused), "{refused} of {lines} were refused: {expected}");
}

#[test]
fn from_a_file_to_a_server_and_back() {
    let (file, server) = (Lab::new(), Lab::on(Server::shared().fresh_url()));
    file.transcript(SCRIPT);
    let whole = file.line("export").ok();
    std::fs::write(server.path().join("all.jsonl"), &whole).unwrap();
    server.line("import all.jsonl").ok();
    assert_eq!(server.line("export").ok(), whole);
    server.line("backup copy.jsonl").ok();
    let back = Lab::new();
    std::fs::copy(server.path().join("copy.jsonl"), back.path().join("copy.jsonl")).unwrap();
    back.line("import copy.jsonl").ok();
    assert_eq!(back.line("export").ok(), whole);
    let schema = |lab: &Lab| without_number(&lab.line("migrate --status").ok());
    assert_eq!(schema(&server), schema(&back));
}

#[test]
fn a_server_that_is_away_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("postgres://rota:hunter2@/postgres?host={}", folder.path().display());
    let lab = Lab::on(url);
    let check = |verb: &str| {
        let ran = lab.line(verb);
        assert_eq!((ran.code, ran.stdout.as_str()), (75, ""), "{verb}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: postgres://") && ran.stderr.contains(" is away: "), "{verb}");
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    };
    // Each waits for ten seconds, as the page says.
    std::thread::scope(|scope| {
        for verb in ["task claim", "task list", "task create x X", "why a", "log", "doctor", "sched lease"] {
            let check = &check;
            scope.spawn(move || check(verb));
        }
    });
}

/// A server that asks for ann's password, which is `tiger`, over TCP.
fn guarded() -> Server {
    let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let files = vec![("pg_hba.conf".to_owned(), rules.to_owned())];
    let server =
        Server::start_with(Durability::None, Extra { files, tcp: true, ..Extra::default() }).unwrap();
    let made = Command::new(program("psql").unwrap())
        .args(["-X", "-U", "rota", "-d", "postgres", "-p", &server.port().to_string(), "-h"])
        .arg(server.socket_folder())
        .args(["-c", "CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'tiger'"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    server
}

fn list(lab: &Lab, arguments: &[&str], variables: &[(&str, &Path)]) -> Output {
    lab.command().args(["task", "list"]).args(arguments).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_password_is_used_and_never_said() {
    let server = guarded();
    let (lab, port) = (Lab::new(), server.port());
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{port}/postgres?sslmode=disable");
    let with_password = list(&lab, &["--store", &url("ann:tiger")], &[]);
    assert!(with_password.status.success(), "{with_password:?}");
    let passwords = lab.path().join("passwords");
    std::fs::write(&passwords, format!("127.0.0.1:{port}:*:ann:tiger\n")).unwrap();
    std::fs::set_permissions(&passwords, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let from_file = list(&lab, &["--store", &url("ann")], &[("PGPASSFILE", &passwords)]);
    assert!(from_file.status.success(), "{from_file:?}");
    let wrong = [
        url("ann:hunter2"),
        url("ann:hunter2") + "&schema=a-b",
        url("ann:hunter2").replace("postgres://", "mysql://"),
        url("ann:hunter2").replace(&port.to_string(), "port"),
        url("ann:hun@hunter2"),
    ];
    for url in wrong {
        let ran = list(&lab, &["--store", &url], &[]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{url}: {said}");
        assert!(said.starts_with("error: ") && !said.contains("hunter2"), "{said}");
    }
}
