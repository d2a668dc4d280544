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
    } => IssuePayload, "issue add" Post "/issues" WithHint, |cx, it| {
        issues::add(cx, issues::AddIssue { title: it.title, body: it.body, labels: it.labels }).await
    };

    /// List the issues of the local tracker
    ListIssues {
        /// Closed ones too.
        #[serde(default, skip_serializing_if = "is_false")]
        all: bool,
    } => Issues, "issue list" Get "/issues" WithHint, |cx, it| issues::list(cx, it.all).await;

    /// Show one issue of the local tracker
    ShowIssue { number: String } => IssuePayload, "issue show" Get "/issues/{number}" WithHint,
        |cx, it| issues::show(cx, &it.number).await;

    /// Close an issue of the local tracker
    CloseIssue { number: String } => IssuePayload, "issue close" Post "/issues/{number}/close" WithHint,
        |cx, it| issues::close(cx, &it.number).await;

    /// Open a closed issue of the local tracker again
    ReopenIssue { number: String } => IssuePayload, "issue reopen" Post "/issues/{number}/reopen" WithHint,
        |cx, it| issues::reopen(cx, &it.number).await;

    /// Add or remove labels of an issue of the local tracker
    LabelIssue {
        number: String,
        /// Labels to add.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        add: Vec<String>,
        /// Labels to remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remove: Vec<String>,
    } => IssuePayload, "issue label" Post "/issues/{number}/label" WithHint,
        |cx, it| issues::label(cx, &it.number, it.add, it.remove).await;

    /// Comment on an issue of the local tracker
    CommentIssue { number: String, body: String } => IssuePayload,
        "issue comment" Post "/issues/{number}/comment" WithHint,
        |cx, it| issues::comment(cx, &it.number, it.body).await;

    /// Change title or body of an issue of the local tracker
    EditIssue {
        number: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    } => IssuePayload, "issue edit" Post "/issues/{number}/edit" WithHint,
        |cx, it| issues::edit(cx, &it.number, it.title, it.body).await;
}
