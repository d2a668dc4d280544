//! A store of any kind, opened by its URL.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::batcher::Batcher;
use crate::fault::{Fault, Outcome};
use crate::memory::MemoryStore;
use crate::postgres::{self, PostgresStore};
use crate::secret::Secret;
use crate::sqlite::{self, SqliteStore};
use crate::store::{Access, ErasedIntent, Intent, Pending, Store, block_in_place, perform_alone};
use crate::tx::AnyTx;

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// `memory:`, gone with the process.
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://…`, which may hold a password.
    Postgres(Secret),
}

impl Location {
    /// Reads `memory:`, `sqlite:PATH` or `postgres://…`.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        if let Some(path) = text.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.into()));
        }
        // The rest may hold a password.
        let shown = text.split_once(':').map_or(text.to_owned(), |(scheme, _)| format!("{scheme}:…"));
        let shown = rota_core::text::escaped(&shown).into_owned();
        Err(Fault::BadUrl { problem: format!("'{shown}' is none of sqlite:PATH, postgres://…, memory:") })
    }
}

/// A store of any kind.
#[derive(Clone)]
#[allow(missing_docs, reason = "the variants are the stores")]
pub enum AnyStore {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

macro_rules! from_each {
    ($($variant:ident($store:ty)),*) => {
        $(impl From<$store> for AnyStore {
            fn from(store: $store) -> Self {
                Self::$variant(store)
            }
        })*
    };
}

from_each!(Memory(MemoryStore), Sqlite(SqliteStore), Postgres(PostgresStore));

impl AnyStore {
    /// Opens it. A file that does not exist is made by the first write.
    pub async fn open(location: &Location) -> Result<Self, Fault> {
        match location {
            Location::Memory => Ok(Self::Memory(MemoryStore::new())),
            Location::Sqlite(path) => block_in_place(|| SqliteStore::open_lazily(path)).map(Self::Sqlite),
            Location::Postgres(url) => PostgresStore::open(url.expose()).await.map(Self::Postgres),
        }
    }
}

impl AnyStore {
    /// The schema of a store and the newest one known, without changing anything; 0 for one that is not there yet.
    pub async fn schema_of(location: &Location) -> Result<(i64, i64), Fault> {
        match location {
            Location::Memory => Ok((sqlite::SCHEMA, sqlite::SCHEMA)),
            Location::Sqlite(path) => Ok((block_in_place(|| sqlite::schema_at(path))?, sqlite::SCHEMA)),
            Location::Postgres(url) => Ok((PostgresStore::schema_at(url.expose()).await?, postgres::SCHEMA)),
        }
    }

    /// Brings the schema up to date and, on a server, lets another role use it.
    pub async fn migrate(location: &Location, grant_to: Option<&str>) -> Result<(), Fault> {
        let store = match location {
            Location::Sqlite(path) => block_in_place(|| SqliteStore::open(path)).map(Self::Sqlite)?,
            other => Self::open(other).await?,
        };
        match (store, grant_to) {
            (Self::Postgres(store), Some(role)) => store.grant_to(role).await,
            (_, None) => Ok(()),
            (_, Some(_)) => {
                Err(Fault::BadUrl { problem: "only PostgreSQL has roles to grant to".to_owned() })
            }
        }
    }
}

impl AnyStore {
    /// The same store with group commit: concurrent calls of this process share transactions. For programs that serve
    /// many callers or hold many leases.
    #[must_use]
    pub fn batched(mut self) -> Self {
        let batcher = Some(Batcher::new(self.clone()));
        match &mut self {
            Self::Memory(store) => store.batcher = batcher,
            Self::Sqlite(store) => store.batcher = batcher,
            Self::Postgres(store) => store.batcher = batcher,
        }
        self
    }

    fn batcher(&self) -> Option<&Arc<Batcher>> {
        match self {
            Self::Memory(store) => store.batcher.as_ref(),
            Self::Sqlite(store) => store.batcher.as_ref(),
            Self::Postgres(store) => store.batcher.as_ref(),
        }
    }

    fn inner(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store,
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }

    /// For a program that retries by itself: an unreachable server is waited for only a second at a time.
    pub fn impatient(self) -> Self {
        match self {
            Self::Postgres(mut store) => {
                let is_batched = store.batcher.take().is_some();
                let store = Self::Postgres(store.impatient());
                if is_batched { store.batched() } else { store }
            }
            other => other,
        }
    }

    /// Whether calls go over a connection to a server.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }
}

impl Store for AnyStore {
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>> {
        self.inner().begin(access)
    }

    fn execute<'a>(&'a self, intent: &'a mut dyn ErasedIntent) -> Pending<'a, Result<(), Fault>> {
        self.inner().execute(intent)
    }

    async fn perform<I: Intent>(&self, intent: &I) -> Outcome<I::Output> {
        // Without a runtime no other call can run at the same time.
        if let Some(batcher) = self.batcher()
            && let Some(call) = intent.batched()
            && let Ok(runtime) = Handle::try_current()
        {
            let answer = batcher.submit(&runtime, call).await?;
            let Some(output) = intent.answered(answer) else {
                unreachable!("a call is answered as what it is")
            };
            return Ok(output);
        }
        perform_alone(self, intent).await
    }
}
