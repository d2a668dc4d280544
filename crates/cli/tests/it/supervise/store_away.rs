//! A server that cannot be reached when the supervisor starts: failed cycles with backoff, then cycles as ever.

use rota_testbed::Server;

use super::{line, read, repository_on, state, write};
use crate::support::Lab;

#[test]
fn postgresql_away_at_the_start() {
    let lab = repository_on(Lab::on("postgres://nobody@127.0.0.1:1/none".to_owned()), "source: local");
    for (count, sleep) in [(1, 60), (2, 120), (3, 180)] {
        let ran = lab.line("supervise --once");
        assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
        assert!(line(&ran, "CYCLE_START").starts_with(&format!("CYCLE_START count={count} ")));
        assert_eq!(line(&ran, "- failure_code"), "- failure_code: scheduler.exception");
        assert_eq!(line(&ran, "SLEEP"), format!("SLEEP seconds={sleep}"));
        assert_eq!(
            (line(&ran, "GOVERNANCE_VALID"), line(&ran, "CLAIMED")),
            ("GOVERNANCE_VALID=skipped", "CLAIMED none")
        );
        assert!(ran.stderr.starts_with("warning: "), "{}", ran.stderr);
        assert_eq!(ran.stdout.lines().count(), 12, "{}", ran.stdout);
    }
    assert_eq!(state(&lab)["consecutive_failures"], 3);
    let before = read(&lab, "agents/state/scheduler_state.json");
    // What cannot pass by itself still ends it, and counts no cycle.
    let broken = lab.line("ROTA_STORE=postgres://nobody@127.0.0.1:x/none supervise --once");
    assert_eq!((broken.code, broken.stdout.as_str()), (1, ""), "{}", broken.stderr);
    assert_eq!(read(&lab, "agents/state/scheduler_state.json"), before);
    let ran = lab.line(&format!("ROTA_STORE={} supervise --once", Server::shared().fresh_url()));
    assert_eq!((ran.code, state(&lab)["consecutive_failures"].as_u64()), (0, Some(3)), "{}", ran.stderr);
    assert_eq!(line(&ran, "GOVERNANCE_VALID"), "GOVERNANCE_VALID=true");
}

/// It goes on by itself once the server is there, and a signal ends the wait.
#[test]
fn the_wait_ends_by_a_signal() {
    let lab = repository_on(Lab::on("postgres://nobody@127.0.0.1:1/none".to_owned()), "source: local");
    write(&lab, "s.json", "{\"cycle_interval_seconds\": 1}");
    let child = super::start(&lab, &["--settings", "s.json"]);
    let counted =
        || lab.path().join("agents/state/scheduler_state.json").exists() && state(&lab)["cycle_count"] == 1;
    super::until("a cycle has failed", counted);
    crate::daemon::signal("TERM", child.id());
    let ran = super::ended(child);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.ends_with("SLEEP seconds=60\n"), "{}", ran.stdout);
}
