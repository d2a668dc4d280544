//! The stores under test.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use rota_conformance::Subject;
use rota_store::memory::MemoryStore;
use rota_store::postgres::PostgresStore;
use rota_store::sqlite::SqliteStore;
use rota_testbed::Server;
use tempfile::TempDir;

/// A folder for a database whose durability is not what the test is about: in memory where the system has such a place.
pub fn quick_folder() -> TempDir {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir()
        && let Ok(folder) = tempfile::tempdir_in(shared_memory)
    {
        return folder;
    }
    tempfile::tempdir().unwrap()
}

/// The reference.
pub struct Memory;

impl Subject for Memory {
    type Store = MemoryStore;

    fn fresh(&self) -> MemoryStore {
        MemoryStore::new()
    }

    fn another(&self, store: &MemoryStore) -> MemoryStore {
        store.clone()
    }

    fn rounds(&self) -> usize {
        50
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        rota_testbed::block_on(future)
    }
}

/// The default store, in folders that go away with the subject.
#[derive(Default)]
pub struct Sqlite {
    folders: Mutex<Vec<TempDir>>,
}

impl Sqlite {
    fn path(&self) -> PathBuf {
        let folder = quick_folder();
        let path = folder.path().join("rota.db");
        self.folders.lock().unwrap().push(folder);
        path
    }
}

impl Subject for Sqlite {
    type Store = SqliteStore;

    fn fresh(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).unwrap()
    }

    fn another(&self, store: &SqliteStore) -> SqliteStore {
        SqliteStore::open(store.path()).unwrap()
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        rota_testbed::block_on(future)
    }
}

/// A server for many hosts: one throw-away server for all cases, a schema for each.
pub struct Postgres;

/// What waits for the server, for every case of the process.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    })
}

impl Subject for Postgres {
    type Store = PostgresStore;

    fn fresh(&self) -> PostgresStore {
        self.block_on(PostgresStore::open(&Server::shared().fresh_url())).unwrap()
    }

    fn another(&self, store: &PostgresStore) -> PostgresStore {
        self.block_on(PostgresStore::open(&Server::shared().url(store.schema()))).unwrap()
    }

    fn is_serial(&self) -> bool {
        false
    }

    fn rounds(&self) -> usize {
        100
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        runtime().block_on(future)
    }
}
