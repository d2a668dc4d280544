//! The supervisor's questions to git, all of them through [`rota_daemon::git`].

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use rota_daemon::git::{Reach, Repository};

/// The repositories of this process, each as it was when it was first asked: what an agent changes in one later does
/// not count.
static FOUND: Mutex<BTreeMap<PathBuf, Arc<Repository>>> = Mutex::const_new(BTreeMap::new());

/// The repository that a folder lies in.
pub async fn repository(folder: &Path) -> io::Result<Arc<Repository>> {
    let mut found = FOUND.lock().await;
    if let Some(repository) = found.get(folder) {
        return Ok(Arc::clone(repository));
    }
    let repository = Repository::find(folder, None).await?;
    let repository = Arc::new(repository.ok_or_else(|| io::Error::other("not a git repository"))?);
    found.insert(folder.to_owned(), Arc::clone(&repository));
    Ok(repository)
}

/// Asks git about the repository that a folder lies in; its output if it succeeds.
pub async fn git(folder: &Path, arguments: &[&str], limit: Duration) -> io::Result<String> {
    let bytes = repository(folder).await?.git(arguments).limit(limit).bytes().await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a remote answers, at the URL that it had at start.
pub async fn ask_remote(folder: &Path, name: &str, limit: Duration) -> io::Result<()> {
    let repository = repository(folder).await?;
    let url = repository.remote(name).ok_or_else(|| io::Error::other("no such remote"))?;
    let ask = repository.git(["ls-remote", "--exit-code", "--", url, "HEAD"]).reach(Reach::Network);
    ask.limit(limit).bytes().await.map(drop)
}
