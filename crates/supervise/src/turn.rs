//! One cycle, step by step: core says which step comes next, this carries it out and reports what it came to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cycle::{Cycle, Reported, Rule, Selected, Step};
use rota_core::text::escaped;
use rota_core::transition::Command;
use rota_core::{Caller, Json, LeaseId, Status};
use rota_store::Store;
use rota_store::intents::claim::ReclaimExpired;
use rota_store::intents::issues::{
    Board, ClaimIssue, ClaimedIssue, EditIssue, Guard, KeepLeases, NoteChange, NoteViolation, PINNED_ANEW,
    PinGovernance, Pinned, QUEUE, ReadRecord, SeenBoard,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::governance::{self, Files, Violation};
use crate::sources::{Issue, Listed, OpenIssues, Source, Trouble};
use crate::{Broken, Shared, Told, environment};

/// Looking for an issue that is still free may take one part of so many of a cycle's time; the next cycle goes on.
const SELECTION_SHARE: u32 = 3;

/// What one cycle works with.
pub(super) struct Turn<S> {
    pub shared: Arc<Shared<S>>,
    pub cycle: Arc<Mutex<Cycle>>,
    pub told: mpsc::UnboundedSender<Told>,
    pub board: SeenBoard,
    /// Whether the board is that of this cycle.
    pub has_looked: bool,
    pub open: OpenIssues,
    /// Labels that were changed since the list was made: issue, whether it has ours.
    pub relabelled: Vec<(u64, bool)>,
    pub chosen: Option<Chosen>,
}

/// The issue whose lease was taken in this cycle.
pub(super) struct Chosen {
    pub number: u64,
    pub lease: LeaseId,
    /// As it was read after the lease was taken.
    pub issue: Result<Issue, Trouble>,
}

/// A candidate as it is now.
enum Closer {
    Free(Box<Issue>),
    /// Somebody works on it, or it does not pass the filters any more.
    Taken,
    /// It is no open issue any more, and why.
    Over(&'static str),
}

impl<S: Source> Turn<S> {
    /// Takes every step that core asks for.
    pub async fn run(mut self) -> Result<(), Broken> {
        self.tell_lines();
        loop {
            let step = self.cycle().next();
            let reported = match step {
                Step::Governance => Reported::Governance(self.validate_governance().await?),
                Step::Environment => Reported::Environment(self.validate_environment().await),
                Step::Start => {
                    self.start().await?;
                    Reported::Started
                }
                Step::Selection => Reported::Selection(self.select().await?),
                Step::Gate => Reported::Gate(self.gate().await?),
                Step::Claim => self.claim().await?,
                Step::Dispatch => {
                    self.dispatch_chosen().await?;
                    Reported::Dispatched
                }
                Step::Report => return Ok(()),
            };
            self.cycle().report(reported);
            self.tell_lines();
        }
    }

    pub(super) fn cycle(&self) -> std::sync::MutexGuard<'_, Cycle> {
        self.cycle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_lines(&self) {
        let lines = self.cycle().take_lines();
        self.tell(Told::Lines(lines));
    }

    fn tell(&self, told: Told) {
        // The receiver lives as long as the cycle.
        let _sent = self.told.send(told);
    }

    pub(super) fn warn(&self, text: impl Into<String>) {
        self.tell(Told::Warning(text.into()));
    }

    async fn validate_governance(&mut self) -> Result<Result<(), crate::cycle::Violated>, Broken> {
        self.keep_leases().await;
        let violations = self.governance_violations(true).await?;
        self.note_violations(&violations).await;
        Ok(governance::verdict(&violations))
    }

    /// Leases are kept whatever else fails: work that was handed over goes on.
    async fn keep_leases(&mut self) {
        if self.look().await.is_err() {
            return;
        }
        let (shared, board) = (&self.shared, &self.board);
        let is_due = |until: rota_core::UnixMillis| until.age_ms_of(board.now) < board.lease_ms / 3 * 2;
        let mine = board.issues.iter().filter(|issue| issue.task.assignee.as_deref() == Some(&shared.agent));
        let due = mine.filter(|issue| issue.task.lease_expires_at.is_some_and(is_due));
        let leases: Vec<LeaseId> = due.filter_map(|issue| issue.task.lease()).collect();
        if leases.is_empty() {
            return;
        }
        let kept = shared.store.perform(&KeepLeases { call: shared.call.clone(), leases }).await;
        if let Err(error) = kept {
            self.warn(format!("leases could not be renewed: {error}"));
        }
        self.has_looked = false;
    }

    /// Compares the governance files with the pin; at the first start they become the pin.
    async fn governance_violations(&self, may_pin: bool) -> Result<Vec<Violation>, Broken> {
        let shared = &self.shared;
        let found = match governance::load(&shared.folder, &shared.config.governance) {
            Ok(found) => found,
            Err(violations) => return Ok(violations),
        };
        let pin = match self.pin().await? {
            Some(pin) => pin,
            None if may_pin && !shared.config.governance.requires_pin => self.pin_found(&found).await?,
            None if may_pin => return Ok(vec![governance::not_pinned()]),
            None => Files::new(),
        };
        shared.remember_pin(&pin);
        Ok(governance::compare(&pin, &found))
    }

    /// Pins the files as they are, and reports it. A state file that counts cycles knew a pin, so this one is suspect.
    async fn pin_found(&self, found: &Files) -> Result<Files, Broken> {
        let shared = &self.shared;
        let cycles = self.cycle().ended_before();
        let reason = match cycles {
            0 => "the first start".to_owned(),
            count => format!("{PINNED_ANEW}: the store had no pin, but the state file counts {count} cycles"),
        };
        let pin = PinGovernance {
            call: shared.call.clone(),
            source: shared.source.key(),
            files: found.clone(),
            only_first: true,
            reason,
        };
        let Pinned { files, is_new } = shared.store.perform(&pin).await?;
        for (file, hash) in files.iter().filter(|_| is_new) {
            let line = format!("{} {hash} by {}", escaped(file), escaped(&shared.agent));
            match cycles {
                0 => self.tell(Told::Notice(format!("pinned: {line}"))),
                _ => self.warn(format!("{PINNED_ANEW}: {line}")),
            }
        }
        Ok(files)
    }

    /// The pin in force; the one that was seen last while the store is away.
    async fn pin(&self) -> Result<Option<Files>, Broken> {
        let shared = &self.shared;
        let read = ReadRecord { call: shared.call.clone(), source: shared.source.key() };
        match shared.store.perform(&read).await {
            Ok(record) => Ok(record.and_then(|record| record.pin)),
            Err(error) => shared.remembered_pin().map(Some).ok_or(Broken::Store(error)),
        }
    }

    async fn note_violations(&self, violations: &[Violation]) {
        if violations.is_empty() {
            return;
        }
        let shared = &self.shared;
        let log = shared.folder.join(&shared.config.governance.violation_log);
        if let Err(error) = governance::log(&log, violations, shared.now()) {
            self.warn(format!("{}: {error}", log.display()));
        }
        for violation in violations {
            self.warn(format!("governance: {}: {}", violation.rule.word(), violation.message));
            let note = NoteViolation {
                call: shared.call.clone(),
                source: shared.source.key(),
                message: format!("{}: {}", violation.rule.word(), violation.message),
            };
            if let Err(error) = shared.store.perform(&note).await {
                self.warn(format!("the violation could not be journalled: {error}"));
            }
        }
    }

    async fn validate_environment(&self) -> Vec<String> {
        let checks = environment::validate(&self.shared).await;
        for failure in checks.iter().flat_map(|check| &check.failures) {
            self.warn(format!("{}: {}", failure.code, failure.detail));
        }
        environment::codes(&checks)
    }

    /// What the store and the tracker say, and what follows where they differ.
    async fn start(&mut self) -> Result<(), Broken> {
        let shared = Arc::clone(&self.shared);
        self.open = shared.source.open_issues().await?;
        if !self.has_looked {
            self.look().await?;
        }
        if self.board.issues.iter().any(|issue| issue.task.lease_expired(self.board.now)) {
            // Somebody else's: ours were renewed when the cycle began.
            let reclaim = ReclaimExpired { call: shared.call.clone(), queue: QUEUE.to_owned() };
            shared.store.perform(&reclaim).await?;
            self.look().await?;
        }
        if self.reconcile().await? {
            self.look().await?;
        }
        Ok(())
    }

    pub(super) async fn look(&mut self) -> Result<(), Broken> {
        let shared = &self.shared;
        let board = Board { call: shared.call.clone(), source: shared.source.key() };
        self.board = shared.store.perform(&board).await?;
        self.has_looked = true;
        Ok(())
    }

    /// The lowest issue that nobody works on, with its lease.
    async fn select(&mut self) -> Result<Option<Selected>, Broken> {
        if self.board.is_full {
            return Ok(None);
        }
        let shared = Arc::clone(&self.shared);
        if shared.is_open_to_everybody() {
            self.warn(
                "the repository is public and no filter is set, so anybody could have agents work on an issue: \
                 nothing is selected until supervisor.labels, supervisor.authors or supervisor.milestone is set",
            );
            return Ok(None);
        }
        let runtime = std::time::Duration::from_secs(shared.config.cycle_max_runtime_secs);
        let deadline = Instant::now() + runtime / SELECTION_SHARE;
        for number in self.candidates() {
            if Instant::now() > deadline {
                self.warn(
                    "too many issues in the list are gone or taken: the next cycle goes on behind them",
                );
                return Ok(None);
            }
            let title = self.open.get(&number).map_or(String::new(), |listed| listed.title.clone());
            let task = match self.take_lease(number, &title).await? {
                ClaimedIssue::Granted(task) => task,
                ClaimedIssue::NotNow | ClaimedIssue::Done => continue,
                ClaimedIssue::Full => return Ok(None),
            };
            let Some(lease) = task.lease() else { continue };
            shared.hold(Some(lease.clone()));
            let issue = match self.look_closer(number).await {
                Ok(Closer::Free(issue)) => Ok(*issue),
                Ok(Closer::Taken) => {
                    self.give_back(&lease).await?;
                    continue;
                }
                Ok(Closer::Over(outcome)) => {
                    self.settle_gone(number, &lease, outcome).await?;
                    continue;
                }
                Err(Broken::Tracker(trouble)) => Err(trouble),
                Err(broken) => return Err(broken),
            };
            let title = issue.as_ref().map_or(title, |issue| issue.title.clone());
            self.chosen = Some(Chosen { number, lease, issue });
            return Ok(Some(Selected { number, title }));
        }
        Ok(None)
    }

    /// Reads an issue whose lease was taken: the list may be a little old.
    async fn look_closer(&self, number: u64) -> Result<Closer, Broken> {
        let Some(issue) = self.shared.source.issue(number).await? else {
            return Ok(Closer::Over("gone from the tracker"));
        };
        if !issue.is_open {
            return Ok(Closer::Over("closed in the tracker"));
        }
        if !self.is_free(&issue) || self.is_claimed_elsewhere(number).await? {
            return Ok(Closer::Taken);
        }
        Ok(Closer::Free(Box::new(issue)))
    }

    /// An issue that is gone or closed is done, and is not looked at again because an old list has it.
    async fn settle_gone(&self, number: u64, lease: &LeaseId, outcome: &str) -> Result<(), Broken> {
        let result = Some(Json::of(&serde_json::json!({ "outcome": outcome })));
        let done = Command::Done { caller: Caller::lease(lease.clone()), result };
        self.settle(lease, done, vec![NoteChange::LabelGone]).await?;
        self.shared.hold(None);
        self.shared.source.forget(number).await;
        Ok(())
    }

    /// The list may be older than the end of an issue: one that was done starts over only if it is open again now.
    async fn take_lease(&self, number: u64, title: &str) -> Result<ClaimedIssue, Broken> {
        let shared = &self.shared;
        let mut claim = ClaimIssue {
            call: shared.call.clone(),
            id: shared.source.task(number),
            source: shared.source.key(),
            number,
            title: title.to_owned(),
            agent: shared.agent.clone(),
            reopens: false,
        };
        let claimed = shared.store.perform(&claim.clone()).await?;
        if claimed != ClaimedIssue::Done {
            return Ok(claimed);
        }
        claim.reopens = shared.source.issue(number).await?.is_some_and(|issue| self.is_free(&issue));
        if claim.reopens { Ok(shared.store.perform(&claim).await?) } else { Ok(claimed) }
    }

    /// Open issues without the label that pass the filters and that the store knows nothing against, lowest first.
    fn candidates(&self) -> Vec<u64> {
        let is_held = |issue: &&rota_store::intents::issues::BoardIssue| {
            let waits = issue.task.next_eligible_at.is_some_and(|due| due > self.board.now);
            let is_expired = issue.task.lease_expired(self.board.now);
            let is_free = issue.task.status == Status::Open || is_expired;
            !is_free || waits || issue.note.mark.is_some()
        };
        let held: BTreeSet<u64> =
            self.board.issues.iter().filter(is_held).map(|issue| issue.note.number).collect();
        let relabelled = |number: &u64| {
            self.relabelled.iter().rev().find(|(other, _)| other == number).map(|(_, labelled)| *labelled)
        };
        let config = &self.shared.config;
        let is_free = |number: &u64, listed: &Listed| {
            let is_claimed = relabelled(number).unwrap_or_else(|| listed.has_label(&config.claim_label));
            !held.contains(number)
                && !is_claimed
                && listed.passes(&config.filters)
                && !self.is_known_elsewhere(*number)
        };
        let open = self.open.iter().filter(|(number, listed)| is_free(number, listed));
        open.map(|(number, _)| *number).collect()
    }

    fn is_free(&self, issue: &Issue) -> bool {
        let config = &self.shared.config;
        issue.is_open
            && !issue.is_pull_request
            && !issue.has_label(&config.claim_label)
            && issue.passes(&config.filters)
    }

    /// Somebody was faster: no label was set, and no attempt is counted.
    async fn give_back(&self, lease: &LeaseId) -> Result<(), Broken> {
        let release = Command::Release { caller: Caller::lease(lease.clone()) };
        self.settle(lease, release, vec![NoteChange::LabelGone]).await?;
        self.shared.hold(None);
        Ok(())
    }

    /// Ends a lease of ours; false if it was no longer ours.
    pub(super) async fn settle(
        &self,
        lease: &LeaseId,
        command: Command,
        changes: Vec<NoteChange>,
    ) -> Result<bool, Broken> {
        let edit = EditIssue {
            call: self.shared.call.clone(),
            id: lease.task.clone(),
            guard: Guard::Lease(lease.clone()),
            command: Some(command),
            changes,
        };
        Ok(self.shared.store.perform(&edit).await?.is_some())
    }

    /// Whether the instruction may be given. What cannot be read is left to the claim, which fails.
    async fn gate(&mut self) -> Result<Result<(), crate::cycle::Violated>, Broken> {
        let Some(chosen) = &self.chosen else { return Ok(Ok(())) };
        let Ok(issue) = &chosen.issue else { return Ok(Ok(())) };
        let mut violations = self.governance_violations(false).await?;
        violations.extend(self.shared.rules.check(issue.number, &issue.title, &issue.body));
        if violations.is_empty() {
            return Ok(Ok(()));
        }
        let (lease, read) = (chosen.lease.clone(), NoteChange::Read(issue.text_hash()));
        self.note_violations(&violations).await;
        self.reject(&lease, &violations, vec![NoteChange::LabelGone, read]).await?;
        Ok(governance::verdict(&violations))
    }

    /// Gives the lease back after a violation. An issue that is itself at fault is parked after `gate_attempts`.
    pub(super) async fn reject(
        &self,
        lease: &LeaseId,
        violations: &[Violation],
        mut changes: Vec<NoteChange>,
    ) -> Result<(), Broken> {
        let caller = Caller::lease(lease.clone());
        let is_own =
            |violation: &&Violation| !matches!(violation.rule, Rule::ContextLoading | Rule::Immutability);
        let command = match violations.iter().find(is_own) {
            Some(violation) => {
                let known = self.board.issues.iter().find(|issue| issue.task.id == lease.task);
                let refusals = known.map_or(0, |issue| issue.note.gate_refusals).saturating_add(1);
                let limit = self.shared.config.gate_attempts;
                let is_last = refusals >= limit;
                changes.push(NoteChange::GateRefusals(if is_last { 0 } else { refusals }));
                let reason = format!(
                    "governance: {}: {} (attempt {refusals}/{limit})",
                    violation.rule.word(),
                    violation.message
                );
                if is_last { Command::Park { caller, reason } } else { Command::Release { caller } }
            }
            None => Command::Release { caller },
        };
        self.settle(lease, command, changes).await?;
        self.shared.hold(None);
        Ok(())
    }

    /// The same comparison once more, when the label is already there.
    pub(super) async fn violations_since(&self) -> Result<Vec<Violation>, Broken> {
        let violations = self.governance_violations(false).await?;
        self.note_violations(&violations).await;
        Ok(violations)
    }
}
