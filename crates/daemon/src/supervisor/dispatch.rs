//! A claimed issue becomes a loop, and a later cycle looks at what came of it. Nothing here waits for an agent.

use std::time::Duration;

use regex::Regex;
use rota_core::cycle::instruction::{self, Instruction};
use rota_core::glob::Globs;
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Refusal, Status, TaskId};
use rota_store::Error;
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::issues::{BoardIssue, HandedTo, NoteChange};
use rota_store::intents::read::Show;

use super::Broken;
use super::git::git;
use super::governance;
use super::turn::Turn;
use crate::config::DispatchConfig;
use crate::folders::encoded;
use crate::sources::{Issue, Source, comment_once};

/// How long git may take over a question.
const GIT: Duration = Duration::from_secs(10);
/// Comments name so many files.
const NAMED_FILES: usize = 10;
/// Where loops are.
const LOOPS: &str = "loops";

impl<S: Source> Turn<S> {
    /// Hands over what was claimed in this cycle, where that is configured.
    pub(super) async fn dispatch_chosen(&mut self) -> Result<(), Broken> {
        let Some(dispatch) = self.shared.config.dispatch.clone() else { return Ok(()) };
        let Some(chosen) = self.chosen.take() else { return Ok(()) };
        let Ok(issue) = &chosen.issue else { return Ok(()) };
        let earlier = self.board.issues.iter().find(|seen| seen.note.number == chosen.number);
        if earlier.is_some_and(|seen| seen.note.handed_to.is_some()) {
            // Whoever handed it over was lost: its loop goes on, and is looked at in the next cycle.
            return Ok(());
        }
        self.hand_over(&dispatch, issue, &chosen.lease).await
    }

    async fn loop_status(&self, id: &TaskId) -> Result<Option<(Status, Option<String>)>, Broken> {
        let show = Show { call: self.shared.call.clone(), id: id.clone() };
        match self.shared.desk.perform(show).await {
            Ok((view, _)) => {
                let reason = view.task.fail_reason.or(view.task.parked_reason);
                Ok(Some((view.task.status, reason)))
            }
            Err(Error::Refused(Refusal::TaskNotFound { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// One loop per lease: whoever does this again finds it done.
    async fn hand_over(
        &self,
        dispatch: &DispatchConfig,
        issue: &Issue,
        lease: &LeaseId,
    ) -> Result<(), Broken> {
        let shared = &self.shared;
        let base = git(&shared.folder, &["rev-parse", "HEAD"], GIT).await.map_err(Broken::Git)?;
        let files = allowed_files(dispatch, &issue.body);
        let pin = shared.remembered_pin().unwrap_or_default();
        let text = Instruction {
            source: &shared.source.key(),
            number: issue.number,
            title: &issue.title,
            body: &issue.body,
            allowed_files: &files,
            governance: &governance::hash_of_all(&pin),
        }
        .text();
        let id = TaskId::from_stored(format!("{}-{}", lease.task, lease.fence).into());
        let title: String = issue.title.chars().take(200).collect();
        let task = NewTask {
            kind: Some(dispatch.kind.clone()),
            priority: NewPriority::Unset,
            description: Some(text),
            reference: Some(lease.task.to_string()),
            ..NewTask::new(id.clone(), LOOPS, &format!("#{} {title}", issue.number))
        };
        match shared.desk.perform(Add { call: shared.call.clone(), tasks: vec![task] }).await {
            Ok(_) | Err(Error::Refused(Refusal::DuplicateId { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        let handed_to = HandedTo { task: id, base: base.trim().to_owned(), files };
        self.note(lease, NoteChange::HandedTo(Some(handed_to))).await?;
        Ok(())
    }

    /// An issue that we hold: hands it over if that was cut off, and looks at a loop that has ended.
    pub(super) async fn follow_up(&mut self, seen: &BoardIssue, lease: &LeaseId) -> Result<bool, Broken> {
        let Some(dispatch) = self.shared.config.dispatch.clone() else { return Ok(false) };
        let number = seen.note.number;
        let Some(handed_to) = &seen.note.handed_to else {
            if let Some(issue) = self.shared.source.issue(number).await? {
                self.hand_over(&dispatch, &issue, lease).await?;
            }
            return Ok(true);
        };
        let (status, reason) = match self.loop_status(&handed_to.task).await? {
            Some((Status::Open | Status::Active | Status::Paused, _)) => return Ok(false),
            Some(ended) => ended,
            None => (Status::Deleted, None),
        };
        let verdict = match status {
            Status::Done => self.check_result(&dispatch, handed_to).await?,
            other => {
                let reason = reason.unwrap_or_else(|| "no reason given".to_owned());
                Err(format!("the loop is {other}: {reason}"))
            }
        };
        match verdict {
            Ok(summary) => self.accept(number, lease, &summary).await?,
            Err(problem) => self.refuse(number, lease, &problem).await?,
        }
        Ok(true)
    }

    async fn accept(&mut self, number: u64, lease: &LeaseId, summary: &str) -> Result<(), Broken> {
        let source = &self.shared.source;
        let text = format!("Done under `{lease}`: {summary}.");
        comment_once(source, number, &format!("done {lease}"), &text).await?;
        source.close(number).await?;
        let issue = source.issue(number).await?;
        self.finish(lease, issue.as_ref(), summary).await
    }

    /// Open for the next attempt, or parked if this was the last one.
    async fn refuse(&mut self, number: u64, lease: &LeaseId, problem: &str) -> Result<(), Broken> {
        self.warn(format!("#{number}: the result is not accepted: {problem}"));
        let shown = rota_core::text::escaped(problem);
        let text = format!("The attempt under `{lease}` is not accepted: {shown}");
        comment_once(&self.shared.source, number, &format!("refused {lease}"), &text).await?;
        let caller = Caller::lease(lease.clone());
        let reason = Some(format!("result not accepted: {problem}"));
        let fail = Command::Fail { caller, reason, default_reason: FAILED_REASON };
        let leaving = NoteChange::LabelLeaving { by: self.shared.agent.clone() };
        self.settle(lease, fail, vec![leaving, NoteChange::HandedTo(None)]).await?;
        self.take_label_away(&lease.task, number).await;
        Ok(())
    }

    /// What the loop changed, against what it was allowed to. Its exit and validation are why it is done at all.
    async fn check_result(
        &self,
        dispatch: &DispatchConfig,
        handed_to: &HandedTo,
    ) -> Result<Result<String, String>, Broken> {
        let shared = &self.shared;
        let tip = if shared.loops_have_worktrees {
            format!("refs/heads/rota/{}", encoded(&handed_to.task))
        } else {
            "HEAD".to_owned()
        };
        let range = format!("{}..{tip}", handed_to.base);
        let folder = &shared.folder;
        let changed = git(folder, &["diff", "--name-only", "--no-renames", "-z", &range], GIT).await;
        let messages = git(folder, &["log", "--format=%B%x00", &range], GIT).await;
        let (changed, messages) = match (changed, messages) {
            (Ok(changed), Ok(messages)) => (changed, messages),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(format!("its commits: {error}"))),
        };
        let changed: Vec<&str> = changed.split('\0').filter(|path| !path.is_empty()).collect();
        let messages: Vec<&str> =
            messages.split('\0').map(str::trim).filter(|text| !text.is_empty()).collect();
        Ok(judge(dispatch, &handed_to.files, &shared.config.governance.files, &changed, &messages))
    }
}

/// The files an issue may change: those of the configuration, fewer if the issue names some itself.
fn allowed_files(dispatch: &DispatchConfig, body: &str) -> Vec<String> {
    let own = instruction::files(body);
    if own.is_empty() {
        return dispatch.allowed_files.clone();
    }
    own
}

fn judge(
    dispatch: &DispatchConfig,
    files: &[String],
    governance: &[String],
    changed: &[&str],
    messages: &[&str],
) -> Result<String, String> {
    let is_within = |globs: &[String], path: &str| {
        globs.is_empty() || globs.iter().any(|glob| Globs::parse(glob).matches(path))
    };
    let is_allowed = |path: &&&str| {
        is_within(&dispatch.allowed_files, path)
            && is_within(files, path)
            && !governance.iter().any(|file| file == **path)
    };
    let outside: Vec<&str> = changed.iter().filter(|path| !is_allowed(path)).copied().collect();
    if !outside.is_empty() {
        let named = outside.iter().take(NAMED_FILES).copied().collect::<Vec<_>>().join(", ");
        return Err(format!("{} files were changed that may not be: {named}", outside.len()));
    }
    if let Some(pattern) = &dispatch.commit_message {
        let pattern = Regex::new(pattern).map_err(|error| format!("commit_message: {error}"))?;
        if messages.is_empty() {
            return Err("there is no commit".to_owned());
        }
        if let Some(message) = messages.iter().find(|message| !pattern.is_match(message)) {
            let first = message.lines().next().unwrap_or_default();
            return Err(format!("the message of a commit is not as it should be: {first}"));
        }
    }
    Ok(format!("{} commits, {} files changed", messages.len(), changed.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_judged_by_files_and_messages() {
        let dispatch = DispatchConfig {
            kind: "ralph".into(),
            allowed_files: vec!["src/*".into(), "docs/*".into()],
            commit_message: Some(r"^(fix|feat): ".into()),
        };
        let free = DispatchConfig { allowed_files: Vec::new(), commit_message: None, ..dispatch.clone() };
        let governance = ["docs/governance.md".to_owned()];
        let own = ["src/a.rs".to_owned()];
        for (dispatch, files, changed, messages, wanted) in [
            (&dispatch, &[][..], &["src/a.rs"][..], &["fix: a"][..], Ok("1 commits, 1 files changed")),
            (&dispatch, &own[..], &["src/a.rs"][..], &["fix: a\n\nmore"][..], Ok("1 commits, 1 files")),
            (
                &dispatch,
                &own[..],
                &["src/b.rs"][..],
                &["fix: a"][..],
                Err("1 files were changed that may not be: src/b.rs"),
            ),
            (&dispatch, &[][..], &["etc/passwd"][..], &["fix: a"][..], Err("may not be: etc/passwd")),
            (&dispatch, &[][..], &["src/a.rs"][..], &["fix: a", "wip"][..], Err("not as it should be: wip")),
            (&dispatch, &[][..], &[][..], &[][..], Err("there is no commit")),
            (&free, &[][..], &["docs/governance.md"][..], &["x"][..], Err("docs/governance.md")),
            (&free, &[][..], &[][..], &[][..], Ok("0 commits, 0 files changed")),
        ] {
            let verdict = judge(dispatch, files, &governance, changed, messages);
            match (&verdict, wanted) {
                (Ok(said), Ok(wanted)) => assert!(said.contains(wanted), "{said}"),
                (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{said}"),
                _ => panic!("{changed:?} {messages:?}: {verdict:?}"),
            }
        }
    }
}
