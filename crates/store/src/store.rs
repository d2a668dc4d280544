//! The store: transactions, and what they are for.

use std::future::Future;
use std::sync::OnceLock;

use crate::crash;
use crate::fault::{Fault, Outcome};
use crate::tx::Tx;

/// What a transaction may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// See one snapshot.
    Read,
    /// Change things.
    Write,
}

/// A place that keeps tasks.
pub trait Store: Send + Sync {
    /// Its transactions.
    type Tx: Tx;

    /// Begins one. Waits its turn for a bounded time.
    fn begin(&self, access: Access) -> impl Future<Output = Result<Self::Tx, Fault>> + Send;

    /// Carries out one intent in one transaction: all of it, or nothing and the reason.
    fn perform<I: Intent>(&self, intent: &I) -> impl Future<Output = Outcome<I::Output>> + Send {
        perform_once(self, intent)
    }
}

/// One intent in one transaction, where nothing has to be tried again.
pub(crate) async fn perform_once<S: Store + ?Sized, I: Intent>(store: &S, intent: &I) -> Outcome<I::Output> {
    crash::point("before_begin");
    let mut tx = store.begin(intent.access()).await?;
    let ran = intent.run(&mut tx).await;
    if intent.access() == Access::Write && intent.is_kept(&ran) {
        crash::point("after_write");
        tx.commit().await?;
        crash::point("after_commit");
    }
    ran
}

/// Something a caller wants, carried out in one transaction.
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

    /// Whether it may be done at once where a store can ([`Tx::at_once`]). Only what is a transaction of its own may:
    /// an intent that is a part of another one must end with it.
    fn may_be_at_once(&self) -> bool {
        false
    }

    /// Does it, inside the transaction.
    fn run<T: Tx>(&self, tx: &mut T) -> impl Future<Output = Outcome<Self::Output>> + Send;
}

/// The runtime of a program that waits for a server; none in one that only opens files.
static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();

/// Runs a future to its end on this thread. Memory and SQLite never make it wait; with [`crate::AnyStore`] on a server
/// the program's runtime waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    match RUNTIME.get() {
        Some(runtime) => runtime.block_on(future),
        None => run_here(future),
    }
}

/// Runs a future of a store that never waits (memory, SQLite) on this thread.
pub fn run_here<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
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
