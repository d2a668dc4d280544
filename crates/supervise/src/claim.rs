//! The label of a claim: set, read back, and taken away again where the claim fails. The lease was taken before, and
//! whatever a crash leaves between the two is found by the next cycle.

use crate::cycle::Reported;
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, TaskId};
use rota_store::Store;
use rota_store::intents::issues::{EditIssue, Guard, NoteChange};

use crate::answers::RETRY_LABEL;
use crate::sources::{Source, Trouble};
use crate::turn::{Chosen, Turn};
use crate::{Broken, governance};

impl<S: Source> Turn<S> {
    /// Sets the label, reads it back, and notes that it is there.
    pub(super) async fn claim(&mut self) -> Result<Reported, Broken> {
        let Some(chosen) = self.chosen.take() else { return Ok(Reported::Claim { verified: false }) };
        let labelled = match &chosen.issue {
            Ok(_) => self.label(chosen.number, &chosen.lease).await,
            Err(trouble) => Err(ClaimFailure::Broken(trouble.clone().into())),
        };
        match labelled {
            Ok(()) => {}
            Err(ClaimFailure::Broken(broken)) if !matches!(broken, Broken::Tracker(_)) => return Err(broken),
            Err(failure) => {
                self.fail(&chosen, &failure).await?;
                return Ok(Reported::Claim { verified: false });
            }
        }
        let violations = self.violations_since().await?;
        if !violations.is_empty() {
            let leaving = NoteChange::LabelLeaving { by: self.shared.agent.clone() };
            self.reject(&chosen.lease, &violations, vec![leaving]).await?;
            self.take_label_away(&chosen.lease.task, chosen.number).await;
            return Ok(Reported::Gate(governance::verdict(&violations)));
        }
        let mut changes = vec![NoteChange::LabelSet, NoteChange::GateRefusals(0)];
        changes.extend(chosen.issue.iter().map(|issue| NoteChange::Read(issue.text_hash())));
        let verified = self.note(&chosen.lease, changes).await?;
        self.shared.hold(None);
        if verified {
            self.relabelled.push((chosen.number, true));
            self.drop_retry_label(&chosen).await;
            self.chosen = Some(chosen);
        } else {
            self.warn(format!("#{}: the lease ran out while the label was set", chosen.number));
            self.take_label_away(&chosen.lease.task, chosen.number).await;
        }
        Ok(Reported::Claim { verified })
    }

    async fn label(&self, number: u64, lease: &LeaseId) -> Result<(), ClaimFailure> {
        let source = &self.shared.source;
        source.add_claim_label(number).await?;
        let label = &self.shared.config.claim_label;
        match source.issue(number).await? {
            Some(issue) if issue.is_open && issue.has_label(label) => {}
            Some(issue) if !issue.is_open => return Err(ClaimFailure::Closed),
            Some(_) => return Err(ClaimFailure::NotThere),
            None => return Err(ClaimFailure::Gone),
        }
        match self.announce(number, lease).await? {
            Some(store) => Err(ClaimFailure::Yielded { store }),
            None => Ok(()),
        }
    }

    /// A label that asked for this attempt, and was left because a cycle was cut off.
    async fn drop_retry_label(&self, chosen: &Chosen) {
        let Ok(issue) = &chosen.issue else { return };
        if let Err(trouble) = self.shared.source.remove_label(issue, RETRY_LABEL).await {
            self.warn(format!("#{}: the label {RETRY_LABEL} could not be removed: {trouble}", chosen.number));
        }
    }

    /// The lease goes back, the label goes if it was set. Trouble with the tracker as a whole costs no attempt.
    async fn fail(&mut self, chosen: &Chosen, failure: &ClaimFailure) -> Result<(), Broken> {
        let (number, lease) = (chosen.number, &chosen.lease);
        self.warn(format!("#{number}: claim failed: {failure}"));
        let caller = Caller::lease(lease.clone());
        if let ClaimFailure::Yielded { .. } = failure {
            // The label belongs to the other one now.
            self.settle(lease, Command::Release { caller }, vec![NoteChange::LabelGone]).await?;
            self.shared.hold(None);
            self.relabelled.push((number, true));
            return Ok(());
        }
        let is_general =
            matches!(failure, ClaimFailure::Broken(Broken::Tracker(trouble)) if trouble.is_general());
        let command = if is_general {
            Command::Release { caller }
        } else {
            let reason = Some(format!("claim failed: {failure}"));
            Command::Fail { caller, reason, default_reason: FAILED_REASON }
        };
        let mut changes = vec![NoteChange::LabelLeaving { by: self.shared.agent.clone() }];
        changes.extend(chosen.issue.iter().map(|issue| NoteChange::Read(issue.text_hash())));
        self.settle(lease, command, changes).await?;
        self.shared.hold(None);
        if !is_general {
            self.take_label_away(&lease.task, number).await;
        }
        Ok(())
    }

    /// Under a lease of ours; false if it is no longer ours.
    pub(super) async fn note(&self, lease: &LeaseId, changes: Vec<NoteChange>) -> Result<bool, Broken> {
        let edit = EditIssue {
            call: self.shared.call.clone(),
            id: lease.task.clone(),
            guard: Guard::Lease(lease.clone()),
            command: None,
            changes,
        };
        Ok(self.shared.store.perform(&edit).await?.is_some())
    }

    /// Of an issue that nobody holds; false if somebody does, or another supervisor is at it.
    pub(super) async fn note_free(&self, id: &TaskId, change: NoteChange) -> Result<bool, Broken> {
        let edit = EditIssue {
            call: self.shared.call.clone(),
            id: id.clone(),
            guard: Guard::Free,
            command: None,
            changes: vec![change],
        };
        Ok(self.shared.store.perform(&edit).await?.is_some())
    }

    /// Takes our label from an issue that nobody holds. What fails here is tried again in the next cycle.
    pub(super) async fn take_label_away(&mut self, id: &TaskId, number: u64) {
        match self.try_to_take_label_away(id, number).await {
            Ok(true) => self.relabelled.push((number, false)),
            Ok(false) => {}
            Err(error) => self.warn(format!("#{number}: the label could not be taken away: {error}")),
        }
    }

    async fn try_to_take_label_away(&self, id: &TaskId, number: u64) -> Result<bool, Broken> {
        let leaving = NoteChange::LabelLeaving { by: self.shared.agent.clone() };
        if !self.note_free(id, leaving).await? {
            return Ok(false);
        }
        let source = &self.shared.source;
        if let Some(issue) = source.issue(number).await? {
            self.withdraw(number).await?;
            source.remove_label(&issue, &self.shared.config.claim_label).await?;
        }
        self.note_free(id, NoteChange::LabelGone).await
    }
}

/// Why a claim was not made.
#[derive(Debug, thiserror::Error)]
enum ClaimFailure {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("the supervisor of store {store} was faster: this one yields")]
    Yielded { store: String },
    #[error("the label is not there when it is read back")]
    NotThere,
    #[error("the issue was closed meanwhile")]
    Closed,
    #[error("the issue is gone")]
    Gone,
}

impl From<Trouble> for ClaimFailure {
    fn from(trouble: Trouble) -> Self {
        Self::Broken(trouble.into())
    }
}
