//! Group commit above the stores: concurrent calls of one process become one transaction, and pay for one COMMIT.
//!
//! One transaction is in flight at a time; calls that arrive meanwhile form the next one. A lone call is sent at once: on
//! a file by its caller's own task, on a server by a task of its own. Each caller gets its own answer or its own refusal. A
//! batch that fails is split into its calls. A caller that is cancelled before its batch begins is dropped without effect;
//! later its call is executed whole.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rota_core::Refusal;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::any::AnyStore;
use crate::fault::{Error, Fault, Outcome};
use crate::intents::batch::{Batch, BatchAnswer, BatchCall};
use crate::store::perform_alone;

/// The most calls of one batch, and the most tasks that they may be about.
const MOST_CALLS: usize = 64;
const MOST_WEIGHT: usize = 1_000;
/// How long a batch waits for callers that were active recently.
const GATHER: Duration = Duration::from_millis(1);
/// Callers of a batch that ended this long ago are not waited for.
const RECENT: Duration = Duration::from_millis(5);
/// The most batches in a row that do not wait, after waits in vain.
const MOST_SKIPPED: u32 = 64;

type Answer = Result<Result<BatchAnswer, Refusal>, Fault>;
/// The answer to a caller, or its call back if it was not begun.
type Reply = Result<Answer, BatchCall>;

/// Collects concurrent calls of one process.
pub struct Batcher {
    /// The store itself.
    store: AnyStore,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Whether a task executes batches.
    is_running: bool,
    gathering: Gathering,
}

struct Waiting {
    call: BatchCall,
    answer: oneshot::Sender<Reply>,
}

/// When to wait for more callers: not after a wait in vain, and for longer the more often that happened.
#[derive(Default)]
struct Gathering {
    /// Callers of the last batch, and those that waited when it ended.
    expected: usize,
    /// When the last batch ended.
    ended_at: Option<Instant>,
    skip: u32,
    next_skip: u32,
}

impl Gathering {
    fn is_due(&mut self, waiting: usize) -> bool {
        let is_recent = self.ended_at.is_some_and(|at| at.elapsed() < RECENT);
        if !is_recent || self.expected < 2 || waiting >= self.expected.min(MOST_CALLS) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }

    fn note(&mut self, was_in_vain: bool) {
        self.next_skip = if was_in_vain { (self.next_skip * 2).clamp(1, MOST_SKIPPED) } else { 0 };
        self.skip = self.next_skip;
    }
}

impl State {
    /// How many callers the next batch waits for; none if it does not wait.
    fn callers_to_gather(&mut self) -> Option<usize> {
        let waiting = self.waiting.len();
        self.gathering.is_due(waiting).then(|| self.gathering.expected.min(MOST_CALLS))
    }
}

impl Batcher {
    /// In front of a store.
    pub(crate) fn new(store: AnyStore) -> Arc<Self> {
        Arc::new(Self { store, state: Mutex::default(), arrived: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a call together with those that other callers make now.
    pub(crate) async fn submit(self: &Arc<Self>, runtime: &Handle, call: BatchCall) -> Outcome<BatchAnswer> {
        let mut call = call;
        loop {
            match self.wait_in_line(runtime, call).await {
                Ok(Ok(Ok(answer))) => return answer.map_err(Error::Refused),
                Ok(Ok(Err(fault))) => return Err(fault.into()),
                // The task that executed batches ended with another caller's runtime.
                Ok(Err(not_begun)) => call = not_begun,
                Err(_) => return Err(lost("the task that executes batches ended").into()),
            }
        }
    }

    async fn wait_in_line(
        self: &Arc<Self>,
        runtime: &Handle,
        call: BatchCall,
    ) -> Result<Reply, oneshot::error::RecvError> {
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut state = self.state();
            state.waiting.push_back(Waiting { call, answer });
            !std::mem::replace(&mut state.is_running, true)
        };
        if !is_first {
            self.arrived.notify_one();
            return answered.await;
        }
        let mut runner = Runner { batcher: Arc::clone(self), is_over: false };
        // A transaction in this process never yields, so cancelling this caller cannot interrupt it; one on a server must
        // not depend on who waits for it.
        if self.store.is_server() || runner.execute_next().await {
            runtime.spawn(runner.run());
        }
        answered.await
    }

    async fn gather(&self, wanted: usize) {
        while self.state().waiting.len() < wanted {
            self.arrived.notified().await;
        }
    }

    /// The calls of the first caller's scope, as many as one batch may have.
    fn next_batch(&self) -> Vec<Waiting> {
        let mut state = self.state();
        // Their callers were cancelled, and nothing has happened yet.
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let Some(first) = state.waiting.front() else { return Vec::new() };
        let scope = first.call.scope().to_owned();
        let (mut batch, mut weight) = (Vec::new(), 0);
        let mut later = VecDeque::new();
        while let Some(waiting) = state.waiting.pop_front() {
            let fits = batch.len() < MOST_CALLS && weight + waiting.call.weight() <= MOST_WEIGHT;
            if waiting.call.scope() == scope && (batch.is_empty() || fits) {
                weight += waiting.call.weight();
                batch.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        state.waiting = later;
        batch
    }

    async fn execute(&self, batch: Vec<Waiting>) {
        let (calls, answers): (Vec<BatchCall>, Vec<oneshot::Sender<Reply>>) =
            batch.into_iter().map(|waiting| (waiting.call, waiting.answer)).unzip();
        match self.perform(&calls).await {
            Ok(outcomes) => {
                for (answer, outcome) in answers.into_iter().zip(outcomes) {
                    send(answer, Ok(outcome));
                }
            }
            Err(Fault::OutcomeUnknown { place, problem }) => {
                for answer in answers {
                    let (place, problem) = (place.clone(), problem.clone());
                    send(answer, Err(Fault::OutcomeUnknown { place, problem }));
                }
            }
            Err(fault) if calls.len() == 1 => {
                if let Some(answer) = answers.into_iter().next() {
                    send(answer, Err(fault));
                }
            }
            // Nothing was written: each call succeeds or fails by itself.
            Err(_) => {
                for (call, answer) in calls.iter().zip(answers) {
                    let outcome = self.perform(std::slice::from_ref(call)).await;
                    send(answer, outcome.and_then(|mut outcomes| outcomes.pop().ok_or_else(no_outcome)));
                }
            }
        }
    }

    /// One transaction. After a panic in it the outcome is unknown.
    async fn perform(&self, calls: &[BatchCall]) -> Result<Vec<Result<BatchAnswer, Refusal>>, Fault> {
        let batch = Batch { calls };
        let mut transaction = pin!(perform_alone(&self.store, &batch));
        let performed = std::future::poll_fn(|context| {
            // A transaction that panicked is not polled again.
            match catch_unwind(AssertUnwindSafe(|| transaction.as_mut().poll(context))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        match performed.await {
            Ok(Ok(outcomes)) => Ok(outcomes),
            Ok(Err(Error::Fault(fault))) => Err(fault),
            Ok(Err(Error::Refused(refusal))) => {
                unreachable!("a batch as a whole is never refused: {refusal}")
            }
            Err(_) => Err(lost("the transaction panicked")),
        }
    }
}

/// Executes batches, and frees the batcher when no call waits.
struct Runner {
    batcher: Arc<Batcher>,
    is_over: bool,
}

impl Runner {
    async fn run(mut self) {
        while self.execute_next().await {}
    }

    /// Executes one batch; whether calls wait after it.
    async fn execute_next(&mut self) -> bool {
        let batcher = Arc::clone(&self.batcher);
        let wanted = batcher.state().callers_to_gather();
        if let Some(wanted) = wanted {
            let gathered = tokio::time::timeout(GATHER, batcher.gather(wanted)).await;
            batcher.state().gathering.note(gathered.is_err());
        }
        let batch = batcher.next_batch();
        let callers = batch.len();
        if !batch.is_empty() {
            batcher.execute(batch).await;
        }
        let mut state = batcher.state();
        state.gathering.expected = callers + state.waiting.len();
        state.gathering.ended_at = Some(Instant::now());
        state.is_running = !state.waiting.is_empty();
        self.is_over = !state.is_running;
        state.is_running
    }
}

/// A runner that ends early, as it does with its runtime, gives the calls that still wait back to their callers, to try
/// again.
impl Drop for Runner {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.batcher.state();
            state.is_running = false;
            for waiting in state.waiting.drain(..) {
                drop(waiting.answer.send(Err(waiting.call)));
            }
        }
    }
}

fn send(answer: oneshot::Sender<Reply>, outcome: Answer) {
    // The call of a caller that was cancelled meanwhile stands, as after a lost connection.
    drop(answer.send(Ok(outcome)));
}

fn no_outcome() -> Fault {
    lost("the call has no outcome")
}

fn lost(problem: &str) -> Fault {
    Fault::OutcomeUnknown { place: "this process".to_owned(), problem: problem.to_owned() }
}
