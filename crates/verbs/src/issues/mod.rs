//! `rota issue`: the tracker that is the store itself.

use async_trait::async_trait;
use rota_core::text::escaped;
use rota_core::{Refusal, Status, Task, UnixMillis, limits};
use rota_store::Store;
use rota_store::intents::issues::{
    self, AddLocalIssue, EditLocalIssue, Guard, LocalComment, Note, NoteChange, QUEUE, local_issue,
};
use rota_store::intents::read::{List, Show};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::{Context, bad_value, checked_text};
use crate::input::{IssueNumber, Label, Title, description};
use crate::verb::{Route, Verb, Word};

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

/// Issues, lowest number first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issues {
    /// How many.
    pub total: usize,
    /// They.
    pub issues: Vec<IssuePayload>,
}

/// Add an issue and print its number
///
/// Example: rota issue add --title "Fix the login" --body "It says 500." --label bug
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddIssue {
    /// One line
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub title: Title,
    /// The text
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub body: Option<String>,
    /// A label; may be given several times
    #[arg(long = "label", value_name = "L", allow_hyphen_values = true)]
    #[serde(default)]
    pub labels: Vec<Label>,
}

#[async_trait]
impl Verb for AddIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::post("issue add", "/issues");

    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        let (title, labels) = (self.title.into_inner(), distinct(self.labels));
        let body = description(self.body)?;
        let intent = AddLocalIssue { call: cx.call(), source: LOCAL.to_owned(), title, body, labels };
        IssuePayload::of(cx.store.perform(&intent).await?)
    }
}

fn distinct(labels: Vec<Label>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for label in labels.into_iter().map(Label::into_inner) {
        if !distinct.contains(&label) {
            distinct.push(label);
        }
    }
    distinct
}

/// List open issues, lowest number first
///
/// Example: rota issue list --all
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListIssues {
    /// Closed ones too
    #[arg(long)]
    #[serde(default)]
    pub all: bool,
}

#[async_trait]
impl Verb for ListIssues {
    type Payload = Issues;
    const ROUTE: Route = Route::get("issue list", "/issues");

    async fn run(self, cx: &Context) -> Result<Issues> {
        let list = List { call: cx.call(), queue: QUEUE.to_owned(), statuses: Vec::new(), assignee: None };
        let views = cx.store.perform(&list).await?.into_iter();
        let local = views.map(|view| view.task).filter(|task| task.spec_ref.as_deref() == Some(LOCAL));
        let mut issues = local.map(IssuePayload::of).collect::<Result<Vec<_>>>()?;
        issues.retain(|issue| self.all || issue.state == "open");
        issues.sort_by_key(|issue| issue.number);
        Ok(Issues { total: issues.len(), issues })
    }
}

/// Show one issue with its body, labels and comments
///
/// Example: rota issue show 3
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowIssue {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: IssueNumber,
}

#[async_trait]
impl Verb for ShowIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::get("issue show", "/issues/{number}");

    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        let number = self.number.into_inner();
        let show = Show { call: cx.call(), id: local_issue(number) };
        let (view, _) = cx.store.perform(&show).await.map_err(|error| not_found(error, number))?;
        IssuePayload::of(view.task)
    }
}

/// Close an issue: it is done, whoever works on it
///
/// Example: rota issue close 3
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloseIssue {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: IssueNumber,
}

#[async_trait]
impl Verb for CloseIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::post("issue close", "/issues/{number}/close");

    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        let number = self.number.into_inner();
        let intent = issues::CloseIssue { call: cx.call(), id: local_issue(number) };
        IssuePayload::of(cx.store.perform(&intent).await.map_err(|error| not_found(error, number))?)
    }
}

/// Open a closed issue again
///
/// Example: rota issue reopen 3
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReopenIssue {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: IssueNumber,
}

#[async_trait]
impl Verb for ReopenIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::post("issue reopen", "/issues/{number}/reopen");

    /// An open issue stays as it is.
    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        let number = self.number.into_inner();
        let intent = issues::ReopenIssue { call: cx.call(), id: local_issue(number) };
        IssuePayload::of(cx.store.perform(&intent).await.map_err(|error| not_found(error, number))?)
    }
}

/// Add or remove labels of an issue
///
/// The label rota:retry brings a parked issue back. Example: rota issue label 3 --add rota:retry --remove wip
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("anyOf" = serde_json::json!([
    {"required": ["add"], "properties": {"add": {"type": "array", "minItems": 1}}},
    {"required": ["remove"], "properties": {"remove": {"type": "array", "minItems": 1}}},
])))]
pub struct LabelIssue {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: IssueNumber,
    /// A label to add; may be given several times
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    #[serde(default)]
    pub add: Vec<Label>,
    /// A label to remove; may be given several times
    #[arg(long, value_name = "L", allow_hyphen_values = true)]
    #[serde(default)]
    pub remove: Vec<Label>,
}

#[async_trait]
impl Verb for LabelIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::post("issue label", "/issues/{number}/label");

    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        let (add, remove) = (distinct(self.add), distinct(self.remove));
        if add.is_empty() && remove.is_empty() {
            return Err(bad_value("no label is given: name one to add or to remove".into()).into());
        }
        if let Some(both) = add.iter().find(|label| remove.contains(label)) {
            let problem = format!("label '{}' is both added and removed", escaped(both));
            return Err(bad_value(problem).into());
        }
        let added = add.into_iter().map(NoteChange::AddLabel);
        let changes = added.chain(remove.into_iter().map(NoteChange::RemoveLabel)).collect();
        change(cx, self.number.into_inner(), changes).await
    }
}

/// Comment on an issue
///
/// A comment brings a parked issue back. Example: rota issue comment 3 --body "Use the staging database."
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommentIssue {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: IssueNumber,
    /// The text
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    #[schemars(regex(pattern = r"\S"))]
    pub body: String,
}

#[async_trait]
impl Verb for CommentIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::post("issue comment", "/issues/{number}/comment");

    /// A text with a hidden marker of Rota is refused: it would pass for one of the supervisor's.
    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        let text = self.body;
        if text.trim().is_empty() {
            return Err(bad_value("comment is empty".into()).into());
        }
        checked_text("comment", &text, limits::TEXT_BYTES)?;
        if text.lines().any(|line| line.trim().starts_with("<!-- rota: ")) {
            return Err(
                bad_value("comment may not contain the supervisor's marker '<!-- rota:'".into()).into()
            );
        }
        let comment = LocalComment { author: cx.call().actor, text };
        change(cx, self.number.into_inner(), vec![NoteChange::Comment(comment)]).await
    }
}

async fn change(cx: &Context, number: u64, changes: Vec<NoteChange>) -> Result<IssuePayload> {
    let edit = issues::EditIssue {
        call: cx.call(),
        id: local_issue(number),
        guard: Guard::Any,
        command: None,
        changes,
    };
    let edited = cx.store.perform(&edit).await.map_err(|error| not_found(error, number))?;
    IssuePayload::of(edited.ok_or(Refusal::IssueNotFound { number })?)
}

/// Change the title or the body of an issue
///
/// A change brings a parked issue back. Example: rota issue edit 3 --title "Fix the login page"
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("anyOf" = serde_json::json!([
    {"required": ["title"], "properties": {"title": {"type": "string"}}},
    {"required": ["body"], "properties": {"body": {"type": "string"}}},
])))]
pub struct EditIssue {
    /// Its number
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub number: IssueNumber,
    /// The new title
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub title: Option<Title>,
    /// The new text; an empty one removes it
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub body: Option<String>,
}

#[async_trait]
impl Verb for EditIssue {
    type Payload = IssuePayload;
    const ROUTE: Route = Route::post("issue edit", "/issues/{number}/edit");

    async fn run(self, cx: &Context) -> Result<IssuePayload> {
        if self.title.is_none() && self.body.is_none() {
            return Err(bad_value("nothing to change: give a title or a body".into()).into());
        }
        let body = match self.body {
            Some(text) => Some(description(Some(text))?.unwrap_or_default()),
            None => None,
        };
        let (number, title) = (self.number.into_inner(), self.title.map(Title::into_inner));
        let edit = EditLocalIssue { call: cx.call(), id: local_issue(number), title, body };
        IssuePayload::of(cx.store.perform(&edit).await.map_err(|error| not_found(error, number))?)
    }
}

fn not_found(error: rota_store::Error, number: u64) -> rota_store::Error {
    match error {
        rota_store::Error::Refused(Refusal::TaskNotFound { .. }) => Refusal::IssueNotFound { number }.into(),
        other => other,
    }
}
