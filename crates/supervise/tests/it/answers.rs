//! What trackers say and how often they are asked: pages, pull requests, odd statuses, limits, calls that hang.

use std::time::Duration;

use rota_core::Status;
use rota_supervise::cycle::FailureCode;
use rota_supervise::sources::{Patience, Source};
use rota_testbed::tracker::{Dialect, When};

use crate::support::{LABEL, Place, gitea, gitea_with, github, patience, tracker};

/// Pages are read to their end before the lowest is chosen, and pull requests are left out.
#[tokio::test]
async fn the_lowest_of_all_pages() {
    let place = Place::new();
    place.allow(10).await;
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let tracker = tracker(dialect, 0);
        tracker.with(|world| {
            world.page = 30;
            world.add_pull_request("not an issue");
            world.labels.insert(0, (3, LABEL.to_owned()));
            for number in 2..=260 {
                if number % 5 == 0 {
                    world.add_pull_request("pull")
                } else {
                    world.add("issue")
                };
            }
            // A person works on the first.
            world.label(2, 9);
        });
        let claimed = match dialect {
            Dialect::Gitea => {
                let mut supervisor = gitea(&place, &tracker, "a");
                [supervisor.claim().await, supervisor.claim().await, supervisor.claim().await]
            }
            Dialect::GitHub => {
                let mut supervisor = github(&place, &tracker, "a");
                [supervisor.claim().await, supervisor.claim().await, supervisor.claim().await]
            }
        };
        assert_eq!(claimed, [Ok(3), Ok(4), Ok(6)], "{dialect:?}");
        // Of two labels of one name it is the one with the lower number.
        assert_eq!(tracker.with(|world| world.issues[&3].labels.clone()), [3], "{dialect:?}");
    }
}

/// An idle cycle on 10,000 open issues makes at most four requests; changes are seen all the same.
#[tokio::test]
async fn idle_cycles_are_cheap() {
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let place = Place::new();
        let tracker = tracker(dialect, 10_000);
        macro_rules! idle {
            ($supervisor:expr) => {{
                let mut supervisor = $supervisor;
                assert_eq!(supervisor.claim().await, Ok(1));
                tracker.requests();
                // The first one after a change sees the change.
                assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
                for _ in 0..3 {
                    tracker.requests();
                    assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
                    let requests = tracker.requests();
                    assert!(requests.len() <= 4, "{dialect:?}: {requests:?}");
                }
                tracker.with(|world| {
                    world.set_open(1, false);
                    world.label(2, 9);
                });
                assert_eq!(supervisor.claim().await, Ok(3), "closed and labelled ones are seen");
            }};
        }
        match dialect {
            Dialect::Gitea => idle!(gitea(&place, &tracker, "a")),
            Dialect::GitHub => idle!(github(&place, &tracker, "a")),
        }
    }
}

/// Every odd answer has a meaning, nothing is claimed, and the token is in no message.
#[tokio::test]
async fn odd_answers() {
    let place = Place::new();
    let json = "application/json";
    for (status, kind, body, word) in [
        (401, json, "{}", "auth_failed"),
        (403, json, "", "auth_failed"),
        (404, json, "{}", "auth_failed"),
        (404, "text/html", "<html>", "invalid_response"),
        (409, json, "{}", "invalid_response"),
        (422, json, "{}", "invalid_response"),
        (423, json, "{}", "auth_failed"),
        (429, "text/html", "<html>", "unreachable"),
        (500, json, "{}", "unreachable"),
        (503, "text/html", "<html>", "unreachable"),
        (302, "text/html", "", "invalid_response"),
        (200, "text/html", "<html>", "invalid_response"),
        (200, json, "[", "invalid_response"),
    ] {
        let tracker = tracker(Dialect::Gitea, 1);
        tracker.with(|world| world.only_answer = Some((status, kind, body)));
        let mut supervisor = gitea(&place, &tracker, "a");
        let (lines, ended) = supervisor.cycle().await;
        assert_eq!(ended.code, Some(FailureCode::EnvironmentFailed), "{status} {kind}");
        assert_eq!(lines[3], format!("ENV_VALID=false failure=environment.gitea.{word}"), "{status} {kind}");
        assert!(!supervisor.warnings.is_empty());
        assert!(!format!("{:?}{lines:?}", supervisor.warnings).contains(rota_testbed::tracker::TOKEN));
    }
    assert_eq!(place.statuses("gitea/acme/shop").await, []);
}

#[tokio::test]
async fn archived_missing_label_and_nobody_there() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 1);
    let mut supervisor = gitea(&place, &tracker, "a");
    tracker.with(|world| world.is_archived = true);
    assert_eq!(supervisor.cycle().await.0[3], "ENV_VALID=false failure=environment.gitea.auth_failed");
    tracker.with(|world| (world.is_archived, world.labels) = (false, vec![(7, "bug".into())]));
    assert_eq!(supervisor.cycle().await.0[3], "ENV_VALID=false failure=environment.labels.missing");
    tracker.with(|world| world.labels.push((9, LABEL.into())));
    assert_eq!(supervisor.claim().await, Ok(1));
    let mut supervisor = gitea(&place, &tracker, "b");
    drop(tracker);
    let (lines, _) = supervisor.cycle().await;
    assert_eq!(lines[3], "ENV_VALID=false failure=environment.gitea.unreachable");
}

/// When the limit is spent nothing is asked until it is over.
#[tokio::test]
async fn limits_are_obeyed() {
    let place = Place::new();
    let tracker = tracker(Dialect::GitHub, 3);
    tracker.with(|world| world.limit = Some((0, 3_000)));
    let mut supervisor = github(&place, &tracker, "a");
    let (lines, _) = supervisor.cycle().await;
    assert_eq!(lines[3], "ENV_VALID=false failure=environment.github.unreachable");
    assert!(supervisor.warnings.iter().any(|text| text.contains("rate limited by the tracker")));
    tracker.requests();
    supervisor.cycle().await;
    assert_eq!(tracker.requests(), Vec::<String>::new());
    // A limit of a second passes by itself.
    tracker.with(|world| world.limit = Some((0, 1)));
    let mut supervisor = github(&place, &tracker, "a");
    assert_eq!(supervisor.claim().await, Err(FailureCode::EnvironmentFailed));
    tracker.with(|world| world.limit = None);
    let start = std::time::Instant::now();
    while supervisor.claim().await != Ok(1) {
        assert!(start.elapsed() < Duration::from_secs(60), "the limit never ended");
    }
}

/// A call that hangs is cut off with its cycle; the claim it belonged to is undone by the next one.
#[tokio::test]
async fn a_hung_call_is_cut_off() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 2);
    let slow = Patience { call: Duration::from_secs(600), ..patience() };
    let mut supervisor = gitea_with(&place, &tracker, "a", slow);
    let mut config = supervisor.shared.config.clone();
    config.cycle_max_runtime_secs = 2;
    let source = {
        let own = crate::support::tracker_config(rota_daemon::config::TrackerKind::Gitea, tracker.api_base());
        let token = rota_store::Secret::from(rota_testbed::tracker::TOKEN);
        let connection = rota_supervise::sources::Connection::new(&own, &token, slow).unwrap();
        rota_supervise::sources::gitea::Gitea::new(connection, own, LABEL.into())
    };
    let mut bounded = crate::support::Supervisor::new(&place, "a", source, config);
    tracker.hold("POST", "/issues/1/labels", When::After, 0);
    let (lines, ended) = bounded.cycle().await;
    assert_eq!(ended.code, Some(FailureCode::RuntimeExceeded), "{:?}", bounded.warnings);
    assert_eq!(lines[5], "CLAIMED #1 label=in-progress verified=false");
    assert_eq!(lines[10], "- failure_code: scheduler.runtime_exceeded");
    assert!(tracker.with(|world| world.has_label(1, LABEL)), "the effect was there before the answer");
    tracker.let_go();
    // Its attempt is counted, the label is taken away, and it is claimed anew.
    assert_eq!(supervisor.claim().await, Ok(1));
    let board = place.board("gitea/acme/shop").await;
    assert_eq!((board[0].task.status, board[0].task.attempts), (Status::Active, 1));
    // A listing that hangs is cut off, too.
    tracker.hold("GET", "/issues", When::Before, 0);
    bounded.state = ended.state;
    assert_eq!(bounded.claim().await, Err(FailureCode::RuntimeExceeded));
    assert_eq!(bounded.state.consecutive_failures, 2);
    assert_eq!(bounded.shared.source.key(), "gitea/acme/shop");
}
