//! A git worktree per loop, on a branch of its own ([`Place::branch`]).
//!
//! The administration of a linked worktree is a few small files, which are written here: `git worktree add` would run
//! with the repository's configuration. A branch that has commits of its own is never moved back, and a worktree that
//! holds uncommitted work is never removed: the work is committed to the branch first.
//!
//! Agents of another user cannot write to the repository. They get a repository of their own instead, which borrows the
//! objects of ours; what they commit is taken over after each run (`own`).
//!
//! A worktree is **in use** while its loop runs; `concurrency.max_worktrees` counts those. One that its loop left
//! behind is **kept**, and named wherever people look.

mod own;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::files::{Dir, Owner, off_runtime};
use crate::folders::{Folders, Place};
use crate::git::Repository;
use crate::shim::record::RunRecord;

/// The longest one-line file of a worktree's administration.
const LINE_BYTES: u64 = 8 * 1_024;
/// The line by which a commit of uncommitted work is known.
pub const WORK_IN_PROGRESS: &str = "Rota-Work-In-Progress: yes";

/// The worktrees of a workspace, and the repository they belong to, as it was found at start.
#[derive(Debug)]
pub struct Worktrees {
    folders: Arc<Folders>,
    /// Or why there can be none.
    repository: Result<Repository, String>,
    /// One thing at a time is done to a worktree.
    busy: Mutex<BTreeMap<Place, Arc<tokio::sync::Mutex<()>>>>,
}

/// Nobody else creates or removes this worktree while it is held.
#[derive(Debug)]
pub struct Held {
    place: Place,
    _guard: OwnedMutexGuard<()>,
}

/// One worktree: where its files are, and where git keeps what it knows about it.
struct Worktree<'a> {
    repository: &'a Repository,
    /// The repository of an agent of another user.
    own: Option<Repository>,
    path: PathBuf,
    /// Its name below `worktrees` of the repository.
    name: String,
    branch: String,
}

impl Worktrees {
    /// Looks for the repository.
    pub async fn find(folders: Arc<Folders>) -> Self {
        let workspace = folders.workspace.display();
        let repository = match Repository::find(&folders.workspace, Some(&folders.rota)).await {
            Ok(Some(repository)) if repository.has_reftable() => {
                Err("'worktree: true' does not work with reftable references".to_owned())
            }
            Ok(Some(repository)) => Ok(repository),
            Ok(None) => Err(format!("'worktree: true' needs a git repository, and {workspace} is in none")),
            Err(error) => Err(format!("'worktree: true' needs a git repository: {error}")),
        };
        Self { folders, repository, busy: Mutex::default() }
    }

    /// Why there can be no worktrees here.
    pub fn refusal(&self) -> Option<&str> {
        self.repository.as_ref().err().map(String::as_str)
    }

    fn repository(&self) -> io::Result<&Repository> {
        self.repository.as_ref().map_err(|why| io::Error::other(why.clone()))
    }

    /// Takes a worktree that is about to be removed, unless something is being done to it.
    pub fn hold(&self, place: &Place) -> Option<Held> {
        let guard = self.lock(place).try_lock_owned().ok()?;
        Some(Held { place: place.clone(), _guard: guard })
    }

    fn lock(&self, place: &Place) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(busy.entry(place.clone()).or_default())
    }

    /// The worktree of a loop, created if there is none.
    pub async fn ensure(&self, place: &Place) -> io::Result<PathBuf> {
        let _held = self.lock(place).lock_owned().await;
        let worktree = Worktree::of(&self.folders, self.repository()?, place).await?;
        if worktree.is_usable().await? {
            return Ok(worktree.path);
        }
        worktree.create(&self.folders).await
    }

    /// Removes the worktree of a loop, once what is not committed in it has been committed to its branch: that commit.
    pub async fn remove(&self, held: Held) -> io::Result<Option<String>> {
        let worktree = Worktree::of(&self.folders, self.repository()?, &held.place).await?;
        let path = worktree.path.clone();
        if !off_runtime(move || Ok(path.symlink_metadata().is_ok())).await? {
            return Ok(None);
        }
        let saved = worktree.save().await?;
        let (path, administration) = (worktree.path.clone(), worktree.administration());
        off_runtime(move || {
            for path in [path, administration] {
                match crate::files::parent(&path) {
                    Ok((parent, name)) => parent.remove_all(name)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
        .await?;
        Ok(saved)
    }
}

/// The names of worktrees that no running loop uses.
pub fn kept(folders: &Folders) -> Vec<String> {
    let in_use = in_use(folders);
    let is_kept = |path: &PathBuf| !in_use.contains(path);
    let name = |path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    folders.worktrees().into_iter().filter(is_kept).filter_map(name).collect()
}

/// The worktrees that running loops of this host use, by the records of their runs.
pub fn in_use(folders: &Folders) -> Vec<PathBuf> {
    // Without a folder of runs nothing runs.
    let records = RunRecord::all(&folders.rota.join("run/agents")).unwrap_or_else(|_| Vec::new());
    let runs = records.iter().filter_map(|record| record.read().ok()?.run);
    runs.map(|run| run.folder).filter(|folder| folders.is_worktree(folder)).collect()
}

impl<'a> Worktree<'a> {
    async fn of(folders: &Folders, repository: &'a Repository, place: &Place) -> io::Result<Self> {
        let has_own = folders.agents.is_some();
        let (folders, of) = (folders.clone(), place.clone());
        let path = off_runtime(move || Ok(folders.worktree(&of))).await?;
        let branch = place.branch();
        let folder = path.file_name().unwrap_or_default().to_string_lossy();
        // Named after the branch too: scopes share the repository.
        let prefix = branch.split('/').next().unwrap_or_default();
        let own = has_own.then(|| repository.of_agent(&path.join(".git")));
        Ok(Self { repository, own, name: format!("{prefix}-{folder}"), path, branch })
    }

    fn administration(&self) -> PathBuf {
        self.repository.common().join("worktrees").join(&self.name)
    }

    /// Whether its files and its administration belong together.
    async fn is_usable(&self) -> io::Result<bool> {
        let (path, administration, has_own) = (self.path.clone(), self.administration(), self.own.is_some());
        off_runtime(move || {
            if has_own {
                return Ok(own::is_there(&path));
            }
            let wanted = format!("gitdir: {}", administration.display());
            let is_linked = line(&path, ".git").is_ok_and(|line| line == wanted);
            Ok(is_linked && line(&administration, "HEAD").is_ok())
        })
        .await
    }

    async fn create(self, folders: &Folders) -> io::Result<PathBuf> {
        let repository = self.repository;
        let head = repository.commit("HEAD").await?;
        let head = head.ok_or_else(|| io::Error::other("the repository has no commit yet"))?;
        self.refuse_checked_out().await?;
        let commit = match repository.branch(&self.branch).await? {
            None => {
                repository.move_branch(&self.branch, None, &head).await?;
                head
            }
            // Without commits of its own it begins where everybody is now.
            Some(tip) if repository.is_ancestor(&tip, &head).await? => {
                if tip != head {
                    repository.move_branch(&self.branch, Some(&tip), &head).await?;
                }
                head
            }
            Some(tip) => tip,
        };
        if self.own.is_some() {
            self.create_own(folders, &commit).await?;
            return Ok(self.path);
        }
        self.link(folders).await?;
        let index = self.administration().join("index");
        repository.check_out(&commit, &self.path, &index).await?;
        Ok(self.path)
    }

    /// Writes the files by which git knows the worktree. A folder that is there already is renamed: there may be work
    /// in it.
    async fn link(&self, folders: &Folders) -> io::Result<()> {
        let (folders, path, name) = (folders.clone(), self.path.clone(), self.name.clone());
        let (common, branch) = (self.repository.common().to_owned(), self.branch.clone());
        off_runtime(move || {
            let files = folders.create_for_agent(&path)?;
            let worktrees = Dir::open(&common)?.make("worktrees")?;
            worktrees.remove_all(&name)?;
            let administration = worktrees.make_fresh(&name)?;
            administration.write("commondir", b"../..\n")?;
            administration.write("gitdir", format!("{}\n", path.join(".git").display()).as_bytes())?;
            administration.write("HEAD", format!("ref: refs/heads/{branch}\n").as_bytes())?;
            let administration = common.join("worktrees").join(&name);
            files.write(".git", format!("gitdir: {}\n", administration.display()).as_bytes())
        })
        .await
    }

    /// A branch that is checked out elsewhere would change under the feet of whoever works there.
    async fn refuse_checked_out(&self) -> io::Result<()> {
        let wanted = format!("ref: refs/heads/{}", self.branch);
        let (common, own) = (self.repository.common().to_owned(), self.name.clone());
        let found = off_runtime(move || {
            if line(&common, "HEAD").is_ok_and(|head| head == wanted) {
                return Ok(Some("the workspace".to_owned()));
            }
            let Ok(worktrees) = Dir::open(&common.join("worktrees")) else { return Ok(None) };
            for name in worktrees.names()?.iter().filter(|name| **name != *own) {
                let administration = common.join("worktrees").join(name);
                let is_there = |path: String| Path::new(path.trim()).exists().then_some(path);
                if line(&administration, "HEAD").is_ok_and(|head| head == wanted) {
                    return Ok(line(&administration, "gitdir").ok().and_then(is_there));
                }
            }
            Ok(None)
        });
        match found.await? {
            Some(place) => {
                let branch = &self.branch;
                Err(io::Error::other(format!("the branch '{branch}' is checked out in {}", place.trim())))
            }
            None => Ok(()),
        }
    }

    /// The commit that the worktree is at; the agent may have left its branch.
    async fn head(&self) -> io::Result<Option<String>> {
        if let Some(own) = &self.own {
            return own.commit("HEAD").await;
        }
        let administration = self.administration();
        let head = match off_runtime(move || line(&administration, "HEAD")).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            head => head?,
        };
        let name = head.strip_prefix("ref: ").unwrap_or(&head);
        self.repository.commit(name).await
    }

    /// Commits to the branch what is not committed, and whatever commits the branch does not have.
    async fn save(&self) -> io::Result<Option<String>> {
        // Both see the same objects, and those of an agent's own repository besides.
        let (ours, theirs) = (self.repository, self.own.as_ref().unwrap_or(self.repository));
        let tip = ours.branch(&self.branch).await?;
        let head = match self.head().await? {
            Some(head) => Some(head),
            // Without administration, the files are compared with the branch, or with where everybody is.
            None if tip.is_some() => tip.clone(),
            None => ours.commit("HEAD").await?,
        };
        let Some(head) = head else { return Err(io::Error::other("the repository has no commit")) };
        let tree = theirs.tree_of(&head, &self.path).await?;
        let is_clean = tree == theirs.git(["rev-parse", &format!("{head}^{{tree}}")]).text().await?;
        let (is_in_branch, follows) = match &tip {
            Some(tip) => (theirs.is_ancestor(&head, tip).await?, theirs.is_ancestor(tip, &head).await?),
            None => (false, true),
        };
        if is_clean && is_in_branch {
            return Ok(None);
        }
        let commit = if is_clean && follows {
            head
        } else {
            let mut parents = vec![head.as_str()];
            parents.extend(tip.as_deref().filter(|_| !follows));
            let message = format!(
                "Work in progress on {}\n\nRota committed what the worktree held when it was removed.\n\n{WORK_IN_PROGRESS}\n",
                self.branch
            );
            theirs.commit_tree(&tree, &parents, &message).await?
        };
        self.take_over(&commit, tip.as_deref()).await?;
        ours.move_branch(&self.branch, tip.as_deref(), &commit).await?;
        Ok(Some(commit))
    }
}

/// A file of one line.
fn line(folder: &Path, name: &str) -> io::Result<String> {
    let bytes = Dir::open(folder)?.read(name, Owner::Any, LINE_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]
mod tests;
