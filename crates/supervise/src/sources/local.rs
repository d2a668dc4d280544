//! The store as a tracker: issues are tasks of queue `issues`, so that everything works with no server. Every label
//! exists, and an issue is closed when its task is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use rota_core::{Status, TaskId};
use rota_store::intents::Call;
use rota_store::intents::issues::{Board, EditIssue, Guard, LocalComment, Note, NoteChange, local_issue};
use rota_store::intents::read::Show;
use rota_store::{AnyStore, Error, Store};

use super::{Comment, Issue, Label, Listed, OpenIssues, Repository, Source, Trouble, text_hash};
use rota_daemon::config::TrackerKind;

/// What the local tracker is called.
pub const KEY: &str = "local";

/// Issues in the store.
pub struct Local {
    store: AnyStore,
    call: Call,
    claim_label: String,
}

impl Local {
    /// On a store.
    pub fn new(store: AnyStore, call: Call, claim_label: String) -> Self {
        Self { store, call, claim_label }
    }

    async fn edit(&self, number: u64, change: NoteChange) -> Result<(), Trouble> {
        let edit = EditIssue {
            call: self.call.clone(),
            id: local_issue(number),
            guard: Guard::Any,
            command: None,
            changes: vec![change],
        };
        self.store.perform(&edit).await.map(drop).map_err(|error| failed("the issue", &error))
    }

    async fn note(&self, number: u64) -> Result<Option<(rota_core::Task, Note)>, Trouble> {
        let show = Show { call: self.call.clone(), id: local_issue(number) };
        match self.store.perform(&show).await {
            Ok((view, _)) => {
                let note = Note::of(&view.task).map_err(|fault| failed("the issue", &fault.into()))?;
                Ok(Some((view.task, note)))
            }
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(failed("the issue", &error)),
        }
    }
}

/// Changes with the title, the body and the number of comments.
fn version(task: &rota_core::Task, note: &Note) -> String {
    let body = task.description.as_deref().unwrap_or_default();
    format!("{} {}", text_hash(&task.title, body), note.comments.len())
}

fn failed(what: &str, error: &Error) -> Trouble {
    Trouble::Store { what: what.to_owned(), problem: error.to_string() }
}

impl Source for Local {
    fn key(&self) -> String {
        KEY.to_owned()
    }

    fn task(&self, number: u64) -> TaskId {
        local_issue(number)
    }

    fn kind(&self) -> Option<TrackerKind> {
        None
    }

    async fn check(&self) -> Result<Repository, Trouble> {
        Ok(Repository { is_public: false })
    }

    async fn has_claim_label(&self) -> Result<bool, Trouble> {
        Ok(true)
    }

    async fn open_issues(&self) -> Result<OpenIssues, Trouble> {
        let board = Board { call: self.call.clone(), source: KEY.to_owned() };
        let board = self.store.perform(&board).await.map_err(|error| failed("the issues", &error))?;
        let is_open = |status| !matches!(status, Status::Deleted | Status::Invalidated);
        let open = board.issues.into_iter().filter(|issue| is_open(issue.task.status));
        let listed = open.map(|issue| {
            let listed = Listed {
                title: issue.task.title.to_string(),
                version: version(&issue.task, &issue.note),
                labels: issue.note.labels,
                author: issue.note.author,
                milestone: None,
            };
            (issue.note.number, listed)
        });
        Ok(Arc::new(listed.collect::<BTreeMap<_, _>>()))
    }

    async fn issue(&self, number: u64) -> Result<Option<Issue>, Trouble> {
        Ok(self.note(number).await?.map(|(task, note)| Issue {
            number,
            version: version(&task, &note),
            title: task.title.to_string(),
            body: task.description.map(|text| text.to_string()).unwrap_or_default(),
            labels: note.labels.into_iter().map(|name| Label { id: 0, name }).collect(),
            author: note.author,
            milestone: None,
            is_open: !matches!(task.status, Status::Done | Status::Deleted | Status::Invalidated),
            is_pull_request: false,
        }))
    }

    async fn add_claim_label(&self, number: u64) -> Result<(), Trouble> {
        self.edit(number, NoteChange::AddLabel(self.claim_label.clone())).await
    }

    async fn remove_label(&self, issue: &Issue, name: &str) -> Result<(), Trouble> {
        self.edit(issue.number, NoteChange::RemoveLabel(name.to_owned())).await
    }

    /// Issues do not vanish from the store.
    async fn forget(&self, _number: u64) {}

    async fn comments(&self, number: u64) -> Result<Vec<Comment>, Trouble> {
        let comments = self.note(number).await?.map(|(_, note)| note.comments).unwrap_or_default();
        let comment =
            |(id, comment): (u64, LocalComment)| Comment { id, author: comment.author, body: comment.text };
        Ok((1..).zip(comments).map(comment).collect())
    }

    async fn comment(&self, number: u64, text: &str) -> Result<(), Trouble> {
        let comment = LocalComment { author: self.call.actor.clone(), text: text.to_owned() };
        self.edit(number, NoteChange::Comment(comment)).await
    }

    /// Local comments stay: only claims of several stores are deleted, and this tracker belongs to one.
    async fn delete_comment(&self, _id: u64) -> Result<(), Trouble> {
        Ok(())
    }

    /// Settling the task as done is what closes it.
    async fn close(&self, _number: u64) -> Result<(), Trouble> {
        Ok(())
    }
}
