//! Tasks that a transaction has seen to be unlinked: without dependents and children, or without blockers. Most tasks
//! are, and each search that is saved is a statement less. Only absent links are remembered, and every write that could
//! add one clears the cache.

use std::collections::HashSet;

use rota_core::text::Text;
use rota_core::{Task, TaskId};

/// The unlinked tasks of one scope.
#[derive(Default)]
pub(crate) struct UnlinkedCache {
    scope: Option<Text>,
    without_blockers: HashSet<TaskId>,
    without_followers: HashSet<TaskId>,
}

impl UnlinkedCache {
    pub fn note_without_blockers(&mut self, task: &Task) {
        self.enter(&task.scope);
        self.without_blockers.insert(task.id.clone());
    }

    /// The task has neither dependents nor children.
    pub fn note_without_followers(&mut self, task: &Task) {
        self.enter(&task.scope);
        self.without_followers.insert(task.id.clone());
    }

    pub fn has_no_blockers(&self, scope: &str, id: &TaskId) -> bool {
        self.is_of(scope) && self.without_blockers.contains(id)
    }

    pub fn has_no_followers(&self, scope: &str, id: &TaskId) -> bool {
        self.is_of(scope) && self.without_followers.contains(id)
    }

    /// Clears it: an edge, a task or a parent was written.
    pub fn forget(&mut self) {
        self.without_blockers.clear();
        self.without_followers.clear();
    }

    fn is_of(&self, scope: &str) -> bool {
        self.scope.as_deref() == Some(scope)
    }

    fn enter(&mut self, scope: &Text) {
        if !self.is_of(scope) {
            self.forget();
            self.scope = Some(scope.clone());
        }
    }
}
