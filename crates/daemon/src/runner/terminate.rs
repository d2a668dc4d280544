//! Ending a program: everything in its process group is asked, then told.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// How long those who are asked may take.
pub const GRACE: Duration = Duration::from_secs(10);

/// How urgently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Urgency {
    /// TERM, and KILL after the grace.
    Ask,
    /// KILL.
    Tell,
}

/// Sends a signal to every process of a group; one that has none left is no error.
pub fn signal_group(leader: u32, urgency: Urgency) {
    let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) else { return };
    let signal = match urgency {
        Urgency::Ask => Signal::TERM,
        Urgency::Tell => Signal::KILL,
    };
    // Nobody there to get it is what was wanted.
    let _sent = kill_process_group(leader, signal);
}
