//! The reference: everything in maps, every question answered by looking at everything. Obstacles are judged anew
//! each time instead of being read from what was derived, so the other stores are checked against the rules and not
//! against their own bookkeeping.

mod tx;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rota_core::event::Event;
use rota_core::{Fence, TaskId, UnixMillis};

use crate::batcher::Batcher;
use crate::fault::Fault;
use crate::store::{Access, ErasedIntent, Pending, Store, execute_in_place};
use crate::tx::AnyTx;
use crate::tx::{AgentRow, BlockRow, GateTokenRow, PolicyRow, QueueRow, Row, UsageRow};

pub use tx::MemoryTx;

/// Name within a scope.
type Named<T> = BTreeMap<(String, T), ()>;
/// Scope, task, day, upstream, model.
type UsageKey = (String, String, i64, String, String);

#[derive(Clone, Default)]
struct State {
    tasks: BTreeMap<(String, TaskId), Arc<Stored>>,
    edges: Named<(TaskId, TaskId)>,
    queues: BTreeMap<(String, String), QueueRow>,
    journal: Vec<Arc<Event>>,
    policies: BTreeMap<String, Vec<PolicyRow>>,
    agents: BTreeMap<(String, String), AgentRow>,
    blocks: BTreeMap<String, BlockRow>,
    usage: BTreeMap<UsageKey, UsageRow>,
    gate_tokens: BTreeMap<String, GateTokenRow>,
    retired: BTreeMap<(String, TaskId), Fence>,
    last_seq: u64,
    last_event: u64,
    last_queue: i64,
}

#[derive(Clone)]
struct Stored {
    row: Row,
    queue: i64,
    static_score: i64,
    guarded: bool,
}

/// Tells a memory store the time.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

/// A store that forgets everything when it is dropped.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    clock: Clock,
    pub(crate) batcher: Option<Arc<Batcher>>,
}

/// The state is taken out by whoever has the turn, and put back.
struct Shared {
    state: Mutex<Option<State>>,
    put_back: Condvar,
    begun: AtomicU64,
}

impl MemoryStore {
    /// Empty, on the host's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(crate::clock::system_now))
    }

    /// Empty, on a clock of the caller's.
    pub fn with_clock(clock: Clock) -> Self {
        let state = Mutex::new(Some(State::default()));
        let shared = Shared { state, put_back: Condvar::new(), begun: AtomicU64::new(0) };
        Self { shared: Arc::new(shared), clock, batcher: None }
    }

    /// How many transactions were begun, for tests that count them.
    pub fn transactions(&self) -> u64 {
        self.shared.begun.load(Ordering::SeqCst)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    fn take(&self) -> State {
        let mut slot = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match slot.take() {
                Some(state) => return state,
                None => slot = self.put_back.wait(slot).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn put(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        self.put_back.notify_one();
    }
}

impl Store for MemoryStore {
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>> {
        Box::pin(async move {
            self.shared.begun.fetch_add(1, Ordering::SeqCst);
            let before = self.shared.take();
            let tx = MemoryTx::new(Arc::clone(&self.shared), before, Arc::clone(&self.clock), access);
            Ok(AnyTx::Memory(Box::new(tx)))
        })
    }

    fn execute<'a>(&'a self, intent: &'a mut dyn ErasedIntent) -> Pending<'a, Result<(), Fault>> {
        execute_in_place(self, intent)
    }
}
