//! The journal's events, named after the verbs of the state machine. The tables are a fold of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::json;
use crate::lease::{Fence, LeaseId};
use crate::status::{Outcome, Status};
use crate::task::{BadChange, Changes, Task};
use crate::time::UnixMillis;
use crate::transition::{TABLE, Verb};

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventKind {
    /// A transition of the state machine.
    Step(Verb),
    /// A task was added.
    Created,
    /// Fields were changed.
    Edited,
    /// A plan revived a deleted task.
    Revived,
    /// A finished child was kept, because its parent's next iteration names it again with the same input.
    Kept,
    /// A blocker was added.
    Blocked,
    /// A blocker was removed.
    Unblocked,
    /// The last obstacle other than time is gone.
    Readied,
    /// The artifact that triggers a task was removed.
    ArtifactMissing,
    /// A queue was created.
    QueueCreated,
    /// A queue was paused.
    QueuePaused,
    /// A queue was resumed.
    QueueResumed,
    /// A policy was published.
    PolicyPublished,
    /// The whole task, replacing older events that were pruned.
    Snapshot,
    /// Old finished tasks were pruned.
    Pruned,
    /// The governance files were pinned.
    Pinned,
    /// Governance was violated.
    Violated,
}

impl EventKind {
    const OTHERS: [(Self, &'static str); 16] = [
        (Self::Created, "created"),
        (Self::Edited, "edited"),
        (Self::Revived, "revived"),
        (Self::Kept, "kept"),
        (Self::Blocked, "blocked"),
        (Self::Unblocked, "unblocked"),
        (Self::Readied, "readied"),
        (Self::ArtifactMissing, "artifact_missing"),
        (Self::QueueCreated, "queue_created"),
        (Self::QueuePaused, "queue_paused"),
        (Self::QueueResumed, "queue_resumed"),
        (Self::PolicyPublished, "policy_published"),
        (Self::Snapshot, "snapshot"),
        (Self::Pruned, "pruned"),
        (Self::Pinned, "pinned"),
        (Self::Violated, "violated"),
    ];

    /// The stored name.
    pub fn word(self) -> &'static str {
        if let Self::Step(verb) = self {
            return verb.past();
        }
        Self::OTHERS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// Parses the stored name.
    pub fn from_word(word: &str) -> Option<Self> {
        let step = TABLE.iter().find(|rule| rule.past == word).map(|rule| Self::Step(rule.verb));
        step.or_else(|| Self::OTHERS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind))
    }
}

/// The data of an event beside its columns.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EventData {
    /// Insertion number, with `created` and `snapshot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How an attempt ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The reason given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The blocker of an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocker: Option<TaskId>,
    /// All blockers, with `snapshot`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub blockers: BTreeSet<TaskId>,
    /// The queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The changed fields, except status and `updatedAt`, which are columns.
    #[serde(skip_serializing_if = "Changes::is_empty")]
    pub changes: Changes,
    /// External facts on which a grant was decided.
    #[serde(skip_serializing_if = "Changes::is_empty")]
    pub facts: Changes,
}

/// Fields of a task that are columns of its events.
const COLUMNS: [&str; 2] = ["status", "updatedAt"];

impl EventData {
    /// The JSON of this data with the changes from one state of a task to the next, which it must not have yet: the
    /// same as of [`Event::of_change`] except for the order of the changes, and much faster.
    pub fn text_with_changes(&self, old: &Task, next: &Task) -> String {
        let mut text = Vec::with_capacity(256);
        if *self == Self::default() {
            text.push(b'{');
        } else {
            if let Err(error) = serde_json::to_writer(&mut text, self) {
                panic!("event data of ours is not JSON: {error}");
            }
            *text.last_mut().unwrap_or(&mut 0) = b',';
        }
        json::push_key(&mut text, "changes");
        let start = text.len();
        old.write_changes_except(&COLUMNS, next, &mut text);
        text.extend_from_slice(if text.len() == start { b"{}}" } else { b"}}" });
        String::from_utf8(text).unwrap_or_else(|error| panic!("JSON of ours is not UTF-8: {error}"))
    }
}

/// One row of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The number within the journal.
    pub seq: u64,
    /// Namespace.
    pub scope: String,
    /// The task, unless the event is about a queue or the policy.
    pub task: Option<TaskId>,
    /// The task's own event number: the fold order.
    pub number: u64,
    /// The `now` of the decision.
    pub at: UnixMillis,
    /// The kind of change.
    pub kind: EventKind,
    /// The status before.
    pub from: Option<Status>,
    /// The status after.
    pub to: Option<Status>,
    /// The agent or person that caused it.
    pub actor: Option<String>,
    /// The lease it belongs to.
    pub fence: Option<Fence>,
    /// The version of the policy that was used.
    pub policy: Option<String>,
    /// Further data.
    pub data: EventData,
}

impl Event {
    /// The empty task against which the changes of a new task are computed.
    pub fn blank(task: &Task) -> Task {
        Task::new(&task.scope, task.id.clone(), "", "", task.updated_at)
    }

    /// The event of a change to a task. The caller assigns its number.
    pub fn of_change(kind: EventKind, old: Option<&Task>, next: &Task) -> Self {
        let changes = match old {
            Some(old) => old.changes_except(&COLUMNS, next),
            None => Self::blank(next).changes_except(&COLUMNS, next),
        };
        let seq = old.is_none().then_some(next.seq);
        Self {
            seq: 0,
            scope: next.scope.to_string(),
            task: Some(next.id.clone()),
            number: next.events,
            at: next.updated_at,
            kind,
            from: old.map(|old| old.status),
            to: Some(next.status),
            actor: None,
            fence: None,
            policy: None,
            data: EventData { seq, changes, ..EventData::default() },
        }
    }

    /// A snapshot that replaces all events of a task up to `last`.
    pub fn snapshot(folded: &Folded, last: &Self) -> Self {
        let whole = Self::of_change(EventKind::Snapshot, None, &folded.task);
        let data = EventData { blockers: folded.blocked_by.clone(), ..whole.data };
        Self { seq: last.seq, policy: last.policy.clone(), data, ..whole }
    }

    /// The lease it belongs to.
    pub fn lease(&self) -> Option<LeaseId> {
        Some(LeaseId { task: self.task.clone()?, fence: self.fence? })
    }
}

/// The journal is inconsistent, so it cannot have been written by Rota.
#[derive(Debug, thiserror::Error)]
pub enum BadJournal {
    /// An event of a task that was never created.
    #[error("event {number} of task '{task}' comes before its creation")]
    NotCreated {
        /// The task.
        task: TaskId,
        /// The event.
        number: u64,
    },
    /// A number is missing or repeated.
    #[error("event {number} of task '{task}' follows event {after}")]
    Gap {
        /// The task.
        task: TaskId,
        /// The event.
        number: u64,
        /// The previous event.
        after: u64,
    },
    /// The status before the event is not the task's status.
    #[error("event {number} of task '{task}' starts from another status than the task had")]
    WrongStart {
        /// The task.
        task: TaskId,
        /// The event.
        number: u64,
    },
    /// A change that cannot be parsed.
    #[error(transparent)]
    BadChange(#[from] BadChange),
}

/// A task and its edges, rebuilt from events alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folded {
    /// The task.
    pub task: Task,
    /// Its blockers.
    pub blocked_by: BTreeSet<TaskId>,
}

/// Applies the next event of a task.
pub fn fold(before: Option<Folded>, event: &Event) -> Result<Folded, BadJournal> {
    let task = event.task.clone().unwrap_or_else(|| TaskId::from_stored("".into()));
    let number = event.number;
    let blank = || Task::new(&event.scope, task.clone(), "", "", event.at);
    let mut folded = match before {
        _ if event.kind == EventKind::Snapshot => {
            let task = Task { events: number.saturating_sub(1), ..blank() };
            Folded { task, blocked_by: event.data.blockers.clone() }
        }
        Some(folded) if event.from != Some(folded.task.status) => {
            return Err(BadJournal::WrongStart { task, number });
        }
        Some(folded) => folded,
        None if event.kind == EventKind::Created => Folded { task: blank(), blocked_by: BTreeSet::new() },
        None => return Err(BadJournal::NotCreated { task, number }),
    };
    if number != folded.task.events + 1 {
        return Err(BadJournal::Gap { task, number, after: folded.task.events });
    }
    folded.task.events = number;
    folded.task.updated_at = event.at;
    folded.task.status = event.to.unwrap_or(folded.task.status);
    folded.task.seq = event.data.seq.unwrap_or(folded.task.seq);
    folded.task.apply_changes(&event.data.changes)?;
    match (event.kind, &event.data.blocker) {
        (EventKind::Blocked, Some(blocker)) => drop(folded.blocked_by.insert(blocker.clone())),
        (EventKind::Unblocked, Some(blocker)) => drop(folded.blocked_by.remove(blocker)),
        _ => {}
    }
    Ok(folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for rule in TABLE {
            let kind = EventKind::Step(rule.verb);
            assert_eq!(EventKind::from_word(kind.word()), Some(kind));
        }
        for (kind, word) in EventKind::OTHERS {
            assert_eq!((EventKind::from_word(word), kind.word()), (Some(kind), word));
        }
        assert_eq!(EventKind::from_word("exploded"), None);
    }

    #[test]
    fn text_with_changes_reads_as_the_event() {
        let task = Task::new("s", TaskId::from_stored("a".into()), "tasks", "A", UnixMillis::new(1));
        let active = Task {
            status: Status::Active,
            assignee: Some("x \"y\" \n".into()),
            lease_expires_at: Some(UnixMillis::new(9)),
            steps: vec!["ü".into()],
            updated_at: UnixMillis::new(3),
            ..task.clone()
        };
        let reason = EventData { reason: Some("because".into()), ..EventData::default() };
        let facts = [("artifactPresent".to_owned(), json::Json::of(&true))].into();
        let facts = EventData { outcome: Some(Outcome::Done), facts, ..EventData::default() };
        for (old, next) in [(&task, &active), (&active, &task), (&task, &task)] {
            for data in [&EventData::default(), &reason, &facts] {
                let text = data.text_with_changes(old, next);
                let read: EventData =
                    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                let changes = Event::of_change(EventKind::Edited, Some(old), next).data.changes;
                assert_eq!(read, EventData { changes, ..data.clone() }, "{text}");
            }
        }
    }

    #[test]
    fn a_gap_or_a_stranger_is_found() {
        let mut task = Task::new("s", TaskId::from_stored("a".into()), "tasks", "A", UnixMillis::new(1));
        (task.seq, task.events) = (7, 1);
        let created = Event::of_change(EventKind::Created, None, &task);
        let folded = fold(None, &created).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(folded.task, task);
        assert!(matches!(fold(Some(folded.clone()), &created), Err(BadJournal::WrongStart { .. })));
        let mut edited =
            Event::of_change(EventKind::Edited, Some(&task), &Task { events: 3, ..task.clone() });
        assert!(matches!(fold(Some(folded.clone()), &edited), Err(BadJournal::Gap { after: 1, .. })));
        assert!(matches!(fold(None, &edited), Err(BadJournal::NotCreated { .. })));
        edited.number = 2;
        assert!(fold(Some(folded), &edited).is_ok());
    }

    #[test]
    fn a_snapshot_stands_for_what_came_before() {
        let mut task = Task::new("s", TaskId::from_stored("a".into()), "tasks", "A", UnixMillis::new(1));
        (task.seq, task.events) = (7, 1);
        let created = Event::of_change(EventKind::Created, None, &task);
        let mut next = Task { events: 2, updated_at: UnixMillis::new(9), ..task.clone() };
        next.title = "B".into();
        let edited = Event { seq: 12, ..Event::of_change(EventKind::Edited, Some(&task), &next) };
        let mut blocked =
            Event::of_change(EventKind::Blocked, Some(&next), &Task { events: 3, ..next.clone() });
        blocked.data.blocker = Some(TaskId::from_stored("b".into()));
        let fold_all = |events: &[&Event]| {
            let all = events.iter().try_fold(None, |before, event| fold(before, event).map(Some));
            all.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|| panic!("no events"))
        };
        let snapshot = Event::snapshot(&fold_all(&[&created, &edited]), &edited);
        assert_eq!((snapshot.seq, snapshot.number), (12, 2));
        assert_eq!(fold_all(&[&snapshot, &blocked]), fold_all(&[&created, &edited, &blocked]));
        let whole = fold_all(&[&created, &edited, &blocked]);
        assert_eq!(fold_all(&[&Event::snapshot(&whole, &blocked)]), whole);
    }
}
