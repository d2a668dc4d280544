//! The permit: a slot, held for as long as the value lives.

use std::sync::Arc;
use std::time::Duration;

use super::desk::Desk;
use super::{Advice, NotRunning, Outcome, Ticket, Usage};

/// One slot of the gate. Dropping it frees the slot, also while a panic unwinds.
///
/// A permit that is dropped without a report counts as a request that failed: it says nothing about
/// the upstream's limits.
#[derive(Debug)]
#[must_use = "a dropped permit frees its slot"]
pub struct Permit {
    /// Gone once the request has been reported.
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

    /// Says how the request ended, frees the slot, and answers what to do next.
    ///
    /// # Errors
    /// The request was already ended by its name; nothing was freed a second time.
    pub fn report(mut self, outcome: Outcome) -> Result<Advice, NotRunning> {
        match self.desk.take() {
            Some(desk) => desk.finish(self.ticket, outcome),
            None => Err(NotRunning),
        }
    }

    /// Counts tokens the response has reported so far, before it ends. What is counted here is not to
    /// be reported again at the end.
    ///
    /// # Errors
    /// The request was already ended by its name; nothing was counted.
    pub fn count(&self, usage: Usage) -> Result<(), NotRunning> {
        let desk = self.desk.as_ref().ok_or(NotRunning)?;
        desk.with(|gate, now| gate.count(now, self.ticket, usage))
    }

    /// Lets no other request of the same group start for a while, because the response said that little of
    /// the provider's budget is left. At most a minute: what is really used up is said by a 429.
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
            // An error only means that the request was ended by its name before.
            let _ = desk.finish(self.ticket, Outcome::Failed);
        }
    }
}
