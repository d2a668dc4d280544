//! An agent can stop its shim (SIGSTOP), because both belong to one user. It gains nothing by it.

use crate::daemon::{Daemon, configure, read, runs, show, signal, started_for, states, until};
use crate::support::Lab;

/// As root, where there may be control groups, and as an ordinary user, who has none.
fn as_both_users(case: impl Fn(&Lab)) {
    case(&Lab::new());
    case(&Lab::of_ordinary_user());
}

fn publish(lab: &Lab, policy: &str) {
    std::fs::write(lab.path().join("p.json"), policy).unwrap();
    assert_eq!(lab.line("policy apply p.json").code, 0);
}

/// Longer than any test waits: an agent that is gone by then was not ended by its lease.
const LONG_LEASE: &str = r#"{"queues":{"loops":{"leaseTtlMs":3600000,"maxAttempts":1}}}"#;
const SHORT_LEASE: &str = r#"{"queues":{"loops":{"leaseTtlMs":10000,"maxAttempts":1}}}"#;

/// Stops its shim when `go` is there, and leaves processes that would live for ever.
const STOPS_SHIM: &str = "  ralph: {run: 'setsid sleep 1000 & echo $$ > began; until test -e go; do sleep 0.02; done; kill -STOP $PPID; sleep 1000', max_iterations: 1}\n";

/// Stops also the process that watches the shim, before the shim.
const STOPS_BOTH: &str = "  ralph: {run: 'setsid sleep 1000 & echo $$ > began; until test -e go; do sleep 0.02; done; kill -STOP $(cut -d\" \" -f5 /proc/$PPID/stat); kill -STOP $PPID; sleep 1000', max_iterations: 1}\n";

fn begin(lab: &Lab) -> Daemon {
    lab.line("loop add --kind ralph --id r").ok();
    let daemon = Daemon::start(lab);
    until("the agent runs", || lab.path().join("began").exists() && !runs(lab).is_empty());
    daemon
}

fn go(lab: &Lab) {
    std::fs::write(lab.path().join("go"), "").unwrap();
}

#[test]
fn an_agent_that_stops_its_shim_is_ended_at_once() {
    as_both_users(|lab| {
        publish(lab, LONG_LEASE);
        configure(lab, STOPS_SHIM);
        let daemon = begin(lab);
        go(lab);
        until("it is settled", || states(lab) == ["r parked"]);
        let reason = show(lab, "r")["parkedReason"].as_str().unwrap().to_owned();
        assert!(reason.starts_with("its shim was stopped by a signal"), "{reason}");
        until("nothing is left", || started_for(lab).is_empty());
        daemon.down(lab);
    });
}

#[test]
fn the_same_without_a_daemon() {
    as_both_users(|lab| {
        publish(lab, LONG_LEASE);
        configure(lab, STOPS_SHIM);
        let mut daemon = begin(lab);
        daemon.kill9();
        go(lab);
        until("nothing is left", || started_for(lab).is_empty());
        let daemon = Daemon::start(lab);
        until("the next daemon settles it", || states(lab) == ["r parked"]);
        let reason = show(lab, "r")["parkedReason"].as_str().unwrap().to_owned();
        assert!(reason.starts_with("its shim was stopped by a signal"), "{reason}");
        daemon.down(lab);
    });
}

/// An agent that kills its shim gains nothing either, also where no daemon is alive to see it.
#[test]
fn an_agent_that_kills_its_shim_without_a_daemon() {
    as_both_users(|lab| {
        publish(lab, LONG_LEASE);
        configure(lab, &STOPS_SHIM.replace("-STOP", "-KILL"));
        let mut daemon = begin(lab);
        daemon.kill9();
        go(lab);
        until("nothing is left", || started_for(lab).is_empty());
        let daemon = Daemon::start(lab);
        until("the next daemon settles it", || !states(lab).contains(&"r running".to_owned()));
        daemon.down(lab);
    });
}

/// With the watcher stopped too, the daemon gets no answer from the shim: it does not renew the lease, and ends the agent
/// when the shim should have.
#[test]
fn a_shim_that_does_not_answer_loses_its_lease() {
    as_both_users(|lab| {
        publish(lab, SHORT_LEASE);
        configure(lab, STOPS_BOTH);
        let daemon = begin(lab);
        go(lab);
        until("nothing is left", || started_for(lab).is_empty());
        until("it is settled", || states(lab) == ["r parked"]);
        assert!(read(lab.path().join("up.log")).contains("its shim does not answer"));
        // The watcher goes on, and starts the next shim.
        configure(lab, "  ralph: {run: ['true']}\n");
        lab.line("loop add --kind ralph --id next").ok();
        until("the next loop runs", || states(lab).contains(&"next complete".to_owned()));
        daemon.down(lab);
    });
}

/// The same for a run that was taken over from a daemon that was killed: the shim answers through the record.
#[test]
fn a_shim_that_was_taken_over_must_answer_too() {
    let lab = Lab::new();
    publish(&lab, SHORT_LEASE);
    configure(&lab, STOPS_BOTH);
    let mut daemon = begin(&lab);
    daemon.kill9();
    let daemon = Daemon::start(&lab);
    let renewals = || lab.line("log --task r --json").ok().matches("\"renewed\"").count();
    until("its lease is renewed", || renewals() >= 2);
    go(&lab);
    until("nothing is left", || started_for(&lab).is_empty());
    until("it is settled", || states(&lab) == ["r parked"]);
    daemon.down(&lab);
}

#[test]
fn a_command_of_rota_work_cannot_stop_its_shim_either() {
    as_both_users(|lab| {
        lab.line("task create t T").ok();
        let script = "export ROTA_ARTIFACTS=$PWD; setsid sleep 1000 & kill -STOP $PPID; sleep 1000";
        let ran = lab.run(&["work", "--until-empty", "--give-up", "1", "--", "sh", "-c", script]);
        assert!(ran.stderr.contains("its shim was stopped by a signal"), "{}", ran.stderr);
        until("nothing is left", || started_for(lab).is_empty());
    });
}

/// The watcher outlives its daemon only as long as there is something to watch.
#[test]
fn the_watcher_ends_with_the_last_shim() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'until test -e go; do sleep 0.02; done'}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || runs(&lab).first().is_some_and(|run| run.agent().is_some()));
    let shim = runs(&lab)[0].shim();
    let stat = read(format!("/proc/{shim}/stat"));
    let watcher = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
    daemon.kill9();
    signal("0", watcher.parse().unwrap());
    go(&lab);
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{watcher}/stat")).unwrap_or_default();
        !stat.contains("(rota nursery)") || stat.contains(") Z")
    };
    until("it has ended", is_gone);
}
