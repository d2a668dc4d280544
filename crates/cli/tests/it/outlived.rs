//! What is seen of a workspace whose daemon was killed, and of one that ends.

use std::process::Stdio;

use crate::daemon::{Daemon, configure, runs, until};
use crate::support::Lab;

const WAITS: &str = "  ralph: {run: 'until test -e go; do sleep 0.02; done'}\n";

fn running(lab: &Lab) -> (i32, serde_json::Value) {
    let ran = lab.line("status --json");
    (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_default())
}

/// After kill -9 `rota status` names the agents that are alive; the next daemon knows since when they run.
#[test]
fn agents_of_a_killed_daemon_are_named_and_keep_their_age() {
    let lab = Lab::new();
    configure(&lab, WAITS);
    lab.line("loop add --kind ralph --id a").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || runs(&lab).first().is_some_and(|run| run.agent().is_some()));
    let agent = runs(&lab)[0].agent().unwrap();
    until("it has an age", || running(&lab).1["running"][0]["runningSecs"].as_u64() >= Some(2));
    daemon.kill9();
    let ran = lab.line("status");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("1 agent runs without a daemon"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n  a  iteration 1  ") && ran.stdout.contains(&format!("  pid {agent}\n")));
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    let (code, shown) = running(&lab);
    assert_eq!((code, &shown["daemon"], &shown["agents"][0]["id"]), (2, &false.into(), &"a".into()));
    assert_eq!(shown["agents"][0]["pid"], agent);
    let daemon = Daemon::start(&lab);
    let age = running(&lab).1["running"][0]["runningSecs"].as_u64().unwrap();
    assert!(age >= 2, "it began {age} s ago");
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("it completes", || crate::daemon::states(&lab) == ["a complete"]);
    daemon.down(&lab);
    let ran = lab.line("status");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "nothing is left");
}

/// Several at once ask one daemon to end. It ends, and those that found it say so.
#[test]
fn every_down_says_that_it_stopped() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'trap \"sleep 1; exit 0\" TERM; echo > began; sleep 1000 & wait'}\n");
    lab.line("loop add --kind ralph --id a").ok();
    let mut daemon = Daemon::start(&lab);
    until("it runs", || lab.path().join("began").exists());
    let down = || lab.command().arg("down").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let downs: Vec<_> = (0..4).map(|_| down()).collect();
    let mut stopped = 0;
    for down in downs {
        let output = down.wait_with_output().unwrap();
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        stopped += usize::from(said == "stopped\n");
        // One that came after the end found nothing to stop.
        assert!(said == "stopped\n" || wrong.contains("no rota up runs here"), "{said}{wrong}");
    }
    assert!(stopped > 0);
    crate::daemon::wait_for(&mut daemon.0);
}
