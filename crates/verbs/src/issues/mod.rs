//! `rota issue`: the tracker that is the store itself.

use rota_core::text::escaped;
use rota_core::{Refusal, Status, Task, UnixMillis, limits};
use rota_store::Store;
use rota_store::intents::issues::{
    AddLocalIssue, CloseIssue, EditIssue, EditLocalIssue, Guard, LocalComment, Note, NoteChange, QUEUE,
    ReopenIssue, local_issue,
};
use rota_store::intents::read::{List, Show};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, bad_value, checked_name, checked_text};
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
    /// The agent who added it, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
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
            author: note.author,
            body: task.description.map(|text| text.to_string()),
            comments: note.comments.into_iter().map(|comment| comment.text).collect(),
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
    let labels = checked_labels(input.labels)?;
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

fn checked_labels(given: Vec<String>) -> Result<Vec<String>> {
    let mut labels: Vec<String> = Vec::new();
    for label in given {
        let label = checked_name("label", Some(label))?.ok_or_else(|| bad_value("label is empty".into()))?;
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    Ok(labels)
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

/// Opens a closed issue again; an open one stays as it is.
pub async fn reopen(cx: &Context, number: &str) -> Result<IssuePayload> {
    let number = counted(number)?;
    let reopen = ReopenIssue { call: cx.call(), id: local_issue(number) };
    let open = cx.store.perform(&reopen).await.map_err(|error| not_found(error, number))?;
    IssuePayload::of(open)
}

/// Adds and removes labels.
pub async fn label(
    cx: &Context,
    number: &str,
    add: Vec<String>,
    remove: Vec<String>,
) -> Result<IssuePayload> {
    let number = counted(number)?;
    let (add, remove) = (checked_labels(add)?, checked_labels(remove)?);
    if add.is_empty() && remove.is_empty() {
        return Err(bad_value("no label is given: name one to add or to remove".into()).into());
    }
    if let Some(both) = add.iter().find(|label| remove.contains(label)) {
        let problem = format!("label '{}' is both added and removed", escaped(both));
        return Err(bad_value(problem).into());
    }
    let added = add.into_iter().map(NoteChange::AddLabel);
    let changes = added.chain(remove.into_iter().map(NoteChange::RemoveLabel)).collect();
    change(cx, number, changes).await
}

/// Adds a comment. Text with a hidden marker of Rota is refused: it would pass for one of the supervisor's.
pub async fn comment(cx: &Context, number: &str, text: String) -> Result<IssuePayload> {
    let number = counted(number)?;
    if text.trim().is_empty() {
        return Err(bad_value("comment is empty".into()).into());
    }
    checked_text("comment", &text, limits::TEXT_BYTES)?;
    if text.lines().any(|line| line.trim().starts_with("<!-- rota: ")) {
        return Err(bad_value("comment may not contain the supervisor's marker '<!-- rota:'".into()).into());
    }
    let comment = LocalComment { author: cx.call().actor, text };
    change(cx, number, vec![NoteChange::Comment(comment)]).await
}

async fn change(cx: &Context, number: u64, changes: Vec<NoteChange>) -> Result<IssuePayload> {
    let edit =
        EditIssue { call: cx.call(), id: local_issue(number), guard: Guard::Any, command: None, changes };
    let edited = cx.store.perform(&edit).await.map_err(|error| not_found(error, number))?;
    IssuePayload::of(edited.ok_or(Refusal::IssueNotFound { number })?)
}

/// Replaces title or body.
pub async fn edit(
    cx: &Context,
    number: &str,
    title: Option<String>,
    body: Option<String>,
) -> Result<IssuePayload> {
    let number = counted(number)?;
    if title.is_none() && body.is_none() {
        return Err(bad_value("nothing to change: give a title or a body".into()).into());
    }
    let body = match body {
        Some(text) => Some(checked_description(Some(text))?.unwrap_or_default()),
        None => None,
    };
    let title = title.as_deref().map(checked_title).transpose()?;
    let edit = EditLocalIssue { call: cx.call(), id: local_issue(number), title, body };
    let edited = cx.store.perform(&edit).await.map_err(|error| not_found(error, number))?;
    IssuePayload::of(edited)
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
