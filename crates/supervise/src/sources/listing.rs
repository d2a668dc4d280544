//! The open issues of a tracker as they were listed last: once in full, then only what changed since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rota_core::UnixMillis;
use tokio::time::Instant;

use super::OpenIssues;
use super::wire::WireIssue;

/// Changes are asked for from a little before the newest one that was seen: trackers stamp before they commit.
const OVERLAP_MS: i64 = 5_000;

/// What is known of the open issues.
#[derive(Default)]
pub(super) struct Listing {
    open: OpenIssues,
    newest: Option<UnixMillis>,
    listed_at: Option<Instant>,
    /// Something was closed while pages were turned: a neighbour may have slipped from one page to another.
    is_shaky: bool,
}

impl Listing {
    /// From when changes must be asked for; none if everything must be listed again.
    pub fn since(&self, trusted_for: Duration) -> Option<UnixMillis> {
        let fresh = self.listed_at.is_some_and(|at| at.elapsed() < trusted_for) && !self.is_shaky;
        self.newest.filter(|_| fresh).map(|newest| newest.plus_ms(-OVERLAP_MS))
    }

    pub fn open(&self) -> OpenIssues {
        Arc::clone(&self.open)
    }

    /// An issue is gone that no list of changes will report.
    pub fn forget(&mut self, number: u64) {
        Arc::make_mut(&mut self.open).remove(&number);
    }

    /// Everything was listed.
    pub fn replace(&mut self, issues: Vec<WireIssue>, began: Instant) {
        self.newest = None;
        self.open = Arc::new(BTreeMap::new());
        self.is_shaky = false;
        self.take_in(issues);
        self.listed_at = Some(began);
    }

    /// Changes were listed, closed ones too.
    pub fn take_in(&mut self, issues: Vec<WireIssue>) {
        let is_first = self.listed_at.is_some_and(|at| at.elapsed() < Duration::from_secs(120));
        let open = Arc::make_mut(&mut self.open);
        for issue in issues {
            let updated = issue.updated_at.as_deref().and_then(|text| text.parse::<UnixMillis>().ok());
            self.newest = self.newest.max(updated);
            if issue.pull_request.is_some() {
                continue;
            }
            if issue.state == "open" {
                open.insert(issue.number, issue.listed());
            } else if open.remove(&issue.number).is_some() && is_first {
                self.is_shaky = true;
            }
        }
    }
}
