//! Ending a program, and all that it started: everything below a shim is asked, then told. Where the shim is gone or
//! stopped, its daemon or the process that it was forked from ends the run. Foreign processes are never signalled.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::shim::cgroup;
use crate::shim::identity::{self, Identity, Stat};
use crate::shim::record::{Began, MARKER};

/// How long those who are asked may take.
pub const GRACE: Duration = Duration::from_secs(10);
/// How often what appears while it is being ended is looked for again.
const ROUNDS: usize = 50;

/// How urgently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// TERM, and KILL after the grace.
    Ask,
    /// KILL.
    Tell,
}

impl Urgency {
    const fn signal(self) -> Signal {
        match self {
            Self::Ask => Signal::TERM,
            Self::Tell => Signal::KILL,
        }
    }
}

/// Sends a signal to every process of a group; one that has none left is no error. The group's leader must be our child,
/// so that its number cannot be anybody else's.
pub fn signal_group(leader: u32, urgency: Urgency) {
    let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) else { return };
    // Nobody there to get it is what was wanted.
    let _sent = kill_process_group(leader, urgency.signal());
}

/// Sends a signal to everything below this process, wherever it went: who loses its parent becomes our child, because a
/// shim is a subreaper. Returns how many there were.
pub fn signal_below(urgency: Urgency) -> usize {
    let below = below(std::process::id());
    below.iter().for_each(|process| process.signal(urgency.signal()));
    below.len()
}

/// All that descends from a process and has not ended.
fn below(ancestor: u32) -> Vec<Identity> {
    let mut children: BTreeMap<u32, Vec<(u32, Stat)>> = BTreeMap::new();
    for pid in identity::all() {
        if let Some(stat) = Stat::of(pid) {
            children.entry(stat.parent).or_default().push((pid, stat));
        }
    }
    let boot_id = crate::boot::id();
    let (mut found, mut next) = (Vec::new(), vec![ancestor]);
    while let Some(parent) = next.pop() {
        for (pid, stat) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if !stat.is_zombie {
                found.push(Identity { pid, start_time: stat.start_time, boot_id: boot_id.to_owned() });
            }
        }
    }
    found
}

/// Ends a run without its shim, which is gone or stopped: its control group, its program, all that descends from the shim,
/// and whatever carries the run's marker. Returns how many processes were still there at the end.
pub fn end_without_shim(marker: &str, began: Option<&Began>) -> usize {
    let group = began.and_then(|began| began.cgroup.as_deref());
    let mut left = 0;
    for _ in 0..ROUNDS {
        if let Some(group) = group {
            cgroup::kill(group);
        }
        let mut strays = marked(marker);
        strays.extend(began.and_then(|began| began.shim.as_ref()).map(descendants).unwrap_or_default());
        strays.extend(began.and_then(|began| began.agent.clone()).filter(has_not_ended));
        left = strays.len();
        if left == 0 {
            break;
        }
        strays.iter().for_each(|process| process.signal(Signal::KILL));
        std::thread::sleep(Duration::from_millis(10));
    }
    if let Some(group) = group {
        cgroup::remove(group);
    }
    left
}

/// All that descends from a shim, which adopts what loses its parent also while it is stopped. A shim that is gone has none.
fn descendants(shim: &Identity) -> Vec<Identity> {
    if shim.is_alive() { below(shim.pid) } else { Vec::new() }
}

/// The processes that carry a marker and have not ended. Who it is comes first, so that a number that is given to
/// somebody else meanwhile is nobody's.
fn marked(marker: &str) -> Vec<Identity> {
    let wanted = format!("{MARKER}={marker}");
    let carries = |process: &Identity| {
        let seen = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_else(|_| Vec::new());
        seen.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let others = identity::all().filter(|pid| *pid != std::process::id());
    others.filter_map(Identity::of).filter(|process| carries(process) && has_not_ended(process)).collect()
}

/// A stopped shim reaps nobody, so that a process that has ended may still have its number.
fn has_not_ended(process: &Identity) -> bool {
    process.is_alive() && Stat::of(process.pid).is_some_and(|stat| !stat.is_zombie)
}
