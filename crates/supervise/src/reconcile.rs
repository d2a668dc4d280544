//! Labels and leases brought together, every cycle: a claim that was cut off is undone, a label of ours without a lease
//! goes, an issue that was closed is done, a label that a person took away is a release.

use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, Json, LeaseId, Status};
use rota_store::intents::issues::{BoardIssue, Mark, NoteChange};

use crate::Broken;
use crate::sources::{Issue, Source};
use crate::turn::Turn;

/// The tracker is asked about so many issues in a cycle; the rest waits for the next.
const REPAIRS: u32 = 25;

impl<S: Source> Turn<S> {
    /// Whether anything had to be looked into.
    pub(super) async fn reconcile(&mut self) -> Result<bool, Broken> {
        let mut repairs = 0;
        let mut issues = self.board.issues.clone();
        // Each cycle begins elsewhere, so that issues which fail every time do not keep the others waiting.
        let cycles = usize::try_from(self.cycle().ended_before()).unwrap_or(0);
        let begin = cycles.wrapping_mul(REPAIRS as usize) % issues.len().max(1);
        issues.rotate_left(begin);
        for issue in issues {
            if repairs >= REPAIRS {
                break;
            }
            match self.reconcile_one(&issue).await {
                Ok(asked) => repairs += u32::from(asked),
                Err(Broken::Tracker(trouble)) => {
                    self.warn(format!("#{}: {trouble}", issue.note.number));
                    repairs += 1;
                    if trouble.is_general() {
                        break;
                    }
                }
                Err(broken) => return Err(broken),
            }
        }
        Ok(repairs > 0)
    }

    /// Whether the tracker had to be asked.
    async fn reconcile_one(&mut self, issue: &BoardIssue) -> Result<bool, Broken> {
        let (number, id) = (issue.note.number, &issue.task.id);
        let is_ours = issue.task.assignee.as_deref() == Some(self.shared.agent.as_str());
        match (issue.task.lease(), &issue.note.mark) {
            (Some(lease), Some(Mark::Wanted)) if is_ours => {
                self.undo(issue, &lease).await?;
                Ok(true)
            }
            (Some(lease), Some(_)) if is_ours => self.look_after(issue, &lease).await,
            (Some(_), _) => Ok(false),
            (None, Some(_)) => {
                self.take_label_away(id, number).await;
                self.tell_parked(issue).await?;
                Ok(true)
            }
            (None, None) if issue.task.status != Status::Parked => Ok(false),
            (None, None) if issue.note.is_told => self.look_for_answer(issue).await,
            (None, None) => {
                self.tell_parked(issue).await?;
                Ok(true)
            }
        }
    }

    /// A claim of ours that was cut off between lease and label: an attempt that ended badly.
    async fn undo(&mut self, issue: &BoardIssue, lease: &LeaseId) -> Result<(), Broken> {
        let number = issue.note.number;
        self.warn(format!("#{number}: a claim that was cut off is undone"));
        let caller = Caller::lease(lease.clone());
        let reason = Some("claim cut off before the label was verified".to_owned());
        let fail = Command::Fail { caller, reason, default_reason: FAILED_REASON };
        let leaving = NoteChange::LabelLeaving { by: self.shared.agent.clone() };
        self.settle(lease, fail, vec![leaving]).await?;
        self.take_label_away(&lease.task, number).await;
        Ok(())
    }

    /// An issue that we hold: is it still open, is the label still there, has its loop ended?
    async fn look_after(&mut self, issue: &BoardIssue, lease: &LeaseId) -> Result<bool, Broken> {
        let number = issue.note.number;
        let label = self.shared.config.claim_label.clone();
        if self.open.get(&number).is_some_and(|listed| listed.has_label(&label)) {
            return self.follow_up(issue, lease).await;
        }
        // The list may be a little old: only what is read now counts.
        let found = self.shared.source.issue(number).await?;
        match found {
            Some(found) if found.is_open && found.has_label(&label) => {
                self.follow_up(issue, lease).await?;
            }
            Some(found) if found.is_open => {
                self.warn(format!("#{number}: the label was taken away by somebody: released"));
                self.withdraw(number).await?;
                let release = Command::Release { caller: Caller::lease(lease.clone()) };
                self.settle(lease, release, vec![NoteChange::LabelGone]).await?;
            }
            closed => self.finish(lease, closed.as_ref(), "closed in the tracker").await?,
        }
        Ok(true)
    }

    /// The label goes while the lease is still ours, then the issue is done.
    pub(super) async fn finish(
        &mut self,
        lease: &LeaseId,
        issue: Option<&Issue>,
        outcome: &str,
    ) -> Result<(), Broken> {
        if let Some(issue) = issue {
            self.withdraw(issue.number).await?;
            self.shared.source.remove_label(issue, &self.shared.config.claim_label).await?;
            self.relabelled.push((issue.number, false));
        }
        let result = Some(Json::of(&serde_json::json!({ "outcome": outcome })));
        let done = Command::Done { caller: Caller::lease(lease.clone()), result };
        self.settle(lease, done, vec![NoteChange::LabelGone, NoteChange::HandedTo(None)]).await?;
        Ok(())
    }
}
