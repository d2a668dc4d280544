//! The store as the daemon uses it: without keeping everything else waiting while a file is written.

use rota_store::{AnyStore, Intent, Outcome};

/// Carries out intents beside the tasks of the runtime.
#[derive(Clone)]
pub struct Desk {
    /// Where tasks are kept.
    pub store: AnyStore,
}

impl Desk {
    /// Carries out one intent.
    pub async fn perform<I>(&self, intent: I) -> Outcome<I::Output>
    where
        I: Intent + Send + 'static,
        I::Output: 'static,
    {
        self.store.perform_beside(intent).await
    }
}
