//! Real clients agree with the servers of these tests on every call we make: what `py-gitea` and `PyGithub` read and
//! change is what our sources read and change.

use std::path::{Path, PathBuf};
use std::process::Command;

use rota_supervise::sources::{Source, comment_once};
use rota_testbed::tracker::{Dialect, TOKEN, TrackedIssue, Tracker, World};
use serde_json::Value;

use crate::support::{LABEL, Place, gitea, github, tracker};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients");

/// Installed when they are missing, of fixed versions, below the target folder.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tracker-clients");
    let status = Command::new(format!("{SCRIPTS}/install-trackers")).arg(&folder).status().unwrap();
    assert!(status.success(), "{SCRIPTS}/install-trackers failed");
    folder.join("python/bin/python")
}

/// What the client saw; it worked on issue 1.
fn drive(tracker: &Tracker, kind: &str) -> Value {
    let root = tracker.with(|world| world.root.clone());
    let output = Command::new(python())
        .args([&format!("{SCRIPTS}/trackers.py"), kind, &root, TOKEN])
        .env_remove("http_proxy")
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fill(world: &mut World) {
    world.page = 30;
    for number in 3..=130 {
        if number % 4 == 0 {
            world.add_pull_request("pull")
        } else {
            world.add("issue")
        };
    }
}

/// Does to issue 2 what the client did to issue 1, and compares.
async fn agree<S: Source>(source: &S, tracker: &Tracker, seen: Value) {
    // The client has closed issue 1 in the end.
    let mut open: Vec<u64> = source.open_issues().await.unwrap().keys().copied().collect();
    open.insert(0, 1);
    assert_eq!(seen["open"], serde_json::json!(open));
    source.check().await.unwrap();
    assert!(source.has_claim_label().await.unwrap());
    assert_eq!(seen["label"], LABEL);
    source.add_claim_label(2).await.unwrap();
    let issue = source.issue(2).await.unwrap().unwrap();
    assert_eq!(seen["labels_after_adding"], serde_json::json!([LABEL]));
    assert!(issue.is_open && issue.has_label(LABEL));
    assert_eq!(seen["title"], "issue 1");
    assert_eq!(issue.title, "issue 2");
    source.remove_label(&issue, LABEL).await.unwrap();
    assert_eq!(seen["labels_after_removing"], serde_json::json!([]));
    comment_once(source, 2, "test", "said").await.unwrap();
    comment_once(source, 2, "test", "said").await.unwrap();
    let comments = source.comments(2).await.unwrap();
    let texts: Vec<&str> = comments.iter().map(|comment| comment.body.as_str()).collect();
    assert_eq!(seen["comments"], serde_json::json!(texts));
    source.close(2).await.unwrap();
    assert_eq!(seen["state"], "closed");
    assert!(source.issue(9_999).await.unwrap().is_none());
    assert_eq!(seen["missing"], true);
    tracker.with(|world| {
        let (theirs, ours) = (world.issues[&1].clone(), world.issues[&2].clone());
        let texts = |issue: &TrackedIssue| -> Vec<String> {
            issue.comments.iter().map(|comment| comment.text.clone()).collect()
        };
        assert_eq!(texts(&theirs), texts(&ours));
        assert_eq!((theirs.is_open, theirs.labels), (ours.is_open, ours.labels));
    });
    source.delete_comment(comments[0].id).await.unwrap();
    source.delete_comment(comments[0].id).await.unwrap();
    assert!(source.comments(2).await.unwrap().is_empty());
}

#[tokio::test]
async fn py_gitea() {
    let place = Place::new();
    let tracker = tracker(Dialect::Gitea, 2);
    tracker.with(fill);
    let seen = drive(&tracker, "gitea");
    agree(&gitea(&place, &tracker, "a").shared.source, &tracker, seen).await;
}

#[tokio::test]
async fn py_github() {
    let place = Place::new();
    let tracker = tracker(Dialect::GitHub, 2);
    tracker.with(fill);
    let seen = drive(&tracker, "github");
    agree(&github(&place, &tracker, "a").shared.source, &tracker, seen).await;
}
