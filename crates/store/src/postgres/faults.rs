//! What PostgreSQL and the pool report, in the words of a store.

use std::time::Duration;

use deadpool::managed::{PoolError, TimeoutType};
use tokio_postgres::error::SqlState;

use super::TIMEOUT;
use crate::fault::Fault;

/// Sorts an error of the server or the connection.
pub(super) fn of(place: &str, error: tokio_postgres::Error) -> Fault {
    let place = place.to_owned();
    let Some(code) = error.code().cloned() else {
        return Fault::Away { place, problem: text(&error) };
    };
    let problem = text(&error);
    match code {
        // Two transactions met: unique violations are races too, because what was read before said otherwise.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::UNIQUE_VIOLATION => Fault::LostRace { place, problem },
        SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED => {
            Fault::Busy { place, waited_secs: TIMEOUT.as_secs() }
        }
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        // A primary that became a standby while we were connected.
        | SqlState::READ_ONLY_SQL_TRANSACTION => Fault::Away { place, problem },
        SqlState::DISK_FULL => Fault::Postgres { place, problem: format!("no space left: {problem}") },
        _ => Fault::Postgres { place, problem },
    }
}

/// Whether the connection was lost, so that what was asked last may have been done. An error that the server sends in
/// answer to a statement says that it was not; only a crash may be announced after the deed.
pub(super) fn is_lost(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| *code == SqlState::CRASH_SHUTDOWN)
}

/// Sorts an error of the pool.
pub(super) fn of_pool(place: &str, waited: Duration, error: PoolError<Fault>) -> Fault {
    match error {
        PoolError::Backend(fault) => fault,
        PoolError::Timeout(TimeoutType::Wait) => {
            Fault::Busy { place: place.to_owned(), waited_secs: waited.as_secs() }
        }
        PoolError::Timeout(_) => {
            Fault::Away { place: place.to_owned(), problem: "it does not answer".to_owned() }
        }
        other => Fault::Away { place: place.to_owned(), problem: other.to_string() },
    }
}

/// The server's own words where there are any: the outer error only says "db error".
fn text(error: &tokio_postgres::Error) -> String {
    if let Some(server) = error.as_db_error() {
        return format!("{} ({})", server.message(), server.code().code());
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
