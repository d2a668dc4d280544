//! Gitea and Forgejo. Lists are newest first, in pages as long as the server likes; labels go by their number, an unknown
//! one is passed over in silence, and two may have one name.

use std::sync::PoisonError;

use hyper::Method;
use hyper::header::HeaderName;
use rota_core::{TaskId, UnixMillis};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::http::{Call, Connection};
use super::listing::Listing;
use super::wire::{WireComment, WireIssue, WireLabel, WireRepository};
use super::{Comment, Issue, OpenIssues, Repository, Source, Trouble};
use rota_daemon::config::{TrackerConfig, TrackerKind};
use rota_net::encode;

/// The longest page a server gives.
const PAGE: usize = 50;
/// No tracker has more pages.
const PAGES: usize = 20_000;
/// A list that moves while it is read is read again, so often.
const READINGS: u32 = 3;

/// A repository on a Gitea or Forgejo server.
pub struct Gitea {
    connection: Connection,
    config: TrackerConfig,
    claim_label: String,
    /// The claim label, once it was found.
    label: std::sync::Mutex<Option<KnownLabel>>,
    listing: Mutex<Listing>,
}

/// A label that exists, and where: in the repository, or in the organisation that owns it.
#[derive(Clone, Copy)]
struct KnownLabel {
    id: u64,
    is_of_organisation: bool,
}

impl Gitea {
    /// Prepares it; nothing is sent yet.
    pub fn new(connection: Connection, config: TrackerConfig, claim_label: String) -> Self {
        let (label, listing) = (std::sync::Mutex::default(), Mutex::default());
        Self { connection, config, claim_label, label, listing }
    }

    fn known_label(&self) -> Option<KnownLabel> {
        *self.label.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know_label(&self, label: Option<KnownLabel>) {
        *self.label.lock().unwrap_or_else(PoisonError::into_inner) = label;
    }

    /// The path of labels: the repository's own, or its organisation's.
    fn labels_path(&self, is_of_organisation: bool, rest: &str) -> String {
        if is_of_organisation {
            format!("/orgs/{}/labels{rest}", encode(&self.config.owner))
        } else {
            self.connection.path(&format!("/labels{rest}"))
        }
    }

    /// Every page of issues. Items that were on a page already are passed over.
    async fn pages(&self, query: &str) -> Result<Vec<WireIssue>, Trouble> {
        let mut reading = 0;
        loop {
            reading += 1;
            let (issues, total) = self.read_pages(query).await?;
            // Something was closed while we read: what followed it moved to a page that was read before.
            if issues.len() as u64 >= total || reading >= READINGS {
                return Ok(issues);
            }
        }
    }

    async fn read_pages(&self, query: &str) -> Result<(Vec<WireIssue>, u64), Trouble> {
        let mut issues: std::collections::BTreeMap<u64, WireIssue> = std::collections::BTreeMap::new();
        let mut total = 0;
        for page in 1..=PAGES {
            let path = self.connection.path(&format!("/issues?type=issues&{query}&page={page}&limit={PAGE}"));
            let answer = self.connection.call(Call::get(&path)).await?;
            let items: Vec<WireIssue> = answer.json("the list of issues")?;
            let stated = answer.number(HeaderName::from_static("x-total-count"));
            total = stated.unwrap_or(total);
            let is_last = items.is_empty();
            issues.extend(items.into_iter().map(|issue| (issue.number, issue)));
            if is_last || stated.is_some_and(|stated| issues.len() as u64 >= stated) {
                break;
            }
        }
        Ok((issues.into_values().collect(), total))
    }

    /// The repository's own label goes first. An owner that is a user has no organisation, hence no further labels.
    async fn find_label(&self) -> Result<Option<KnownLabel>, Trouble> {
        for is_of_organisation in [false, true] {
            match self.find_label_among(is_of_organisation).await {
                Ok(Some(id)) => return Ok(Some(KnownLabel { id, is_of_organisation })),
                Ok(None) => {}
                Err(Trouble::NotFound { .. } | Trouble::Forbidden { .. }) if is_of_organisation => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(None)
    }

    async fn find_label_among(&self, is_of_organisation: bool) -> Result<Option<u64>, Trouble> {
        let mut found: Vec<u64> = Vec::new();
        let mut seen = 0_u64;
        for page in 1..=PAGES {
            let path = self.labels_path(is_of_organisation, &format!("?page={page}&limit={PAGE}"));
            let answer = self.connection.once(&Call::get(&path)).await?;
            let labels: Vec<WireLabel> = answer.json("the list of labels")?;
            let total = answer.number(HeaderName::from_static("x-total-count"));
            let is_last = labels.is_empty();
            seen += labels.len() as u64;
            let named = labels.iter().filter(|label| label.name == self.claim_label);
            found.extend(named.map(|label| label.id));
            if is_last || total.is_some_and(|total| seen >= total) {
                break;
            }
        }
        // Two of one name can be told apart by their number only: the first is ours.
        Ok(found.into_iter().min())
    }
}

impl Source for Gitea {
    fn key(&self) -> String {
        format!("gitea/{}/{}", self.config.owner, self.config.repo)
    }

    fn task(&self, number: u64) -> TaskId {
        TaskId::from_stored(format!("{}#{number}", self.key()).into())
    }

    fn kind(&self) -> Option<TrackerKind> {
        Some(TrackerKind::Gitea)
    }

    async fn check(&self) -> Result<Repository, Trouble> {
        repository(&self.connection).await
    }

    async fn has_claim_label(&self) -> Result<bool, Trouble> {
        if let Some(KnownLabel { id, is_of_organisation }) = self.known_label() {
            let path = self.labels_path(is_of_organisation, &format!("/{id}"));
            let label: Result<WireLabel, Trouble> =
                self.connection.once(&Call::get(&path)).await.and_then(|answer| answer.json("the label"));
            match label {
                Ok(label) if label.name == self.claim_label => return Ok(true),
                Ok(_) | Err(Trouble::NotFound { .. }) => self.know_label(None),
                Err(trouble) => return Err(trouble),
            }
        }
        let found = self.find_label().await?;
        self.know_label(found);
        Ok(found.is_some())
    }

    async fn open_issues(&self) -> Result<OpenIssues, Trouble> {
        let mut listing = self.listing.lock().await;
        match listing.since(self.connection.patience().listing) {
            Some(since) => {
                let query = format!("state=all&since={}", encode(&UnixMillis::to_seconds_text(since)));
                let changed = self.pages(&query).await?;
                listing.take_in(changed);
            }
            None => {
                let began = Instant::now();
                let issues = self.pages("state=open").await?;
                listing.replace(issues, began);
            }
        }
        Ok(listing.open())
    }

    async fn issue(&self, number: u64) -> Result<Option<Issue>, Trouble> {
        one_issue(&self.connection, number).await
    }

    async fn add_claim_label(&self, number: u64) -> Result<(), Trouble> {
        let label = match self.known_label() {
            Some(label) => Some(label),
            None => self.find_label().await?,
        };
        self.know_label(label);
        let path = self.connection.path(&format!("/issues/{number}/labels"));
        let missing = || Trouble::NotFound { what: "the claim label".to_owned(), status: 404 };
        let body = Some(json!({"labels": [label.ok_or_else(missing)?.id]}));
        self.connection.call(Call { method: Method::POST, path: &path, body }).await.map(drop)
    }

    async fn remove_label(&self, issue: &Issue, name: &str) -> Result<(), Trouble> {
        for label in issue.labels.iter().filter(|label| label.name == name) {
            let path = self.connection.path(&format!("/issues/{}/labels/{}", issue.number, label.id));
            let call = Call { method: Method::DELETE, path: &path, body: None };
            match self.connection.call(call).await {
                Ok(_) | Err(Trouble::NotFound { .. }) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    async fn forget(&self, number: u64) {
        self.listing.lock().await.forget(number);
    }

    async fn comments(&self, number: u64) -> Result<Vec<Comment>, Trouble> {
        let path = self.connection.path(&format!("/issues/{number}/comments"));
        let comments: Vec<WireComment> =
            self.connection.call(Call::get(&path)).await?.json("the comments")?;
        Ok(comments.into_iter().map(Comment::from).collect())
    }

    async fn delete_comment(&self, id: u64) -> Result<(), Trouble> {
        delete_comment(&self.connection, id).await
    }

    async fn comment(&self, number: u64, text: &str) -> Result<(), Trouble> {
        add_comment(&self.connection, number, text).await
    }

    async fn close(&self, number: u64) -> Result<(), Trouble> {
        close(&self.connection, number).await
    }
}

/// The repository, which must be accessible and not archived; the same on every tracker.
pub(super) async fn repository(connection: &Connection) -> Result<Repository, Trouble> {
    let path = connection.path("");
    let repository: WireRepository = connection.once(&Call::get(&path)).await?.json("the repository")?;
    if repository.archived {
        return Err(Trouble::Locked { what: format!("GET {path}") });
    }
    Ok(repository.into())
}

/// One issue; the same on every tracker.
pub(super) async fn one_issue(connection: &Connection, number: u64) -> Result<Option<Issue>, Trouble> {
    let path = connection.path(&format!("/issues/{number}"));
    match connection.call(Call::get(&path)).await {
        Ok(answer) => Ok(Some(answer.json::<WireIssue>("the issue")?.into())),
        Err(Trouble::NotFound { .. }) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Not tried again here: it may have been said before the answer was lost.
pub(super) async fn add_comment(connection: &Connection, number: u64, text: &str) -> Result<(), Trouble> {
    let path = connection.path(&format!("/issues/{number}/comments"));
    let call = Call { method: Method::POST, path: &path, body: Some(json!({"body": text})) };
    connection.once(&call).await.map(drop)
}

pub(super) async fn delete_comment(connection: &Connection, id: u64) -> Result<(), Trouble> {
    let path = connection.path(&format!("/issues/comments/{id}"));
    match connection.call(Call { method: Method::DELETE, path: &path, body: None }).await {
        Ok(_) | Err(Trouble::NotFound { .. }) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

pub(super) async fn close(connection: &Connection, number: u64) -> Result<(), Trouble> {
    let path = connection.path(&format!("/issues/{number}"));
    let body = Some(json!({"state": "closed"}));
    connection.call(Call { method: Method::PATCH, path: &path, body }).await.map(drop)
}
