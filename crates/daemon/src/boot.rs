//! A clock that starts with the machine, runs through suspend, and means the same in every process: what a lease's end
//! is told by between a daemon and its shims.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Milliseconds since the machine was started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct BootTime(u64);

impl BootTime {
    /// Now.
    pub fn now() -> Self {
        // On macOS the monotonic clock counts sleep.
        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::Monotonic;
        let time = clock_gettime(CLOCK);
        Self(time.tv_sec.unsigned_abs() * 1_000 + time.tv_nsec.unsigned_abs() / 1_000_000)
    }

    /// As a number.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// So much later.
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long until then; nothing if it has passed.
    pub fn until(self, then: Self) -> Duration {
        Duration::from_millis(then.0.saturating_sub(self.0))
    }
}

/// Which start of the machine this is; processes and times of another one mean nothing.
pub fn id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        // Without one, times still come from one start only, because the folder that holds them does.
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| String::new(), |id| id.trim().to_owned())
    })
}
