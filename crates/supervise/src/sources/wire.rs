//! Answers of trackers as their JSON has them; unknown fields are ignored. NUL characters are replaced here, because
//! PostgreSQL stores no text that contains one.

use serde::{Deserialize, Deserializer};

use super::{Comment, Issue, Label, Listed, Repository};

#[derive(Deserialize)]
pub(super) struct WireIssue {
    pub number: u64,
    #[serde(default, deserialize_with = "text")]
    pub title: String,
    #[serde(default, deserialize_with = "text")]
    pub body: String,
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub labels: Option<Vec<WireLabel>>,
    #[serde(default)]
    pub pull_request: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    pub updated_at: Option<String>,
    #[serde(default)]
    pub user: Option<WireUser>,
    #[serde(default)]
    pub milestone: Option<WireMilestone>,
    #[serde(default)]
    pub comments: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct WireLabel {
    #[serde(default)]
    pub id: u64,
    #[serde(default, deserialize_with = "text")]
    pub name: String,
}

#[derive(Deserialize)]
pub(super) struct WireUser {
    #[serde(default, deserialize_with = "text")]
    pub login: String,
}

#[derive(Deserialize)]
pub(super) struct WireMilestone {
    #[serde(default, deserialize_with = "text")]
    pub title: String,
}

#[derive(Deserialize)]
pub(super) struct WireComment {
    #[serde(default)]
    pub id: u64,
    #[serde(default, deserialize_with = "text")]
    pub body: String,
    #[serde(default)]
    pub user: Option<WireUser>,
}

#[derive(Deserialize)]
pub(super) struct WireRepository {
    #[serde(default)]
    pub archived: bool,
    #[serde(default)]
    pub private: Option<bool>,
}

/// A text or null, with U+FFFD in place of NUL.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = Option::<String>::deserialize(from)?.unwrap_or_default();
    Ok(if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text })
}

impl WireIssue {
    /// Changes whenever a person comments on the issue or edits it.
    fn version(&self) -> String {
        format!("{} {}", self.updated_at.as_deref().unwrap_or_default(), self.comments.unwrap_or(0))
    }

    pub fn listed(self) -> Listed {
        Listed {
            version: self.version(),
            title: self.title,
            labels: self.labels.into_iter().flatten().map(|label| label.name).collect(),
            author: self.user.map(|user| user.login),
            milestone: self.milestone.map(|milestone| milestone.title),
        }
    }
}

impl From<WireIssue> for Issue {
    fn from(wire: WireIssue) -> Self {
        let version = wire.version();
        let labels = wire.labels.unwrap_or_default().into_iter();
        Self {
            number: wire.number,
            title: wire.title,
            body: wire.body,
            labels: labels.map(|label| Label { id: label.id, name: label.name }).collect(),
            author: wire.user.map(|user| user.login),
            milestone: wire.milestone.map(|milestone| milestone.title),
            is_open: wire.state == "open",
            is_pull_request: wire.pull_request.is_some(),
            version,
        }
    }
}

impl From<WireComment> for Comment {
    fn from(wire: WireComment) -> Self {
        Self { id: wire.id, author: wire.user.map(|user| user.login), body: wire.body }
    }
}

impl From<WireRepository> for Repository {
    fn from(wire: WireRepository) -> Self {
        Self { is_public: wire.private == Some(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_replaced_and_null_is_empty() {
        let read = |text: &str| serde_json::from_str::<WireIssue>(text).map(Issue::from).ok();
        let issue = read(
            r#"{"number": 1, "title": "a\u0000b", "body": null, "labels": [{"id": 2, "name": "\u0000"}]}"#,
        );
        let Some(issue) = issue else { panic!("not read") };
        assert_eq!((issue.title.as_str(), issue.body.as_str()), ("a\u{fffd}b", ""));
        assert_eq!(issue.labels[0].name, "\u{fffd}");
        assert!(read(r#"{"title": "no number"}"#).is_none());
    }
}
