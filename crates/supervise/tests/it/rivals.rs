//! Two supervisors with a store each and one tracker: each names itself in a hidden comment, and the later one yields.

use std::sync::Arc;

use rota_core::Status;
use rota_supervise::cycle::FailureCode;
use rota_supervise::sources::Source;
use rota_testbed::tracker::{Dialect, Tracker, When};

use crate::support::{LABEL, Place, Supervisor, gitea, github, tracker};

fn claims(tracker: &Tracker, number: u64) -> usize {
    tracker.with(|world| {
        let comments = &world.issues[&number].comments;
        comments.iter().filter(|comment| comment.contains("<!-- rota: claim ")).count()
    })
}

/// Both see the issue free. One is held before it sets the label, until the other has claimed it.
async fn race<S: Source>(
    (first, one): (Supervisor<S>, &Place),
    (second, other): (Supervisor<S>, &Place),
    tracker: Arc<Tracker>,
) {
    let key = first.shared.source.key();
    let (mut first, mut second) = (first, second);
    tracker.hold("POST", "/issues/1/labels", When::Before, 0);
    let late = tokio::spawn(async move {
        let (lines, ended) = second.cycle().await;
        (second, lines, ended)
    });
    let waiting = Arc::clone(&tracker);
    tokio::task::spawn_blocking(move || waiting.wait_until_held()).await.unwrap();
    // The request that is held stays so; those of the other supervisor go by.
    tracker.hold("POST", "/never", When::Before, 0);
    assert_eq!(first.claim().await, Ok(1));
    tracker.let_go();
    let (mut second, lines, ended) = late.await.unwrap();
    assert_eq!(ended.code, Some(FailureCode::ClaimFailed), "{lines:?}");
    assert_eq!(lines[5], "CLAIMED #1 label=in-progress verified=false");
    assert!(
        second.warnings.iter().any(|text| text.contains("was faster: this one yields")),
        "{:?}",
        second.warnings
    );
    assert_eq!(one.statuses(&key).await, [(1, Status::Active)]);
    assert_eq!(other.statuses(&key).await, [(1, Status::Open)]);
    assert_eq!(other.board(&key).await[0].task.attempts, 0);
    assert_eq!(claims(&tracker, 1), 1, "the later one has taken its name back");
    assert!(tracker.with(|world| world.has_label(1, LABEL)), "the label is the faster one's");
    // The faster one keeps it, the later one goes on with the next issue.
    assert_eq!(first.claim().await, Err(FailureCode::NoTasks));
    assert_eq!(one.statuses(&key).await, [(1, Status::Active)]);
    assert_eq!(second.claim().await, Ok(2));
    // A person takes the label away: until the holder has noticed, nobody else takes the issue.
    tracker.with(|world| {
        world.unlabel(1);
        world.set_open(2, false);
    });
    assert_eq!(second.claim().await, Ok(3), "{:?}", second.warnings);
    assert!(tracker.with(|world| !world.has_label(1, LABEL)));
    assert_eq!(claims(&tracker, 2), 0, "what is done is not claimed");
    tracker.with(|world| world.set_open(1, false));
    assert_eq!(first.claim().await, Err(FailureCode::NoTasks));
    assert_eq!((claims(&tracker, 1), claims(&tracker, 3)), (0, 1));
}

#[tokio::test]
async fn on_gitea_with_sqlite_and_postgresql() {
    let (one, other) = (Place::new(), Place::on_postgresql().await);
    let tracker = Arc::new(tracker(Dialect::Gitea, 3));
    // The same name on both: hosts in containers are called alike.
    race((gitea(&one, &tracker, "a"), &one), (gitea(&other, &tracker, "a"), &other), tracker).await;
}

#[tokio::test]
async fn on_github() {
    let (one, other) = (Place::new(), Place::new());
    let tracker = Arc::new(tracker(Dialect::GitHub, 3));
    race((github(&one, &tracker, "a"), &one), (github(&other, &tracker, "a"), &other), tracker).await;
}

/// An issue without the label that another store's supervisor has is passed over, and claimed once the claim is gone.
#[tokio::test]
async fn a_claim_without_a_label() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 2);
    tracker
        .with(|world| world.say(1, "bot", "Rota works.\n\n<!-- rota: claim 0123456789abcdef lease-x-1 -->"));
    tracker.with(|world| {
        world.say(2, "bot", "> <!-- rota: claim 0123456789abcdef lease-x-1 -->\nwhat is this?")
    });
    let mut supervisor = gitea(&place, &tracker, "a");
    assert_eq!(supervisor.claim().await, Ok(2), "a quoted marker is none");
    assert!(supervisor.warnings.iter().any(|text| text.contains("the supervisor of store 0123456789abcdef")));
    assert_eq!(place.statuses("gitea/acme/shop").await, [(1, Status::Open), (2, Status::Active)]);
    assert!(tracker.with(|world| !world.has_label(1, LABEL)));
}
