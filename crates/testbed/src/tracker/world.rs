//! What a tracker holds, and what people do to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::wire::{Reply, Request};

/// The token that it wants.
pub const TOKEN: &str = "tok-3f9c1e";

/// Whom it takes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Dialect {
    Gitea,
    GitHub,
}

/// An issue or a pull request.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TrackedIssue {
    pub title: String,
    pub body: String,
    pub is_open: bool,
    pub is_pull_request: bool,
    pub labels: Vec<u64>,
    pub comments: Vec<TrackedComment>,
    pub author: String,
    pub milestone: Option<String>,
    /// Seconds since 2026 began.
    pub updated: u64,
}

/// A comment on an issue.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TrackedComment {
    pub id: u64,
    pub author: String,
    pub text: String,
}

impl std::ops::Deref for TrackedComment {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// One repository, `acme/shop`.
pub struct World {
    /// Whom it takes after.
    pub dialect: Dialect,
    /// Where the server is.
    pub root: String,
    /// By number.
    pub issues: BTreeMap<u64, TrackedIssue>,
    /// Number and name; names may be there twice.
    pub labels: Vec<(u64, String)>,
    /// The labels of the organisation `acme`, which Gitea keeps apart.
    pub organisation_labels: Vec<(u64, String)>,
    /// What the repository says of itself; none for nothing.
    pub is_private: Option<bool>,
    /// Issues that are in every list and cannot be read.
    pub ghosts: Vec<u64>,
    /// No page is longer.
    pub page: usize,
    /// Nothing can be changed.
    pub is_archived: bool,
    /// Answered to everything, if set: status, content type, body.
    pub only_answer: Option<(u16, &'static str, &'static str)>,
    /// Requests that are left before the limit; none for no limit. And seconds until it is over.
    pub limit: Option<(u64, u64)>,
    /// Labels that are taken and never set.
    pub is_deaf: bool,
    /// Issues that fail every write.
    pub poisoned: Vec<u64>,
    clock: u64,
}

impl World {
    pub(super) fn new(dialect: Dialect, root: String) -> Self {
        Self {
            dialect,
            root,
            issues: BTreeMap::new(),
            labels: vec![(7, "bug".to_owned()), (9, "in-progress".to_owned())],
            organisation_labels: Vec::new(),
            is_private: Some(true),
            ghosts: Vec::new(),
            page: 50,
            is_archived: false,
            only_answer: None,
            limit: None,
            is_deaf: false,
            poisoned: Vec::new(),
            clock: 0,
        }
    }

    /// Adds an issue under the next number.
    pub fn add(&mut self, title: &str) -> u64 {
        self.add_item(title, false)
    }

    /// Adds a pull request, which takes a number too.
    pub fn add_pull_request(&mut self, title: &str) -> u64 {
        self.add_item(title, true)
    }

    fn add_item(&mut self, title: &str, is_pull_request: bool) -> u64 {
        let number = self.issues.keys().next_back().map_or(1, |last| last + 1);
        let updated = self.tick();
        let issue = TrackedIssue {
            title: title.to_owned(),
            body: String::new(),
            is_open: true,
            is_pull_request,
            labels: Vec::new(),
            comments: Vec::new(),
            author: "alice".to_owned(),
            milestone: None,
            updated,
        };
        self.issues.insert(number, issue);
        number
    }

    /// The time goes on with every change.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 7;
        self.clock
    }

    /// Whether an issue has a label of this name.
    pub fn has_label(&self, number: u64, name: &str) -> bool {
        let named = |id: &u64| self.all_labels().any(|(other, label)| other == id && label == name);
        self.issues.get(&number).is_some_and(|issue| issue.labels.iter().any(named))
    }

    /// The labels that an issue may have.
    pub(super) fn all_labels(&self) -> impl Iterator<Item = &(u64, String)> {
        self.labels.iter().chain(&self.organisation_labels)
    }

    /// A person comments on an issue.
    pub fn say(&mut self, number: u64, author: &str, text: &str) {
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.updated = updated;
            let (author, text) = (author.to_owned(), text.to_owned());
            issue.comments.push(TrackedComment { id: updated, author, text });
        }
    }

    /// A person changes the title or the body of an issue.
    pub fn edit(&mut self, number: u64, change: impl FnOnce(&mut TrackedIssue)) {
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            change(issue);
            issue.updated = updated;
        }
    }

    /// A person labels an issue.
    pub fn label(&mut self, number: u64, id: u64) {
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.updated = updated;
            if !issue.labels.contains(&id) {
                issue.labels.push(id);
            }
        }
    }

    /// A person takes all labels away.
    pub fn unlabel(&mut self, number: u64) {
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            (issue.updated, issue.labels) = (updated, Vec::new());
        }
    }

    /// A person closes or opens it.
    pub fn set_open(&mut self, number: u64, is_open: bool) {
        let updated = self.tick();
        if let Some(issue) = self.issues.get_mut(&number) {
            (issue.updated, issue.is_open) = (updated, is_open);
        }
    }

    pub(super) fn answer(&mut self, request: &Request) -> Reply {
        if let Some((status, kind, body)) = self.only_answer {
            return Reply::text(status, kind, body);
        }
        match self.dialect {
            Dialect::Gitea => self.answer_as_gitea(request),
            Dialect::GitHub => self.answer_as_github(request),
        }
    }

    /// What is listed, and in which order does not matter yet.
    pub(super) fn listed(&self, request: &Request) -> Vec<u64> {
        let state = request.query("state").unwrap_or_else(|| "open".to_owned());
        let since = request.query("since").map_or(0, |text| seconds(&text));
        let is_wanted = |issue: &TrackedIssue| {
            issue.updated >= since
                && match state.as_str() {
                    "all" => true,
                    "closed" => !issue.is_open,
                    _ => issue.is_open,
                }
        };
        self.issues.iter().filter(|(_, issue)| is_wanted(issue)).map(|(number, _)| *number).collect()
    }

    /// Closes or opens it as a PATCH says.
    pub(super) fn patch(&mut self, number: u64, body: &Value) {
        if let Some(state) = body["state"].as_str() {
            self.set_open(number, state == "open");
        }
    }

    pub(super) fn comment(&mut self, number: u64, body: &Value) -> Value {
        let text = body["body"].as_str().unwrap_or_default().to_owned();
        self.say(number, "rota-bot", &text);
        let id = self.clock;
        let url = format!("{}/repos/acme/shop/issues/comments/{id}", self.root);
        json!({"id": id, "body": text, "url": url, "user": {"login": "rota-bot"}})
    }

    pub(super) fn shown_comments(&self, number: u64) -> Value {
        let shown = self.issues[&number].comments.iter().map(
            |comment| json!({"id": comment.id, "body": comment.text, "user": {"login": comment.author}}),
        );
        Value::Array(shown.collect())
    }

    /// Deletes a comment, and says whether it was there.
    pub(super) fn delete_comment(&mut self, id: u64) -> bool {
        let updated = self.tick();
        for issue in self.issues.values_mut() {
            let before = issue.comments.len();
            issue.comments.retain(|comment| comment.id != id);
            if issue.comments.len() < before {
                issue.updated = updated;
                return true;
            }
        }
        false
    }

    pub(super) fn shown_labels(&self, issue: &TrackedIssue) -> Vec<Value> {
        let named = issue.labels.iter().filter_map(|id| self.all_labels().find(|(other, _)| other == id));
        named.map(|(id, name)| json!({"id": id, "name": name, "color": "ededed"})).collect()
    }
}

/// The first part of a path behind `prefix` that is a number, and what follows it.
pub(super) fn numbered<'a>(path: &'a str, prefix: &str) -> Option<(u64, &'a str)> {
    let rest = path.strip_prefix(prefix)?;
    let (number, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Some((number.parse().ok()?, rest))
}

/// `2026-01-01T00:00:00Z` and so many seconds.
pub(super) fn time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!(
        "2026-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        1 + days / 28,
        1 + days % 28,
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

fn seconds(text: &str) -> u64 {
    let part =
        |from: usize, to: usize| text.get(from..to).and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    if part(0, 4) < 2026 {
        return 0;
    }
    let days = (part(5, 7).saturating_sub(1)) * 28 + part(8, 10).saturating_sub(1);
    days * 86_400 + part(11, 13) * 3_600 + part(14, 16) * 60 + part(17, 19)
}
