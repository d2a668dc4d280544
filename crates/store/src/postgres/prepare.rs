//! Whether statements may be prepared.
//!
//! A pooler in transaction mode (PgBouncer) runs each transaction on any free server connection, where the name of a
//! prepared statement may be unknown or belong to another client. A pooler is detected while connecting
//! ([`super::connect`]), before anything is prepared; one that escapes detection is recognised by its errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio_postgres::error::SqlState;

const UNDECIDED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// Whether statements are prepared. Shared by all connections of a store.
#[derive(Clone)]
pub(super) struct Prepare {
    state: Arc<AtomicU8>,
    is_fixed: bool,
}

impl Prepare {
    /// Prepare, unless a pooler is detected.
    pub fn auto() -> Self {
        Self { state: Arc::new(AtomicU8::new(UNDECIDED)), is_fixed: false }
    }

    /// Always prepare.
    pub fn on() -> Self {
        Self { state: Arc::new(AtomicU8::new(ON)), is_fixed: true }
    }

    /// Never prepare.
    pub fn off() -> Self {
        Self { state: Arc::new(AtomicU8::new(OFF)), is_fixed: true }
    }

    /// Records what a new connection showed; once off, it stays off.
    pub fn decide(&self, direct: bool) {
        if !self.is_fixed {
            let next = if direct { ON } else { OFF };
            self.state.fetch_max(next, Ordering::AcqRel);
        }
    }

    /// Whether to prepare.
    pub fn by_name(&self) -> bool {
        self.state.load(Ordering::Acquire) == ON
    }
}

/// Errors of statements whose name the server does not know, knows already, or knows as something else.
pub(super) fn names_broke(error: &tokio_postgres::Error) -> bool {
    let Some(server) = error.as_db_error() else { return false };
    match server.code() {
        &SqlState::INVALID_SQL_STATEMENT_NAME
        | &SqlState::DUPLICATE_PSTATEMENT
        | &SqlState::PROTOCOL_VIOLATION => true,
        // The tables changed under a statement that was compiled before.
        &SqlState::FEATURE_NOT_SUPPORTED => server.message().contains("cached plan"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_off_it_stays_off() {
        let prepare = Prepare::auto();
        assert!(!prepare.by_name());
        prepare.decide(true);
        assert!(prepare.by_name());
        prepare.decide(false);
        prepare.decide(true);
        assert!(!prepare.by_name());
        let fixed = Prepare::on();
        fixed.decide(false);
        assert!(fixed.by_name());
    }
}
