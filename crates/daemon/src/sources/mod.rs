//! Where issues come from: a tracker on a server, or the store itself. A source only reads and writes; what is selected
//! and what follows is decided elsewhere, and nothing here keeps a lease.

pub mod gitea;
pub mod github;
mod http;
mod listing;
pub mod local;
mod trouble;
mod wire;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rota_core::TaskId;

pub use http::Connection;
pub use trouble::Trouble;

use crate::config::TrackerKind;

/// One issue, as its tracker has it now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// One line.
    pub title: String,
    /// The text.
    pub body: String,
    /// Its labels.
    pub labels: Vec<Label>,
    /// Whether it is not closed.
    pub is_open: bool,
    /// Whether it is a pull request, which is none of our business.
    pub is_pull_request: bool,
}

impl Issue {
    /// Whether it has a label of this name.
    pub fn has_label(&self, name: &str) -> bool {
        self.labels.iter().any(|label| label.name == name)
    }
}

/// A label on an issue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Its number, where the tracker goes by it.
    pub id: u64,
    /// Its name, which may not be unique.
    pub name: String,
}

/// An open issue in a list, which may be a little old.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// One line.
    pub title: String,
    /// Whether it has the claim label.
    pub is_claimed: bool,
}

/// The open issues by number.
pub type OpenIssues = Arc<BTreeMap<u64, Listed>>;

/// How patient a source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// For one call.
    pub call: Duration,
    /// Before a call is tried again, doubling.
    pub pause: Duration,
    /// How long a full listing is trusted.
    pub listing: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(10),
            pause: Duration::from_millis(200),
            listing: Duration::from_secs(3_600),
        }
    }
}

/// A place that has issues. Every call is bounded in time, and may be repeated: its effect is the same.
pub trait Source: Send + Sync + 'static {
    /// Which tracker, e.g. `gitea/owner/repo`.
    fn key(&self) -> String;

    /// The task of an issue.
    fn task(&self, number: u64) -> TaskId;

    /// What the server speaks; none without a server.
    fn kind(&self) -> Option<TrackerKind>;

    /// Whether it answers, and lets us.
    fn check(&self) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Whether the claim label exists.
    fn has_claim_label(&self) -> impl Future<Output = Result<bool, Trouble>> + Send;

    /// Every open issue, pull requests left out.
    fn open_issues(&self) -> impl Future<Output = Result<OpenIssues, Trouble>> + Send;

    /// One issue as it is now; none if there is no such issue.
    fn issue(&self, number: u64) -> impl Future<Output = Result<Option<Issue>, Trouble>> + Send;

    /// Sets the claim label. That it was taken is no proof that it is there.
    fn add_claim_label(&self, number: u64) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Takes the claim label away.
    fn remove_claim_label(&self, issue: &Issue) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// What was said about an issue.
    fn comments(&self, number: u64) -> impl Future<Output = Result<Vec<String>, Trouble>> + Send;

    /// Says something about an issue; twice, if it is called twice.
    fn comment(&self, number: u64, text: &str) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Closes an issue.
    fn close(&self, number: u64) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Says something once, however often it is asked: `mark` is looked for first, and goes with it.
pub async fn comment_once<S: Source>(source: &S, number: u64, mark: &str, text: &str) -> Result<(), Trouble> {
    let mark = format!("<!-- rota: {mark} -->");
    let mut tries = 0;
    loop {
        if source.comments(number).await?.iter().any(|comment| comment.contains(&mark)) {
            return Ok(());
        }
        match source.comment(number, &format!("{text}\n\n{mark}")).await {
            // It may have been said before the answer was lost: look again.
            Err(trouble) if trouble.may_pass() && tries < 2 => tries += 1,
            said => return said,
        }
    }
}
