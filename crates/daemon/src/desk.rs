//! The store as the daemon uses it: without keeping everything else waiting while a file is written.

use rota_store::{AnyStore, Intent, Outcome, Store, run_here};

/// Carries out intents beside the tasks of the runtime.
#[derive(Clone)]
pub struct Desk {
    /// Where tasks are kept.
    pub store: AnyStore,
}

impl Desk {
    /// Carries out one intent. A file is written on a thread of its own; a server is waited for.
    pub async fn perform<I>(&self, intent: I) -> Outcome<I::Output>
    where
        I: Intent + Send + 'static,
        I::Output: 'static,
    {
        if let AnyStore::Postgres(store) = &self.store {
            return store.perform(&intent).await;
        }
        let store = self.store.clone();
        let ran = tokio::task::spawn_blocking(move || run_here(store.perform(&intent))).await;
        ran.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}
