//! The task: the one thing Rota schedules. A loop, a run and an issue are tasks too.

use std::collections::BTreeMap;

use crate::id::TaskId;
use crate::json::{self, Json};
use crate::lease::{Fence, LeaseId};
use crate::status::Status;
use crate::text::Text;
use crate::time::UnixMillis;

/// Field name to new value, null for gone.
pub type Changes = BTreeMap<String, Json>;

/// Where a task without a priority sorts.
pub const NORMAL_PRIORITY: u32 = 2;

/// The stored change cannot be read back: the journal was written by something else, or damaged.
#[derive(Debug, thiserror::Error)]
#[error("field '{field}' of a journalled change: {source}")]
pub struct BadChange {
    /// The field.
    pub field: String,
    /// What serde says.
    pub source: serde_json::Error,
}

macro_rules! task {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $key:literal,)*) => {
        /// One task, as the tables hold it. Every field here is journalled: a change of it is in the event of the
        /// transaction that made it. Edges are kept beside it, derived columns ([`crate::obstacle::Stage`]) too.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Task {
            /// Namespace.
            pub scope: Text,
            /// Unique within the scope.
            pub id: TaskId,
            /// Insertion number.
            pub seq: u64,
            /// Number of its newest journal event.
            pub events: u64,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Task {
            /// What differs in `next`, as the journal writes it.
            pub fn changes_to(&self, next: &Self) -> Changes {
                self.changes_except(&[], next)
            }

            /// The same without some fields.
            pub(crate) fn changes_except(&self, left_out: &[&str], next: &Self) -> Changes {
                let mut changes = Changes::new();
                $(if self.$field != next.$field && !left_out.contains(&$key) {
                    changes.insert($key.to_owned(), Json::of(&next.$field));
                })*
                changes
            }

            /// The same as the members of a JSON object, in no particular order, without the detour over a map.
            pub(crate) fn write_changes_except(&self, left_out: &[&str], next: &Self, into: &mut Vec<u8>) {
                $(if self.$field != next.$field && !left_out.contains(&$key) {
                    json::push_member(into, $key, &next.$field);
                })*
            }

            /// Every field, as [`Task::changes_to`] writes those that changed.
            pub fn fields(&self) -> Changes {
                [$(($key.to_owned(), Json::of(&self.$field)),)*].into()
            }

            /// Applies what [`Task::changes_to`] wrote.
            pub fn apply_changes(&mut self, changes: &Changes) -> Result<(), BadChange> {
                for (key, value) in changes {
                    match key.as_str() {
                        $($key => {
                            self.$field = serde_json::from_str(value.as_str())
                                .map_err(|source| BadChange { field: key.clone(), source })?;
                        })*
                        _ => {
                            let source = serde::de::Error::custom("unknown field");
                            return Err(BadChange { field: key.clone(), source });
                        }
                    }
                }
                Ok(())
            }
        }
    };
}

task! {
    /// What a ceiling, a pause and a retry rule apply to.
    queue: Text = "queue",
    /// Free word; `plan`, `spec`, `phase`, `ralph` are known to queue `loops`.
    kind: Option<String> = "kind",
    /// Lower first; only loops may keep it unset.
    priority: Option<u32> = "priority",
    /// Whether the priority was taken from the nearest ancestor at creation.
    priority_inherited: bool = "priorityInherited",
    /// Where it stands.
    status: Status = "status",
    /// The task above it.
    parent: Option<TaskId> = "parent",
    /// Levels below the root, fixed at creation.
    depth: u32 = "depth",
    /// Artifact that must exist.
    triggered_by: Option<String> = "triggeredBy",
    /// The parent's iteration it came from; without one it is never stale.
    parent_iteration: Option<u32> = "parentIteration",
    /// Hash of the plan line and of the triggering artifact that a child was made from.
    trigger_hash: Option<String> = "triggerHash",
    /// The task whose agent created this one with its lease token.
    discovered_from: Option<TaskId> = "discoveredFrom",
    /// Whether the artifact was there when last looked at.
    artifact_present: bool = "artifactPresent",
    /// Every started run of its body takes the next number.
    iteration: u32 = "iteration",
    /// Iterations that count against the limit.
    tries: u32 = "tries",
    /// Attempts that ended badly.
    attempts: u32 = "attempts",
    /// Rate-limited ends in a row.
    limited_in_row: u32 = "limitedInRow",
    /// Fast failures of a loop in a row.
    fast_failures: u32 = "fastFailures",
    /// How many tasks the agents of this task have created.
    filed: u32 = "filed",
    /// The last grant's number.
    fence: Fence = "fence",
    /// Who holds it.
    assignee: Option<String> = "assignee",
    /// Until when it is held.
    lease_expires_at: Option<UnixMillis> = "leaseExpiresAt",
    /// Not before.
    next_eligible_at: Option<UnixMillis> = "nextEligibleAt",
    /// The latest of created, reopened, and last blocker, parent or artifact settled.
    open_since: UnixMillis = "openSince",
    /// Where the tree's folders are.
    host: Option<String> = "host",
    /// One line.
    title: Text = "title",
    /// Free text.
    description: Option<Text> = "description",
    /// Free word.
    category: Option<Text> = "category",
    /// What to do, in order.
    steps: Vec<String> = "steps",
    /// The plan it belongs to.
    spec_ref: Option<String> = "spec",
    /// Free reference.
    reference: Option<String> = "ref",
    /// What a front keeps for itself.
    payload: Option<Json> = "payload",
    /// What came out.
    result: Option<Json> = "result",
    /// Why the last attempt failed.
    fail_reason: Option<String> = "failReason",
    /// Why it is parked.
    parked_reason: Option<String> = "parkedReason",
    /// When it was added.
    created_at: UnixMillis = "createdAt",
    /// When it last changed.
    updated_at: UnixMillis = "updatedAt",
    /// When the last attempt began, or its last iteration.
    started_at: Option<UnixMillis> = "startedAt",
    /// When it reached its end.
    finished_at: Option<UnixMillis> = "finishedAt",
}

impl Task {
    /// A fresh open task without anything but its names.
    pub fn new(scope: &str, id: TaskId, queue: &str, title: &str, now: UnixMillis) -> Self {
        Self {
            scope: Text::from(scope),
            id,
            seq: 0,
            events: 0,
            queue: Text::from(queue),
            kind: None,
            priority: Some(NORMAL_PRIORITY),
            priority_inherited: false,
            status: Status::Open,
            parent: None,
            depth: 0,
            triggered_by: None,
            parent_iteration: None,
            trigger_hash: None,
            discovered_from: None,
            artifact_present: false,
            iteration: 0,
            tries: 0,
            attempts: 0,
            limited_in_row: 0,
            fast_failures: 0,
            filed: 0,
            fence: Fence::NONE,
            assignee: None,
            lease_expires_at: None,
            next_eligible_at: None,
            open_since: now,
            host: None,
            title: Text::from(title),
            description: None,
            category: None,
            steps: Vec::new(),
            spec_ref: None,
            reference: None,
            payload: None,
            result: None,
            fail_reason: None,
            parked_reason: None,
            created_at: now,
            updated_at: now,
            started_at: None,
            finished_at: None,
        }
    }

    /// The lease that is held now.
    pub fn lease(&self) -> Option<LeaseId> {
        (self.status == Status::Active).then(|| LeaseId { task: self.id.clone(), fence: self.fence })
    }

    /// Whether a lease is held that has run out and was not reclaimed yet.
    pub fn lease_expired(&self, now: UnixMillis) -> bool {
        self.status == Status::Active && self.lease_expires_at.is_some_and(|expiry| expiry <= now)
    }

    /// Runnable since, given that nothing but time stands in the way.
    pub fn ready_at(&self) -> UnixMillis {
        self.next_eligible_at.map_or(self.open_since, |due| due.max(self.open_since))
    }

    /// The priority it sorts by.
    pub fn sort_priority(&self) -> u32 {
        self.priority.unwrap_or(NORMAL_PRIORITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_back() {
        let now = UnixMillis::new(5);
        let old = Task::new("default", TaskId::from_stored("a".into()), "tasks", "A", now);
        let mut next = old.clone();
        next.status = Status::Done;
        next.result = Json::parse(r#"{"commit":"abc","n":1}"#).ok();
        next.steps = vec!["one".into()];
        next.finished_at = Some(now);
        next.priority = None;
        let changes = old.changes_to(&next);
        assert_eq!(
            serde_json::to_string(&changes).ok().as_deref(),
            Some(
                r#"{"finishedAt":"1970-01-01T00:00:00.005Z","priority":null,"result":{"commit":"abc","n":1},"status":"done","steps":["one"]}"#
            )
        );
        let mut folded = old.clone();
        folded.apply_changes(&changes).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(folded, next);
        assert!(old.changes_to(&old).is_empty());
    }
}
