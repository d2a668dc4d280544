//! The only clock of the handle, and the timer of a waiter. Both follow tokio's paused clock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::Moment;

/// Timers are never set further ahead than this; a waiter that wakes early checks again.
const FURTHEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Converts the runtime's instants into the gate's moments.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub fn now(&self) -> Moment {
        let elapsed = self.origin.elapsed();
        let micros =
            elapsed.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(elapsed.subsec_micros()));
        Moment::from_micros(micros)
    }

    /// A timer that fires at `at`, never earlier than that unless `at` is more than a day ahead.
    pub fn timer(&self, at: Moment) -> Timer {
        let ahead = at.since(self.now()).min(FURTHEST);
        let deadline = if ahead == FURTHEST { Instant::now() + FURTHEST } else { self.instant(at) };
        Timer { at, sleep: Box::pin(sleep_until(deadline)) }
    }

    fn instant(&self, at: Moment) -> Instant {
        self.origin + at.since(Moment::ZERO)
    }
}

/// One timer, owned by the waiter that needs it.
#[derive(Debug)]
pub(crate) struct Timer {
    at: Moment,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    pub fn is_set_for(&self, at: Moment) -> bool {
        self.at == at
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(context)
    }
}
