//! Being told that the store may have changed. Only shortens a wait: whoever is told looks for itself.

use std::time::Duration;

use rota_store::{AnyStore, Fault};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long the server is listened to before the connection is looked after again.
const LISTEN: Duration = Duration::from_secs(30);
/// How long a watcher of a file sleeps at most before it looks whether anybody still wants to know.
const LOOK: Duration = Duration::from_secs(1);

/// Changes of the store.
pub struct Changes {
    told: mpsc::Receiver<()>,
}

impl Changes {
    /// Begins to watch.
    pub async fn watch(store: &AnyStore) -> Result<Self, Fault> {
        let (tell, told) = mpsc::channel(1);
        match store {
            AnyStore::Sqlite(store) => {
                let mut version = store.data_version()?;
                tokio::spawn(async move {
                    while let Ok(has_changed) = version.wait(LOOK).await
                        && !tell.is_closed()
                    {
                        if has_changed {
                            // A full channel means that they are told already.
                            let _told = tell.try_send(());
                        }
                    }
                });
            }
            AnyStore::Postgres(store) => {
                let mut listener = store.listen().await?;
                tokio::spawn(async move {
                    while !tell.is_closed() {
                        if listener.wait(LISTEN).await {
                            let _told = tell.try_send(());
                        }
                    }
                });
            }
            AnyStore::Memory(_) => {}
        }
        Ok(Self { told })
    }

    /// Waits until told, or for so long.
    pub async fn wait(&mut self, at_most: Duration) {
        tokio::select! {
            told = self.told.recv() => {
                if told.is_none() {
                    tokio::time::sleep(at_most).await;
                }
            }
            () = tokio::time::sleep(at_most) => {}
        }
    }
}

/// Waits for a moment; for ever if there is none.
pub(crate) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
