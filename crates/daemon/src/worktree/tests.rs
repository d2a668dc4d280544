//! Worktrees of real repositories: uncommitted work survives them.

use rota_core::{Task, TaskId, UnixMillis};

use super::*;

struct Lab {
    _temporary: tempfile::TempDir,
    root: PathBuf,
    worktrees: Worktrees,
    place: Place,
}

impl Lab {
    async fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        git(&root, &["init", "-q", "-b", "main"]);
        std::fs::write(root.join("file"), "first\n").unwrap();
        std::fs::write(root.join(".gitignore"), "/.rota\n").unwrap();
        git(&root, &["add", "-A"]);
        git(&root, &["commit", "-qm", "first"]);
        std::fs::create_dir(root.join(".rota")).unwrap();
        let folders = Arc::new(Folders::new(&root, &root.join(".rota")));
        let worktrees = Worktrees::find(folders).await;
        let id = TaskId::from_stored("a/b".into());
        let place = Place::of(&Task::new("default", id, "loops", "t", UnixMillis::new(1)));
        Self { _temporary: temporary, root, worktrees, place }
    }

    async fn ensure(&self) -> PathBuf {
        self.worktrees.ensure(&self.place).await.unwrap()
    }

    async fn remove(&self) -> io::Result<Option<String>> {
        self.worktrees.remove(self.worktrees.hold(&self.place).unwrap()).await
    }

    fn show(&self, what: &str) -> String {
        said(&self.root, &["show", what])
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    said(folder, arguments);
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir(folder);
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn git_knows_a_worktree_of_ours() {
    let lab = Lab::new().await;
    let path = lab.ensure().await;
    assert_eq!(said(&path, &["status", "--porcelain"]), "");
    assert_eq!(said(&path, &["symbolic-ref", "HEAD"]), "refs/heads/rota/a%2Fb");
    assert!(said(&lab.root, &["worktree", "list"]).contains("[rota/a%2Fb]"));
    git(&path, &["commit", "-q", "--allow-empty", "-m", "by the agent"]);
    assert_eq!(lab.ensure().await, path, "it is used again");
    assert_eq!(lab.remove().await.unwrap(), None);
    assert!(!path.exists());
    assert_eq!(said(&lab.root, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(said(&lab.root, &["log", "-1", "--format=%s", "rota/a%2Fb"]), "by the agent");
}

#[tokio::test]
async fn uncommitted_work_is_committed_first() {
    let lab = Lab::new().await;
    let path = lab.ensure().await;
    std::fs::write(path.join("file"), "edited\n").unwrap();
    std::fs::create_dir(path.join("folder")).unwrap();
    std::fs::write(path.join("folder/new"), "new\n").unwrap();
    git(&path, &["mv", ".gitignore", "ignored"]);
    let commit = lab.remove().await.unwrap().unwrap();
    assert!(!path.exists());
    assert_eq!(said(&lab.root, &["rev-parse", "rota/a%2Fb"]), commit);
    assert_eq!(lab.show("rota/a%2Fb:file"), "edited");
    assert_eq!(lab.show("rota/a%2Fb:folder/new"), "new");
    assert_eq!(lab.show("rota/a%2Fb:ignored"), "/.rota");
    let message = said(&lab.root, &["log", "-1", "--format=%an%n%B", "rota/a%2Fb"]);
    assert!(message.starts_with("Rota\nWork in progress") && message.contains(WORK_IN_PROGRESS), "{message}");
    // The next worktree goes on from there, also when others went on meanwhile.
    git(&lab.root, &["commit", "-q", "--allow-empty", "-m", "others"]);
    let path = lab.ensure().await;
    assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "edited\n");
}

#[tokio::test]
async fn commits_beside_the_branch_are_kept() {
    let lab = Lab::new().await;
    let path = lab.ensure().await;
    git(&path, &["commit", "-q", "--allow-empty", "-m", "on the branch"]);
    git(&path, &["checkout", "-q", "--detach", "HEAD~1"]);
    git(&path, &["commit", "-q", "--allow-empty", "-m", "beside it"]);
    std::fs::write(path.join("file"), "edited\n").unwrap();
    lab.remove().await.unwrap().unwrap();
    let log = said(&lab.root, &["log", "--format=%s", "rota/a%2Fb"]);
    for subject in ["on the branch", "beside it", "Work in progress"] {
        assert!(log.contains(subject), "{subject}: {log}");
    }
    assert_eq!(lab.show("rota/a%2Fb:file"), "edited");
}

#[tokio::test]
async fn a_branch_with_commits_of_its_own_is_never_reset() {
    let lab = Lab::new().await;
    let path = lab.ensure().await;
    git(&path, &["commit", "-q", "--allow-empty", "-m", "its own"]);
    let tip = said(&path, &["rev-parse", "HEAD"]);
    lab.remove().await.unwrap();
    git(&lab.root, &["commit", "-q", "--allow-empty", "-m", "others"]);
    let path = lab.ensure().await;
    assert_eq!(said(&path, &["rev-parse", "HEAD"]), tip);
    lab.remove().await.unwrap();
    // One that was merged begins where everybody is.
    git(&lab.root, &["merge", "-q", "--no-ff", "-m", "merged", "rota/a%2Fb"]);
    let path = lab.ensure().await;
    assert_eq!(said(&path, &["rev-parse", "HEAD"]), said(&lab.root, &["rev-parse", "HEAD"]));
}

#[tokio::test]
async fn work_that_cannot_be_committed_stays() {
    let lab = Lab::new().await;
    let path = lab.ensure().await;
    git(&path, &["init", "-q", "inner"]);
    std::fs::write(path.join("inner/work"), "work").unwrap();
    let error = lab.remove().await.unwrap_err();
    assert!(error.to_string().contains("'inner/' in it is a repository of its own"), "{error}");
    assert!(path.join("inner/work").exists());
    // A folder without its link to git is put aside, not removed.
    std::fs::remove_file(path.join(".git")).unwrap();
    lab.ensure().await;
    let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let aside = names.map(|entry| entry.unwrap().path()).find(|path| path.join("inner/work").exists());
    assert!(aside.is_some());
    assert_eq!(kept(&lab.worktrees.folders).len(), 2);
}

#[tokio::test]
async fn a_branch_that_somebody_works_on_is_refused() {
    let lab = Lab::new().await;
    git(&lab.root, &["checkout", "-q", "-b", "rota/a%2Fb"]);
    let error = lab.worktrees.ensure(&lab.place).await.unwrap_err();
    assert!(error.to_string().contains("is checked out in the workspace"), "{error}");
}

#[tokio::test]
async fn outside_of_a_repository_there_are_none() {
    let temporary = tempfile::tempdir().unwrap();
    let folders = Arc::new(Folders::new(temporary.path(), &temporary.path().join(".rota")));
    let worktrees = Worktrees::find(folders).await;
    assert!(worktrees.refusal().is_some_and(|why| why.contains("needs a git repository")));
}
