//! Parked issues come back when a person answers: by a comment, an edit, or the label `rota:retry`.

use rota_core::Status;
use rota_core::transition::Command;
use rota_supervise::cycle::FailureCode;
use rota_supervise::sources::Source;
use rota_testbed::tracker::{Dialect, Tracker, World};

use crate::support::{LABEL, Place, Supervisor, dispatch, gitea, github, tracker};

fn ask(caller: rota_core::Caller) -> Command {
    Command::Park { caller, reason: "which database?".into() }
}

/// The agent asks (exit code 77 parks its loop), the question is a comment, and each of the ways brings the issue back.
async fn comes_back<S: Source>(supervisor: Supervisor<S>, place: &Place, tracker: &Tracker) {
    let key = supervisor.shared.source.key();
    let mut supervisor = supervisor.with(|config| config.dispatch = Some(dispatch()));
    tracker.with(|world| {
        world.labels.push((11, "rota:retry".into()));
        world.edit(1, |issue| issue.body = "It is slow.".into());
    });
    type Answer = fn(&mut World);
    let answers: [(&str, Answer); 4] = [
        ("a comment", |world| world.say(1, "alice", "The staging one.")),
        ("a changed title", |world| world.edit(1, |issue| issue.title = "Make it fast".into())),
        ("a changed body", |world| world.edit(1, |issue| issue.body = "It is very slow.".into())),
        ("the label", |world| world.label(1, 11)),
    ];
    for (fence, (what, answer)) in (1..).zip(answers) {
        assert_eq!(supervisor.claim().await, Ok(1), "{what}: {:?}", supervisor.warnings);
        place.settle_loop(&format!("{key}#1-{fence}"), ask).await;
        assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks), "{what}: parked");
        assert_eq!(place.statuses(&key).await, [(1, Status::Parked)], "{what}");
        tracker.with(|world| {
            assert!(!world.has_label(1, LABEL), "{what}");
            let told = world.issues[&1].comments.last().unwrap();
            assert!(told.contains("the agent needs a person: which database?"), "{what}: {told:?}");
        });
        // Nothing brings it back by itself, and cycles without news ask for nothing.
        for _ in 0..2 {
            assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks), "{what}");
        }
        tracker.requests();
        assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks), "{what}");
        assert!(tracker.requests().len() <= 4, "{what}");
        tracker.with(answer);
    }
    assert_eq!(supervisor.claim().await, Ok(1), "{:?}", supervisor.warnings);
    assert_eq!(place.board(&key).await[0].task.attempts, 0);
    assert!(tracker.with(|world| !world.has_label(1, "rota:retry")), "it was used up");
    let prompt = place.prompt(&format!("{key}#1-5")).await;
    assert!(prompt.contains("### Comment by alice\n\n> The staging one.\n"), "{prompt}");
    assert!(prompt.contains("not accepted\n\n> it asked a person: which database?\n"), "{prompt}");
    assert!(!prompt.contains("rota:"), "no comment of Rota's own: {prompt}");
}

#[tokio::test]
async fn on_gitea() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 1);
    comes_back(gitea(&place, &tracker, "a"), &place, &tracker).await;
}

#[tokio::test]
async fn on_github_and_postgresql() {
    let place = Place::on_postgresql().await;
    let tracker = tracker(Dialect::GitHub, 1);
    comes_back(github(&place, &tracker, "a"), &place, &tracker).await;
}

/// An issue that its gate refused comes back when its text is put right; with `authors`, only their words count.
#[tokio::test]
async fn any_parked_issue_and_only_for_whom_it_may() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 1);
    let mut supervisor = gitea(&place, &tracker, "a").with(|config| {
        config.filters.authors = vec!["Alice".into()];
        config.gate_attempts = 1;
    });
    tracker.with(|world| world.edit(1, |issue| issue.title = " ".into()));
    assert_eq!(supervisor.claim().await, Err(FailureCode::GovernanceFailed));
    assert_eq!(place.statuses("gitea/acme/shop").await, [(1, Status::Parked)], "at the first refusal");
    assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
    let told = tracker.with(|world| world.issues[&1].comments[0].text.clone());
    assert!(told.contains("pre_computation") && told.contains("(attempt 1/1)"), "{told}");
    tracker.with(|world| world.say(1, "mallory", "do it anyway"));
    assert_eq!(supervisor.claim().await, Err(FailureCode::NoTasks));
    tracker.with(|world| world.edit(1, |issue| issue.title = "fix: the login".into()));
    assert_eq!(supervisor.claim().await, Ok(1), "{:?}", supervisor.warnings);
}
