//! PostgreSQL: many hosts, one backlog.
//!
//! **Lock order**, for every writing transaction: the scope's edges (only those who write edges), then the queue's row
//! (bounded queues only), then task rows: the tasks to be settled by id, then their dependents by id. Claims never wait for
//! a task row: they skip locked ones. A settlement and an edge writer can meet in a cycle; the server breaks it, and the
//! loser is retried, as after serialization failures and connections that were lost before a commit was sent.
//!
//! **Round trips.** Reads that an intent announces are made in one flush (`fetched.rs`), writes go with the next read or
//! the COMMIT (`outbox.rs`), and a flush is one wait for the server (`pipeline.rs`).
//!
//! Leases are stamped and judged by the server's clock. A queue with a ceiling is locked in one statement and counted
//! in a later one, because each statement sees the snapshot of its own start.

mod connect;
mod connection;
mod faults;
mod fetched;
mod heads;
mod listen;
mod migrate;
mod outbox;
mod passfile;
mod pipeline;
mod prepare;
mod read_plan;
mod readback;
mod ready_heads;
mod replication;
mod retry;
mod row;
mod session;
mod sql;
mod stopping;
mod tls;
mod tx;
mod url;
mod value;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::batcher::Batcher;
use crate::fault::Fault;
use crate::store::{Access, ErasedIntent, Pending, Store};
use crate::tx::{AnyTx, Published, QueueRow, Tx};

pub use listen::Listener;
pub use migrate::SCHEMA;
pub use replication::Replication;
pub use stopping::stop_waiting_after;
pub use tx::PostgresTx;

/// How long a caller waits for a connection, a lock or an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

type Pool = deadpool::managed::Pool<connect::Connector>;
type Object = deadpool::managed::Object<connect::Connector>;

/// A PostgreSQL database.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// How long a server that is away is waited for.
    patience: Duration,
    pub(crate) batcher: Option<Arc<Batcher>>,
}

struct Shared {
    pool: Pool,
    pool_wait: Duration,
    prepare: prepare::Prepare,
    /// Host, port and database: never the password.
    place: String,
    schema: String,
    /// The policy of each scope as last seen.
    policies: Mutex<BTreeMap<String, Option<Arc<Published>>>>,
    /// The keys of queues by scope and name. A queue is never deleted, so a key stays what it is.
    queues: Mutex<BTreeMap<(String, String), i64>>,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date if this role may.
    pub async fn open(url: &str) -> Result<Self, Fault> {
        let store = Self::at(url)?;
        let client = store.reach().await?;
        migrate::ensure(&store.shared, &client).await?;
        drop(client);
        Ok(store)
    }

    /// The same store for a program that asks again by itself: a server that is away is waited for only a second.
    pub fn impatient(mut self) -> Self {
        self.patience = retry::AWAY_SHORT;
        self
    }

    /// A connection, waiting for a server that is away just now.
    async fn reach(&self) -> Result<Object, Fault> {
        let mut retry = retry::Retry::new(self.patience);
        loop {
            match self.shared.client().await {
                Ok(client) => return Ok(client),
                Err(fault) => retry.pause_after(fault).await?,
            }
        }
    }

    /// The schema's number, which is only looked at; 0 if there is none.
    pub async fn schema_at(url: &str) -> Result<i64, Fault> {
        let store = Self::at(url)?;
        let client = store.reach().await?;
        migrate::found(&store.shared, &client).await
    }

    /// Lets another role use the schema: read and write its tables, change none of them.
    pub async fn grant_to(&self, role: &str) -> Result<(), Fault> {
        let client = self.shared.client().await?;
        migrate::grant(&self.shared, &client, role).await
    }

    fn at(url: &str) -> Result<Self, Fault> {
        let target = url::Target::parse(url, &|name| crate::environment::var(name).ok())?;
        let (place, schema) = (target.place.clone(), target.schema.clone());
        let (pool_wait, prepare) = (target.pool_wait, target.prepare.clone());
        let pool = connect::Connector::pool(target)?;
        let shared = Arc::new(Shared {
            pool,
            pool_wait,
            prepare,
            place,
            schema,
            policies: Mutex::default(),
            queues: Mutex::default(),
        });
        Ok(Self { shared, patience: retry::AWAY, batcher: None })
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

    /// The key of a queue, if this process has seen it.
    fn known_queue(&self, scope: &str, name: &str) -> Option<i64> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.get(&(scope.to_owned(), name.to_owned())).copied()
    }

    fn note_queue(&self, scope: &str, name: &str, row: Option<&QueueRow>) {
        if let Some(row) = row {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.insert((scope.to_owned(), name.to_owned()), row.key);
        }
    }

    fn fault(&self, error: tokio_postgres::Error) -> Fault {
        faults::of(&self.place, error)
    }
}

/// For tests of query plans: the statements of claiming and settling, each with the index that must serve it.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub fn statements() -> Vec<(&'static str, String, &'static str)> {
    sql::served()
}

impl Store for PostgresStore {
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>> {
        Box::pin(async move {
            let tx = PostgresTx::begin(Arc::clone(&self.shared), access).await?;
            Ok(AnyTx::Postgres(Box::new(tx)))
        })
    }

    fn execute<'a>(&'a self, intent: &'a mut dyn ErasedIntent) -> Pending<'a, Result<(), Fault>> {
        Box::pin(async move {
            let is_write = intent.access() == Access::Write;
            let mut retry = retry::Retry::new(self.patience);
            let trying = async {
                while let Err(fault) = self.attempt(intent).await {
                    retry.pause_after(fault).await?;
                }
                Ok(())
            };
            tokio::select! {
                done = trying => done,
                () = stopping::given_up() => Err(stopping::fault(&self.shared.place, is_write)),
            }
        })
    }
}

impl PostgresStore {
    /// Once. The error is a fault after which nothing of the intent is in the database: it may be tried again.
    async fn attempt(&self, intent: &mut dyn ErasedIntent) -> Result<(), Fault> {
        let tx = PostgresTx::begin(Arc::clone(&self.shared), intent.access()).await?;
        let mut any = AnyTx::Postgres(Box::new(tx));
        let ran = intent.run(&mut any).await;
        let AnyTx::Postgres(mut tx) = any else { unreachable!("it was made here") };
        match ran {
            Err(fault) => {
                let is_away = matches!(fault, Fault::Away { .. });
                let trace = tx.trace.take().filter(|_| is_away);
                if is_away {
                    tx.give_up();
                } else {
                    tx.roll_back().await;
                }
                if let Some(trace) = trace {
                    self.shared.let_end(&trace).await?;
                }
                Err(fault)
            }
            Ok(true) => tx.commit().await,
            // Nothing was written, so it stands, whatever becomes of the connection.
            Ok(false) if tx.writes() => {
                tx.roll_back().await;
                Ok(())
            }
            Ok(false) => {
                tx.end_read().await;
                Ok(())
            }
        }
    }
}
