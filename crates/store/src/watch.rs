//! Waiting until a store may have changed. Only shortens a wait: whoever waits looks again afterwards, whatever it
//! was woken by, and also when it was woken by nothing.

use std::time::Duration;

use crate::any::AnyStore;
use crate::fault::Fault;
use crate::postgres::Listener;
use crate::sqlite::DataVersion;
use crate::store::block_in_place;

/// How often a store that cannot tell is looked at.
const POLL: Duration = Duration::from_millis(200);

/// Tells when to look again.
pub enum Watch {
    /// Looks at the file's own counter of changes.
    Sqlite(Box<DataVersion>),
    /// Is told by the server.
    Postgres(Box<Listener>),
    /// Only time passes.
    Blind,
}

impl AnyStore {
    /// Begins to watch.
    pub async fn watch(&self) -> Result<Watch, Fault> {
        Ok(match self {
            Self::Memory(_) => Watch::Blind,
            Self::Sqlite(store) => Watch::Sqlite(Box::new(block_in_place(|| store.data_version())?)),
            Self::Postgres(store) => Watch::Postgres(Box::new(store.listen().await?)),
        })
    }
}

impl Watch {
    /// Returns when something changed since the last call, or after this long.
    pub async fn wait(&mut self, at_most: Duration) -> Result<(), Fault> {
        match self {
            Self::Sqlite(version) => version.wait(at_most).await.map(drop),
            Self::Postgres(listener) => {
                listener.wait(at_most).await;
                Ok(())
            }
            Self::Blind => {
                tokio::time::sleep(POLL.min(at_most)).await;
                Ok(())
            }
        }
    }
}
