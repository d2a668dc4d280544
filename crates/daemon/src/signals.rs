//! The signals that ask a program of ours to stop: the first politely, the second at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::runner::terminate::Urgency;

/// TERM and INT.
pub struct Signals {
    term: Signal,
    int: Signal,
    seen: u32,
}

impl Signals {
    /// From now on they are ours.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())?, seen: 0 })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Urgency {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
        self.seen += 1;
        if self.seen == 1 { Urgency::Ask } else { Urgency::Tell }
    }
}
