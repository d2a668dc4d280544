//! What a transaction saw on its way: which tasks nobody waits for, and which wait for nobody. Most are such, and each
//! search saved is a statement less. Only what was seen to be missing is kept, and whatever could change it forgets it.

use std::collections::HashSet;

use rota_core::text::Text;
use rota_core::{Task, TaskId};

/// Of one scope.
#[derive(Default)]
pub(super) struct Alone {
    scope: Option<Text>,
    without_blockers: HashSet<TaskId>,
    without_followers: HashSet<TaskId>,
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
        self.is_of(scope) && self.without_blockers.contains(id)
    }

    pub fn has_no_followers(&self, scope: &str, id: &TaskId) -> bool {
        self.is_of(scope) && self.without_followers.contains(id)
    }

    /// An edge, a task or a parent was written.
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
