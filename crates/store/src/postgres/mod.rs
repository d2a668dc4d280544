//! PostgreSQL: many hosts, one backlog.
//!
//! **Lock order**, for every writing transaction: the scope's edge turn (exclusive for who writes edges, shared for
//! who settles a task that others wait for), then the queue's row (bounded queues only), then task rows: a task
//! before those that wait for it, and those in the order of their ids. Claims never wait for a task row: they skip
//! locked ones. A deadlock that slips through is retried, as are serialization failures and lost connections before
//! a commit was sent.
//!
//! Leases are stamped and judged by the server's clock. A queue with a ceiling is locked in one statement and counted
//! in a later one, because each statement sees the snapshot of its own start.

mod add_at_once;
mod again;
mod ask;
mod at_once;
mod connect;
mod faults;
mod granted;
mod listen;
mod migrate;
mod one;
mod passfile;
mod readback;
mod retry;
mod row;
mod session;
mod sql;
mod tls;
mod together;
mod turn;
mod tx;
mod url;
mod wire;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fault::Fault;
use crate::store::{Access, Pending, Store, Work};
use crate::tx::{AnyTx, DoneAtOnce, Published, Tx};

pub use listen::Listener;
pub use migrate::SCHEMA;
pub use tx::PostgresTx;

/// How long a caller waits for a connection, a lock or an answer.
const PATIENCE: Duration = Duration::from_secs(30);

type Pool = deadpool::managed::Pool<connect::Connector>;
type Object = deadpool::managed::Object<connect::Connector>;

/// A PostgreSQL database.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool,
    pool_wait: Duration,
    prepare: ask::Prepare,
    /// Host, port and database: never the password.
    place: String,
    schema: String,
    /// The policy of each scope as last seen.
    policies: Mutex<BTreeMap<String, Option<Arc<Published>>>>,
    /// Queues by their keys, as they were met: they keep their names.
    queue_names: Mutex<BTreeMap<i64, String>>,
    granted: Mutex<granted::Granted>,
    texts: Texts,
    calls: Calls,
    /// Who waits to go to the server with others, to take a turn or to add.
    turns: Mutex<together::Room<turn::Turn>>,
    additions: Mutex<together::Room<add_at_once::Addition>>,
    /// Turns of many tasks that are at work at a time.
    batches: tokio::sync::Semaphore,
}

/// More of them would take longer, each and all.
const BATCHES_AT_WORK: usize = 4;

/// Statements that name the schema, because nothing is set when they are sent.
struct Texts {
    turn_at_once: String,
    turn_in_columns: String,
    add_at_once: String,
    add_one: String,
    one: one::Texts,
}

/// Marks calls in the journal with numbers that nobody else gives.
#[derive(Default)]
struct Calls {
    seed: RandomState,
    count: AtomicU64,
}

impl Calls {
    fn next(&self) -> i64 {
        self.seed.hash_one(self.count.fetch_add(1, Ordering::Relaxed)).cast_signed()
    }
}

impl PostgresStore {
    /// Connects, and brings the schema up to date if this role may.
    pub async fn open(url: &str) -> Result<Self, Fault> {
        let store = Self::at(url)?;
        let client = store.shared.client().await?;
        migrate::ensure(&store.shared, &client).await?;
        drop(client);
        Ok(store)
    }

    /// The schema's number, which is only looked at; 0 if there is none.
    pub async fn schema_at(url: &str) -> Result<i64, Fault> {
        let store = Self::at(url)?;
        let client = store.shared.client().await?;
        migrate::found(&store.shared, &client).await
    }

    /// Lets another role use the schema: read and write its tables, change none of them.
    pub async fn grant_to(&self, role: &str) -> Result<(), Fault> {
        let client = self.shared.client().await?;
        migrate::grant(&self.shared, &client, role).await
    }

    fn at(url: &str) -> Result<Self, Fault> {
        let target = url::Target::parse(url, &|name| std::env::var(name).ok())?;
        let (place, schema) = (target.place.clone(), target.schema.clone());
        let (pool_wait, prepare) = (target.pool_wait, target.prepare.clone());
        let pool = connect::Connector::pool(target)?;
        let shared = Arc::new(Shared {
            texts: Texts {
                turn_at_once: sql::TURN_AT_ONCE.replace("{schema}", &schema),
                turn_in_columns: sql::TURN_IN_COLUMNS.replace("{schema}", &schema),
                add_at_once: sql::ADD_AT_ONCE.replace("{schema}", &schema),
                add_one: sql::ADD_ONE.replace("{schema}", &schema),
                one: one::Texts::of(&schema),
            },
            calls: Calls::default(),
            pool,
            pool_wait,
            prepare,
            place,
            schema,
            policies: Mutex::new(BTreeMap::new()),
            queue_names: Mutex::new(BTreeMap::new()),
            granted: Mutex::default(),
            turns: Mutex::default(),
            additions: Mutex::default(),
            batches: tokio::sync::Semaphore::new(BATCHES_AT_WORK),
        });
        Ok(Self { shared })
    }

    /// Its schema.
    pub fn schema(&self) -> &str {
        &self.shared.schema
    }

    /// Host, port and database.
    pub fn place(&self) -> &str {
        &self.shared.place
    }
}

impl Shared {
    async fn client(&self) -> Result<Object, Fault> {
        self.pool.get().await.map_err(|error| faults::of_pool(&self.place, self.pool_wait, error))
    }

    fn known_queues(&self) -> MutexGuard<'_, BTreeMap<i64, String>> {
        self.queue_names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_grants(&self) -> MutexGuard<'_, granted::Granted> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, error: tokio_postgres::Error) -> Fault {
        faults::of(&self.place, error)
    }
}

/// For tests of query plans: the statements of claiming and settling in a transaction, each with the index that must
/// serve it, then those that are transactions of their own.
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub fn statements(schema: &str) -> [Vec<(&'static str, String, &'static str)>; 2] {
    let named = |text: &str| text.replace("{schema}", schema);
    let one = one::Texts::of(schema);
    [
        sql::SERVED.iter().map(|(name, text, index)| (*name, (*text).to_owned(), *index)).collect(),
        vec![
            ("claim one", one.claim.clone(), "tasks_plain"),
            ("claim one, anything expired", one.claim.clone(), "tasks_active"),
            ("claim one, anything due", one.claim, "tasks_cooling"),
            ("settle one", one.done, "ids_pkey"),
            ("settle and claim one", one.both.clone(), "tasks_plain"),
            ("settle one and claim", one.both, "ids_pkey"),
            ("ADD_ONE", named(sql::ADD_ONE), "ids_pkey"),
        ],
    ]
}

impl Store for PostgresStore {
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>> {
        Box::pin(async move {
            let tx = PostgresTx::begin(Arc::clone(&self.shared), access).await?;
            Ok(AnyTx::Postgres(Box::new(tx)))
        })
    }

    fn carry_out<'a>(&'a self, work: &'a mut dyn Work) -> Pending<'a, Result<(), Fault>> {
        Box::pin(async move {
            let mut retry = retry::Retry::new();
            let mut done = None;
            while let Err(fault) = self.attempt(work, &mut done).await {
                retry.pause_after(fault).await.map_err(|fault| match done {
                    Some(_) => self.shared.unknown(&format!("a part was done, then: {fault}")),
                    None => fault,
                })?;
            }
            Ok(())
        })
    }
}

impl PostgresStore {
    /// Once. The error is a fault after which nothing of the work is in the database, but for what `done` says: it may be
    /// tried again.
    async fn attempt(&self, work: &mut dyn Work, done: &mut Option<DoneAtOnce>) -> Result<(), Fault> {
        let mut tx = PostgresTx::begin(Arc::clone(&self.shared), work.access()).await?;
        tx.alone = work.may_be_at_once();
        tx.done_before = done.take();
        let mut any = AnyTx::Postgres(Box::new(tx));
        let ran = work.run(&mut any).await;
        let AnyTx::Postgres(mut tx) = any else { unreachable!("it was made here") };
        *done = tx.done_before.take();
        match ran {
            Err(fault) => {
                let trace = tx.trace.take().filter(|_| matches!(fault, Fault::Away { .. }));
                tx.roll_back().await;
                if let Some(trace) = trace {
                    self.shared.let_end(&trace).await?;
                }
                Err(fault)
            }
            Ok(true) => tx.commit().await,
            // Nothing was written, so it stands, whatever becomes of the connection.
            Ok(false) => {
                tx.roll_back().await;
                Ok(())
            }
        }
    }
}
