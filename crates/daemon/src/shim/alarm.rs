//! Waking up at a moment, also after the machine was suspended.

use std::io;
use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
#[cfg(target_os = "linux")]
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::boot::BootTime;

/// Where there is no timer that runs through suspend, we look this often.
const FLOOR: Duration =
    if cfg!(target_os = "linux") { Duration::from_secs(3_600) } else { Duration::from_secs(1) };

/// An alarm.
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: OwnedFd,
}

impl Alarm {
    /// Not set yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            #[cfg(target_os = "linux")]
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
        })
    }

    /// Sets it, and says how long a `poll` may take at most.
    pub fn set(&self, until: BootTime) -> io::Result<Timespec> {
        let wait = BootTime::now().until(until);
        #[cfg(target_os = "linux")]
        {
            let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            // A timer set to zero is off.
            let value = timespec(wait.max(Duration::from_micros(1)));
            let new = Itimerspec { it_interval: zero, it_value: value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &new)?;
        }
        Ok(timespec(wait.min(FLOOR)))
    }

    /// What becomes readable.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        #[cfg(target_os = "linux")]
        return Some(self.timer.as_fd());
        #[cfg(not(target_os = "linux"))]
        None
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    }
}
