//! The store, its transactions, and the intents that they execute.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Poll, Waker};

use async_trait::async_trait;
use tokio::runtime::{Handle, RuntimeFlavor};

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

/// A boxed future: the function that returns it is compiled once, not again in every crate that awaits it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place that keeps tasks.
pub trait Store: Send + Sync {
    /// Begins a transaction. Waits for other writers, for a bounded time.
    fn begin(&self, access: Access) -> Pending<'_, Result<AnyTx, Fault>>;

    /// Executes an intent in one transaction: all of it, or nothing and the fault.
    fn execute<'a>(&'a self, intent: &'a mut dyn ErasedIntent) -> Pending<'a, Result<(), Fault>>;

    /// Executes an intent in one transaction: all of it, or nothing and the reason.
    fn perform<I: Intent>(&self, intent: &I) -> impl Future<Output = Outcome<I::Output>> + Send
    where
        Self: Sized,
    {
        perform_alone(self, intent)
    }
}

/// Executes an intent in a transaction of its own.
pub(crate) async fn perform_alone<I: Intent>(store: &dyn Store, intent: &I) -> Outcome<I::Output> {
    let mut erased = WithOutcome { intent, outcome: None };
    store.execute(&mut erased).await?;
    let Some(outcome) = erased.outcome else { unreachable!("an executed intent has an outcome") };
    outcome
}

/// An intent without its type, and where its outcome goes, so that stores are compiled once.
pub trait ErasedIntent: Send {
    /// Whether it writes.
    fn access(&self) -> Access;

    /// Does it and keeps the outcome, unless that is a fault; says whether what was written is made durable.
    fn run<'a>(&'a mut self, tx: &'a mut AnyTx) -> Pending<'a, Result<bool, Fault>>;
}

struct WithOutcome<'a, I: Intent> {
    intent: &'a I,
    outcome: Option<Outcome<I::Output>>,
}

impl<I: Intent> ErasedIntent for WithOutcome<'_, I> {
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

/// One transaction on a store that never yields (memory, SQLite). The whole transaction is one poll, so a caller that is
/// cancelled is cancelled before it or after it.
pub(crate) fn execute_in_place<'a>(
    store: &'a dyn Store,
    intent: &'a mut dyn ErasedIntent,
) -> Pending<'a, Result<(), Fault>> {
    Box::pin(async move {
        block_in_place(|| {
            let transaction = pin!(async {
                crash::point("before_begin");
                let mut tx = store.begin(intent.access()).await?;
                if intent.run(&mut tx).await? {
                    crash::point("after_write");
                    tx.commit().await?;
                    crash::point("after_commit");
                }
                Ok(())
            });
            match transaction.poll(&mut std::task::Context::from_waker(Waker::noop())) {
                Poll::Ready(executed) => executed,
                Poll::Pending => unreachable!("a transaction in this process has nothing to wait for"),
            }
        })
    })
}

/// A request of a caller, executed in one transaction.
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

/// Runs work that blocks its thread (a file, a lock) without keeping other tasks of a server waiting: on a runtime with
/// several threads the thread leaves the runtime meanwhile; elsewhere nothing runs beside it.
pub(crate) fn block_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}
