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
    UnixMillis::new(millis)
}
