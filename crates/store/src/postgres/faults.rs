//! What PostgreSQL and the pool report, in the words of a store.

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use super::PATIENCE;
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
            Fault::Busy { place, waited_secs: PATIENCE.as_secs() }
        }
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Fault::Away { place, problem },
        SqlState::DISK_FULL => Fault::Postgres { place, problem: format!("no space left: {problem}") },
        _ => Fault::Postgres { place, problem },
    }
}

/// Sorts an error of the pool.
pub(super) fn of_pool(place: &str, error: PoolError) -> Fault {
    match error {
        PoolError::Backend(error) => of(place, error),
        PoolError::Timeout(_) => Fault::Busy { place: place.to_owned(), waited_secs: PATIENCE.as_secs() },
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
