//! The permit: a slot, held for as long as the value lives.

use std::sync::Arc;
use std::time::Duration;

use super::desk::Desk;
use super::{Advice, NotRunning, Outcome, Ticket, Usage};

/// One slot of the gate. Dropping it frees the slot, also during a panic.
///
/// A permit that is dropped without a report counts as a failed request, which implies nothing about the upstream's
/// limits.
#[derive(Debug)]
#[must_use = "a dropped permit frees its slot"]
pub struct Permit {
    /// `None` once the request has been reported.
    desk: Option<Arc<Desk>>,
    ticket: Ticket,
    waited: Duration,
}

impl Permit {
    pub(crate) fn new(desk: Arc<Desk>, ticket: Ticket, waited: Duration) -> Self {
        Self { desk: Some(desk), ticket, waited }
    }

    /// How long the request waited for its slot.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Reports how the request ended, frees the slot, and returns the advice.
    ///
    /// # Errors
    /// The request was already ended by its name; nothing was freed again.
    pub fn report(mut self, outcome: Outcome) -> Result<Advice, NotRunning> {
        match self.desk.take() {
            Some(desk) => desk.finish(self.ticket, outcome),
            None => Err(NotRunning),
        }
    }

    /// Counts tokens that the response has reported so far. Do not report them again at the end.
    ///
    /// # Errors
    /// The request was already ended by its name; nothing was counted.
    pub fn count(&self, usage: Usage) -> Result<(), NotRunning> {
        let desk = self.desk.as_ref().ok_or(NotRunning)?;
        desk.with(|gate, now| gate.count(now, self.ticket, usage))
    }

    /// Prevents other requests of the same group from starting for a while, because the response reported little
    /// remaining budget. At most a minute: real exhaustion causes a 429.
    ///
    /// # Errors
    /// The request was already ended by its name; nothing changed.
    pub fn hold_back(&self, wait: Duration) -> Result<(), NotRunning> {
        let desk = self.desk.as_ref().ok_or(NotRunning)?;
        desk.with(|gate, now| gate.hold_back(now, self.ticket, wait))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.take() {
            // An error only means that the request was already ended by its name.
            let _ = desk.finish(self.ticket, Outcome::Failed);
        }
    }
}
