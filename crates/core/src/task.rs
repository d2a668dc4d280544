//! The task: the one thing Rota schedules. A loop, a run and an issue are tasks too.

use std::collections::BTreeMap;

use crate::id::TaskId;
use crate::json::{self, Json};
use crate::lease::{Fence, LeaseId};
use crate::status::Status;
use crate::text::Text;
use crate::time::UnixMillis;

/// Field name to new value, null if removed.
pub type Changes = BTreeMap<String, Json>;

/// The priority by which a task without one is sorted.
pub const NORMAL_PRIORITY: u32 = 2;

/// A stored change cannot be parsed: the journal was written by another program, or is damaged.
#[derive(Debug, thiserror::Error)]
#[error("field '{field}' of a journalled change: {source}")]
pub struct BadChange {
    /// The field.
    pub field: String,
    /// serde's message.
    pub source: serde_json::Error,
}

macro_rules! task {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $key:literal,)*) => {
        /// One task, as stored. Every field is journalled: the event of a transaction has the fields it changed.
        /// Edges and derived columns ([`crate::obstacle::Stage`]) are stored separately.
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
            /// The fields that differ in `next`, as the journal writes them.
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

            /// The same as members of a JSON object, in no particular order, without an intermediate map.
            pub(crate) fn write_changes_except(&self, left_out: &[&str], next: &Self, into: &mut Vec<u8>) {
                $(if self.$field != next.$field && !left_out.contains(&$key) {
                    json::push_member(into, $key, &next.$field);
                })*
            }

            /// Every field, as [`Task::changes_to`] writes those that changed.
            pub fn fields(&self) -> Changes {
                [$(($key.to_owned(), Json::of(&self.$field)),)*].into()
            }

            /// Applies changes written by [`Task::changes_to`].
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
    /// The queue, whose ceiling, pause and retry rule apply.
    queue: Text = "queue",
    /// Free word; queue `loops` knows `plan`, `spec`, `phase` and `ralph`.
    kind: Option<String> = "kind",
    /// Lower first; only loops may leave it unset.
    priority: Option<u32> = "priority",
    /// Whether the priority was inherited from the nearest ancestor at creation.
    priority_inherited: bool = "priorityInherited",
    /// The status.
    status: Status = "status",
    /// The parent.
    parent: Option<TaskId> = "parent",
    /// Levels below the root, assigned at creation.
    depth: u32 = "depth",
    /// The artifact that must exist.
    triggered_by: Option<String> = "triggeredBy",
    /// The parent's iteration that created it; without one it is never stale.
    parent_iteration: Option<u32> = "parentIteration",
    /// Hash of the plan line and of the triggering artifact from which a child was created.
    trigger_hash: Option<String> = "triggerHash",
    /// The task whose agent created this one with its lease token.
    discovered_from: Option<TaskId> = "discoveredFrom",
    /// Whether the artifact existed at the last check.
    artifact_present: bool = "artifactPresent",
    /// The number of the last started iteration.
    iteration: u32 = "iteration",
    /// Iterations that count towards the limit.
    tries: u32 = "tries",
    /// Attempts that failed or were lost.
    attempts: u32 = "attempts",
    /// Consecutive rate limits.
    limited_in_row: u32 = "limitedInRow",
    /// Consecutive fast failures of a loop.
    fast_failures: u32 = "fastFailures",
    /// The number of tasks that its agents have created.
    filed: u32 = "filed",
    /// The fence of the last grant.
    fence: Fence = "fence",
    /// The holder.
    assignee: Option<String> = "assignee",
    /// The end of the lease.
    lease_expires_at: Option<UnixMillis> = "leaseExpiresAt",
    /// The earliest time it may start.
    next_eligible_at: Option<UnixMillis> = "nextEligibleAt",
    /// The latest of created, reopened, and last blocker, parent or artifact settled.
    open_since: UnixMillis = "openSince",
    /// The host that has the tree's folders.
    host: Option<String> = "host",
    /// One line.
    title: Text = "title",
    /// Free text.
    description: Option<Text> = "description",
    /// Free word.
    category: Option<Text> = "category",
    /// The steps of the work, in order.
    steps: Vec<String> = "steps",
    /// The spec it belongs to.
    spec_ref: Option<String> = "spec",
    /// Free reference.
    reference: Option<String> = "ref",
    /// Data that a front keeps for itself.
    payload: Option<Json> = "payload",
    /// The result.
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
    /// A new open task with nothing but its names.
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

    /// Whether a lease is held that has expired and was not reclaimed yet.
    pub fn lease_expired(&self, now: UnixMillis) -> bool {
        self.status == Status::Active && self.lease_expires_at.is_some_and(|expiry| expiry <= now)
    }

    /// The time since which it is runnable, if nothing but time is in the way.
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
