//! The default store: one SQLite file, shared by any number of processes on one host.
//!
//! Every commit is durable before it is acknowledged (`synchronous=FULL`). Writers queue at a turnstile instead of
//! polling SQLite's lock, so none starves and none sees "busy". Choosing is served from the partial indexes of the
//! schema, whatever the backlog.

mod alone;
mod backup;
mod heads;
mod in_context;
mod many;
mod open;
mod ralph;
mod row;
mod sql;
mod turn;
mod tx;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use crate::fault::Fault;
use crate::store::{Access, Pending, Store, Work, carry_out_once};
use crate::tx::AnyTx;
use crate::tx::Published;
use turn::Turn;

pub use open::schema_at;
pub use ralph::{Foreign, RalphDatabase, look_into};
pub use tx::SqliteTx;
pub use watch::DataVersion;

/// The newest schema this program knows.
pub const SCHEMA: i64 = open::MIGRATIONS.len() as i64;

/// How long a caller waits for its turn before it hears "busy".
const PATIENCE: Duration = Duration::from_secs(30);

/// A SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    idle: Mutex<Vec<Session>>,
    policy: Mutex<Option<(String, Arc<Published>)>>,
}

/// A connection with its own ticket for the turnstile.
struct Session {
    connection: Connection,
    turn: Turn,
}

impl SqliteStore {
    /// Opens a file, makes it if there is none, and brings its schema up to date.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let session = open::session(path)?;
        let shared =
            Shared { path: path.to_owned(), idle: Mutex::new(vec![session]), policy: Mutex::new(None) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// For tests: the idle connections may let the file grow to so many pages, as if the disk were full then.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn limit_pages(&self, pages: u32) {
        for session in self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let limited = session.connection.pragma_update(None, "max_page_count", pages);
            assert!(limited.is_ok(), "{limited:?}");
        }
    }
}

/// For tests of query plans: the statements of claiming and settling, each with the index that must serve it.
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub fn statements() -> Vec<(&'static str, &'static str, &'static str)> {
    [sql::SERVED, &sql::ForMany::served()].concat()
}

impl Shared {
    fn take(&self) -> Result<Session, Fault> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open::session(&self.path), Ok)
    }

    fn put(&self, session: Session) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }

    fn fault(&self, error: rusqlite::Error) -> Fault {
        fault(&self.path, error)
    }
}

impl Store for SqliteStore {
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>> {
        Box::pin(async move {
            let tx = SqliteTx::begin(Arc::clone(&self.shared), access)?;
            Ok(AnyTx::Sqlite(Box::new(tx)))
        })
    }

    fn carry_out<'a>(&'a self, work: &'a mut dyn Work) -> Pending<'a, Result<(), Fault>> {
        carry_out_once(self, work)
    }
}

/// What SQLite reports, in the words of a store.
fn fault(path: &Path, error: rusqlite::Error) -> Fault {
    let path = path.to_owned();
    let Some(code) = error.sqlite_error_code() else { return Fault::Sqlite { path, source: error } };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Fault::Busy { place: path.display().to_string(), waited_secs: PATIENCE.as_secs() }
        }
        ErrorCode::ReadOnly => Fault::ReadOnly { path },
        ErrorCode::DiskFull => Fault::Full { path },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Fault::Corrupt { path, problem: error.to_string() }
        }
        ErrorCode::PermissionDenied | ErrorCode::CannotOpen | ErrorCode::AuthorizationForStatementDenied => {
            Fault::Forbidden { path, problem: error.to_string() }
        }
        _ => Fault::Sqlite { path, source: error },
    }
}
