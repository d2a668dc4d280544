//! What a transaction saw on its way: which tasks nobody waits for, and which wait for nobody. Most are such, and each
//! search saved is a statement less. Only what was seen to be missing is kept, and whatever could change it forgets it.

use std::collections::BTreeSet;

use rota_core::{Task, TaskId};

/// Of one scope.
#[derive(Default)]
pub(super) struct Alone {
    scope: String,
    without_blockers: BTreeSet<TaskId>,
    without_followers: BTreeSet<TaskId>,
}

impl Alone {
    pub fn note_without_blockers(&mut self, task: &Task) {
        self.enter(&task.scope);
        self.without_blockers.insert(task.id.clone());
    }

    /// Neither dependents nor children.
    pub fn note_without_followers(&mut self, task: &Task) {
        self.enter(&task.scope);
        self.without_followers.insert(task.id.clone());
    }

    pub fn has_no_blockers(&self, scope: &str, id: &TaskId) -> bool {
        self.scope == scope && self.without_blockers.contains(id)
    }

    pub fn has_no_followers(&self, scope: &str, id: &TaskId) -> bool {
        self.scope == scope && self.without_followers.contains(id)
    }

    /// An edge, a task or a parent was written.
    pub fn forget(&mut self) {
        self.without_blockers.clear();
        self.without_followers.clear();
    }

    fn enter(&mut self, scope: &str) {
        if self.scope != scope {
            self.forget();
            scope.clone_into(&mut self.scope);
        }
    }
}
