//! Others who want to know which leases are held here: what gives agents a token of their own, for one.

use std::time::Duration;

use rota_core::Task;

/// Somebody who goes along with every run.
pub trait Companion: Send + Sync {
    /// A run begins, or was taken over. What is returned is put into its environment.
    fn begun(&self, held: &Held) -> Vec<(String, String)>;

    /// Its lease is not used here any more.
    fn ended(&self, held: &Held);

    /// A tick took so long.
    fn ticked(&self, _took: Duration) {}
}

/// A lease that is held here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its scope.
    pub scope: String,
    /// Its task, as it was granted.
    pub task: Task,
    /// The lease.
    pub lease: String,
    /// The upstream that its kind uses.
    pub uses_api: Option<String>,
}
