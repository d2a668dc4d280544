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
use sha2::Digest;

pub use http::Connection;
pub use trouble::Trouble;

use rota_daemon::config::{FilterConfig, TrackerKind};

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
    /// The login name of its author, where the tracker says one.
    pub author: Option<String>,
    /// The title of its milestone.
    pub milestone: Option<String>,
    /// Whether it is not closed.
    pub is_open: bool,
    /// Whether it is a pull request, which the supervisor leaves alone.
    pub is_pull_request: bool,
    /// Changes whenever a person comments on the issue or edits it.
    pub version: String,
}

impl Issue {
    /// Whether it has a label of this name.
    pub fn has_label(&self, name: &str) -> bool {
        self.labels.iter().any(|label| label.name == name)
    }

    /// Whether the configuration's filters let it be selected.
    pub fn passes(&self, filters: &FilterConfig) -> bool {
        let labels = self.labels.iter().map(|label| label.name.as_str());
        filters.admits(labels, self.author.as_deref(), self.milestone.as_deref())
    }

    /// A hash of title and body, to tell later whether a person edited them.
    pub fn text_hash(&self) -> String {
        text_hash(&self.title, &self.body)
    }
}

/// The first 64 bits of the SHA-256 of a title and a body.
pub(crate) fn text_hash(title: &str, body: &str) -> String {
    let digest = sha2::Sha256::digest(format!("{title}\0{body}"));
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A comment on an issue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    /// Its number, where the tracker has one.
    pub id: u64,
    /// The login name of its author.
    pub author: Option<String>,
    /// The text.
    pub body: String,
}

impl Comment {
    /// The words behind `<!-- rota: ` of each hidden marker. A marker begins its line, so a quoted one does not count.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        self.body.lines().filter_map(marker)
    }

    /// Whether Rota wrote it.
    pub fn is_rotas(&self) -> bool {
        self.markers().next().is_some()
    }
}

fn marker(line: &str) -> Option<&str> {
    line.trim().strip_prefix(MARKER)?.strip_suffix("-->").map(str::trim)
}

/// How a hidden marker begins.
const MARKER: &str = "<!-- rota: ";

/// The repository behind a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repository {
    /// Whether everybody can open issues in it: the tracker says that it is not private.
    pub is_public: bool,
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
    /// The names of its labels.
    pub labels: Vec<String>,
    /// The login name of its author.
    pub author: Option<String>,
    /// The title of its milestone.
    pub milestone: Option<String>,
    /// As [`Issue::version`].
    pub version: String,
}

impl Listed {
    /// Whether it has a label of this name.
    pub fn has_label(&self, name: &str) -> bool {
        self.labels.iter().any(|label| label == name)
    }

    /// Whether the configuration's filters let it be selected.
    pub fn passes(&self, filters: &FilterConfig) -> bool {
        let labels = self.labels.iter().map(String::as_str);
        filters.admits(labels, self.author.as_deref(), self.milestone.as_deref())
    }
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

    /// Whether it answers and grants access.
    fn check(&self) -> impl Future<Output = Result<Repository, Trouble>> + Send;

    /// Whether the claim label exists.
    fn has_claim_label(&self) -> impl Future<Output = Result<bool, Trouble>> + Send;

    /// Every open issue, pull requests left out.
    fn open_issues(&self) -> impl Future<Output = Result<OpenIssues, Trouble>> + Send;

    /// One issue as it is now; none if there is no such issue.
    fn issue(&self, number: u64) -> impl Future<Output = Result<Option<Issue>, Trouble>> + Send;

    /// Sets the claim label. That it was taken is no proof that it is there.
    fn add_claim_label(&self, number: u64) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Removes a label from an issue, whether or not it is there.
    fn remove_label(&self, issue: &Issue, name: &str) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Drops an issue that turned out to be gone from the list of open ones.
    fn forget(&self, number: u64) -> impl Future<Output = ()> + Send;

    /// The comments on an issue, oldest first.
    fn comments(&self, number: u64) -> impl Future<Output = Result<Vec<Comment>, Trouble>> + Send;

    /// Deletes a comment; one that is gone is no error.
    fn delete_comment(&self, id: u64) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Says something about an issue; twice, if it is called twice.
    fn comment(&self, number: u64, text: &str) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Closes an issue.
    fn close(&self, number: u64) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// A comment's text with its hidden marker.
pub(crate) fn marked(text: &str, mark: &str) -> String {
    format!("{text}\n\n{MARKER}{mark} -->")
}

/// Posts a comment once, however often it is called: a comment with the same marker is looked for first.
pub async fn comment_once<S: Source>(source: &S, number: u64, mark: &str, text: &str) -> Result<(), Trouble> {
    let mut tries = 0;
    loop {
        let is_there = |comment: &Comment| comment.markers().any(|found| found == mark);
        if source.comments(number).await?.iter().any(is_there) {
            return Ok(());
        }
        match source.comment(number, &marked(text, mark)).await {
            // It may have been said before the answer was lost: look again.
            Err(trouble) if trouble.may_pass() && tries < 2 => tries += 1,
            said => return said,
        }
    }
}
