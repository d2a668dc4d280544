//! The heads of a queue that ranks in buckets, read ahead for its most urgent priorities in the flush that locks the queue's
//! row; with them what a grant reads about each: its parent, its blockers, whether it has children.

use std::collections::{BTreeMap, BTreeSet};

use rota_core::obstacle::Stage;
use rota_core::{Task, TaskId};

use crate::tx::{Blocker, ClaimReads, HeadQuery, Level, Row, Standing};

/// How many priorities are read ahead.
pub(super) const LEVELS: usize = 8;

/// Heads that were not granted yet.
#[derive(Default)]
pub(super) struct ReadyHeads {
    scope: String,
    queue: i64,
    host: Option<String>,
    category: Option<String>,
    only_kinds: Option<Vec<String>>,
    /// How many of each bucket there are at least, unless the bucket has no more.
    per_bucket: usize,
    rows: Vec<Row>,
    /// Whether there are no other priorities.
    is_all: bool,
    blockers: BTreeMap<TaskId, Vec<Blocker>>,
    childless: BTreeSet<TaskId>,
}

impl ReadyHeads {
    pub fn new(scope: &str, queue: i64, claim: &ClaimReads<'_>, rows: Vec<(Row, bool)>) -> Self {
        let childless = rows.iter().filter(|(_, has_children)| !has_children);
        Self {
            scope: scope.to_owned(),
            queue,
            host: claim.host.map(str::to_owned),
            category: claim.category.map(str::to_owned),
            only_kinds: claim.only_kinds.map(<[String]>::to_vec),
            per_bucket: claim.limit,
            is_all: false,
            blockers: BTreeMap::new(),
            childless: childless.map(|(row, _)| row.task.id.clone()).collect(),
            rows: rows.into_iter().map(|(row, _)| row).collect(),
        }
    }

    /// Keeps the blockers of all heads.
    pub fn keep_blockers(&mut self, found: Vec<(TaskId, Blocker)>) {
        self.blockers = self.rows.iter().map(|row| (row.task.id.clone(), Vec::new())).collect();
        for (task, blocker) in found {
            self.blockers.entry(task).or_default().push(blocker);
        }
    }

    /// Notes how many priorities have ready tasks, counted up to [`LEVELS`].
    pub fn keep_levels(&mut self, levels: usize) {
        self.is_all = levels < LEVELS;
    }

    pub fn blockers(&self, scope: &str, id: &TaskId) -> Option<Vec<Blocker>> {
        self.blockers.get(id).filter(|_| self.scope == scope).cloned()
    }

    pub fn is_childless(&self, scope: &str, id: &TaskId) -> bool {
        self.scope == scope && self.childless.contains(id)
    }

    /// The next priority of a query; the outer `None` if only the server can tell. Heads of full kinds are among the rows:
    /// a kind's heads are in buckets of its own, so they hide no other.
    pub fn level(&self, query: &HeadQuery<'_>) -> Option<Option<Level>> {
        let is_same = self.queue == query.queue
            && self.host.as_deref() == query.host
            && self.category == query.filter.category
            && query.filter.specs.is_none()
            && self.only_kinds.as_deref() == query.only_kinds
            && query.per_bucket <= self.per_bucket;
        if !is_same {
            return None;
        }
        let is_next = |priority: &u32| query.after.is_none_or(|after| *priority > after);
        let priority = |row: &Row| row.task.sort_priority();
        let Some(next) = self.rows.iter().map(priority).filter(is_next).min() else {
            return self.is_all.then_some(None);
        };
        let rows = self.rows.iter().filter(|row| priority(row) == next).cloned().collect();
        Some(Some(Level { priority: next, rows }))
    }

    /// An edge of a task was added or removed.
    pub fn note_edge(&mut self, task: &TaskId) {
        self.blockers.remove(task);
    }

    /// A task was written; returns whether the heads are still known.
    pub fn note_update(&mut self, next: &Task, standing: &Standing) -> bool {
        // Its own blockers stay; its dependents see another status or result.
        self.blockers.retain(|_, blockers| blockers.iter().all(|blocker| blocker.id != next.id));
        let before = self.rows.len();
        self.rows.retain(|row| row.task.seq != next.seq);
        // One bucket has one head less.
        self.per_bucket = self.per_bucket.saturating_sub(before - self.rows.len());
        standing.stage != Stage::Ready
    }
}
