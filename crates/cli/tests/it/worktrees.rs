//! Worktrees of loops with the real binary: their ceiling, what is kept, what an agent planted in the repository.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::daemon::{Daemon, read, show, states, until, up_until_idle};
use crate::support::Lab;

fn git(folder: &Path, line: &str) -> String {
    let mut command = Command::new("git");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir(folder);
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "core.fsmonitor=false"]);
    let output = command.args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A repository with a commit, and a configuration.
fn prepare(text: &str) -> Lab {
    let lab = Lab::new();
    git(lab.path(), "init -q -b main");
    std::fs::write(lab.path().join("file.txt"), "first\n").unwrap();
    std::fs::write(lab.path().join(".gitattributes"), "*.txt filter=evil\n").unwrap();
    git(lab.path(), "add -A");
    git(lab.path(), "commit -qm first");
    std::fs::write(lab.path().join("rota.yml"), format!("disk: {{min_free_gb: 0}}\n{text}")).unwrap();
    lab
}

/// Issue 2.5: what was paid for is on the branch when the worktree is gone.
#[test]
fn the_work_of_loops_that_fail_is_saved() {
    let lab = prepare(
        "loops: {ralph: {run: 'echo paid $ROTA_TASK > paid; exit 1', worktree: true, max_iterations: 1}}\n",
    );
    for id in ["a", "b", "c"] {
        lab.line(&format!("loop add --kind ralph --id {id}")).ok();
    }
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(states(&lab), ["a failed", "b failed", "c failed"]);
    for id in ["a", "b", "c"] {
        assert_eq!(git(lab.path(), &format!("show rota/{id}:paid")), format!("paid {id}"));
        assert!(!lab.path().join(".rota/worktrees").join(id).exists());
    }
    assert!(ran.stderr.contains("Uncommitted work committed to its branch"), "{}", ran.stderr);
    assert_eq!(git(lab.path(), "worktree list").lines().count(), 1);
}

/// Issue 3.5: no more than configured, also when many may begin at once; kinds without a worktree are not held up.
pub fn ceiling_counts_while_granting() {
    let lab = prepare(
        "concurrency: {max_worktrees: 3}\nloops:\n  ralph: {run: 'ls ../../worktrees | wc -l >> $LAB/counts', worktree: true, env: {LAB: LABPATH}}\n  plain: {run: 'true'}\n",
    );
    let text = read(lab.path().join("rota.yml")).replace("LABPATH", lab.path().to_str().unwrap());
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
    for number in 0..10 {
        lab.line(&format!("loop add --kind ralph --id r{number}")).ok();
    }
    lab.line("loop add --kind plain --id p").ok();
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let counts: Vec<u32> =
        read(lab.path().join("counts")).lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 10);
    assert!(counts.iter().all(|count| (1..=3).contains(count)), "{counts:?}");
}

/// A failing loop gives its place to a fresh one, also where worktrees and not slots are the ceiling.
#[test]
fn a_failing_loop_gives_its_worktree_place_away() {
    let lab = prepare(
        "concurrency: {max-worktrees: 1}\nloops:\n  ralph: {run: 'cd $LAB; echo $ROTA_TASK >> order; case $ROTA_TASK in bad) until test -e go; do sleep 0.02; done; exit 1;; esac', worktree: true, max_iterations: 4, env: {LAB: LABPATH}}\n",
    );
    let text = read(lab.path().join("rota.yml")).replace("LABPATH", lab.path().to_str().unwrap());
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind ralph --id bad").ok();
    let order = || std::fs::read_to_string(lab.path().join("order")).unwrap_or_default();
    until("it runs", || order() == "bad\n");
    lab.line("loop add --kind ralph --id fresh").ok();
    until("it waits for a worktree", || lab.line("why fresh").ok().contains("all 1 worktrees are in use"));
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("both have ended", || states(&lab) == ["bad failed", "fresh complete"]);
    assert_eq!(order(), "bad\nfresh\nbad\nbad\nbad\n");
    daemon.down(&lab);
}

/// Issue 3.5: kept ones do not count, and are named.
#[test]
fn kept_worktrees_block_nothing_and_are_named() {
    let lab = prepare(
        "concurrency: {max_worktrees: 1}\nloops:\n  bad: {run: 'exit 1', worktree: true, max_iterations: 1, keep_worktree_on_failure: true}\n  slow: {run: 'until test -e $LAB/go; do sleep 0.02; done', worktree: true, env: {LAB: LABPATH}}\n",
    );
    let text = read(lab.path().join("rota.yml")).replace("LABPATH", lab.path().to_str().unwrap());
    std::fs::write(lab.path().join("rota.yml"), text).unwrap();
    for id in ["k1", "k2"] {
        lab.line(&format!("loop add --kind bad --id {id}")).ok();
    }
    let ran = up_until_idle(&lab);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(states(&lab), ["k1 failed", "k2 failed"]);
    assert!(ran.stderr.contains("warning: worktrees kept in .rota/worktrees: k1, k2"), "{}", ran.stderr);
    let daemon = Daemon::start(&lab);
    lab.line("loop add --kind slow --id s1").ok();
    until("it runs", || {
        show(&lab, "s1")["status"] == "running" && lab.path().join(".rota/worktrees/s1/.git").exists()
    });
    lab.line("loop add --kind slow --id s2").ok();
    let why = || lab.line("why s2").ok();
    until("it waits for a worktree", || why().contains("all 1 worktrees are in use; kept besides: k1, k2"));
    let status = lab.line("status").ok();
    assert!(status.contains("worktrees kept in .rota/worktrees: k1, k2\n"), "{status}");
    std::fs::write(lab.path().join("go"), "").unwrap();
    until("both complete", || states(&lab) == ["k1 failed", "k2 failed", "s1 complete", "s2 complete"]);
    daemon.down(&lab);
}

/// Issue 3.5: refused once.
#[test]
fn no_worktree_outside_of_git() {
    let lab = Lab::new();
    std::fs::write(
        lab.path().join("rota.yml"),
        "disk: {min_free_gb: 0}\nloops: {ralph: {run: 'true', worktree: true}}\n",
    )
    .unwrap();
    lab.line("loop add --kind ralph --id r").ok();
    assert_eq!(up_until_idle(&lab).code, 1);
    let shown = show(&lab, "r");
    assert_eq!(
        (&shown["status"], &shown["iteration"], &shown["attempts"]),
        (&"parked".into(), &1.into(), &0.into())
    );
    let reason = shown["parkedReason"].as_str().unwrap();
    assert!(reason.starts_with("'worktree: true' needs a git repository"), "{reason}");
}

/// Issue 3.5: what failed in an earlier run is not this run's.
#[test]
fn a_run_judges_its_own_loops() {
    let lab = prepare("loops: {bad: {run: 'exit 1', max_iterations: 1}, good: {run: 'true'}}\n");
    lab.line("loop add --kind bad --id b").ok();
    let ran = up_until_idle(&lab);
    assert_eq!((ran.code, ran.stdout.contains("b [bad] failed")), (1, true), "{}", ran.stdout);
    lab.line("loop add --kind good --id g").ok();
    let ran = up_until_idle(&lab);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "g [good] complete\n"), "{}", ran.stderr);
}

/// Issue 1.2: hooks, fsmonitor, filters, includes: none of it runs, and a sleeping hook holds up nothing.
#[test]
fn nothing_that_an_agent_planted_in_the_repository_runs() {
    let lab = prepare(
        "loops: {ralph: {run: 'cat file.txt > $ROTA_ARTIFACTS/seen; echo more >> file.txt; exit 1', worktree: true, max_iterations: 1}}\n",
    );
    let ran = lab.path().join("ran");
    let hooks = lab.path().join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
        let text = format!("#!/bin/sh\nenv >> {}\nsleep 1000\n", ran.display());
        std::fs::write(hooks.join(hook), text).unwrap();
        std::fs::set_permissions(hooks.join(hook), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let evil = format!("touch {}; cat", ran.display());
    std::fs::write(
        lab.path().join("included"),
        format!("[core]\n\tfsmonitor = \"touch {}\"\n", ran.display()),
    )
    .unwrap();
    let config = lab.path().join(".git/config");
    let text = read(&config)
        + &format!(
            "[core]\n\tfsmonitor = \"{evil}\"\n[filter \"evil\"]\n\tsmudge = \"{evil}\"\n\tclean = \"{evil}\"\n[include]\n\tpath = ../included\n"
        );
    std::fs::write(config, text).unwrap();
    lab.line("loop add --kind ralph --id r").ok();
    let done = up_until_idle(&lab);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(!ran.exists(), "{}", read(&ran));
    assert_eq!(read(lab.path().join(".rota/loops/r/iterations/001/artifacts/seen")), "first\n");
    std::fs::remove_dir_all(hooks).unwrap();
    assert_eq!(git(lab.path(), "show rota/r:file.txt"), "first\nmore");
}

/// Issue 3.6: the same id in two scopes has two branches.
#[test]
fn branches_are_per_scope() {
    let lab = prepare("loops: {ralph: {run: 'pwd > $ROTA_ARTIFACTS/where', worktree: true}}\n");
    for scope in ["default", "o/r@main"] {
        lab.line(&format!("--scope {scope} loop add --kind ralph --id r")).ok();
        let ran = lab.line(&format!("--scope {scope} up --until-idle"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    let branches = git(lab.path(), "branch --list --format=%(refname:short) rota*");
    let branches: Vec<&str> = branches.lines().collect();
    assert!(branches.contains(&"rota@o%2Fr%40main/r"), "{branches:?}");
    git(lab.path(), "rev-parse --verify refs/heads/rota/r");
}
