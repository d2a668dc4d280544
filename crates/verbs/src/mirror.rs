//! The plain, diffable copy of the policy in force, beside the configuration. Nobody decides by it. In a git repository it
//! is excluded from commits unless it is tracked: it changes with every publication.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rota_core::Json;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{Fault, Store};

use crate::Result;
use crate::context::Context;
use crate::indented::indented_json;

/// How much of a file of the repository is read.
const EXCLUDE_BYTES: u64 = 1_024 * 1_024;
/// How long git may take to look into its index.
const GIT_LIMIT: Duration = Duration::from_secs(5);

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
    write_new(&part, indented_json(&copy).as_bytes())
        .map_err(|source| Fault::Io { path: file.to_owned(), source })?;
    rota_store::make_whole(&part, file)?;
    // A copy that git shows as a new file is no failure of what was published.
    let _excluded = exclude_from_git(file);
    Ok(())
}

/// Writes a new file. An entry that has its name, such as a link, is removed and never opened.
fn write_new(path: &Path, content: &[u8]) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)?.write_all(content)
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
    std::fs::create_dir_all(git.join("info"))?;
    let options = File::options().read(true).append(true).create(true).clone();
    let mut file = rota_store::open_own(&options, &exclude)?;
    let mut text = String::new();
    (&file).take(EXCLUDE_BYTES).read_to_string(&mut text)?;
    if text.lines().any(|known| known == line) || is_tracked(root, inside) {
        return Ok(());
    }
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{line}\n").as_bytes())
}

/// The folder that all work trees of a repository share.
fn git_folder(root: &Path) -> std::io::Result<PathBuf> {
    let dot_git = root.join(".git");
    if dot_git.is_dir() {
        return Ok(dot_git);
    }
    let text = read(&dot_git)?;
    let folder = root.join(text.strip_prefix("gitdir:").unwrap_or_default().trim());
    let common = read(&folder.join("commondir"))?;
    Ok(folder.join(common.trim()))
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    rota_store::open_regular(path)?.take(EXCLUDE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether git tracks a file. Reads the index, runs nothing that the repository configures and fetches nothing; an index
/// that cannot be read in time counts as one that has the file.
fn is_tracked(root: &Path, inside: &Path) -> bool {
    let mut git = std::process::Command::new("git");
    git.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"]);
    git.arg("-C").arg(root).args(["ls-files", "--error-unmatch", "--"]).arg(inside);
    // An agent may have made a remote of any kind, and a file that promises to be there.
    git.env("GIT_ALLOW_PROTOCOL", "").env("GIT_NO_LAZY_FETCH", "1");
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = git.spawn() else { return false };
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if begun.elapsed() < GIT_LIMIT => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                // A git that hangs on a FIFO in place of its index. One that ended meanwhile is reaped all the same.
                let _killed = child.kill().and_then(|()| child.wait());
                return true;
            }
        }
    }
}
