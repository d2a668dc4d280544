//! Where the store is, which scope, who asks: flags, variables, `rota.yml`, the git root.

use std::fs;
use std::path::Path;

use expect_test::expect;

use crate::support::{Lab, ROTA, check, feed, rota_in};

/// The ids that a command in a folder sees.
#[track_caller]
fn ids(folder: &Path, arguments: &[&str]) -> String {
    let mut command = rota_in(Path::new(ROTA), folder);
    let ran = feed(command.args(["task", "list", "--markdown"]).args(arguments), b"").ok();
    let ids: Vec<&str> = ran.lines().filter_map(|line| line.strip_prefix("## Task ")).collect();
    ids.join(" ")
}

#[track_caller]
fn create(folder: &Path, id: &str, arguments: &[&str]) {
    let mut command = rota_in(Path::new(ROTA), folder);
    feed(command.args(["task", "create", id, "T"]).args(arguments), b"").ok();
}

fn make(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Without a repository it is `./.rota/rota.db`, made silently, with a `.gitignore` of `*`.
#[test]
fn the_current_folder_without_a_repository() {
    let lab = Lab::new();
    assert_eq!(lab.line("task list").ok(), "");
    let sub = lab.path().join("sub");
    fs::create_dir(&sub).unwrap();
    create(&sub, "below", &[]);
    assert!(sub.join(".rota/rota.db").is_file());
    assert_eq!(fs::read_to_string(sub.join(".rota/.gitignore")).unwrap(), "*\n");
    assert_eq!(ids(lab.path(), &[]), "");
    fs::remove_file(sub.join(".rota/.gitignore")).unwrap();
    create(&sub, "more", &[]);
    assert!(!sub.join(".rota/.gitignore").exists(), "the folder is the user's once it is made");
}

/// The git root's, from any folder below it, and from a linked work tree the main one's.
#[test]
fn the_git_root_and_linked_work_trees() {
    let lab = Lab::new();
    let (main, linked) = (lab.path().join("main"), lab.path().join("linked"));
    make(&main, &[(".git/HEAD", "ref: refs/heads/main\n"), ("a/b/c.txt", "")]);
    make(&main, &[(".git/worktrees/linked/commondir", "../..\n")]);
    let gitdir = main.join(".git/worktrees/linked");
    make(&linked, &[(".git", &format!("gitdir: {}\n", gitdir.display())), ("deep/file", "")]);
    create(&main.join("a/b"), "from-below", &[]);
    create(&linked.join("deep"), "from-linked", &[]);
    for folder in [&main, &main.join("a/b"), &linked, &linked.join("deep")] {
        assert_eq!(ids(folder, &[]), "from-below from-linked", "{}", folder.display());
    }
    assert!(main.join(".rota/rota.db").is_file());
    assert!(!linked.join(".rota").exists() && !main.join("a/b/.rota").exists());
}

/// The same with repositories made by git itself, where there is one.
#[test]
fn repositories_made_by_git() {
    let lab = Lab::new();
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]).args(arguments);
        command.current_dir(lab.path()).output().map(|output| output.status.success())
    };
    if git(&["--version"]).is_err() {
        return;
    }
    assert!(git(&["init", "-q", "main"]).unwrap());
    assert!(git(&["-C", "main", "commit", "-q", "--allow-empty", "-m", "first"]).unwrap());
    assert!(git(&["-C", "main", "worktree", "add", "-q", "../linked"]).unwrap());
    create(&lab.path().join("linked"), "a", &[]);
    assert_eq!(ids(&lab.path().join("main"), &[]), "a");
    let status = std::process::Command::new("git")
        .args(["-C", "main", "status", "--porcelain"])
        .current_dir(lab.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&status.stdout), "", "the store is ignored");
}

/// `--store`, then ROTA_STORE, then `store:` of `rota.yml`; relative to the current folder, the last to its file.
#[test]
fn flag_variable_and_file() {
    let lab = Lab::new();
    let root = lab.path();
    make(
        root,
        &[
            (".git/HEAD", ""),
            ("rota.yml", "store: sqlite:kept/here.db\n"),
            ("kept/x", ""),
            ("sub/kept/x", ""),
        ],
    );
    let sub = root.join("sub");
    create(&sub, "in-file", &[]);
    assert!(root.join("kept/here.db").is_file() && !root.join(".rota").exists());
    create(&sub, "by-flag", &["--store", "sqlite:flag.db"]);
    assert!(sub.join("flag.db").is_file());
    let mut command = rota_in(Path::new(ROTA), &sub);
    feed(command.env("ROTA_STORE", "sqlite:variable.db").args(["task", "create", "by-variable", "T"]), b"")
        .ok();
    assert!(sub.join("variable.db").is_file());
    assert_eq!(ids(&sub, &[]), "in-file");
    assert_eq!(ids(&sub, &["--store", "sqlite:flag.db"]), "by-flag");
    let absolute = format!("sqlite:{}", sub.join("variable.db").display());
    assert_eq!(ids(root, &["--store", &absolute]), "by-variable");
    let both = |store: &str| {
        let mut command = rota_in(Path::new(ROTA), &sub);
        command.env("ROTA_STORE", store).args(["task", "list", "--markdown", "--store", "sqlite:flag.db"]);
        feed(&mut command, b"").ok()
    };
    assert!(both("sqlite:variable.db").starts_with("## Task by-flag\n"), "the flag wins");
    let mut command = rota_in(Path::new(ROTA), &sub);
    let unset = feed(command.env("ROTA_STORE", "").args(["task", "list", "--markdown"]), b"").ok();
    assert!(unset.starts_with("## Task in-file\n"), "an empty variable is an unset one");
}

/// `--config`, then ROTA_CONFIG, then `rota.yml` in the git root; one that is named must be there.
#[test]
fn configuration_files() {
    let lab = Lab::new();
    let root = lab.path();
    make(
        root,
        &[
            ("conf/one.yml", "store: sqlite:one.db\nscope: team/a@main\nloops: {}\n"),
            ("two.yml", "scope: b\n"),
        ],
    );
    create(root, "a", &["--config", "conf/one.yml"]);
    assert!(root.join("conf/one.db").is_file());
    lab.check(
        r#"
        task list --config conf/one.yml
        ROTA_CONFIG=conf/one.yml task list
        ROTA_CONFIG=conf/one.yml task list --scope default
        ROTA_CONFIG=conf/one.yml ROTA_SCOPE=default task list
        ROTA_CONFIG=conf/one.yml ROTA_SCOPE= task list
        ROTA_CONFIG=conf/one.yml task list --config two.yml
        task list --config nowhere.yml
        ROTA_CONFIG=nowhere.yml task list
        "#,
        expect![[r#"
            $ task list --config conf/one.yml
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     T                                   -
            $ ROTA_CONFIG=conf/one.yml task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     T                                   -
            $ ROTA_CONFIG=conf/one.yml task list --scope default
            $ ROTA_CONFIG=conf/one.yml ROTA_SCOPE=default task list
            $ ROTA_CONFIG=conf/one.yml ROTA_SCOPE= task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     T                                   -
            $ ROTA_CONFIG=conf/one.yml task list --config two.yml
            $ task list --config nowhere.yml
            ! error: nowhere.yml: No such file or directory (os error 2)
            [1]
            $ ROTA_CONFIG=nowhere.yml task list
            ! error: nowhere.yml: No such file or directory (os error 2)
            [1]
        "#]],
    );
    make(root, &[("rota.yml", "store: [1]\n")]);
    lab.check(
        "task list",
        expect![[r#"
            $ task list
            ! error: <folder>/rota.yml: store: expected a text, got a list
            [1]
        "#]],
    );
    make(root, &[("rota.yml", "store: \"\"\nscope:\n")]);
    lab.check(
        "task list",
        expect![[r#"
        $ task list
    "#]],
    );
    make(root, &[("rota.yml", ": : [\n")]);
    assert_eq!(lab.line("task list").code, 1);
}

/// Tasks, queues, agents and journal are per scope.
#[test]
fn scopes() {
    check(
        r#"
        @0 task create a Default
        @0 --scope owner/repo@branch task create a Other
        @0 ROTA_SCOPE=owner/repo@branch task list
        @0 task list
        @0 ROTA_SCOPE=owner/repo@branch log
        @0 ROTA_SCOPE=owner/repo@branch task show a --scope default
        @0 ROTA_SCOPE= task show a
        @0 --scope "a\nb" task list
        @0 --scope -x task list
        "#,
        expect![[r#"
            $ @0 task create a Default
            a
            $ @0 --scope owner/repo@branch task create a Other
            a
            $ @0 ROTA_SCOPE=owner/repo@branch task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     Other                               -
            $ @0 task list
            ID                   P S        CAT   TITLE                               AGENT
            a                    2 open     -     Default                             -
            $ @0 ROTA_SCOPE=owner/repo@branch log
            2026-01-01T00:00:00.000Z      2  created a
            $ @0 ROTA_SCOPE=owner/repo@branch task show a --scope default
            ID:          a
            Title:       Default
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:00Z
            $ @0 ROTA_SCOPE= task show a
            ID:          a
            Title:       Default
            Status:      open
            Priority:    2
            Created:     2026-01-01T00:00:00Z
            Updated:     2026-01-01T00:00:00Z
            $ @0 --scope "a\nb" task list
            ! error: scope has the control character \n in 'a\nb'
            [1]
            $ @0 --scope -x task list
            ! error: unknown flag '-x'
            ! Usage: rota task list [OPTIONS]
            [1]
        "#]],
    );
}

/// What this build cannot open is refused without showing what may be a password.
#[test]
fn stores_of_other_kinds() {
    let lab = Lab::new();
    for store in ["ftp://user:secret@host/db", "mysql:secret", "sqlite:", "rota.db"] {
        let ran = lab.run(&["task", "list", "--store", store]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{store}");
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
    assert_eq!(lab.line("--store memory: task create a A").ok(), "a\n");
    assert_eq!(lab.line("--store memory: task list").ok(), "", "forgotten with its process");
    assert_eq!(fs::read_dir(lab.path()).unwrap().count(), 0);
}

/// Standard output carries data, standard error the rest; a verb that succeeds writes only warnings there.
#[test]
fn streams() {
    check(
        r#"
        @0 task create a A
        @0 task plan-sync
        | {"id":"b","t":"B","color":"red","size":1}
        | {"id":"c","t":"C","color":"blue"}
        @0 task claim nobody
        @0 task peek -n 1
        "#,
        expect![[r#"
            $ @0 task create a A
            a
            $ @0 task plan-sync
            inserted: 2, updated: 0, deleted: 0, skipped (done): 0
            ! warning: unknown keys ignored: color, size
            $ @0 task claim nobody
            ! error: task 'nobody' not found
            !   see what there is: rota task list --all
            [2]
            $ @0 task peek -n 1
            ## Task a
            id: a
            title: A
            priority: 2
            status: open
        "#]],
    );
}

/// A reader that goes away ends the command quietly.
#[test]
fn a_closed_pipe_is_no_panic() {
    let lab = Lab::new();
    lab.line("@0 task create a A").ok();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = lab.command().args(["task", "list"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), ""));
}
