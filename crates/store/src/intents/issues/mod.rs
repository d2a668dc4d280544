//! Issues of a tracker as tasks of queue `issues`: the lease is the lock, and what the supervisor has to remember of the
//! tracker's side (has the label been set, must it go) stands in the task's payload, written in the same transactions.

mod local;
mod record;

use async_trait::async_trait;
use rota_core::event::{EventData, EventKind};
use rota_core::obstacle::{Reason, Wait};
use rota_core::select::Room;
use rota_core::transition::Command;
use rota_core::{Caller, Json, LeaseId, Refusal, Status, Task, TaskId, UnixMillis};
use serde::{Deserialize, Serialize};

pub use local::{AddLocalIssue, CloseIssue, EditLocalIssue, LocalComment, ReopenIssue, local_issue};
pub use record::{Identify, NoteViolation, PINNED_ANEW, PinGovernance, Pinned, ReadRecord, Record};

use super::add::{NewTask, add_all};
use super::claim::{ClaimById, Wanted, reclaim};
use super::{Call, Cx, find_queue, find_task, write};
use crate::fault::{Error, Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Filter, ListFilter, Row, Tx};

/// Where issues are.
pub const QUEUE: &str = "issues";
/// A supervisor that began to take a label away has this long before another may think it gone.
const LEAVING_MS: i64 = 10 * 60_000;
/// Longer titles are cut.
const TITLE_CHARS: usize = 1_000;

/// What the supervisor keeps with an issue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Note {
    /// Its number in the tracker.
    pub number: u64,
    /// What is known of our label on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// Whether the tracker was told that it is parked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_told: bool,
    /// How often a person has brought it back after it was parked.
    #[serde(skip_serializing_if = "is_zero")]
    pub brought_back: u32,
    /// The hash of title and body when it was last claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_hash: Option<String>,
    /// The tracker's version of the issue that was last checked for a person's answer while it was parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_version: Option<String>,
    /// Refusals of the pre-dispatch gate in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub gate_refusals: u32,
    /// Why the last result was refused, for the next attempt's prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The loop that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed_to: Option<HandedTo>,
    /// Its author, where the store is the tracker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Its labels, where the store is the tracker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Its comments, where the store is the tracker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<LocalComment>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What is known of our label.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "label")]
pub enum Mark {
    /// It may have been set; nobody has seen it yet.
    Wanted,
    /// It was set and read back.
    Set,
    /// It has to go.
    Leaving {
        /// Who takes it away.
        by: String,
        /// Since when.
        at: UnixMillis,
    },
}

/// A loop that works on an issue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedTo {
    /// The loop.
    pub task: TaskId,
    /// The commit it began from.
    pub base: String,
    /// The files it may change; empty for any.
    pub files: Vec<String>,
    /// The git tree of the work tree before it began, uncommitted files included; only without a worktree of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_tree: Option<String>,
}

impl Note {
    /// What the task of an issue keeps.
    pub fn of(task: &Task) -> Result<Self, Fault> {
        let Some(payload) = &task.payload else { return Ok(Self::default()) };
        serde_json::from_str(payload.as_str())
            .map_err(|error| Fault::Unreadable { problem: format!("payload of task '{}': {error}", task.id) })
    }

    /// Whether another supervisor is taking the label away just now.
    pub fn is_leaving_by_another(&self, agent: &str, now: UnixMillis) -> bool {
        matches!(&self.mark, Some(Mark::Leaving { by, at }) if by != agent && now.age_ms_of(*at) < LEAVING_MS)
    }
}

/// Takes the lease of an issue, which becomes a task if it was none.
#[derive(Clone, Debug)]
pub struct ClaimIssue {
    /// Where, when, who.
    pub call: Call,
    /// Its task.
    pub id: TaskId,
    /// Which tracker.
    pub source: String,
    /// Its number there.
    pub number: u64,
    /// Its title there.
    pub title: String,
    /// For whom.
    pub agent: String,
    /// Whether one that was done starts over: somebody has seen that it is open in the tracker again.
    pub reopens: bool,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimedIssue {
    /// It was done, as far as the store knows.
    Done,
    /// The lease is ours; the label is wanted.
    Granted(Box<Task>),
    /// Somebody else has it, or it waits.
    NotNow,
    /// No more leases in this queue.
    Full,
}

impl ClaimIssue {
    fn new_task(&self) -> Outcome<NewTask> {
        let note = Note { number: self.number, ..Note::default() };
        Ok(NewTask {
            spec_ref: Some(self.source.clone()),
            payload: Some(Json::of(&note)),
            ..NewTask::new(self.id.clone(), QUEUE, &self.short_title())
        })
    }

    fn short_title(&self) -> String {
        let title: String = self.title.trim().chars().take(TITLE_CHARS).collect();
        if title.is_empty() { format!("issue #{}", self.number) } else { title }
    }

    async fn find_or_add<T: Tx>(&self, tx: &mut T, cx: &Cx) -> Outcome<Row> {
        if let Some(row) = tx.task(&cx.scope, &self.id).await? {
            let is_over = matches!(row.task.status, Status::Done | Status::Failed | Status::Invalidated);
            if is_over && self.reopens {
                return write::step_or_refuse(tx, cx, &row, &Command::Reiterate).await;
            }
            return Ok(row);
        }
        add_all(tx, cx, &[self.new_task()?]).await?;
        find_task(tx, cx, &self.id).await
    }
}

#[async_trait]
impl Intent for ClaimIssue {
    type Output = ClaimedIssue;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<ClaimedIssue> {
        tx.share_edges(&self.call.scope).await?;
        let queue = tx.ensure_queue(&self.call.scope, QUEUE).await?;
        let (cx, _) = Cx::open_for_grant(tx, &self.call, QUEUE).await?;
        reclaim(tx, &cx, queue.key).await?;
        let row = self.find_or_add(tx, &cx).await?;
        if row.task.status == Status::Done {
            return Ok(ClaimedIssue::Done);
        }
        if Note::of(&row.task)?.is_leaving_by_another(&self.agent, cx.now) {
            return Ok(ClaimedIssue::NotNow);
        }
        let claim = ClaimById {
            call: self.call.clone(),
            id: self.id.clone(),
            agent: Some(self.agent.clone()),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: None,
        };
        match claim.run(tx).await {
            Ok(_) => {}
            Err(Error::Refused(Refusal::NotEligible { reasons, .. })) => {
                let is_full = |reason: &Reason| matches!(reason, Reason::Wait(Wait::QueueFull { .. }));
                let full = reasons.iter().any(is_full);
                return Ok(if full { ClaimedIssue::Full } else { ClaimedIssue::NotNow });
            }
            Err(other) => return Err(other),
        }
        let row = find_task(tx, &cx, &self.id).await?;
        let mut next = row.task.clone();
        next.title = self.short_title().into();
        let note =
            Note { mark: Some(Mark::Wanted), is_told: false, checked_version: None, ..Note::of(&row.task)? };
        next.payload = Some(Json::of(&note));
        let row = write::save(tx, &cx, &row, write::Change::new(EventKind::Edited, next)).await?;
        Ok(ClaimedIssue::Granted(Box::new(row.task)))
    }
}

/// Who may change what is kept with an issue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guard {
    /// Whoever holds this lease.
    Lease(LeaseId),
    /// Anybody, as long as nobody holds it.
    Free,
    /// Anybody.
    Any,
}

/// A change of what is kept with an issue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoteChange {
    /// The label was set and read back.
    LabelSet,
    /// The label is about to be taken away by this supervisor. Refused while another does it.
    LabelLeaving {
        /// Who.
        by: String,
    },
    /// The label is gone.
    LabelGone,
    /// The tracker knows that it is parked.
    Told,
    /// A person has brought it back after it was parked.
    BroughtBack,
    /// This version of the tracker's issue shows no answer of a person.
    Checked(String),
    /// It was read with this hash of title and body.
    Read(String),
    /// So many refusals of the pre-dispatch gate in a row.
    GateRefusals(u32),
    /// Its last result was refused for this reason.
    Refused(String),
    /// A loop works on it, or none any longer.
    HandedTo(Option<HandedTo>),
    /// One more label, where the store is the tracker.
    AddLabel(String),
    /// One label less.
    RemoveLabel(String),
    /// One more comment.
    Comment(LocalComment),
}

/// Changes what is kept with an issue and takes a step with it, in one transaction. None if the guard says no: the
/// lease is not the current one, somebody holds it, or another supervisor takes the label away.
#[derive(Clone, Debug)]
pub struct EditIssue {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
    /// Who may.
    pub guard: Guard,
    /// What else happens to it.
    pub command: Option<Command>,
    /// What changes.
    pub changes: Vec<NoteChange>,
}

#[async_trait]
impl Intent for EditIssue {
    type Output = Option<Task>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Option<Task>> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let mut row = find_task(tx, &cx, &self.id).await?;
        let may = match &self.guard {
            Guard::Lease(lease) => row.task.lease().as_ref() == Some(lease),
            Guard::Free => row.task.status != Status::Active,
            Guard::Any => true,
        };
        let before = Note::of(&row.task)?;
        let Some(note) = self.changed(&before, cx.now).filter(|_| may) else { return Ok(None) };
        if note != before {
            let mut next = row.task.clone();
            next.payload = Some(Json::of(&note));
            row = write::save(tx, &cx, &row, write::Change::new(EventKind::Edited, next)).await?;
        }
        if let Some(command) = &self.command {
            row = write::step_or_refuse(tx, &cx, &row, command).await?;
        }
        Ok(Some(row.task))
    }
}

impl EditIssue {
    fn changed(&self, before: &Note, now: UnixMillis) -> Option<Note> {
        let mut note = before.clone();
        for change in &self.changes {
            match change {
                NoteChange::LabelSet => note.mark = Some(Mark::Set),
                NoteChange::LabelLeaving { by } => {
                    if before.is_leaving_by_another(by, now) {
                        return None;
                    }
                    note.mark = Some(Mark::Leaving { by: by.clone(), at: now });
                }
                NoteChange::LabelGone => note.mark = None,
                NoteChange::Told => note.is_told = true,
                NoteChange::BroughtBack => {
                    note.brought_back = note.brought_back.saturating_add(1);
                    (note.is_told, note.checked_version, note.gate_refusals) = (false, None, 0);
                }
                NoteChange::Checked(version) => note.checked_version = Some(version.clone()),
                NoteChange::Read(hash) => note.text_hash = Some(hash.clone()),
                NoteChange::GateRefusals(count) => note.gate_refusals = *count,
                NoteChange::Refused(reason) => note.refusal = Some(reason.clone()),
                NoteChange::HandedTo(handed_to) => note.handed_to.clone_from(handed_to),
                NoteChange::AddLabel(label) if note.labels.contains(label) => {}
                NoteChange::AddLabel(label) => note.labels.push(label.clone()),
                NoteChange::RemoveLabel(label) => note.labels.retain(|other| other != label),
                NoteChange::Comment(text) => note.comments.push(text.clone()),
            }
        }
        Some(note)
    }
}

/// What the store knows of a tracker's issues, but for those that are done.
#[derive(Clone, Debug)]
pub struct Board {
    /// Where, when, who.
    pub call: Call,
    /// Which tracker.
    pub source: String,
}

/// An issue and what is kept with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardIssue {
    /// Its task.
    pub task: Task,
    /// What is kept with it.
    pub note: Note,
}

/// What [`Board`] saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenBoard {
    /// The store's clock.
    pub now: UnixMillis,
    /// The issues, by number.
    pub issues: Vec<BoardIssue>,
    /// Whether no further lease would be granted.
    pub is_full: bool,
    /// How long a lease lasts.
    pub lease_ms: i64,
}

#[async_trait]
impl Intent for Board {
    type Output = SeenBoard;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<SeenBoard> {
        let cx = Cx::open(tx, &self.call).await?;
        let policy = cx.policy(QUEUE);
        let lease_ms = policy.lease_ttl();
        let Some(queue) = find_queue(tx, &cx, QUEUE).await? else {
            return Ok(SeenBoard { now: cx.now, issues: Vec::new(), is_full: false, lease_ms });
        };
        let mut statuses = Status::ALL.to_vec();
        statuses.retain(|status| *status != Status::Done);
        let filter = Filter { specs: Some(vec![self.source.clone()]), ..Filter::default() };
        let filter = ListFilter { queue: Some(queue.key), statuses, filter, ..ListFilter::default() };
        let rows = tx.list(&cx.scope, &filter).await?;
        let issue = |row: Row| Ok(BoardIssue { note: Note::of(&row.task)?, task: row.task });
        let mut issues = rows.into_iter().map(issue).collect::<Result<Vec<_>, Fault>>()?;
        issues.sort_by(|left, right| {
            (left.note.number, &left.task.id).cmp(&(right.note.number, &right.task.id))
        });
        // Leases that ran out are taken back by the next claim.
        let has_lost = issues.iter().any(|issue| issue.task.lease_expired(cx.now));
        let room = Room::new(policy, tx.active_by_kind(queue.key).await?);
        let is_full = queue.paused || (room.left() == Some(0) && !has_lost);
        Ok(SeenBoard { now: cx.now, issues, is_full, lease_ms })
    }
}

/// Renews leases; returns those that are no longer the holder's.
#[derive(Clone, Debug)]
pub struct KeepLeases {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub leases: Vec<LeaseId>,
}

#[async_trait]
impl Intent for KeepLeases {
    type Output = Vec<LeaseId>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<LeaseId>> {
        let cx = Cx::open(tx, &self.call).await?;
        let mut lost = Vec::new();
        for lease in &self.leases {
            let renew = Command::Renew { caller: Caller::lease(lease.clone()), ttl_ms: None };
            let renewed = match tx.task(&cx.scope, &lease.task).await? {
                Some(row) => write::step(tx, &cx, &row, &renew).await?.is_ok(),
                None => false,
            };
            if !renewed {
                lost.push(lease.clone());
            }
        }
        Ok(lost)
    }
}

/// An event about a record or an issue that has words of its own.
fn with_reason(kind: EventKind, next: Task, reason: String) -> write::Change {
    let data = EventData { reason: Some(reason), ..EventData::default() };
    write::Change { next, kind, fence: None, data }
}
