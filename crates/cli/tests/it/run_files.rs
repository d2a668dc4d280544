//! Files of Rota's own outside the folders of agents, replaced by a process of the same user: links, hard links, FIFOs,
//! devices, sockets and directories. Nothing is written or waited for through them.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::daemon::{configure, read};
use crate::support::{Lab, Ran};

const KINDS: [&str; 7] = ["profile", "new", "fifo", "zero", "hardlink", "socket", "directory"];

/// Longer than a command takes that waits for nothing, however busy the machine.
const IN_TIME: Duration = Duration::from_secs(60);

/// Puts an entry of a kind in the place of a file.
fn plant(lab: &Lab, at: &Path, kind: &str) {
    let outside = lab.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::fs::write(outside.join("profile"), "profile\n").unwrap();
    if at.is_dir() {
        std::fs::remove_dir_all(at).unwrap();
    }
    std::fs::remove_file(at).ok();
    match kind {
        "profile" | "new" => std::os::unix::fs::symlink(outside.join(kind), at).unwrap(),
        "zero" => std::os::unix::fs::symlink("/dev/zero", at).unwrap(),
        "hardlink" => std::fs::hard_link(outside.join("profile"), at).unwrap(),
        "fifo" => assert!(Command::new("mkfifo").arg(at).status().unwrap().success()),
        "socket" => drop(UnixListener::bind(at).unwrap()),
        _ => std::fs::create_dir_all(at.join("inner")).unwrap(),
    }
}

/// Runs a command over a planted entry: it ends in time, and nothing outside is touched.
fn run_over(lab: &Lab, file: &str, kind: &str, line: &str) -> Ran {
    plant(lab, &lab.path().join(file), kind);
    let begun = Instant::now();
    let ran = lab.line(line);
    assert!(begun.elapsed() < IN_TIME, "{line} with {kind} as {file}");
    assert_eq!(read(lab.path().join("outside/profile")), "profile\n", "{line} with {kind} as {file}");
    assert!(!lab.path().join("outside/new").exists(), "{line} with {kind} as {file}");
    ran
}

#[test]
fn the_files_of_a_daemon() {
    for lab in [Lab::new(), Lab::of_ordinary_user()] {
        configure(&lab, "  ralph: {run: 'true'}\n");
        lab.line("loop add --kind ralph --id a").ok();
        assert_eq!(lab.line("up --until-idle --publish").code, 0);
        for kind in KINDS {
            let noted = run_over(&lab, ".rota/run/serve", kind, "up --until-idle");
            assert_eq!(noted.code, i32::from(kind == "directory"), "{kind}: {}", noted.stderr);
            std::fs::remove_dir_all(lab.path().join(".rota/run/serve")).ok();
            let locked = run_over(&lab, ".rota/run/rota.lock", kind, "up --until-idle");
            assert_ne!(locked.code, 0, "{kind}");
            assert!(locked.stderr.contains(".rota/run"), "{kind}: {}", locked.stderr);
            std::fs::remove_dir_all(lab.path().join(".rota/run/rota.lock")).ok();
            std::fs::remove_file(lab.path().join(".rota/run/rota.lock")).ok();
        }
        assert_eq!(lab.line("up --until-idle").code, 0, "it starts again without them");
    }
}

/// `rota.yml` may be a link; a FIFO or a device in its place is refused by every command that reads it.
#[test]
fn the_configuration() {
    let lab = Lab::new();
    lab.line("task create a A").ok();
    for kind in ["fifo", "zero", "socket", "directory"] {
        for line in ["up --until-idle", "work --until-empty -- true", "loop list"] {
            let ran = run_over(&lab, "rota.yml", kind, line);
            assert_ne!(ran.code, 0, "{kind}, {line}");
            assert!(ran.stderr.contains("rota.yml"), "{kind}, {line}: {}", ran.stderr);
        }
    }
    plant(&lab, &lab.path().join("rota.yml"), "profile");
    std::fs::write(lab.path().join("outside/profile"), "scope: linked\n").unwrap();
    assert_eq!(lab.line("loop list").code, 0, "a link to a regular file is read");
}

/// The plain copy of the policy is kept out of commits without touching what an agent put into the repository.
#[test]
fn the_copy_of_the_policy() {
    let lab = Lab::new();
    let git = |words: &str| {
        let ran = Command::new("git").args(words.split(' ')).current_dir(lab.path()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    git("init -q");
    for kind in KINDS {
        for file in [".git/info/exclude", ".git/index"] {
            let ran = run_over(&lab, file, kind, "sched policy set --maxConcurrent 2");
            assert_eq!(ran.code, 0, "{kind}, {file}: {}", ran.stderr);
            std::fs::remove_dir_all(lab.path().join(file)).ok();
            std::fs::remove_file(lab.path().join(file)).ok();
        }
    }
    // Every command looks for the root of the repository.
    for kind in ["fifo", "zero", "socket"] {
        std::fs::remove_dir_all(lab.path().join(".git")).ok();
        let ran = run_over(&lab, ".git", kind, "sched policy set --maxConcurrent 2");
        assert_eq!(ran.code, 0, "{kind}: {}", ran.stderr);
    }
}
