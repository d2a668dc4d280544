//! What an agent can plant in a repository, and none of it runs.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;

/// A repository that an agent has been at: whatever of this runs leaves a file in `ran`.
struct Planted {
    _temporary: tempfile::TempDir,
    root: PathBuf,
}

impl Planted {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let planted = Self { root: temporary.path().canonicalize().unwrap(), _temporary: temporary };
        std::fs::create_dir(planted.root.join("ran")).unwrap();
        planted.git(&["init", "-q", "-b", "main", "repository"]);
        let repository = planted.repository();
        std::fs::write(repository.join("a.txt"), "text\n").unwrap();
        std::fs::write(repository.join(".gitattributes"), "*.txt filter=evil diff=evil merge=evil\n")
            .unwrap();
        planted.inside(&["add", "-A"]);
        planted.inside(&["commit", "-qm", "first"]);
        planted
    }

    fn repository(&self) -> PathBuf {
        self.root.join("repository")
    }

    fn mark(&self, name: &str) -> String {
        format!("touch {}", self.root.join("ran").join(name).display())
    }

    /// Hooks, and every setting that names a program or another place.
    fn plant(&self) {
        let hooks = self.repository().join(".git/hooks");
        std::fs::create_dir_all(&hooks).unwrap();
        for hook in
            ["post-checkout", "pre-commit", "reference-transaction", "post-index-change", "post-commit"]
        {
            let path = hooks.join(hook);
            std::fs::write(&path, format!("#!/bin/sh\n{}\n", self.mark(hook))).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let included = self.root.join("included");
        let text = format!(
            "[core]\n\tfsmonitor = \"{}\"\n\tpager = \"{}\"\n",
            self.mark("include"),
            self.mark("pager")
        );
        std::fs::write(&included, text).unwrap();
        for (key, value) in [
            ("core.fsmonitor", self.mark("fsmonitor")),
            ("core.pager", self.mark("pager")),
            ("core.sshCommand", self.mark("ssh")),
            ("core.gitProxy", self.mark("proxy")),
            ("core.editor", self.mark("editor")),
            ("filter.evil.smudge", self.mark("smudge") + "; cat"),
            ("filter.evil.clean", self.mark("clean") + "; cat"),
            ("diff.evil.command", self.mark("diff")),
            ("diff.evil.textconv", self.mark("textconv") + "; cat"),
            ("diff.external", self.mark("external")),
            ("merge.evil.driver", self.mark("merge")),
            ("credential.helper", "!".to_owned() + &self.mark("credential")),
            ("gpg.program", self.mark("gpg")),
            ("commit.gpgSign", "true".to_owned()),
            ("include.path", included.display().to_string()),
        ] {
            self.inside(&["config", key, &value]);
        }
    }

    /// Git as a person or an agent calls it.
    fn git(&self, arguments: &[&str]) {
        let mut command = std::process::Command::new("git");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir(&self.root);
        command.args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.invalid",
            "-c",
            "commit.gpgSign=false",
        ]);
        assert!(command.args(arguments).status().unwrap().success(), "{arguments:?}");
    }

    fn inside(&self, arguments: &[&str]) {
        self.git(&[&["-C", "repository"][..], arguments].concat());
    }

    async fn find(&self) -> Repository {
        Repository::find(&self.repository(), None).await.unwrap().unwrap()
    }

    fn ran(&self) -> Vec<OsString> {
        std::fs::read_dir(self.root.join("ran")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }
}

#[tokio::test]
async fn nothing_that_an_agent_planted_runs() {
    let planted = Planted::new();
    planted.plant();
    let repository = planted.find().await;
    let head = repository.commit("HEAD").await.unwrap().unwrap();
    repository.move_branch("rota/x", None, &head).await.unwrap();
    let (tree, index) = (planted.root.join("tree"), planted.root.join("index"));
    std::fs::create_dir(&tree).unwrap();
    repository.check_out(&head, &tree, &index).await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("a.txt")).unwrap(), "text\n");
    std::fs::write(tree.join("a.txt"), "changed\n").unwrap();
    std::fs::write(tree.join("new.txt"), "new\n").unwrap();
    let changed = repository.tree_of(&head, &tree).await.unwrap();
    let commit = repository.commit_tree(&changed, &[&head], "work").await.unwrap();
    repository.move_branch("rota/x", Some(&head), &commit).await.unwrap();
    assert!(repository.is_ancestor(&head, &commit).await.unwrap());
    let range = format!("{head}..{commit}");
    let names = repository.git(["diff", "--name-only", "-z", &range]).text().await.unwrap();
    assert_eq!(names, "a.txt\0new.txt\0");
    let diff = repository.git(["diff", &range]).text().await.unwrap();
    assert!(diff.contains("+changed"), "{diff}");
    let log = repository.git(["log", "--format=%an %s", &range]).text().await.unwrap();
    assert_eq!(log, "Rota work");
    assert_eq!(planted.ran(), Vec::<OsString>::new());
    // Seen by everybody else as any other branch.
    planted.inside(&["-c", "core.fsmonitor=false", "rev-parse", "--quiet", "--verify", "rota/x:new.txt"]);
    assert_eq!(std::fs::read_dir(planted.repository().join(".rota/run/git")).unwrap().count(), 0);
}

/// The test above can fail: the same steps by plain git run what was planted.
#[tokio::test]
async fn plain_git_would_run_it() {
    let planted = Planted::new();
    planted.plant();
    planted.inside(&["worktree", "add", "-q", "-b", "other", "../plain"]);
    let ran = planted.ran();
    for name in ["post-checkout", "smudge"] {
        assert!(ran.iter().any(|ran| ran == name), "{name}: {ran:?}");
    }
}

#[tokio::test]
async fn a_submodule_is_not_entered() {
    let planted = Planted::new();
    planted.git(&["init", "-q", "inner"]);
    planted.git(&["-C", "inner", "commit", "-q", "--allow-empty", "-m", "inner"]);
    planted.inside(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../inner", "sub"]);
    planted.inside(&["commit", "-qm", "with a submodule"]);
    let monitor = planted.mark("fsmonitor");
    planted.inside(&["-C", "sub", "config", "core.fsmonitor", &monitor]);
    let repository = planted.find().await;
    let head = repository.commit("HEAD").await.unwrap().unwrap();
    let error = repository.tree_of(&head, &planted.repository()).await.unwrap_err();
    assert!(error.to_string().contains("the submodule 'sub' in it has files"), "{error}");
    assert_eq!(planted.ran(), Vec::<OsString>::new());
}

#[tokio::test]
async fn a_repository_inside_of_a_work_tree_is_refused() {
    let planted = Planted::new();
    planted.git(&["init", "-q", "repository/inner"]);
    let repository = planted.find().await;
    let head = repository.commit("HEAD").await.unwrap().unwrap();
    let error = repository.tree_of(&head, &planted.repository()).await.unwrap_err();
    assert!(error.to_string().contains("'inner/' in it is a repository of its own"), "{error}");
}

#[tokio::test]
async fn a_command_ends_at_its_limit_with_all_it_started() {
    let planted = Planted::new();
    let repository = planted.find().await;
    // Git waits for ever to open it.
    let fifo = planted.repository().join(".git/refs/heads/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let began = Instant::now();
    let asked =
        repository.git(["rev-parse", "--verify", "refs/heads/fifo"]).limit(Duration::from_millis(300));
    let error = asked.text().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(began.elapsed() < Duration::from_secs(20));
    // The same when its caller goes away.
    let waiting = repository.git(["rev-parse", "--verify", "refs/heads/fifo"]).text();
    assert!(tokio::time::timeout(Duration::from_millis(300), waiting).await.is_err());
    let scratch = planted.repository().join(".rota/run/git");
    assert_eq!(std::fs::read_dir(scratch).unwrap().count(), 0);
}

#[tokio::test]
async fn remotes_are_those_of_the_start() {
    let planted = Planted::new();
    planted.git(&["init", "-q", "--bare", "theirs"]);
    planted.git(&["-C", "repository", "push", "-q", "../theirs", "main"]);
    let url = planted.root.join("theirs").display().to_string();
    planted.inside(&["remote", "add", "origin", &url]);
    let repository = planted.find().await;
    planted.inside(&["remote", "set-url", "origin", "ext::sh -c evil"]);
    planted.inside(&["config", "url.ext::sh.insteadOf", &url]);
    assert_eq!(repository.remote("origin"), Some(url.as_str()));
    let asked = || repository.git(["ls-remote", "--exit-code", "--", &url, "refs/heads/main"]);
    assert!(asked().reach(Reach::Network).text().await.unwrap().contains("refs/heads/main"));
    let error = asked().text().await.unwrap_err();
    assert!(error.to_string().contains("not allowed"), "{error}");
    let error = repository.git(["ls-remote", "ext::true"]).reach(Reach::Network).text().await.unwrap_err();
    assert!(error.to_string().contains("not allowed"), "{error}");
}

#[tokio::test]
async fn the_environment_is_clean() {
    let planted = Planted::new();
    let repository = planted.find().await;
    let seen = |reach| {
        let command = repository.git(["version"]).reach(reach).command();
        let names = command.as_std().get_envs().filter(|(_, value)| value.is_some());
        names.map(|(name, _)| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    assert!(
        seen(Reach::Local)
            .iter()
            .all(|name| name.starts_with("GIT_") || name == "PATH" || name == "LC_ALL" || name == "TMPDIR")
    );
    assert!(!seen(Reach::Local).iter().any(|name| name == "HOME"));
    let network = seen(Reach::Network);
    let allowed = |name: &String| NETWORK.contains(&name.as_str()) || seen(Reach::Local).contains(name);
    assert!(network.iter().all(allowed), "{network:?}");
}

#[tokio::test]
async fn a_link_on_the_way_to_a_branch_is_refused() {
    let planted = Planted::new();
    let repository = planted.find().await;
    let head = repository.commit("HEAD").await.unwrap().unwrap();
    let outside = planted.root.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, planted.repository().join(".git/refs/heads/rota")).unwrap();
    assert!(repository.move_branch("rota/x", None, &head).await.is_err());
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
}
