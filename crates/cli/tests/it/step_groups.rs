//! The agent and the validation run in control groups of their own: what ends one leaves the other alone.

use std::path::PathBuf;

use crate::daemon::{configure, started_for, states, until, up_until_idle};
use crate::support::{Lab, ROTA};

/// A group that was sent `cgroup.kill` kills what is started in it later. An agent that leaves a process behind has its
/// group killed; the validation must not be affected.
#[test]
fn validation_survives_an_agent_that_leaves_processes() {
    for lab in [Lab::new(), Lab::of_ordinary_user()] {
        configure(
            &lab,
            "  ralph: {run: 'sleep 1000 & setsid sleep 1000 & echo fine', validate: 'test -e rota.yml', max_iterations: 1}\n",
        );
        let ids: Vec<String> = (0..5).map(|n| format!("r{n}")).collect();
        for id in &ids {
            lab.line(&format!("loop add --kind ralph --id {id}")).ok();
        }
        let ran = up_until_idle(&lab);
        let wanted: Vec<String> = ids.iter().map(|id| format!("{id} complete")).collect();
        assert_eq!(states(&lab), wanted, "{}", ran.stderr);
        assert_eq!(started_for(&lab), Vec::<u32>::new());
    }
}

/// Where version 2 of control groups is mounted.
fn mounted() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(PathBuf::from(line.split(' ').nth(4)?))
}

/// The daemon's own group may have been killed once, before the daemon came into it.
#[test]
fn a_daemon_in_a_group_that_was_once_killed() {
    let Some(group) = mounted().map(|root| root.join(format!("rota-test-{}", std::process::id()))) else {
        eprintln!("no control groups here");
        return;
    };
    if std::fs::create_dir(&group).is_err() {
        eprintln!("control groups cannot be made here");
        return;
    }
    std::fs::write(group.join("cgroup.kill"), "1").unwrap();
    let lab = Lab::new();
    configure(&lab, "  ralph: {run: 'sleep 1000 & echo fine', validate: ['true'], max_iterations: 1}\n");
    lab.line("loop add --kind ralph --id r").ok();
    let script = format!("echo $$ > {}/cgroup.procs && exec {ROTA} up --until-idle", group.display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).current_dir(lab.path()).env("ROTA_HOST", "test-host");
    let ran = command.output().unwrap();
    assert_eq!(states(&lab), ["r complete"], "{}", String::from_utf8_lossy(&ran.stderr));
    let below = std::fs::read_dir(&group).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(below.count(), 0, "the groups of the run are removed");
    until("the group is empty", || std::fs::remove_dir(&group).is_ok());
}
