//! One bad issue never blocks the rest.

use std::time::Duration;

use rota_core::Status;
use rota_supervise::cycle::FailureCode;
use rota_supervise::sources::Source;
use rota_testbed::tracker::{Dialect, Tracker};

use crate::support::{Place, Supervisor, dispatch, gitea, github, tracker};

/// No store of PostgreSQL takes a NUL; it is replaced where it comes in.
async fn nul_in_a_title<S: Source>(supervisor: Supervisor<S>, place: &Place, tracker: &Tracker) {
    let key = supervisor.shared.source.key();
    tracker.with(|world| {
        world.edit(1, |issue| (issue.title, issue.body) = ("a\0b".into(), "c\0d".into()));
        world.say(1, "alice", "e\0f");
    });
    let mut supervisor = supervisor.with(|config| config.dispatch = Some(dispatch()));
    let (lines, ended) = supervisor.cycle().await;
    assert_eq!(ended.code, None, "{lines:?} {:?}", supervisor.warnings);
    assert_eq!(lines[4], "TASK_SELECTED #1 \"a\u{fffd}b\"");
    assert_eq!(place.board(&key).await[0].task.title.as_str(), "a\u{fffd}b");
    let prompt = place.prompt(&format!("{key}#1-1")).await;
    assert!(prompt.contains("> c\u{fffd}d\n") && prompt.contains("> e\u{fffd}f\n"), "{prompt}");
}

#[tokio::test]
async fn nul_on_sqlite() {
    let place = Place::new();
    let tracker = tracker(Dialect::GitHub, 1);
    nul_in_a_title(github(&place, &tracker, "a"), &place, &tracker).await;
}

#[tokio::test]
async fn nul_on_postgresql() {
    let place = Place::on_postgresql().await;
    let tracker = tracker(Dialect::Gitea, 1);
    nul_in_a_title(gitea(&place, &tracker, "a"), &place, &tracker).await;
}

/// Issues that vanished since the list was made are passed over in one cycle, however many; so are those that stay in
/// the list and cannot be read.
#[tokio::test]
async fn many_vanished_issues_in_front() {
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let place = Place::new();
        place.allow(2).await;
        let tracker = tracker(dialect, 91);
        macro_rules! vanish {
            ($supervisor:expr, $key:expr) => {{
                let mut supervisor = $supervisor;
                assert_eq!(supervisor.claim().await, Ok(1));
                tracker.with(|world| {
                    (2..=60).for_each(|number| drop(world.issues.remove(&number)));
                    world.ghosts = (61..=90).collect();
                });
                // One cycle is enough unless this machine is very busy.
                let mut claimed = supervisor.claim().await;
                for _ in 0..5 {
                    if claimed == Err(FailureCode::NoTasks) {
                        claimed = supervisor.claim().await;
                    }
                }
                assert_eq!(claimed, Ok(91), "{dialect:?} {:?}", supervisor.warnings);
                let mut held = vec![(1, Status::Active), (91, Status::Active)];
                assert_eq!(place.statuses($key).await, held, "the others are done");
                // They do not come back with the next list either.
                tracker.with(|world| world.set_open(91, false));
                assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
                held.pop();
                assert_eq!(place.statuses($key).await, held);
            }};
        }
        match dialect {
            Dialect::Gitea => vanish!(gitea(&place, &tracker, "a"), "gitea/acme/shop"),
            Dialect::GitHub => vanish!(github(&place, &tracker, "a"), "github/acme/shop"),
        }
    }
}

/// Looking for a free issue ends in time for the cycle to end well; the next cycle goes on behind what was looked at.
#[tokio::test]
async fn the_search_is_bounded_in_time() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 400);
    let mut supervisor = gitea(&place, &tracker, "a").with(|config| config.cycle_max_runtime_secs = 12);
    tracker.with(|world| world.ghosts = (1..=399).collect());
    let start = std::time::Instant::now();
    let mut cycles = 0;
    loop {
        cycles += 1;
        match supervisor.claim().await {
            Ok(number) => break assert_eq!(number, 400),
            Err(code) => assert_eq!(code, FailureCode::NoTasks, "{:?}", supervisor.warnings),
        }
        assert!(start.elapsed() < Duration::from_secs(240), "{cycles} cycles were not enough");
    }
}

/// A gate that refuses makes a failed cycle each time, and parks after `gate_attempts`, whatever `maxAttempts` is.
#[tokio::test]
async fn gate_attempts() {
    for limit in [1, 3, 5] {
        let place = Place::new();
        let tracker = tracker(Dialect::Gitea, 2);
        tracker.with(|world| world.edit(1, |issue| issue.title = "\t".into()));
        let mut supervisor = gitea(&place, &tracker, "a").with(|config| config.gate_attempts = limit);
        for attempt in 1..=limit {
            assert_eq!(supervisor.claim().await, Err(FailureCode::GovernanceFailed), "{attempt}/{limit}");
        }
        assert_eq!(supervisor.claim().await, Ok(2), "{limit}");
        let parked = place.board("gitea/acme/shop").await[0].task.clone();
        let wanted = format!("(attempt {limit}/{limit})");
        assert!(parked.parked_reason.as_ref().is_some_and(|reason| reason.contains(&wanted)), "{parked:?}");
        assert_eq!(supervisor.state.consecutive_failures, 0);
    }
}
