//! A git worktree per loop, on a branch of its own.

use std::io;
use std::path::{Path, PathBuf};

use rota_core::TaskId;
use tokio::process::Command;

use crate::folders::{Folders, encoded};

/// The worktree of a loop, made if there is none yet.
pub async fn ensure(folders: &Folders, id: &TaskId) -> io::Result<PathBuf> {
    let path = folders.worktree(id);
    if path.join(".git").exists() {
        return Ok(path);
    }
    std::fs::create_dir_all(path.parent().unwrap_or(&folders.rota))?;
    let branch = format!("rota/{}", encoded(id));
    git(&folders.workspace, &["worktree", "prune"]).await?;
    let exists =
        git(&folders.workspace, &["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")]).await;
    let path_text = path.to_string_lossy().into_owned();
    if exists.is_ok() {
        git(&folders.workspace, &["worktree", "add", "--", &path_text, &branch]).await?;
    } else {
        git(&folders.workspace, &["worktree", "add", "-b", &branch, "--", &path_text]).await?;
    }
    Ok(path)
}

/// Takes it away; the branch stays. One with changes that are not committed is kept unless told otherwise.
pub async fn remove(folders: &Folders, id: &TaskId, even_with_changes: bool) -> io::Result<()> {
    let path = folders.worktree(id);
    if !path.exists() {
        return Ok(());
    }
    let path = path.to_string_lossy().into_owned();
    let mut arguments = vec!["worktree", "remove"];
    if even_with_changes {
        arguments.push("--force");
    }
    arguments.extend(["--", path.as_str()]);
    git(&folders.workspace, &arguments).await
}

/// How many there are.
pub fn count(folders: &Folders) -> u32 {
    let entries = std::fs::read_dir(folders.rota.join("worktrees")).into_iter().flatten();
    u32::try_from(entries.count()).unwrap_or(u32::MAX)
}

async fn git(folder: &Path, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or("no reason given").to_owned();
    Err(io::Error::other(format!("git {}: {said}", arguments.first().unwrap_or(&""))))
}
