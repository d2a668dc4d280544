//! Parked issues: the tracker is told why, and a person brings them back by a comment, an edit or a label.

use rota_core::Status;
use rota_core::text::escaped;
use rota_core::transition::Command;
use rota_store::intents::issues::{BoardIssue, EditIssue, Guard, Note, NoteChange};
use rota_store::{Error, Store};

use crate::Broken;
use crate::sources::{Comment, Issue, Source, comment_once};
use crate::turn::Turn;

/// The label by which a person asks for another attempt.
pub(super) const RETRY_LABEL: &str = "rota:retry";

/// The marker of the comment that says why an issue is parked.
fn parked_mark(issue: &BoardIssue) -> String {
    format!("parked {}.{}", issue.task.fence, issue.note.brought_back)
}

/// What a person did to a parked issue, if anything. `mark` is the marker of the comment that told why it is parked.
fn answer(
    issue: &Issue,
    note: &Note,
    comments: &[Comment],
    mark: &str,
    is_trusted: impl Fn(&Comment) -> bool,
) -> Option<&'static str> {
    if issue.has_label(RETRY_LABEL) {
        return Some("it has the label rota:retry");
    }
    if note.text_hash.as_ref().is_some_and(|hash| *hash != issue.text_hash()) {
        return Some("its title or body was changed");
    }
    let told = comments.iter().rposition(|comment| comment.markers().any(|found| found == mark))?;
    let later = comments.get(told + 1..).unwrap_or_default();
    later
        .iter()
        .any(|comment| !comment.is_rotas() && is_trusted(comment))
        .then_some("a person commented on it")
}

impl<S: Source> Turn<S> {
    /// Reports once in the tracker why an issue is left alone, and how it is brought back.
    pub(super) async fn tell_parked(&self, issue: &BoardIssue) -> Result<(), Broken> {
        if issue.task.status != Status::Parked || issue.note.is_told {
            return Ok(());
        }
        let reason = issue.task.parked_reason.as_deref().unwrap_or("no reason given");
        let text = format!(
            "Rota leaves this issue alone from now on: {}\n\nA comment, a change of its title or body, or the label \
             `{RETRY_LABEL}` brings it back; so does `rota task reset '{}'`.",
            escaped(reason),
            issue.task.id
        );
        comment_once(&self.shared.source, issue.note.number, &parked_mark(issue), &text).await?;
        self.note_free(&issue.task.id, NoteChange::Told).await?;
        Ok(())
    }

    /// Brings a parked issue back if a person has answered. Whether the tracker had to be asked.
    pub(super) async fn look_for_answer(&self, parked: &BoardIssue) -> Result<bool, Broken> {
        let number = parked.note.number;
        let Some(listed) = self.open.get(&number) else { return Ok(false) };
        let is_checked = parked.note.checked_version.as_deref() == Some(listed.version.as_str());
        if is_checked && !listed.has_label(RETRY_LABEL) {
            return Ok(false);
        }
        let source = &self.shared.source;
        let Some(issue) = source.issue(number).await?.filter(|issue| issue.is_open) else { return Ok(true) };
        let comments = source.comments(number).await?;
        let filters = &self.shared.config.filters;
        let is_trusted = |comment: &Comment| filters.trusts(comment.author.as_deref());
        let Some(why) = answer(&issue, &parked.note, &comments, &parked_mark(parked), is_trusted) else {
            // The version was read before the comments: a later comment has another one.
            self.note_free(&parked.task.id, NoteChange::Checked(issue.version)).await?;
            return Ok(true);
        };
        let edit = EditIssue {
            call: self.shared.call.clone(),
            id: parked.task.id.clone(),
            guard: Guard::Free,
            command: Some(Command::Reset),
            changes: vec![NoteChange::BroughtBack, NoteChange::Read(issue.text_hash())],
        };
        match self.shared.store.perform(&edit).await {
            Ok(_) => self.warn(format!("#{number}: brought back: {why}")),
            // A person was faster.
            Err(Error::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // A crash before this leaves the label to the next claim.
        source.remove_label(&issue, RETRY_LABEL).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{Label, marked};

    #[test]
    fn people_answer_in_three_ways() {
        let issue = Issue {
            number: 1,
            title: "t".into(),
            body: "b".into(),
            labels: Vec::new(),
            author: None,
            milestone: None,
            is_open: true,
            is_pull_request: false,
            version: String::new(),
        };
        let note = Note { text_hash: Some(issue.text_hash()), ..Note::default() };
        let comment =
            |author: &str, body: &str| Comment { id: 1, author: Some(author.into()), body: body.into() };
        let told = comment("bot", &marked("parked", "parked 2.0"));
        let earlier = comment("bot", &marked("parked", "parked 1.0"));
        let words = comment("eve", "try again");
        let other = comment("bot", &marked("Done.", "done x"));
        let quoting = comment("alice", "> <!-- rota: parked 2.0 -->\nyes");
        let found = |issue: &Issue, note: &Note, comments: &[Comment]| {
            answer(issue, note, comments, "parked 2.0", |comment| {
                comment.author.as_deref() != Some("mallory")
            })
        };
        let said = Some("a person commented on it");
        for (comments, wanted) in [
            (vec![], None),
            (vec![earlier.clone(), words.clone(), told.clone()], None),
            (vec![told.clone(), other], None),
            (vec![told.clone(), comment("mallory", "go")], None),
            (vec![told.clone(), words.clone()], said),
            (vec![told.clone(), quoting], said),
            (vec![words, earlier], None),
        ] {
            assert_eq!(found(&issue, &note, &comments), wanted, "{comments:?}");
        }
        let edited = Issue { body: "c".into(), ..issue.clone() };
        assert_eq!(found(&edited, &note, &[]), Some("its title or body was changed"));
        assert_eq!(found(&edited, &Note::default(), &[]), None, "it is not known what it was");
        let labelled = Issue { labels: vec![Label { id: 1, name: RETRY_LABEL.into() }], ..issue };
        assert_eq!(found(&labelled, &note, &[]), Some("it has the label rota:retry"));
    }
}
