//! Group commit above the stores: concurrent calls of one process become one transaction, and pay for one COMMIT.
//!
//! One transaction is in flight at a time; calls that arrive meanwhile form the next one. A lone call is sent at once.
//! Each caller gets its own answer or its own refusal. A batch that fails is split into its calls. A caller that goes away
//! before its batch begins is dropped without effect; later its call is carried out whole.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rota_core::Refusal;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::any::AnyStore;
use crate::fault::{Error, Fault, Outcome};
use crate::intents::batch::{Batch, BatchAnswer, BatchCall};
use crate::store::{perform_alone, run_here};

/// The most calls of one batch, and the most tasks that they may be about.
const MOST_CALLS: usize = 64;
const MOST_WEIGHT: usize = 1_000;
/// How long a batch waits for callers that were active a moment ago.
const GATHER: Duration = Duration::from_millis(1);
/// The most batches in a row that do not wait after waits that were in vain.
const MOST_SKIPPED: u32 = 64;

type Answer = Result<Result<BatchAnswer, Refusal>, Fault>;
/// What a caller hears: the answer, or its call back if nobody began it.
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
    /// Whether a task carries out batches.
    is_running: bool,
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
    skip: u32,
    next_skip: u32,
}

impl Gathering {
    fn is_due(&mut self, waiting: usize) -> bool {
        if self.expected < 2 || waiting >= self.expected.min(MOST_CALLS) {
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

impl Batcher {
    /// In front of a store.
    pub(crate) fn new(store: AnyStore) -> Arc<Self> {
        Arc::new(Self { store, state: Mutex::default(), arrived: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a call together with those that other callers make now.
    pub(crate) async fn submit(self: &Arc<Self>, runtime: &Handle, call: BatchCall) -> Outcome<BatchAnswer> {
        let mut call = call;
        loop {
            match self.wait_in_line(runtime, call).await {
                Ok(Ok(Ok(answer))) => return answer.map_err(Error::Refused),
                Ok(Ok(Err(fault))) => return Err(fault.into()),
                // The task ended with another caller's runtime.
                Ok(Err(not_begun)) => call = not_begun,
                Err(_) => return Err(lost("the task that carries out batches ended").into()),
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
        if is_first {
            // A task of its own: the batch must not end with the caller that happened to start it.
            let ending = Ending { batcher: Arc::clone(self), is_early: true };
            runtime.spawn(Arc::clone(self).run(runtime.clone(), ending));
        } else {
            self.arrived.notify_one();
        }
        answered.await
    }

    /// Carries out batches until no call waits.
    async fn run(self: Arc<Self>, runtime: Handle, mut ending: Ending) {
        let mut gathering = Gathering::default();
        loop {
            let waiting = self.state().waiting.len();
            if gathering.is_due(waiting) {
                let wanted = gathering.expected.min(MOST_CALLS);
                let gathered = tokio::time::timeout(GATHER, self.gather(wanted)).await;
                gathering.note(gathered.is_err());
            }
            let Some(batch) = self.next_batch() else {
                ending.is_early = false;
                return;
            };
            let callers = batch.len();
            self.carry_out(&runtime, batch).await;
            gathering.expected = callers + self.state().waiting.len();
        }
    }

    async fn gather(&self, wanted: usize) {
        while self.state().waiting.len() < wanted {
            self.arrived.notified().await;
        }
    }

    /// The calls of the first caller's scope, as many as one batch may have; none if nobody waits, and then the task ends.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        // Nobody wants the answers any more, and nothing has happened yet.
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let Some(first) = state.waiting.front() else {
            state.is_running = false;
            return None;
        };
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
        Some(batch)
    }

    async fn carry_out(&self, runtime: &Handle, batch: Vec<Waiting>) {
        let (calls, answers): (Vec<BatchCall>, Vec<oneshot::Sender<Reply>>) =
            batch.into_iter().map(|waiting| (waiting.call, waiting.answer)).unzip();
        let calls = Arc::new(calls);
        let outcome = self.perform(runtime, Arc::clone(&calls)).await;
        match outcome {
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
            // Nothing of it happened: each call has its own fate.
            Err(_) => {
                let calls = Arc::try_unwrap(calls).unwrap_or_else(|calls| (*calls).clone());
                for (call, answer) in calls.into_iter().zip(answers) {
                    let outcome = self.perform(runtime, Arc::new(vec![call])).await;
                    send(answer, outcome.and_then(|mut outcomes| outcomes.pop().ok_or_else(no_outcome)));
                }
            }
        }
    }

    /// One transaction, beside the runtime's tasks. A panic in it is a fault after which nothing can be said.
    async fn perform(
        &self,
        runtime: &Handle,
        calls: Arc<Vec<BatchCall>>,
    ) -> Result<Vec<Result<BatchAnswer, Refusal>>, Fault> {
        let store = self.store.clone();
        let performed = if store.is_server() {
            runtime.spawn(async move { perform_alone(&store, &Batch { calls: &calls }).await }).await
        } else {
            runtime.spawn_blocking(move || run_here(perform_alone(&store, &Batch { calls: &calls }))).await
        };
        match performed {
            Ok(Ok(outcomes)) => Ok(outcomes),
            Ok(Err(Error::Fault(fault))) => Err(fault),
            Ok(Err(Error::Refused(refusal))) => {
                unreachable!("a batch as a whole is never refused: {refusal}")
            }
            Err(ended) => Err(lost(&format!("its transaction panicked: {ended}"))),
        }
    }
}

/// Lets the next caller start a task when this one ends before its time, as it does with its runtime, perhaps before it
/// began. Callers that still wait get their calls back, to try again.
struct Ending {
    batcher: Arc<Batcher>,
    is_early: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.is_early {
            let mut state = self.batcher.state();
            state.is_running = false;
            for waiting in state.waiting.drain(..) {
                drop(waiting.answer.send(Err(waiting.call)));
            }
        }
    }
}

fn send(answer: oneshot::Sender<Reply>, outcome: Answer) {
    // A caller that went away meanwhile: its call stands, as after a lost connection.
    drop(answer.send(Ok(outcome)));
}

fn no_outcome() -> Fault {
    lost("the call has no outcome")
}

fn lost(problem: &str) -> Fault {
    Fault::OutcomeUnknown { place: "this process".to_owned(), problem: problem.to_owned() }
}
