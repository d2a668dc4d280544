//! A claimed issue becomes a loop, and a later cycle looks at what came of it. Nothing here waits for an agent.

use std::time::Duration;

use crate::cycle::instruction::{self, Instruction, PersonsComment};
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Refusal, Status, Task, TaskId};
use rota_store::intents::add::{Add, NewPriority, NewTask};
use rota_store::intents::issues::{BoardIssue, HandedTo, NoteChange};
use rota_store::intents::read::Show;
use rota_store::{Error, Store};

use crate::git::git;
use crate::result::{self, Delivered, Rules};
use crate::sources::{Comment, Issue, Source, comment_once};
use crate::turn::Turn;
use crate::{Broken, governance};
use rota_daemon::config::DispatchConfig;
use rota_daemon::folders::Place;

/// How long git may take over a question.
const GIT: Duration = Duration::from_secs(10);
/// How long a daemon may take to commit and remove the worktree of a loop that has ended.
const PUT_AWAY_MS: i64 = 600_000;
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

    async fn loop_task(&self, id: &TaskId) -> Result<Option<Task>, Broken> {
        let show = Show { call: self.shared.call.clone(), id: id.clone() };
        match self.shared.store.perform(&show).await {
            Ok((view, _)) => Ok(Some(view.task)),
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
        let work_tree = result::work_tree(shared).await.map_err(Broken::Git)?;
        let pin = shared.remembered_pin().unwrap_or_default();
        let earlier = self.board.issues.iter().find(|seen| seen.task.id == lease.task);
        let text = Instruction {
            source: &shared.source.key(),
            number: issue.number,
            title: &issue.title,
            body: &issue.body,
            comments: &self.words_of_people(issue).await?,
            allowed_files: &files,
            needs_commit: !shared.kind.commits_are_optional,
            commit_message: dispatch.commit_message.as_deref(),
            last_refusal: earlier.and_then(|seen| seen.note.refusal.as_deref()),
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
        match shared.store.perform(&Add { call: shared.call.clone(), tasks: vec![task] }).await {
            Ok(_) | Err(Error::Refused(Refusal::DuplicateId { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        let handed_to = HandedTo { task: id, base: base.trim().to_owned(), files, work_tree };
        self.note(lease, vec![NoteChange::HandedTo(Some(handed_to))]).await?;
        Ok(())
    }

    /// The comments an agent is shown. Where `authors` is set, theirs; in a public repository otherwise only those of
    /// the issue's author, so that a stranger cannot add to an issue that was approved.
    async fn words_of_people(&self, issue: &Issue) -> Result<Vec<PersonsComment>, Broken> {
        let shared = &self.shared;
        let filters = &shared.config.filters;
        let is_shown = |comment: &Comment| {
            let author = comment.author.as_deref();
            let may = if filters.authors.is_empty() && shared.is_public() {
                author.is_some() && author == issue.author.as_deref()
            } else {
                filters.trusts(author)
            };
            may && !comment.is_rotas()
        };
        let comments = shared.source.comments(issue.number).await?;
        let shown = comments.into_iter().filter(is_shown).map(|comment| PersonsComment {
            author: comment.author.unwrap_or_else(|| "unknown".to_owned()),
            text: comment.body,
        });
        Ok(shown.collect())
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
        let task = self.loop_task(&handed_to.task).await?;
        let status = task.as_ref().map_or(Status::Deleted, |task| task.status);
        let reason = task.as_ref().and_then(|task| task.fail_reason.clone().or(task.parked_reason.clone()));
        let reason = reason.unwrap_or_else(|| "no reason given".to_owned());
        let verdict = match status {
            Status::Open | Status::Active | Status::Paused => return Ok(false),
            Status::Done if task.as_ref().is_some_and(|task| self.is_being_put_away(task)) => {
                return Ok(false);
            }
            Status::Done => self.check_result(&dispatch, handed_to).await,
            Status::Parked => {
                self.ask_person(number, lease, &reason).await?;
                return Ok(true);
            }
            other => Err(format!("the loop is {other}: {reason}")),
        };
        match verdict {
            Ok(delivered) => self.accept(number, lease, &delivered).await?,
            Err(problem) => self.refuse(number, lease, &problem).await?,
        }
        Ok(true)
    }

    async fn accept(&mut self, number: u64, lease: &LeaseId, delivered: &Delivered) -> Result<(), Broken> {
        let source = &self.shared.source;
        let summary = delivered.summary();
        let text = format!("Done under `{lease}`: {summary}.\n\n{}", delivered.details());
        comment_once(source, number, &format!("done {lease}"), &text).await?;
        source.close(number).await?;
        let issue = source.issue(number).await?;
        self.finish(lease, issue.as_ref(), &summary).await
    }

    /// The loop is parked: its agent asks for a person (exit code 77) or cannot be run. So the issue is parked, too,
    /// with the question as a comment.
    async fn ask_person(&mut self, number: u64, lease: &LeaseId, question: &str) -> Result<(), Broken> {
        self.warn(format!("#{number}: parked: the agent needs a person: {question}"));
        let reason = format!("the agent needs a person: {question}");
        let park = Command::Park { caller: Caller::lease(lease.clone()), reason };
        let changes = vec![
            NoteChange::LabelLeaving { by: self.shared.agent.clone() },
            NoteChange::HandedTo(None),
            NoteChange::Refused(format!("it asked a person: {question}")),
        ];
        self.settle(lease, park, changes).await?;
        self.take_label_away(&lease.task, number).await;
        self.look().await?;
        let parked = self.board.issues.iter().find(|issue| issue.task.id == lease.task).cloned();
        match parked {
            Some(parked) => self.tell_parked(&parked).await,
            None => Ok(()),
        }
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
        let refused = NoteChange::Refused(problem.to_owned());
        self.settle(lease, fail, vec![leaving, NoteChange::HandedTo(None), refused]).await?;
        self.take_label_away(&lease.task, number).await;
        Ok(())
    }

    /// Whether the daemon still has to commit what the loop left in its worktree. One that is kept because that fails is
    /// not waited for.
    fn is_being_put_away(&self, task: &Task) -> bool {
        let shared = &self.shared;
        let Some(folders) = shared.folders.as_ref().filter(|_| shared.kind.worktree) else { return false };
        let is_recent = task.finished_at.is_some_and(|at| self.board.now.age_ms_of(at) < PUT_AWAY_MS);
        is_recent && folders.worktree(&Place::of(task)).exists()
    }

    /// The loop's commits, against what they may be. Its exit code and validation are why it is done at all.
    async fn check_result(
        &self,
        dispatch: &DispatchConfig,
        handed_to: &HandedTo,
    ) -> Result<Delivered, String> {
        let shared = &self.shared;
        let found = result::delivered(shared, handed_to).await;
        let (delivered, own) = found.map_err(|error| format!("its commits cannot be read: {error}"))?;
        let governance: Vec<String> =
            shared.config.governance.files.iter().map(|file| own.path_from_top(file)).collect();
        let rules = Rules {
            dispatch,
            files: &handed_to.files,
            governance: &governance,
            commits_are_optional: shared.kind.commits_are_optional,
        };
        result::judge(&rules, &delivered).map(|()| delivered)
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
