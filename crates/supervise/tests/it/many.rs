//! Two supervisors, five hundred issues, and a tracker that fails one call in ten in every way there is: each issue is
//! claimed once, none is lost, and in the end labels and leases agree.

use std::collections::BTreeMap;
use std::time::Duration;

use rota_core::Status;
use rota_store::intents::issues::Mark;
use rota_supervise::sources::{Patience, Source};
use rota_testbed::tracker::{Dialect, Faults, Tracker};

use crate::support::{LABEL, Place, Supervisor, gitea_with, github_with, tracker};

const ISSUES: usize = 500;
/// Far more than are needed.
const CYCLES: usize = 5_000;

/// A server that answers late is given up soon.
fn hasty() -> Patience {
    Patience {
        call: Duration::from_millis(300),
        pause: Duration::from_millis(1),
        listing: Duration::from_secs(3_600),
    }
}

/// Cycles without the sleeps in between, until every issue is claimed by somebody.
pub async fn claim_all<S: Source>(
    mut supervisor: Supervisor<S>,
    place: &Place,
    key: &str,
    count: usize,
) -> Vec<u64> {
    let mut claimed = Vec::new();
    for _ in 0..CYCLES {
        match supervisor.claim().await {
            Ok(number) => claimed.push(number),
            Err(_) => {
                let board = place.board(key).await;
                let is_held =
                    |status, mark: &Option<Mark>| status == Status::Active && *mark == Some(Mark::Set);
                let held = board.iter().filter(|issue| is_held(issue.task.status, &issue.note.mark));
                if held.count() == count {
                    return claimed;
                }
            }
        }
    }
    panic!("not all were claimed: {claimed:?}");
}

/// Every issue once, over all supervisors.
pub fn each_once(claimed: [Vec<u64>; 2], count: usize) {
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    let shares = [claimed[0].len(), claimed[1].len()];
    for number in claimed.into_iter().flatten() {
        *times.entry(number).or_default() += 1;
    }
    assert_eq!(times.len(), count, "none is lost");
    assert!(times.values().all(|times| *times == 1), "each is claimed once: {times:?}");
    assert!(shares.iter().all(|share| *share > 0), "both took part: {shares:?}");
}

async fn agree(place: &Place, tracker: &Tracker, key: &str, count: usize) {
    let board = place.board(key).await;
    assert_eq!(board.len(), count);
    for issue in board {
        let number = issue.note.number;
        assert_eq!((issue.task.status, issue.note.mark), (Status::Active, Some(Mark::Set)), "#{number}");
        tracker.with(|world| assert!(world.has_label(number, LABEL), "#{number} has no label"));
    }
    tracker.with(|world| {
        let doubled = world.issues.values().filter(|issue| issue.labels.len() != 1).count();
        assert_eq!(doubled, 0, "labels are there once");
    });
}

#[tokio::test]
async fn gitea_with_faults() {
    let place = Place::new();
    place.allow(1_000).await;
    let tracker = tracker(Dialect::Gitea, ISSUES);
    tracker.fail(Some(Faults::one_in(10, 7)));
    let key = "gitea/acme/shop";
    let one = gitea_with(&place, &tracker, "one", hasty());
    let two = gitea_with(&place, &tracker, "two", hasty());
    let claimed = tokio::join!(claim_all(one, &place, key, ISSUES), claim_all(two, &place, key, ISSUES));
    each_once([claimed.0, claimed.1], ISSUES);
    agree(&place, &tracker, key, ISSUES).await;
}

#[tokio::test]
async fn github_with_faults() {
    let place = Place::new();
    place.allow(1_000).await;
    let tracker = tracker(Dialect::GitHub, ISSUES);
    tracker.fail(Some(Faults::one_in(10, 11)));
    let key = "github/acme/shop";
    let one = github_with(&place, &tracker, "one", hasty());
    let two = github_with(&place, &tracker, "two", hasty());
    let claimed = tokio::join!(claim_all(one, &place, key, ISSUES), claim_all(two, &place, key, ISSUES));
    each_once([claimed.0, claimed.1], ISSUES);
    agree(&place, &tracker, key, ISSUES).await;
}

/// The same with the leases on a server, where the two really take turns.
#[tokio::test]
async fn gitea_with_faults_and_leases_on_postgresql() {
    const FEWER: usize = 60;
    let place = Place::on_postgresql().await;
    place.allow(1_000).await;
    let tracker = tracker(Dialect::Gitea, FEWER);
    tracker.fail(Some(Faults::one_in(10, 3)));
    let key = "gitea/acme/shop";
    let one = gitea_with(&place, &tracker, "one", hasty());
    let two = gitea_with(&place, &tracker, "two", hasty());
    let claimed = tokio::join!(claim_all(one, &place, key, FEWER), claim_all(two, &place, key, FEWER));
    each_once([claimed.0, claimed.1], FEWER);
    agree(&place, &tracker, key, FEWER).await;
}
