//! Which process is meant. A number alone may belong to somebody else by now.

use std::fs::File;
use std::io::Read;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::boot;

/// A process, for good: its number, when it was started, and under which start of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it was started, in the kernel's own ticks.
    pub start_time: u64,
    /// Of the machine.
    pub boot_id: String,
}

impl Identity {
    /// Of a process that is there.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_time: start_time(pid)?, boot_id: boot::id().to_owned() })
    }

    /// Whether it still is.
    pub fn is_alive(&self) -> bool {
        self.boot_id == boot::id() && start_time(self.pid) == Some(self.start_time)
    }

    /// Sends a signal to it and to nobody else.
    pub fn signal(&self, signal: Signal) {
        #[cfg(target_os = "linux")]
        {
            let Some(process) = self.open() else { return };
            let _sent = rustix::process::pidfd_send_signal(process, signal);
        }
        #[cfg(not(target_os = "linux"))]
        if let Some(pid) = self.number().filter(|_| self.is_alive()) {
            let _sent = rustix::process::kill_process(pid, signal);
        }
    }

    /// The process itself, which stays what it is when its number goes to somebody else; it can be read from once it has
    /// ended.
    #[cfg(target_os = "linux")]
    pub fn open(&self) -> Option<std::os::fd::OwnedFd> {
        use rustix::process::{PidfdFlags, pidfd_open};
        // What is looked at after opening is what was opened, or it has ended.
        pidfd_open(self.number()?, PidfdFlags::empty()).ok().filter(|_| self.is_alive())
    }

    fn number(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }
}

/// When a process was started, as `/proc` says.
pub fn start_time(pid: u32) -> Option<u64> {
    Stat::of(pid).map(|stat| stat.start_time)
}

/// What we read of `/proc/<pid>/stat`.
pub struct Stat {
    /// Its parent.
    pub parent: u32,
    /// When it was started.
    pub start_time: u64,
    /// Whether it has ended and waits to be reaped.
    pub is_zombie: bool,
    /// Whether it was stopped, by a signal or by a tracer.
    pub is_stopped: bool,
}

impl Stat {
    /// Of a process that is there.
    pub fn of(pid: u32) -> Option<Self> {
        // In one go: the kernel writes it anew for each.
        let mut text = [0; 1_024];
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut text).ok()?;
        Self::parse(&String::from_utf8_lossy(&text[..length]))
    }

    /// The name is in parentheses and may hold anything, parentheses too.
    fn parse(text: &str) -> Option<Self> {
        let (_, behind) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind.split_whitespace().collect();
        Some(Self {
            is_zombie: *fields.first()? == "Z",
            is_stopped: matches!(*fields.first()?, "T" | "t"),
            parent: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Every process there is.
pub fn all() -> impl Iterator<Item = u32> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten();
    listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let behind = "S 7 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 424242 21";
        let stat = Stat::parse(&format!("12 (a) b) (c) {behind}"));
        assert!(stat.is_some_and(|stat| stat.parent == 7 && stat.start_time == 424_242 && !stat.is_zombie));
        assert!(Stat::parse("12 (a").is_none() && Stat::parse("12 (a) S 7").is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn somebody_else_under_the_same_number_is_left_alone() {
        let mut child =
            std::process::Command::new("sleep").arg("60").spawn().unwrap_or_else(|error| panic!("{error}"));
        let Some(us) = Identity::of(child.id()) else { panic!("no identity") };
        assert!(us.is_alive());
        for other in [
            Identity { start_time: us.start_time + 1, ..us.clone() },
            Identity { boot_id: "another".to_owned(), ..us.clone() },
        ] {
            assert!(!other.is_alive());
            other.signal(Signal::KILL);
        }
        assert!(matches!(child.try_wait(), Ok(None)), "it was not signalled");
        us.signal(Signal::KILL);
        assert!(child.wait().is_ok_and(|status| !status.success()));
        assert!(!us.is_alive());
    }
}
