//! The repository of an agent that runs as another user: a `.git` of its own that borrows the objects of ours. Its
//! configuration, hooks and references are the agent's; nothing of them is used but the commits, which are copied and
//! checked.

use std::io;
use std::path::Path;

use super::{Worktree, Worktrees};
use crate::files::off_runtime;
use crate::folders::{Folders, Place};

impl Worktrees {
    /// Takes over what an agent of another user has committed to its branch. Where the branch did not just grow, that is
    /// left to the end of the worktree.
    pub async fn collect(&self, place: &Place) -> io::Result<()> {
        if self.folders.agents.is_none() || self.refusal().is_some() {
            return Ok(());
        }
        let _held = self.lock(place).lock_owned().await;
        let worktree = Worktree::of(&self.folders, self.repository()?, place).await?;
        let (Some(own), ours) = (&worktree.own, worktree.repository) else { return Ok(()) };
        let (Some(tip), Some(theirs)) =
            (ours.branch(&worktree.branch).await?, own.branch(&worktree.branch).await?)
        else {
            return Ok(());
        };
        if tip == theirs || !own.is_ancestor(&tip, &theirs).await? {
            return Ok(());
        }
        worktree.take_over(&theirs, Some(&tip)).await?;
        ours.move_branch(&worktree.branch, Some(&tip), &theirs).await
    }
}

impl Worktree<'_> {
    /// Makes the repository and checks a commit out.
    pub(super) async fn create_own(&self, folders: &Folders, commit: &str) -> io::Result<()> {
        let (made, path, branch) = (folders.clone(), self.path.clone(), self.branch.clone());
        let (ours, config) =
            (self.repository.common().join("objects"), self.repository.configuration().to_owned());
        let at = commit.to_owned();
        off_runtime(move || {
            let git = made.create_for_agent(&path)?.make(".git")?;
            git.write("HEAD", format!("ref: refs/heads/{branch}\n").as_bytes())?;
            git.write("config", config.as_bytes())?;
            git.make("refs")?.make("heads")?;
            git.write("packed-refs", format!("{at} refs/heads/{branch}\n").as_bytes())?;
            let objects = git.make("objects")?;
            objects.make("pack")?;
            objects.make("info")?.write("alternates", format!("{}\n", ours.display()).as_bytes())
        })
        .await?;
        self.repository.check_out(commit, &self.path, &self.path.join(".git/index")).await?;
        let (folders, path) = (folders.clone(), self.path.clone());
        off_runtime(move || folders.hand_over(&path)).await
    }

    /// Copies a commit to our repository, if it is in another one.
    pub(super) async fn take_over(&self, commit: &str, tip: Option<&str>) -> io::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let head = self.repository.commit("HEAD").await?;
        let beyond: Vec<&str> = tip.into_iter().chain(head.as_deref()).collect();
        self.repository.take_over(own, commit, &beyond).await
    }
}

/// Whether this is a repository of an agent's own.
pub(super) fn is_there(path: &Path) -> bool {
    super::line(&path.join(".git"), "HEAD").is_ok()
}
