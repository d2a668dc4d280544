//! What other users of the machine can do with `.rota`, whatever the umask; and users who may only read.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bad_store::copy_program;
use crate::daemon::{Daemon, configure, states, until};
use crate::mcp::client::Http;
use crate::support::{Lab, Ran, feed, rota_in};

/// Runs under a umask.
fn under(lab: &Lab, umask: &str, line: &str) -> Ran {
    let rota = lab.command();
    let mut shell = Command::new("sh");
    shell.env_clear().current_dir(lab.path()).args(["-c", "umask \"$0\" && exec \"$@\"", umask]);
    for (name, value) in rota.get_envs() {
        shell.env(name, value.unwrap());
    }
    feed(shell.arg(rota.get_program()).args(line.split(' ')), b"")
}

/// Everything beneath a folder, itself included, with its permissions.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mode = fs::symlink_metadata(folder).unwrap().permissions().mode() & 0o777;
    let mut all = vec![(folder.to_owned(), mode)];
    if folder.is_dir() && !folder.is_symlink() {
        for entry in fs::read_dir(folder).unwrap() {
            all.extend(modes(&entry.unwrap().path()));
        }
    }
    all
}

fn mode_of(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_can_enter() {
    for umask in ["000", "022", "077", "277"] {
        let lab = Lab::new();
        under(&lab, umask, "task create a A").ok();
        under(&lab, umask, "task claim --agent w").ok();
        let rota = lab.path().join(".rota");
        assert_eq!(mode_of(&rota), 0o700, "umask {umask}");
        for (path, mode) in modes(&rota).into_iter().skip(1) {
            assert_eq!(mode, 0o600, "umask {umask}: {}", path.display());
        }
    }
}

/// The same with everything that a daemon leaves: nothing in `.rota` is anybody else's to read or write.
#[test]
fn a_daemon_under_an_open_umask() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'echo hello'}\n");
    under(&lab, "000", "loop add --kind ralph --id a").ok();
    let ran = under(&lab, "000", "up --until-idle --publish");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(states(&lab), ["a complete"]);
    assert_eq!(mode_of(lab.path().join(".rota")), 0o700);
    for name in ["rota.db", "rota.db-wal", "rota.db-shm", "rota.db-turn", "token", ".gitignore"] {
        assert_eq!(mode_of(lab.path().join(".rota").join(name)), 0o600, "{name}");
    }
    assert_eq!(mode_of(lab.path().join(".rota/run")), 0o700);
}

#[test]
fn a_group_may_read() {
    let lab = Lab::new();
    under(&lab, "000", "init --group").ok();
    let rota = lab.path().join(".rota");
    assert_eq!(mode_of(&rota), 0o750);
    under(&lab, "077", "task create a A").ok();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode_of(rota.join(format!("rota.db{suffix}"))), 0o640, "{suffix}");
    }
    assert_eq!(mode_of(rota.join("rota.db-turn")), 0o600, "a lock is for writers");
    let private = Lab::new();
    private.line("task create a A").ok();
    let refused = private.line("init --group");
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("exists with mode 700 and is left alone"), "{}", refused.stderr);
    assert!(!private.path().join("rota.yml").exists(), "nothing was changed");
}

/// Runs as somebody else, in this group.
fn as_other(lab: &Lab, uid: u32, gid: u32, line: &str) -> Ran {
    let program = lab.path().join("rota");
    copy_program(&program);
    let mut command = rota_in(&program, lab.path());
    command.uid(uid).gid(gid);
    feed(command.args(line.split(' ')), b"")
}

const NOBODY: u32 = 65_534;
/// Verbs that only read.
const READING: [&str; 7] =
    ["task list", "task show a", "task peek", "why a", "log", "doctor", "task plan-status"];

/// A user who may only read can use the verbs that read, whether or not somebody has the database open, and can hold
/// up nobody.
#[test]
fn a_reader_without_the_right_to_write() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become somebody else.
        return;
    }
    let lab = Lab::new();
    let ours = fs::metadata(lab.path()).unwrap().gid();
    fs::set_permissions(lab.path(), fs::Permissions::from_mode(0o755)).unwrap();
    lab.line("init --group").ok();
    lab.line("task create a A").ok();
    let check = |when: &str| {
        for line in READING {
            let ran = as_other(&lab, NOBODY, ours, line);
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{when}, {line}");
        }
        assert!(as_other(&lab, NOBODY, ours, "task list").ok().contains("\na "), "{when}");
        for line in ["task create x X", "task claim --agent w", "task delete a"] {
            let ran = as_other(&lab, NOBODY, ours, line);
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{when}, {line}");
            assert!(ran.stderr.contains("is read-only"), "{when}, {line}: {}", ran.stderr);
        }
    };
    check("nobody has it open");
    let server = Http::serve(&lab, &[]);
    assert_eq!(server.ask("GET", "/tasks/a", None).status, 200);
    check("a server has it open");
    drop(server);
    check("the server is gone");
    // Whoever is not in the group cannot even look, nor take a lock.
    for line in READING {
        let ran = as_other(&lab, NOBODY, NOBODY, line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}");
    }
    let turn = lab.path().join(".rota/rota.db-turn");
    for group in [NOBODY, ours] {
        let mut flock = Command::new("flock");
        let held = flock.args(["-n"]).arg(&turn).arg("true").uid(NOBODY).gid(group).output();
        assert!(held.is_ok_and(|output| !output.status.success()), "the turnstile is not theirs");
    }
}

/// A new `.rota` survives a power cut: the folder that it lies in is made durable, and so is the database's name.
#[test]
fn a_new_folder_is_durable() {
    let lab = Lab::new();
    let trace = lab.path().join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-e", "trace=fsync,fdatasync,mkdir,rename", "-o"]).arg(&trace);
    strace.arg(crate::support::ROTA).args(["task", "create", "a", "A"]);
    strace.env_clear().current_dir(lab.path());
    let Ok(output) = strace.output() else {
        // No strace here.
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("ptrace") {
        return;
    }
    assert!(output.status.success(), "{said}");
    let calls = fs::read_to_string(&trace).unwrap();
    let parent = lab.path().canonicalize().unwrap();
    let position = |what: &str| calls.find(what).unwrap_or_else(|| panic!("no {what} in:\n{calls}"));
    let synced = |path: &Path| position(&format!("<{}>)", path.display()));
    assert!(position("mkdir(") < synced(&parent), "{calls}");
    assert!(synced(&parent.join(".rota/rota.db-new")) < position("rename("), "{calls}");
    assert!(
        calls[position("rename(")..].contains(&format!("<{}>)", parent.join(".rota").display())),
        "{calls}"
    );
}

/// A daemon's socket and lock are its owner's alone.
#[test]
fn a_running_daemon() {
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'sleep 60'}\n");
    lab.line("loop add --kind ralph --id a").ok();
    let daemon = Daemon::start(&lab);
    until("it runs", || states(&lab) == ["a running"]);
    let run = lab.path().join(".rota/run");
    for (path, mode) in modes(&run) {
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    daemon.down(&lab);
}
