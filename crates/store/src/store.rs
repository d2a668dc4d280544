//! The store: transactions, and what they are for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

use crate::crash;
use crate::fault::{Error, Fault, Outcome};
use crate::intents::batch::{BatchAnswer, BatchCall};
use crate::tx::{AnyTx, Tx};

/// What a transaction may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// See one snapshot.
    Read,
    /// See what one step of [`Tx`] finds and nothing else: it is a snapshot by itself.
    Once,
    /// Change things.
    Write,
}

/// A future of any kind. What makes one is compiled where it is written, and not again in every crate that waits for it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place that keeps tasks.
pub trait Store: Send + Sync {
    /// Begins a transaction. Waits its turn for a bounded time.
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>>;

    /// Carries out work in one transaction: all of it, or nothing and the fault.
    fn carry_out<'a>(&'a self, work: &'a mut dyn Work) -> Pending<'a, Result<(), Fault>>;

    /// Carries out one intent in one transaction: all of it, or nothing and the reason.
    fn perform<I: Intent>(&self, intent: &I) -> impl Future<Output = Outcome<I::Output>> + Send
    where
        Self: Sized,
    {
        perform_alone(self, intent)
    }
}

/// Carries out one intent in a transaction of its own.
pub(crate) async fn perform_alone<I: Intent>(store: &dyn Store, intent: &I) -> Outcome<I::Output> {
    let mut ordered = Ordered { intent, outcome: None };
    store.carry_out(&mut ordered).await?;
    let Some(outcome) = ordered.outcome else { unreachable!("work that was carried out has an outcome") };
    outcome
}

/// An intent without its type, and where its outcome goes: so that stores do not depend on what it is.
pub trait Work: Send {
    /// Whether it writes.
    fn access(&self) -> Access;

    /// Does it and keeps the outcome, unless that is a fault; says whether what was written is made durable.
    fn run<'a>(&'a mut self, tx: &'a mut AnyTx) -> Pending<'a, Result<bool, Fault>>;
}

struct Ordered<'a, I: Intent> {
    intent: &'a I,
    outcome: Option<Outcome<I::Output>>,
}

impl<I: Intent> Work for Ordered<'_, I> {
    fn access(&self) -> Access {
        self.intent.access()
    }

    fn run<'a>(&'a mut self, tx: &'a mut AnyTx) -> Pending<'a, Result<bool, Fault>> {
        let running = self.intent.run(tx);
        Box::pin(async move {
            let ran = running.await;
            let kept = self.intent.access() == Access::Write && self.intent.is_kept(&ran);
            match ran {
                Err(Error::Fault(fault)) => Err(fault),
                ran => {
                    self.outcome = Some(ran);
                    Ok(kept)
                }
            }
        })
    }
}

/// Work in one transaction, where nothing has to be tried again.
pub(crate) fn carry_out_once<'a>(
    store: &'a dyn Store,
    work: &'a mut dyn Work,
) -> Pending<'a, Result<(), Fault>> {
    Box::pin(async move {
        crash::point("before_begin");
        let mut tx = store.begin(work.access()).await?;
        if work.run(&mut tx).await? {
            crash::point("after_write");
            tx.commit().await?;
            crash::point("after_commit");
        }
        Ok(())
    })
}

/// Something a caller wants, carried out in one transaction.
#[async_trait]
pub trait Intent: Sync {
    /// What comes back.
    type Output: Send;

    /// Whether it writes.
    fn access(&self) -> Access {
        Access::Write
    }

    /// Whether what was written is made durable: after a success, and nothing of it otherwise.
    fn is_kept(&self, ran: &Outcome<Self::Output>) -> bool {
        ran.is_ok()
    }

    /// The call as part of a batch, if it can be one.
    fn batched(&self) -> Option<BatchCall> {
        None
    }

    /// What comes back, from the answer to the call in a batch; none for an answer to another call.
    fn answered(&self, _answer: BatchAnswer) -> Option<Self::Output> {
        None
    }

    /// Does it, inside the transaction.
    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output>;
}

/// The runtime of a program that waits for a server; none in one that only opens files.
static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();

/// Runs a future to its end on this thread. Memory and SQLite never make it wait; with [`crate::AnyStore`] on a server
/// the program's runtime waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    finish(future, |future| match RUNTIME.get() {
        Some(runtime) => runtime.block_on(future),
        None => poll_here(future),
    })
}

/// Runs a future of a store that never waits (memory, SQLite) on this thread.
pub fn run_here<F: Future>(future: F) -> F::Output {
    finish(future, poll_here)
}

/// Has a future run to its end by something that need not know what it is, so that this is compiled once.
fn finish<F: Future>(future: F, run: fn(Pin<&mut dyn Future<Output = ()>>)) -> F::Output {
    let mut output = None;
    run(std::pin::pin!(async { output = Some(future.await) }));
    let Some(output) = output else { unreachable!("it ran to its end") };
    output
}

fn poll_here(mut future: Pin<&mut dyn Future<Output = ()>>) {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    while future.as_mut().poll(&mut context).is_pending() {
        std::thread::park();
    }
}

/// Wakes the thread that waits.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Gives the program a runtime of its own choice, before it opens a store. One that serves wants threads that go on
/// between calls.
pub fn use_runtime(runtime: tokio::runtime::Runtime) {
    assert!(RUNTIME.set(runtime).is_ok(), "the program has a runtime already");
}

/// The program's runtime, made when it is first asked for.
pub fn runtime() -> std::io::Result<&'static tokio::runtime::Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Two threads may both have made one; the second is dropped.
    Ok(RUNTIME.get_or_init(|| made))
}
