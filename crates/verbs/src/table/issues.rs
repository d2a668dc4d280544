//! `rota issue`.

use super::{is_false, verbs};
use crate::issues::{self, IssuePayload, Issues};

verbs! {
    /// Add an issue to the local tracker
    AddIssue {
        title: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
    } => IssuePayload, "issue add" Post "/issues" InScope WithHint, |cx, it| {
        issues::add(cx, issues::AddIssue { title: it.title, body: it.body, labels: it.labels }).await
    };

    /// List the issues of the local tracker
    ListIssues {
        /// Closed ones too.
        #[serde(default, skip_serializing_if = "is_false")]
        all: bool,
    } => Issues, "issue list" Get "/issues" InScope WithHint, |cx, it| issues::list(cx, it.all).await;

    /// Show one issue of the local tracker
    ShowIssue { number: String } => IssuePayload, "issue show" Get "/issues/{number}" InScope WithHint,
        |cx, it| issues::show(cx, &it.number).await;

    /// Close an issue of the local tracker
    CloseIssue { number: String } => IssuePayload, "issue close" Post "/issues/{number}/close" Never WithHint,
        |cx, it| issues::close(cx, &it.number).await;
}
