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

mod at_once;
mod connect;
mod faults;
mod migrate;
mod row;
mod sql;
mod tx;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};

use crate::fault::{Error, Fault, Outcome};
use crate::store::{Access, Intent, Store};
use crate::tx::{Published, Tx};

pub use migrate::SCHEMA;
pub use tx::PostgresTx;

/// How long a caller waits for a connection, a lock or an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a transaction that lost a race is tried again.
const TRIES: u32 = 10;

/// A PostgreSQL database.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool,
    /// Host, port and database: never the password.
    place: String,
    schema: String,
    /// The policy of each scope as last seen.
    policies: Mutex<BTreeMap<String, Option<Arc<Published>>>>,
    claim_at_once: String,
    done_at_once: String,
    next_at_once: String,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date if this role may.
    pub async fn open(url: &str) -> Result<Self, Fault> {
        let target = connect::Target::parse(url)?;
        let pool = target.pool()?;
        let (place, schema) = (target.place, target.schema);
        let shared = Arc::new(Shared {
            claim_at_once: sql::CLAIM_AT_ONCE.replace("{schema}", &schema),
            done_at_once: sql::DONE_AT_ONCE.replace("{schema}", &schema),
            next_at_once: sql::NEXT_AT_ONCE.replace("{schema}", &schema),
            pool,
            place,
            schema,
            policies: Mutex::new(BTreeMap::new()),
        });
        let client = shared.client().await?;
        migrate::ensure(&shared, &client).await?;
        drop(client);
        Ok(Self { shared })
    }

    /// Host, port and database.
    pub fn place(&self) -> &str {
        &self.shared.place
    }
}

impl Shared {
    async fn client(&self) -> Result<Object, Fault> {
        self.pool.get().await.map_err(|error| faults::of_pool(&self.place, error))
    }

    fn fault(&self, error: tokio_postgres::Error) -> Fault {
        faults::of(&self.place, error)
    }
}

impl Store for PostgresStore {
    type Tx = PostgresTx;

    async fn begin(&self, access: Access) -> Result<PostgresTx, Fault> {
        PostgresTx::begin(Arc::clone(&self.shared), access).await
    }

    async fn perform<I: Intent>(&self, intent: &I) -> Outcome<I::Output> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut tx = self.begin(intent.access()).await?;
            let ran = intent.run(&mut tx).await;
            let ended = if intent.access() == Access::Write && intent.is_kept(&ran) {
                tx.commit().await
            } else {
                tx.roll_back().await
            };
            let ran = ended.map_err(Error::Fault).and(ran);
            match ran {
                Err(Error::Fault(Fault::LostRace { .. })) if tries < TRIES => {
                    // Others were first; give them a moment that grows, so that the same racers do not meet again.
                    tokio::time::sleep(Duration::from_millis(u64::from(tries * tries))).await;
                }
                other => return other,
            }
        }
    }
}
