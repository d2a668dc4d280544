//! The only place that reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use rota_core::UnixMillis;

/// The host's wall clock.
#[allow(clippy::disallowed_methods, reason = "this is the one clock of the house")]
pub fn system_now() -> UnixMillis {
    let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    };
    UnixMillis::new(millis.saturating_add(skew()))
}

/// How wrong the host's clock is, for tests of hosts that disagree.
#[cfg(feature = "crash-points")]
static SKEW_MS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

/// Sets the host's clock wrong from now on, in this process.
#[cfg(feature = "crash-points")]
pub fn set_skew_ms(by: i64) {
    SKEW_MS.store(by, std::sync::atomic::Ordering::SeqCst);
}

#[cfg(feature = "crash-points")]
fn skew() -> i64 {
    SKEW_MS.load(std::sync::atomic::Ordering::SeqCst)
}

/// This program was built without a clock that can be wrong on purpose.
#[cfg(not(feature = "crash-points"))]
const fn skew() -> i64 {
    0
}
