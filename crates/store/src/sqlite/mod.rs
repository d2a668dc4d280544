//! The default store: one SQLite file, shared by any number of processes on one host.
//!
//! Every commit is durable before it is acknowledged (`synchronous=FULL`). Writers queue at a turnstile instead of
//! polling SQLite's lock, so none starves and none sees "busy". Choosing is served from the partial indexes of the
//! schema, whatever the backlog.

mod backup;
mod clock;
mod create;
mod heads;
mod identity;
mod in_context;
mod log;
mod many;
mod open;
mod place;
mod ralph;
mod row;
mod session;
mod sql;
mod turn;
mod tx;
mod watch;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use crate::batcher::Batcher;
use crate::fault::Fault;
use crate::store::{Access, ErasedIntent, Pending, Store, execute_in_place};
use crate::tx::AnyTx;
use crate::tx::Published;
use identity::{Files, Pinned};
use log::ReadLimit;
use place::Place;
use turn::Turn;

pub use clock::ClockBehind;
pub use log::LIMIT_BYTES as LOG_LIMIT_BYTES;
pub use open::schema_at;
pub use ralph::{Foreign, RalphDatabase, look_into};
pub use tx::SqliteTx;
pub use watch::DataVersion;

/// The schema's number. Earlier builds had 1 to 4; none of them was released.
pub const SCHEMA: i64 = 5;

/// How long a caller waits for its turn before it hears "busy".
const TIMEOUT: Duration = Duration::from_secs(30);

/// A SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    pub(crate) batcher: Option<Arc<Batcher>>,
}

struct Shared {
    path: PathBuf,
    /// The file that the first session opened; every other one must have the same.
    database: OnceLock<Pinned>,
    /// The files of the sessions that are open and can write.
    files: Mutex<Weak<Files>>,
    idle: Mutex<Vec<Session>>,
    policy: Mutex<Option<(String, Arc<Published>)>>,
    /// Whether this process has committed anything.
    has_written: AtomicBool,
    /// How long the log was when a writer last tried to begin it anew.
    log_tried_bytes: Mutex<u64>,
}

/// A connection with its own ticket for the turnstile.
struct Session {
    connection: Connection,
    /// None in the stand-in for a database that does not exist yet.
    files: Option<Arc<Files>>,
    is_read_only: bool,
    read_limit: ReadLimit,
    /// Opened by the first write: whoever may only read has no business there.
    turn: OnceCell<Turn>,
}

impl Session {
    fn turn(&self, path: &Path) -> Result<&Turn, Fault> {
        if let Some(turn) = self.turn.get() {
            return Ok(turn);
        }
        // A turnstile beside a database that is gone would look like one that lost its database.
        if let Some(files) = &self.files {
            files.check()?;
        }
        let turn = Turn::open(path)?;
        Ok(self.turn.get_or_init(|| turn))
    }
}

impl SqliteStore {
    /// Opens a file, makes it if there is none, and brings its schema up to date.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        Self::open_for(path, Access::Write)
    }

    /// The same, but a file that does not exist is only made by the first write; until then the store is empty.
    pub fn open_lazily(path: &Path) -> Result<Self, Fault> {
        Self::open_for(path, Access::Read)
    }

    fn open_for(path: &Path, access: Access) -> Result<Self, Fault> {
        let shared = Shared {
            path: path.to_owned(),
            database: OnceLock::new(),
            files: Mutex::new(Weak::new()),
            idle: Mutex::new(Vec::new()),
            policy: Mutex::new(None),
            has_written: AtomicBool::new(false),
            log_tried_bytes: Mutex::new(0),
        };
        let session = shared.connect(access)?;
        shared.put(session);
        Ok(Self { shared: Arc::new(shared), batcher: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// How long the log is, in bytes.
    pub fn log_bytes(&self) -> u64 {
        let log = identity::real_path(self.path()).map(|path| identity::beside(&path, "-wal"));
        log.ok().and_then(|log| log.metadata().ok()).map_or(0, |found| found.len())
    }

    /// For tests: the idle connections may let the file grow to so many pages, as if the disk were full then.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn limit_pages(&self, pages: u32) {
        for session in self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let limited = session.connection.pragma_update(None, "max_page_count", pages);
            assert!(limited.is_ok(), "{limited:?}");
        }
    }
}

/// For tests of query plans: the statements of claiming and settling, each with the index that must serve it.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub fn statements() -> Vec<(&'static str, &'static str, &'static str)> {
    [sql::SERVED, &sql::ForMany::served()].concat()
}

impl Shared {
    fn take(&self, access: Access) -> Result<Session, Fault> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.connect(access), Ok)
    }

    fn connect(&self, access: Access) -> Result<Session, Fault> {
        let is_known = self.database.get().is_some();
        let session = match place::look(&self.path) {
            Ok(Place::Absent) | Err(Fault::Missing { .. }) if is_known => {
                return Err(self.displaced("removed"));
            }
            Ok(Place::Absent) if access != Access::Write => return open::stand_in(&self.path),
            Ok(Place::Absent) => {
                create::create(&self.path)?;
                open::session(&self.path)?
            }
            Ok(Place::Present) => open::session(&self.path)?,
            Err(fault) => return Err(fault),
        };
        self.compare(session)
    }

    /// Compares a new session with those before it.
    fn compare(&self, mut session: Session) -> Result<Session, Fault> {
        let Some(found) = &session.files else { return Ok(session) };
        if self.database.get().is_none() {
            let pinned = Pinned::at(&self.path)?;
            self.database.get_or_init(|| pinned);
        }
        if self.database.get().is_none_or(|pinned| pinned.id() != found.id()) {
            return Err(self.displaced("replaced"));
        }
        if session.is_read_only {
            return Ok(session);
        }
        // The connections of a process to one file share its index: a new one uses the index of those that are open,
        // whatever file has that name by now.
        let mut open = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match open.upgrade() {
            Some(files) => {
                files.check()?;
                session.files = Some(files);
            }
            None => *open = Arc::downgrade(found),
        }
        Ok(session)
    }

    fn displaced(&self, how: &'static str) -> Fault {
        Fault::Displaced { path: self.path.clone(), file: self.path.clone(), how }
    }

    /// Keeps a session for the next transaction. A stand-in is not kept: by then there may be a database.
    fn put(&self, session: Session) {
        if session.files.is_some() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }

    fn fault(&self, error: rusqlite::Error) -> Fault {
        fault(&self.path, error)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.has_written.get_mut()
            && let Some(session) = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).pop()
        {
            session.checkpoint_if_cheap(&self.path);
        }
    }
}

impl Store for SqliteStore {
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>> {
        Box::pin(async move {
            let tx = SqliteTx::begin(Arc::clone(&self.shared), access)?;
            Ok(AnyTx::Sqlite(Box::new(tx)))
        })
    }

    fn execute<'a>(&'a self, intent: &'a mut dyn ErasedIntent) -> Pending<'a, Result<(), Fault>> {
        execute_in_place(self, intent)
    }
}

/// Others kept it busy for longer than anybody waits.
fn busy(path: &Path) -> Fault {
    Fault::Busy { place: path.display().to_string(), waited_secs: TIMEOUT.as_secs() }
}

/// What SQLite reports, in the words of a store.
fn fault(path: &Path, error: rusqlite::Error) -> Fault {
    let path = path.to_owned();
    let Some(code) = error.sqlite_error_code() else { return Fault::Sqlite { path, source: error } };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => busy(&path),
        ErrorCode::OperationInterrupted => Fault::LongRead { path },
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
