//! What trackers say, as far as we read it. What else they say is passed over.

use serde::Deserialize;

use super::{Issue, Label};

#[derive(Deserialize)]
pub(super) struct WireIssue {
    pub number: u64,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub body: Option<String>,
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub labels: Option<Vec<WireLabel>>,
    #[serde(default)]
    pub pull_request: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    pub updated_at: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireLabel {
    #[serde(default)]
    pub id: u64,
    #[serde(default)]
    pub name: String,
}

#[derive(Deserialize)]
pub(super) struct WireComment {
    #[serde(default)]
    pub body: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireRepository {
    #[serde(default)]
    pub archived: bool,
}

impl WireIssue {
    pub fn has_label(&self, name: &str) -> bool {
        self.labels.iter().flatten().any(|label| label.name == name)
    }
}

impl From<WireIssue> for Issue {
    fn from(wire: WireIssue) -> Self {
        let labels = wire.labels.unwrap_or_default().into_iter();
        Self {
            number: wire.number,
            title: wire.title,
            body: wire.body.unwrap_or_default(),
            labels: labels.map(|label| Label { id: label.id, name: label.name }).collect(),
            is_open: wire.state == "open",
            is_pull_request: wire.pull_request.is_some(),
        }
    }
}
