//! How many worktrees may be in use, and what becomes of those whose loop has ended.

use std::sync::Arc;
use std::time::Duration;

use rota_core::select::WorktreeLimit;
use tokio::task::JoinError;

use super::Manager;
use super::happening::Happening;
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
        let kinds = self.holder.iter().map(|(_, run)| run.run.task.kind.as_deref().unwrap_or_default());
        let in_use = kinds.filter(|kind| self.config.kind(kind).worktree).count() + self.removals.len();
        (self.config.max_worktrees as usize).saturating_sub(in_use)
    }

    /// The same as a limit on grants.
    pub(super) fn worktree_limit(&self) -> WorktreeLimit {
        let kinds = self.kinds.iter().filter(|kind| self.config.kind(kind).worktree);
        WorktreeLimit {
            kinds: kinds.cloned().collect(),
            ceiling: self.config.max_worktrees,
            left: u32::try_from(self.free_worktrees()).unwrap_or(u32::MAX),
        }
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
