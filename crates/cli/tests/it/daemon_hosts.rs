//! Several daemons on one PostgreSQL (X5): two hosts, a server that restarts, hangs and is cut off from one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rota_testbed::{Durability, Link, Server};

use crate::daemon::{Daemon, configure, kill_all, read, runs, signal, started_for, states, until, wait_for};
use crate::support::Lab;

const CEILING: usize = 4;
const LOOPS: usize = 80;

/// Says when it runs twice at a time, on whatever host.
const AGENT: &str = "exec 9>>$SHARED/lock.$ROTA_TASK; flock -n 9 || echo $ROTA_TASK >> $SHARED/twice; \
                     echo $ROTA_TASK >> $SHARED/began; \
                     case $ROTA_TASK in long*) until test -e $SHARED/go; do sleep 0.02; done;; *) sleep 0.3;; esac";

fn prepare(lab: &Lab, shared: &Path, kind: &str) {
    configure(
        lab,
        &format!(
            "  {kind}: {{run: '{AGENT}', env: {{SHARED: '{}'}}}}\n  stays: {{run: 'echo x >> here; until test -e $SHARED/go; do sleep 0.02; done', env: {{SHARED: '{}'}}}}\n",
            shared.display(),
            shared.display()
        ),
    );
}

fn journal(lab: &Lab) -> Vec<serde_json::Value> {
    let text = lab.line("log --json").ok();
    let journal: serde_json::Value = serde_json::from_str(&text).unwrap();
    journal["events"].as_array().unwrap().clone()
}

/// Every grant of the journal was within the ceiling, and every loop was done once.
fn judge(lab: &Lab) {
    let (mut held, mut done) = (BTreeSet::new(), BTreeMap::<String, u32>::new());
    for event in journal(lab) {
        let task = event["task"].as_str().unwrap_or_default().to_owned();
        match event["to"].as_str() {
            Some("active") => {
                held.insert(task);
                assert!(held.len() <= CEILING, "{held:?}");
            }
            Some(to) => {
                held.remove(&task);
                *done.entry(task).or_default() += u32::from(to == "done");
            }
            None => {}
        }
    }
    assert!(done.values().all(|count| *count == 1), "{done:?}");
}

#[test]
fn two_hosts_and_a_server_that_fails_them() {
    let server = Server::start(Durability::None).unwrap();
    let (link_a, link_b) = (Link::to(&server).unwrap(), Link::to(&server).unwrap());
    let (a, b) = (Lab::on(link_a.url("rota")), Lab::on(link_b.url("rota")));
    let operator = Lab::on(server.url("rota"));
    let shared = tempfile::tempdir().unwrap();
    // Each has a kind of its own, so that both always have something to do.
    prepare(&a, shared.path(), "left");
    prepare(&b, shared.path(), "right");
    prepare(&operator, shared.path(), "none");
    let policy = format!(
        r#"{{"queues":{{"loops":{{"leaseTtlMs":3000,"maxConcurrent":{CEILING},"perKind":{{"left":3,"right":3}}}}}}}}"#
    );
    std::fs::write(operator.path().join("p.json"), policy).unwrap();
    operator.line("policy apply p.json").ok();
    for n in 0..LOOPS {
        let kind = if n % 2 == 0 { "left" } else { "right" };
        operator.line(&format!("loop add --kind {kind} --id r{n}")).ok();
    }
    // One on each host that goes on until it is let go.
    operator.line("loop add --kind left --id long-a --priority high").ok();
    operator.line("loop add --kind right --id long-b --priority high").ok();
    let began =
        || std::fs::read_to_string(shared.path().join("began")).map_or(0, |text| text.lines().count());
    let (host_a, host_b) =
        (Daemon::launch(&a, &[("ROTA_HOST", "a")]), Daemon::launch(&b, &[("ROTA_HOST", "b")]));
    let runs_long =
        |lab: &Lab, id: &str| runs(lab).iter().any(|run| run.run["lease"].as_str().unwrap().contains(id));
    until("both have begun", || runs_long(&a, "long-a") && runs_long(&b, "long-b"));

    let before = began();
    link_a.silence();
    until("a server that hangs stops its agents", || started_for(&a).is_empty());
    until("the other one goes on", || began() > before);
    link_a.heal();

    link_b.cut();
    until("a host that is cut off stops its agents", || started_for(&b).is_empty());
    link_b.heal();

    server.crash();
    server.up().unwrap();
    std::fs::write(shared.path().join("go"), "").unwrap();
    let complete = || states(&operator).iter().filter(|state| state.ends_with(" complete")).count();
    until("all complete", || complete() == LOOPS + 2);
    judge(&operator);
    assert!(!shared.path().join("twice").exists(), "{}", read(shared.path().join("twice")));
    for lab in [&a, &b] {
        let log = read(lab.path().join("up.log"));
        assert!(log.contains("Lease is gone"), "{log}");
    }
    host_a.down(&a);
    host_b.down(&b);
    assert!(started_for(&a).is_empty() && started_for(&b).is_empty());
}

#[test]
fn a_host_that_never_comes_back() {
    let server = Server::shared().fresh_url();
    let (a, b) = (Lab::on(server.clone()), Lab::on(server));
    let shared = tempfile::tempdir().unwrap();
    prepare(&a, shared.path(), "left");
    prepare(&b, shared.path(), "left");
    std::fs::write(a.path().join("p.json"), r#"{"queues":{"loops":{"leaseTtlMs":2000}}}"#).unwrap();
    a.line("policy apply p.json").ok();
    a.line("loop add --kind stays --id s").ok();
    let mut host_b = Daemon::launch(&b, &[("ROTA_HOST", "b")]);
    until("it runs there", || {
        std::fs::read_to_string(b.path().join("here")).is_ok_and(|text| !text.is_empty())
    });
    host_b.kill9();
    kill_all(&b);
    let host_a = Daemon::launch(&a, &[("ROTA_HOST", "a")]);
    until("its lease runs out", || states(&a) == ["s pending"]);
    let why = a.line("ROTA_HOST=a why s").ok();
    assert!(why.contains("host") && why.contains('b'), "{why}");
    assert!(!a.path().join("here").exists(), "it stays where its folders are");
    std::fs::write(shared.path().join("go"), "").unwrap();
    a.line("loop move s --host a").ok();
    until("it runs where it was moved to", || states(&a) == ["s complete"]);
    assert_eq!(read(a.path().join("here")), "x\n");
    host_a.down(&a);
}

/// The server is away when an agent ends, and still when the daemon is told to stop: the next one settles what it left.
#[test]
fn what_ended_while_the_server_was_away_is_settled_later() {
    let link = Link::to(Server::shared()).unwrap();
    let lab = Lab::on(link.url(&format!("away{}", std::process::id())));
    configure(&lab, "  ralph: {run: 'echo x >> ran; until test -e go; do sleep 0.02; done'}\n");
    // The lease is still ours when the server is back.
    std::fs::write(lab.path().join("p.json"), r#"{"queues":{"loops":{"leaseTtlMs":900000}}}"#).unwrap();
    lab.line("policy apply p.json").ok();
    lab.line("loop add --kind ralph --id r").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || std::fs::read(lab.path().join("ran")).is_ok_and(|text| !text.is_empty()));
    link.cut();
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("it has ended", || started_for(&lab).is_empty());
    until("the daemon says that the server is away", || read(lab.path().join("up.log")).contains("Trouble"));
    signal("TERM", daemon.0.id());
    wait_for(&mut daemon.0);
    link.heal();
    assert_eq!(states(&lab), ["r running"]);
    let daemon = Daemon::start(&lab);
    until("it is settled", || states(&lab) == ["r complete"]);
    assert_eq!(read(lab.path().join("ran")), "x\n", "it ran once");
    daemon.down(&lab);
}
