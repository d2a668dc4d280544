//! `rota issue`: the tracker that is the store itself.

use rota_core::text::escaped;
use rota_core::{Refusal, Status, Task, UnixMillis};
use rota_store::Store;
use rota_store::intents::issues::{AddLocalIssue, CloseIssue, Note, QUEUE, local_issue};
use rota_store::intents::read::{List, Show};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, bad_value, checked_name};
use crate::create::{checked_description, checked_title};
use crate::verb::Word;

/// What the local tracker is called.
const LOCAL: &str = "local";

/// An issue as every interface shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct IssuePayload {
    pub number: u64,
    pub title: String,
    /// open or closed
    pub state: Word,
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<String>,
    /// The task behind it.
    pub task: String,
    pub status: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
}

impl IssuePayload {
    fn of(task: Task) -> Result<Self> {
        let note = Note::of(&task)?;
        let is_open = !matches!(task.status, Status::Done | Status::Deleted | Status::Invalidated);
        Ok(Self {
            number: note.number,
            title: task.title.to_string(),
            state: if is_open { "open" } else { "closed" }.into(),
            labels: note.labels,
            body: task.description.map(|text| text.to_string()),
            comments: note.comments,
            task: task.id.to_string(),
            status: task.status.word().into(),
            assignee: task.assignee,
            created_at: task.created_at,
            updated_at: task.updated_at,
        })
    }
}

/// What to add.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct AddIssue {
    pub title: String,
    pub body: Option<String>,
    pub labels: Vec<String>,
}

/// Issues, lowest number first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issues {
    /// How many.
    pub total: usize,
    /// They.
    pub issues: Vec<IssuePayload>,
}

/// Adds an issue under the next number.
pub async fn add(cx: &Context, input: AddIssue) -> Result<IssuePayload> {
    let mut labels: Vec<String> = Vec::new();
    for label in input.labels {
        let label = checked_name("label", Some(label))?.ok_or_else(|| bad_value("label is empty".into()))?;
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let body = checked_description(input.body)?;
    let intent = AddLocalIssue {
        call: cx.call(),
        source: LOCAL.to_owned(),
        title: checked_title(&input.title)?,
        body,
        labels,
    };
    IssuePayload::of(cx.store.perform(&intent).await?)
}

/// Open issues; closed ones too if wanted.
pub async fn list(cx: &Context, all: bool) -> Result<Issues> {
    let statuses = Vec::new();
    let list = List { call: cx.call(), queue: QUEUE.to_owned(), statuses, assignee: None };
    let views = cx.store.perform(&list).await?.into_iter();
    let local = views.map(|view| view.task).filter(|task| task.spec_ref.as_deref() == Some(LOCAL));
    let mut issues = local.map(IssuePayload::of).collect::<Result<Vec<_>>>()?;
    issues.retain(|issue| all || issue.state == "open");
    issues.sort_by_key(|issue| issue.number);
    Ok(Issues { total: issues.len(), issues })
}

/// One issue.
pub async fn show(cx: &Context, number: &str) -> Result<IssuePayload> {
    let number = counted(number)?;
    let show = Show { call: cx.call(), id: local_issue(number) };
    let (view, _) = cx.store.perform(&show).await.map_err(|error| not_found(error, number))?;
    IssuePayload::of(view.task)
}

/// Closes an issue: it is done, whoever works on it.
pub async fn close(cx: &Context, number: &str) -> Result<IssuePayload> {
    let number = counted(number)?;
    let close = CloseIssue { call: cx.call(), id: local_issue(number) };
    let closed = cx.store.perform(&close).await.map_err(|error| not_found(error, number))?;
    IssuePayload::of(closed)
}

/// `3` or `#3`.
fn counted(text: &str) -> Result<u64> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|number| is_number && *number > 0);
    let wrong = || bad_value(format!("the number of an issue counts from 1, got: {}", escaped(text)));
    Ok(number.ok_or_else(wrong)?)
}

fn not_found(error: rota_store::Error, number: u64) -> rota_store::Error {
    match error {
        rota_store::Error::Refused(Refusal::TaskNotFound { .. }) => Refusal::IssueNotFound { number }.into(),
        other => other,
    }
}
