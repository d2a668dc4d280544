//! GitHub. Lists go on where the last page's `Link` says; labels go by name; what has not changed is free.

use hyper::Method;
use hyper::header;
use rota_core::{TaskId, UnixMillis};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::gitea::{add_comment, close, delete_comment, one_issue, repository};
use super::http::{Answer, Call, Connection};
use super::listing::Listing;
use super::wire::{WireComment, WireIssue};
use super::{Comment, Issue, OpenIssues, Repository, Source, Trouble};
use rota_daemon::config::{TrackerConfig, TrackerKind};
use rota_net::encode;

/// No tracker has more pages.
const PAGES: usize = 20_000;

/// A repository on GitHub.
pub struct GitHub {
    connection: Connection,
    config: TrackerConfig,
    claim_label: String,
    listing: Mutex<Listing>,
}

impl GitHub {
    /// Prepares it; nothing is sent yet.
    pub fn new(connection: Connection, config: TrackerConfig, claim_label: String) -> Self {
        Self { connection, config, claim_label, listing: Mutex::default() }
    }

    /// Every page of a list, by the addresses the server gives.
    async fn pages<T: serde::de::DeserializeOwned>(&self, path: String) -> Result<Vec<T>, Trouble> {
        let mut items = Vec::new();
        let mut path = path;
        for _ in 0..PAGES {
            let answer = self.connection.call(Call::get(&path)).await?;
            items.extend(answer.json::<Vec<T>>("a list")?);
            let Some(next) = next_page(&answer) else { break };
            let own = self.connection.own_path(&next).ok_or_else(|| Trouble::Odd {
                what: format!("GET {}", path.split('?').next().unwrap_or_default()),
                problem: "the next page is on another server: it is not asked, and gets no token".to_owned(),
            })?;
            path = own.to_owned();
        }
        Ok(items)
    }

    fn label_path(&self, before: &str, name: &str) -> String {
        self.connection.path(&format!("{before}/labels/{}", encode(name)))
    }
}

/// The address behind `rel="next"`.
fn next_page(answer: &Answer) -> Option<String> {
    let links = answer.headers.get(header::LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| {
        link.split(';').skip(1).any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next"))
    })?;
    let address = next.split(';').next()?.trim();
    Some(address.strip_prefix('<')?.strip_suffix('>')?.to_owned())
}

impl Source for GitHub {
    fn key(&self) -> String {
        format!("github/{}/{}", self.config.owner, self.config.repo)
    }

    fn task(&self, number: u64) -> TaskId {
        TaskId::from_stored(format!("{}#{number}", self.key()).into())
    }

    fn kind(&self) -> Option<TrackerKind> {
        Some(TrackerKind::GitHub)
    }

    async fn check(&self) -> Result<Repository, Trouble> {
        repository(&self.connection).await
    }

    async fn has_claim_label(&self) -> Result<bool, Trouble> {
        let path = self.label_path("", &self.claim_label);
        match self.connection.once(&Call::get(&path)).await {
            Ok(_) => Ok(true),
            Err(Trouble::NotFound { .. }) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    async fn open_issues(&self) -> Result<OpenIssues, Trouble> {
        let mut listing = self.listing.lock().await;
        match listing.since(self.connection.patience().listing) {
            Some(since) => {
                let since = encode(&UnixMillis::to_seconds_text(since));
                let query =
                    format!("/issues?state=all&sort=updated&direction=asc&per_page=100&since={since}");
                let changed: Vec<WireIssue> = self.pages(self.connection.path(&query)).await?;
                listing.take_in(changed);
            }
            None => {
                let began = Instant::now();
                let query = "/issues?state=open&sort=created&direction=asc&per_page=100";
                let issues: Vec<WireIssue> = self.pages(self.connection.path(query)).await?;
                listing.replace(issues, began);
            }
        }
        Ok(listing.open())
    }

    async fn issue(&self, number: u64) -> Result<Option<Issue>, Trouble> {
        one_issue(&self.connection, number).await
    }

    async fn add_claim_label(&self, number: u64) -> Result<(), Trouble> {
        let path = self.connection.path(&format!("/issues/{number}/labels"));
        let body = Some(json!({"labels": [self.claim_label]}));
        self.connection.call(Call { method: Method::POST, path: &path, body }).await.map(drop)
    }

    async fn remove_label(&self, issue: &Issue, name: &str) -> Result<(), Trouble> {
        if !issue.has_label(name) {
            return Ok(());
        }
        let path = self.label_path(&format!("/issues/{}", issue.number), name);
        match self.connection.call(Call { method: Method::DELETE, path: &path, body: None }).await {
            Ok(_) | Err(Trouble::NotFound { .. }) => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    async fn forget(&self, number: u64) {
        self.listing.lock().await.forget(number);
    }

    async fn comments(&self, number: u64) -> Result<Vec<Comment>, Trouble> {
        let path = self.connection.path(&format!("/issues/{number}/comments?per_page=100"));
        let comments: Vec<WireComment> = self.pages(path).await?;
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
