//! Warnings that a store has for the people who run the program: the program says where they go.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often the same subject is warned of.
const AGAIN: Duration = Duration::from_secs(60);

static SINK: OnceLock<fn(&str)> = OnceLock::new();
static WARNED: Mutex<BTreeMap<&'static str, Instant>> = Mutex::new(BTreeMap::new());

/// Where warnings of this process go from now on; only the first call counts. Without it they are dropped.
pub fn send_warnings_to(sink: fn(&str)) {
    // A second sink would be a second opinion about where warnings go.
    let _is_first = SINK.set(sink);
}

/// Warns of something, at most once a minute for each subject.
pub(crate) fn warn(subject: &'static str, text: impl FnOnce() -> String) {
    let Some(sink) = SINK.get() else { return };
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.get(subject).is_some_and(|last| last.elapsed() < AGAIN) {
        return;
    }
    warned.insert(subject, Instant::now());
    drop(warned);
    sink(&text());
}
