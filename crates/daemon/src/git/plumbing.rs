//! The few things that Rota asks of a repository, in words of its own.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Repository, is_hash};
use crate::files::Dir;

/// Checking out or saving a large work tree takes a while.
pub const WORK_TREE: Duration = Duration::from_secs(600);

impl Repository {
    /// The commit that a name stands for; none if there is no such thing.
    pub async fn commit(&self, name: &str) -> io::Result<Option<String>> {
        let wanted = format!("{name}^{{commit}}");
        let ran = self.git(["rev-parse", "--verify", "--quiet", &wanted]).run().await?;
        let hash = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        match ran.code {
            Some(0) if is_hash(&hash) => Ok(Some(hash)),
            Some(1) => Ok(None),
            _ => Err(ran.failed("rev-parse")),
        }
    }

    /// The commit of a branch.
    pub async fn branch(&self, name: &str) -> io::Result<Option<String>> {
        self.commit(&format!("refs/heads/{name}")).await
    }

    /// Whether one commit is part of the history of another.
    pub async fn is_ancestor(&self, older: &str, newer: &str) -> io::Result<bool> {
        self.git(["merge-base", "--is-ancestor", older, newer]).says_yes().await
    }

    /// Moves a branch from one commit to another, or creates it. An error if it has moved meanwhile.
    pub async fn move_branch(&self, name: &str, from: Option<&str>, to: &str) -> io::Result<()> {
        self.check_way_to(name)?;
        let reference = format!("refs/heads/{name}");
        // An empty old value stands for a branch that must not exist.
        self.git(["update-ref", "--no-deref", &reference, to, from.unwrap_or("")]).bytes().await.map(drop)
    }

    /// A reference is a file: an agent could have made a link of a directory on the way to it.
    fn check_way_to(&self, branch: &str) -> io::Result<()> {
        let mut dir = Dir::open(self.common())?;
        let way = ["refs", "heads"].into_iter().chain(branch.split('/'));
        for part in way {
            match dir.sub(part) {
                Ok(inner) => dir = inner,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // The last part is the reference itself.
                Err(_) if dir.open_file(part, crate::files::Owner::Any).is_ok() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the files of a commit to a work tree, and an index of them.
    pub async fn check_out(&self, commit: &str, work_tree: &Path, index: &Path) -> io::Result<()> {
        let read = self.git(["read-tree", "--reset", "-u", commit]).at(work_tree).index(index);
        read.limit(WORK_TREE).bytes().await.map(drop)
    }

    /// The tree of a work tree's files as they are, on top of a commit. An error if the files of a repository within
    /// it cannot be part of that tree.
    pub async fn tree_of(&self, commit: &str, work_tree: &Path) -> io::Result<String> {
        let index = self.scratch_file();
        let tree = self.tree_with(commit, work_tree, &index).await;
        // Left behind, it is removed when the repository is next opened.
        let _removed = std::fs::remove_file(index);
        tree
    }

    async fn tree_with(&self, commit: &str, work_tree: &Path, index: &Path) -> io::Result<String> {
        let git = |arguments: &[&str]| self.git(arguments).at(work_tree).index(index).limit(WORK_TREE);
        git(&["read-tree", commit]).bytes().await?;
        let entries = git(&["ls-files", "--stage", "-z"]).bytes().await?;
        refuse_submodules(&entries, work_tree)?;
        // Not `add`: it starts git in submodules, with their configuration.
        let list = ["ls-files", "-z", "--others", "--modified", "--deleted", "--exclude-standard"];
        let changed = git(&list).bytes().await?;
        let inner = changed.split(|byte| *byte == 0).find(|path| path.ends_with(b"/"));
        if let Some(inner) = inner {
            let inner = String::from_utf8_lossy(inner).into_owned();
            return Err(io::Error::other(format!("'{inner}' in it is a repository of its own")));
        }
        let add = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
        git(&add).input(changed).bytes().await?;
        git(&["write-tree"]).text().await
    }

    /// Copies a commit, and all that it has beyond some others, from a repository of an agent's own. Objects are checked
    /// as those of a stranger.
    pub async fn take_over(&self, theirs: &Self, commit: &str, beyond: &[&str]) -> io::Result<()> {
        let known: String = beyond.iter().map(|known| format!("^{known}\n")).collect();
        let pack = theirs.git(["pack-objects", "--revs", "--stdout", "-q"]).limit(WORK_TREE);
        let pack = pack.input(format!("{commit}\n{known}")).bytes().await?;
        self.git(["index-pack", "--stdin", "--strict"]).input(pack).limit(WORK_TREE).bytes().await.map(drop)
    }

    /// A commit of a tree.
    pub async fn commit_tree(&self, tree: &str, parents: &[&str], message: &str) -> io::Result<String> {
        let parents = parents.iter().flat_map(|parent| ["-p", parent]);
        let arguments = ["commit-tree", tree].into_iter().chain(parents).chain(["-F", "-"]);
        self.git(arguments).input(message).text().await
    }
}

/// The files of a submodule are in no tree of ours.
fn refuse_submodules(entries: &[u8], work_tree: &Path) -> io::Result<()> {
    for entry in entries.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 ")) {
        let entry = String::from_utf8_lossy(entry);
        let Some((_, path)) = entry.split_once('\t') else { continue };
        let is_filled = std::fs::read_dir(work_tree.join(path)).is_ok_and(|mut files| files.next().is_some());
        if is_filled {
            return Err(io::Error::other(format!("the submodule '{path}' in it has files")));
        }
    }
    Ok(())
}
