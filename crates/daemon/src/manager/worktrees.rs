//! How many worktrees may be in use, and what becomes of those whose loop has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

use super::happening::Happening;
use super::{Manager, Running};
use crate::files::off_runtime;
use crate::iteration::Iteration;
use crate::worktree;

/// How long a daemon that was told to stop waits for worktrees that are being saved. What is not done by then stays on
/// disk.
const PARTING: Duration = Duration::from_secs(5);

/// What came of a worktree: the loop, its branch, and the commit with what was not committed, if there was anything.
pub(super) struct Removal {
    id: String,
    branch: String,
    saved: std::io::Result<Option<String>>,
}

impl Manager<'_> {
    /// How many more worktrees may be used. Those of loops that run count, and those that are being removed.
    pub(super) fn free_worktrees(&self) -> usize {
        let uses_one = |run: &&Running| {
            let kind = run.held.task.kind.as_deref().unwrap_or_default();
            self.config.kind(kind).worktree
        };
        let in_use = self.running.values().filter(uses_one).count() + self.removals.len();
        (self.config.max_worktrees as usize).saturating_sub(in_use)
    }

    /// The kinds that may begin now, and how many loops of them, if `given_back` worktrees were free besides. Where loops
    /// with a worktree are among them, no more than there are free worktrees: whichever are chosen, the ceiling holds.
    pub(super) fn under_worktree_ceiling(&self, limit: usize, given_back: usize) -> (usize, Vec<String>) {
        let has_worktree = |kind: &String| self.config.kind(kind).worktree;
        if !self.kinds.iter().any(has_worktree) {
            return (limit, self.kinds.clone());
        }
        match self.free_worktrees() + given_back {
            0 => (limit, self.kinds.iter().filter(|kind| !has_worktree(kind)).cloned().collect()),
            free => (limit.min(free), self.kinds.clone()),
        }
    }

    /// Whether so many grants were all that the ceiling let through. Asked before they are begun.
    pub(super) fn is_capped(&self, granted: usize) -> bool {
        let left = self.slots().saturating_sub(self.running.len());
        granted > 0 && granted < left && self.under_worktree_ceiling(left, 0).0 == granted
    }

    /// Saves and removes the worktree of a loop that has ended, beside everything else.
    pub(super) fn remove_worktree(&mut self, iteration: &Iteration) {
        let place = iteration.place();
        let (id, branch) = (iteration.task.id.to_string(), place.branch());
        // Somebody is at it: the loop was started again.
        let Some(held) = self.worktrees.hold(&place) else { return };
        let worktrees = Arc::clone(&self.worktrees);
        self.removals.spawn(async move {
            let saved = worktrees.remove(held).await;
            Removal { id, branch, saved }
        });
    }

    /// A worktree was removed, or could not be.
    pub(super) fn removed(&mut self, removal: Result<Removal, JoinError>) {
        self.must_look = true;
        let Ok(Removal { id, branch, saved }) = removal else { return };
        match saved {
            Ok(Some(commit)) => self.tell(Happening::WorktreeSaved { id, branch, commit }),
            Ok(None) => {}
            Err(error) => self.tell(Happening::WorktreeKept { id, why: error.to_string() }),
        }
    }

    /// Waits for what is being removed, when the daemon ends.
    pub(super) async fn finish_removals(&mut self) {
        let finishing = async {
            while let Some(removal) = self.removals.join_next().await {
                self.removed(removal);
            }
        };
        // Dropped with the manager; git is ended with it.
        let _finished = tokio::time::timeout(PARTING, finishing).await;
    }

    /// The worktrees on disk that no running loop uses.
    pub(super) async fn kept_worktrees(&self) -> Vec<String> {
        let folders = Arc::clone(&self.folders);
        // A file system that does not answer has nothing to show.
        off_runtime(move || Ok(worktree::kept(&folders))).await.unwrap_or_else(|_| Vec::new())
    }
}
