//! The plain, diffable copy of the policy in force, beside the configuration. Nobody decides by it. In a git repository it
//! is excluded from commits unless it is tracked: it changes with every publication.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rota_core::Json;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{Fault, Store};

use crate::Result;
use crate::context::Context;
use crate::indented::indented_json;

/// Two threads that publish at once write two files, of which the later one stays.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes the copy. Whoever publishes at the same time writes too, so each looks again after writing: the last one to
/// write leaves what is in force.
pub async fn write(cx: &Context, file: &Path) -> Result<()> {
    let mut written = None;
    loop {
        let (published, _) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
        if written.as_ref() == Some(&published.version) {
            return Ok(());
        }
        replace(file, &published.version, &published.policy.to_json())?;
        written = Some(published.version.clone());
    }
}

/// The same for whoever has no store but somebody to ask for the version in force and its document.
pub fn write_asking<E: From<Fault>>(
    file: &Path,
    ask: impl Fn() -> std::result::Result<(String, Json), E>,
) -> std::result::Result<(), E> {
    let mut written = None;
    loop {
        let (version, document) = ask()?;
        if written.as_ref() == Some(&version) {
            return Ok(());
        }
        replace(file, &version, &document)?;
        written = Some(version);
    }
}

/// In one step: a reader sees the old one or the new one.
fn replace(file: &Path, version: &str, document: &Json) -> std::result::Result<(), Fault> {
    // A document is an object, and never an empty one.
    let copy = format!("{{\"basedOn\":{},{}", Json::of(&version).as_str(), &document.as_str()[1..]);
    let copy = Json::from_stored(copy);
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    let part = PathBuf::from(part);
    std::fs::write(&part, indented_json(&copy))
        .map_err(|source| Fault::Io { path: file.to_owned(), source })?;
    rota_store::make_whole(&part, file)?;
    // A copy that git shows as a new file is no failure of what was published.
    let _excluded = exclude_from_git(file);
    Ok(())
}

/// Adds the copy to `.git/info/exclude`, once, unless git tracks it.
fn exclude_from_git(file: &Path) -> std::io::Result<()> {
    let file = std::path::absolute(file)?;
    let mut folders = file.parent().into_iter().flat_map(Path::ancestors);
    let Some(root) = folders.find(|folder| folder.join(".git").exists()) else { return Ok(()) };
    let Ok(inside) = file.strip_prefix(root) else { return Ok(()) };
    let git = git_folder(root)?;
    let exclude = git.join("info").join("exclude");
    let line = format!("/{}", inside.display());
    // Not through a link, and not into a pipe: an agent may have put one there.
    let is_file = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    let text = if is_file(&exclude) { std::fs::read_to_string(&exclude)? } else { String::new() };
    let is_there = std::fs::symlink_metadata(&exclude).is_ok() && !is_file(&exclude);
    if is_there || text.lines().any(|known| known == line) || is_tracked(root, inside) {
        return Ok(());
    }
    std::fs::create_dir_all(git.join("info"))?;
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut file = std::fs::File::options().append(true).create(true).open(&exclude)?;
    std::io::Write::write_all(&mut file, format!("{gap}{line}\n").as_bytes())
}

/// The folder that all work trees of a repository share.
fn git_folder(root: &Path) -> std::io::Result<PathBuf> {
    let dot_git = root.join(".git");
    if dot_git.is_dir() {
        return Ok(dot_git);
    }
    let text = std::fs::read_to_string(&dot_git)?;
    let folder = root.join(text.strip_prefix("gitdir:").unwrap_or_default().trim());
    let common = std::fs::read_to_string(folder.join("commondir"))?;
    Ok(folder.join(common.trim()))
}

/// Reads the index and runs nothing that the repository configures.
fn is_tracked(root: &Path, inside: &Path) -> bool {
    let mut git = std::process::Command::new("git");
    git.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"]);
    git.arg("-C").arg(root).args(["ls-files", "--error-unmatch", "--"]).arg(inside);
    git.stdin(std::process::Stdio::null());
    git.output().is_ok_and(|output| output.status.success())
}
