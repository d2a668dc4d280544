//! Which issues are selected: by labels, authors and milestone; none of a public repository without a filter.

use rota_daemon::config::{FilterConfig, SupervisorConfig};
use rota_supervise::cycle::FailureCode;
use rota_supervise::sources::Source;
use rota_testbed::tracker::{Dialect, Tracker};

use crate::support::{LABEL, Place, Supervisor, gitea, github, tracker};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Issue 1 has nothing, 2 the label bug, 3 another author, 4 a milestone, 5 all of them.
fn world(dialect: Dialect) -> Tracker {
    let tracker = tracker(dialect, 5);
    tracker.with(|world| {
        for number in [2, 5] {
            world.label(number, 7);
        }
        for number in [3, 5] {
            world.edit(number, |issue| issue.author = "Bob".into());
        }
        for number in [4, 5] {
            world.edit(number, |issue| issue.milestone = Some("v1".into()));
        }
    });
    tracker
}

fn cases() -> [(FilterConfig, Result<u64, FailureCode>); 8] {
    let none = FilterConfig::default();
    [
        (none.clone(), Ok(1)),
        (FilterConfig { require: names(&["bug"]), ..none.clone() }, Ok(2)),
        (FilterConfig { authors: names(&["bob"]), ..none.clone() }, Ok(3)),
        (FilterConfig { milestone: Some("V1".into()), ..none.clone() }, Ok(4)),
        (FilterConfig { milestone: Some("v1".into()), authors: names(&["bob"]), ..none.clone() }, Ok(5)),
        (FilterConfig { exclude: names(&["Bug"]), authors: names(&["x", "bob"]), ..none.clone() }, Ok(3)),
        (FilterConfig { require: names(&["bug", "ready"]), ..none.clone() }, Err(FailureCode::NoTasks)),
        (FilterConfig { milestone: Some("v2".into()), ..none }, Err(FailureCode::NoTasks)),
    ]
}

#[tokio::test]
async fn filters_on_gitea_and_github() {
    for (filters, wanted) in cases() {
        let set = |config: &mut SupervisorConfig| config.filters = filters.clone();
        let (place, tracker) = (Place::new(), world(Dialect::Gitea));
        assert_eq!(gitea(&place, &tracker, "a").with(set).claim().await, wanted, "{filters:?}");
        let tracker = world(Dialect::GitHub);
        let mut supervisor = github(&place, &tracker, "b").with(set);
        place.allow(5).await;
        assert_eq!(supervisor.claim().await, wanted, "{filters:?}");
    }
}

/// The list may be old: what is read under the lease counts.
#[tokio::test]
async fn a_filter_holds_for_what_is_read_last() {
    let place = Place::new();
    let tracker = std::sync::Arc::new(world(Dialect::Gitea));
    let mut supervisor =
        gitea(&place, &tracker, "a").with(|config| config.filters.require = vec!["bug".into()]);
    tracker.hold("GET", "/issues/2", rota_testbed::tracker::When::Before, 0);
    let other = std::sync::Arc::clone(&tracker);
    let changer = std::thread::spawn(move || {
        other.wait_until_held();
        other.with(|world| world.unlabel(2));
        other.let_go();
    });
    assert_eq!(supervisor.claim().await, Ok(5));
    changer.join().unwrap();
    assert!(tracker.with(|world| !world.has_label(2, LABEL)));
}

async fn public<S: Source>(mut open: Supervisor<S>, filtered: Supervisor<S>, tracker: &Tracker) {
    tracker.with(|world| world.is_private = Some(false));
    let (lines, ended) = open.cycle().await;
    assert_eq!(ended.code, Some(FailureCode::NoTasks));
    assert_eq!(lines[4..6], ["TASK_SELECTED none", "CLAIMED none"]);
    assert_eq!(open.warnings.len(), 1, "{:?}", open.warnings);
    for filter in ["supervisor.labels", "supervisor.authors", "supervisor.milestone"] {
        assert!(open.warnings[0].contains(filter), "{}", open.warnings[0]);
    }
    let mut filtered = filtered.with(|config| config.filters.authors = vec!["alice".into()]);
    assert_eq!(filtered.claim().await, Ok(1));
}

#[tokio::test]
async fn a_public_repository_needs_a_filter() {
    let place = Place::new();
    place.allow(9).await;
    let tracker = world(Dialect::Gitea);
    public(gitea(&place, &tracker, "a"), gitea(&place, &tracker, "b"), &tracker).await;
    let tracker = world(Dialect::GitHub);
    public(github(&place, &tracker, "a"), github(&place, &tracker, "b"), &tracker).await;
    // A tracker that says nothing of it is taken for private, as before.
    let tracker = world(Dialect::GitHub);
    tracker.with(|world| world.is_private = None);
    let place = Place::new();
    assert_eq!(github(&place, &tracker, "a").claim().await, Ok(1));
}

/// A label of the organisation is as good as one of the repository, which goes first.
#[tokio::test]
async fn labels_of_a_gitea_organisation() {
    let place = Place::new();
    place.allow(9).await;
    let tracker = tracker(Dialect::Gitea, 3);
    tracker.with(|world| {
        world.labels = vec![(7, "bug".into())];
        world.organisation_labels = vec![(21, "other".into()), (22, LABEL.into())];
    });
    let mut supervisor = gitea(&place, &tracker, "a");
    assert_eq!(supervisor.claim().await, Ok(1), "{:?}", supervisor.warnings);
    assert_eq!(tracker.with(|world| world.issues[&1].labels.clone()), [22]);
    assert_eq!(supervisor.claim().await, Ok(2), "known by now: {:?}", supervisor.warnings);
    tracker.with(|world| world.set_open(1, false));
    assert_eq!(supervisor.claim().await, Ok(3));
    assert!(tracker.with(|world| world.issues[&1].labels.is_empty()), "removed, too");
    tracker.with(|world| world.labels.push((9, LABEL.into())));
    let fourth = tracker.with(|world| world.add("fourth"));
    let mut fresh = gitea(&place, &tracker, "b");
    assert_eq!(fresh.claim().await, Ok(fourth));
    assert_eq!(tracker.with(|world| world.issues[&fourth].labels.clone()), [9]);
    tracker.with(|world| (world.labels, world.organisation_labels) = (Vec::new(), Vec::new()));
    assert_eq!(fresh.cycle().await.0[3], "ENV_VALID=false failure=environment.labels.missing");
}
