//! Being woken by the server. A connection of its own listens, and holds the lock that tells writers that somebody
//! does. If it breaks, or a pooler in between does not pass notifications on, waiting is only longer.

use std::time::Duration;

use tokio::sync::watch;

use super::connection::Connection;
use super::readback::first_row;
use super::{Object, PostgresStore};
use crate::fault::Fault;

/// A connection that waits for notifications.
pub struct Listener {
    /// Taken out of the pool: it is closed, and its lock given back, with the listener.
    client: Connection,
    told: watch::Receiver<u64>,
    lock: String,
    /// Whether this one holds the lock, or does without: one listener is enough for the writers to notify all.
    holds: bool,
}

impl PostgresStore {
    /// Begins to listen.
    pub async fn listen(&self) -> Result<Listener, Fault> {
        let told = self.shared.pool.manager().told();
        let client = Object::take(self.shared.client().await?);
        // Behind a pooler neither would be ours: the next one to get the connection would have both.
        let direct = self.shared.prepare.by_name();
        if direct {
            client.batch_execute("LISTEN rota").await.map_err(|error| self.shared.fault(error))?;
        }
        let schema = &self.shared.schema;
        let lock =
            format!("SELECT pg_try_advisory_lock(hashtextextended('rota followers {schema}', 0))::int");
        let mut listener = Listener { client, told, lock, holds: !direct };
        listener.take_lock().await;
        Ok(listener)
    }
}

impl Listener {
    /// Returns when something was committed since the last call, or after this long.
    pub async fn wait(&mut self, at_most: Duration) -> bool {
        self.take_lock().await;
        tokio::select! {
            Ok(()) = self.told.changed() => true,
            () = tokio::time::sleep(at_most) => false,
        }
    }

    /// Another listener may hold it, or a writer for a moment; then the next wait tries again.
    async fn take_lock(&mut self) {
        if !self.holds
            && let Ok(answer) = self.client.simple_query(&self.lock).await
        {
            self.holds = first_row(&answer).0.is_some_and(|word| word == "1");
        }
    }
}
