//! What people do in the tracker, labels that are never set, and issues that fail every call.

use rota_core::Status;
use rota_core::transition::Command;
use rota_store::Store;
use rota_store::intents::issues::Mark;
use rota_supervise::cycle::FailureCode;
use rota_testbed::tracker::Dialect;

use crate::support::{LABEL, Place, dispatch, gitea, github, tracker};

const KEY: &str = "gitea/acme/shop";

#[tokio::test]
async fn people_are_respected() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 3);
    let mut supervisor = gitea(&place, &tracker, "a");
    assert_eq!(supervisor.claim().await, Ok(1));
    // A label that somebody takes away is a release; the issue is claimed again, as it is the lowest.
    tracker.with(|world| world.unlabel(1));
    assert_eq!(supervisor.claim().await, Ok(1));
    assert_eq!(place.board(KEY).await[0].task.attempts, 0);
    // Closed by anyone is done.
    tracker.with(|world| world.set_open(1, false));
    assert_eq!(supervisor.claim().await, Ok(2));
    assert!(tracker.with(|world| !world.has_label(1, LABEL)), "our label is gone");
    // Opened again, and labelled by a person: not ours to take.
    tracker.with(|world| {
        world.set_open(1, true);
        world.label(1, 9);
        world.set_open(2, false);
    });
    assert_eq!(supervisor.claim().await, Ok(3));
    tracker.with(|world| {
        world.unlabel(1);
        world.set_open(3, false);
    });
    assert_eq!(supervisor.claim().await, Ok(1), "what was done starts over");
    tracker.with(|world| {
        world.issues.remove(&1);
    });
    assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks), "an issue that is gone is done");
    assert_eq!(place.statuses(KEY).await, []);
}

/// A label that is never there when it is read back: three attempts, then parked with a comment, and the next is tried.
#[tokio::test]
async fn a_label_that_is_never_set() {
    let place = Place::new();
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let tracker = tracker(dialect, 1);
        tracker.with(|world| world.is_deaf = true);
        macro_rules! deaf {
            ($supervisor:expr, $key:expr) => {{
                let mut supervisor = $supervisor;
                for _ in 0..3 {
                    let (lines, ended) = supervisor.cycle().await;
                    assert_eq!(ended.code, Some(FailureCode::ClaimFailed));
                    assert_eq!(lines[5], "CLAIMED #1 label=in-progress verified=false");
                }
                assert_eq!(supervisor.state.backoff_seconds, 180);
                assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
                assert_eq!(place.statuses($key).await, [(1, Status::Parked)]);
                let comments = tracker.with(|world| world.issues[&1].comments.clone());
                assert_eq!(comments.len(), 1);
                assert!(comments[0].contains("not there when it is read back (attempt 3/3)"), "{comments:?}");
                supervisor.claim().await.unwrap_err();
                assert_eq!(tracker.with(|world| world.issues[&1].comments.len()), 1, "told once");
            }};
        }
        match dialect {
            Dialect::Gitea => deaf!(gitea(&place, &tracker, "a"), KEY),
            Dialect::GitHub => deaf!(github(&place, &tracker, "a"), "github/acme/shop"),
        }
    }
}

/// An issue that fails every write costs three cycles, and no more.
#[tokio::test]
async fn a_poisoned_neighbour_blocks_nobody() {
    let place = Place::new();
    place.allow(10).await;
    let tracker = tracker(Dialect::Gitea, 3);
    tracker.with(|world| world.poisoned = vec![1]);
    let mut supervisor = gitea(&place, &tracker, "a");
    for _ in 0..3 {
        assert_eq!(supervisor.claim().await, Err(FailureCode::ClaimFailed));
    }
    assert_eq!(supervisor.claim().await, Ok(2));
    assert_eq!(supervisor.claim().await, Ok(3));
    assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
    assert_eq!(tracker.with(|world| world.issues[&1].comments.len()), 0);
    tracker.with(|world| world.poisoned.clear());
    supervisor.claim().await.unwrap_err();
    assert_eq!(
        tracker.with(|world| world.issues[&1].comments.len()),
        1,
        "it is told as soon as that is possible"
    );
}

/// A supervisor that is gone: another one takes its lease back when it has run out, and its label.
#[tokio::test]
async fn a_supervisor_that_is_gone() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 2);
    let mut gone = gitea(&place, &tracker, "gone");
    assert_eq!(gone.claim().await, Ok(1));
    let mut other = gitea(&place, &tracker, "other");
    assert_eq!(other.claim().await, Err(FailureCode::NoTasks), "the ceiling is one");
    let lease = place.board(KEY).await[0].task.clone();
    let expire = rota_store::intents::settle::Settle::one(
        Place::call(),
        lease.id.clone(),
        rota_core::transition::Command::Renew {
            caller: rota_core::Caller::lease(lease.lease().unwrap()),
            ttl_ms: Some(-1),
        },
    );
    place.store.perform(&expire).await.unwrap().steps.remove(0).unwrap();
    assert_eq!(other.claim().await, Ok(1));
    let board = place.board(KEY).await;
    assert_eq!((board[0].task.assignee.as_deref(), board[0].task.attempts), (Some("other"), 1));
    assert_eq!(board[0].note.mark, Some(Mark::Set));
    // It comes back late, and finds that it holds nothing.
    assert_eq!(gone.claim().await, Err(FailureCode::NoTasks));
    assert!(tracker.with(|world| world.has_label(1, LABEL)));
}

/// Governance that changes while the label is set: the claim is undone.
#[tokio::test]
async fn governance_that_changes_during_a_cycle() {
    let place = Place::new();
    let tracker = std::sync::Arc::new(tracker(Dialect::Gitea, 1));
    let mut supervisor = gitea(&place, &tracker, "a");
    for (method, path, gate) in
        [("GET", "/issues/1", "before the gate"), ("POST", "/issues/1/labels", "after it")]
    {
        tracker.hold(method, path, rota_testbed::tracker::When::Before, 0);
        let (file, other) = (place.folder.path().join("docs/governance.md"), std::sync::Arc::clone(&tracker));
        let original = std::fs::read(&file).unwrap();
        let changer = std::thread::spawn(move || {
            other.wait_until_held();
            std::fs::write(&file, "changed").unwrap();
            other.let_go();
        });
        let (lines, ended) = supervisor.cycle().await;
        changer.join().unwrap();
        assert_eq!(ended.code, Some(FailureCode::GovernanceFailed), "{gate}: {lines:?}");
        assert_eq!(lines[5..7], ["GATE_VALID=false rule=immutability", "CLAIMED none"], "{gate}");
        assert!(tracker.with(|world| !world.has_label(1, LABEL)), "{gate}");
        assert_eq!(place.statuses(KEY).await, [(1, Status::Open)], "{gate}");
        std::fs::write(place.folder.path().join("docs/governance.md"), original).unwrap();
    }
    assert_eq!(supervisor.claim().await, Ok(1));
    assert_eq!(place.board(KEY).await[0].task.attempts, 0, "it was not the issue's fault");
}

/// A loop that has failed gives the issue back with a comment; one that is done closes it, and the comment names branch,
/// commits and diffstat. A result without a commit is refused.
#[tokio::test]
async fn results_reach_the_tracker() {
    let place = Place::new();
    let tracker = tracker(Dialect::GitHub, 1);
    let mut supervisor = github(&place, &tracker, "a").with(|config| config.dispatch = Some(dispatch()));
    assert_eq!(supervisor.claim().await, Ok(1));
    let failed = |caller| Command::Exhaust { caller, reason: "not passed after 3 iterations".into() };
    let done = |caller| Command::Done { caller, result: None };
    place.settle_loop("github/acme/shop#1-1", failed).await;
    assert_eq!(supervisor.claim().await, Ok(1), "open again, and claimed again");
    let comments = tracker.with(|world| world.issues[&1].comments.clone());
    assert!(comments[0].contains("the loop is failed: not passed after 3 iterations"), "{comments:?}");
    place.settle_loop("github/acme/shop#1-2", done).await;
    assert_eq!(supervisor.claim().await, Ok(1), "nothing was delivered");
    let comments = tracker.with(|world| world.issues[&1].comments.clone());
    assert!(comments[1].contains("is not accepted: there is no commit"), "{comments:?}");
    place.commit("src/login.rs", "fixed\n");
    place.settle_loop("github/acme/shop#1-3", done).await;
    assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
    tracker.with(|world| {
        assert!(!world.issues[&1].is_open && !world.has_label(1, LABEL));
        let closing = &world.issues[&1].comments[2];
        assert_eq!(world.issues[&1].comments.len(), 3, "no claim is left");
        for part in ["1 commit on branch m", "add src/login.rs", "src/login.rs | 1 +", "1 insertion(+)"] {
            assert!(closing.contains(part), "{part}: {closing:?}");
        }
    });
}

/// A tracker may say anything: a title and a body of a megabyte, names that look like paths or flags.
#[tokio::test]
async fn hostile_texts_from_a_tracker() {
    let place = Place::new();
    place.allow(10).await;
    let tracker = tracker(Dialect::Gitea, 3);
    tracker.with(|world| {
        let long = "x\u{1b}[2J\n".repeat(200_000);
        for (number, title) in
            [(1, long.as_str()), (2, "a\nCLAIMED #9 label=in-progress verified=true"), (3, "--help $(id)")]
        {
            if let Some(issue) = world.issues.get_mut(&number) {
                (issue.title, issue.body) = (title.to_owned(), long.clone());
            }
        }
    });
    let mut supervisor = gitea(&place, &tracker, "a");
    for number in 1..=3 {
        let (lines, ended) = supervisor.cycle().await;
        assert_eq!(ended.code, None, "{:?}", supervisor.warnings);
        assert_eq!(lines.len(), 11, "every line once");
        assert!(lines.iter().all(|line| !line.contains(['\n', '\u{1b}']) && line.len() < 12_000));
        assert_eq!(lines[5], format!("CLAIMED #{number} label=in-progress verified=true"));
    }
    assert!(place.board(KEY).await.iter().all(|issue| issue.task.title.len() <= 1_000));
}
