//! One budget for many callers of a rate-limited API.
//!
//! Ten agents share one API key. Left alone, each retries by itself: urgent work waits behind the rest,
//! one 429 becomes ten, and nobody can say how long the queue is. A semaphore bounds how many calls
//! run at once and nothing more. This crate is the gate they all pass instead:
//!
//! - **slots**: so many requests at once, held by RAII permits;
//! - **a queue by priority** that starves no one;
//! - **a sliding window** of starts, paced, and token windows where the provider has them;
//! - **one back-off for all** after a 429, with a ramp instead of a herd when it ends;
//! - **figures**: who runs, who waits, at which position, for how long yet.
//!
//! ```
//! use rota_gate::{Advice, Gate, GateConfig, Outcome, Priority, parse_retry_after};
//! # async fn call_the_api() -> (u16, Option<&'static str>) { (429, Some("2")) }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = Gate::new(GateConfig { max_concurrent: 2, ..GateConfig::default() })?;
//!
//! let permit = gate.acquire("exec-001", Priority::High).await?;
//! let (status, header) = call_the_api().await;
//! if status == 429 {
//!     let retry_after = header.and_then(|value| parse_retry_after(value, std::time::SystemTime::now()));
//!     let advice = permit.report(Outcome::RateLimited { retry_after })?;
//!     assert!(matches!(advice, Advice::AskAgain { .. }), "acquire again: the gate knows when");
//! }
//! assert_eq!(gate.state().hits, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # The two halves
//!
//! [`PureGate`] decides. It is a state machine without I/O, clock or async: `now` comes in as a
//! [`Moment`], what follows for those who wait goes out as [`Effect`]s. It can be driven by a simulator,
//! a test, or another runtime. [`Gate`] is the handle for tokio around it: one lock, the wakers
//! of those who wait, one clock. It has no background task and no unsafe code.
//!
//! # How a request passes
//!
//! 1. **Its place.** A waiter of level L (critical 0 … low 3) stands as if it had arrived L ×
//!    `priority_spread` later. The key never changes while it waits, so urgent work overtakes, and no one
//!    waits more than three spreads behind later arrivals.
//! 2. **The block.** Nothing starts while a 429 blocks the gate.
//! 3. **A slot.** `max_concurrent`, fewer while the gate ramps.
//! 4. **The budget** of its model group: never more than `max_requests_per_window` starts in any stretch of
//!    `rate_window`; after `burst` starts at once they are spread evenly, because providers refill by
//!    the second; token windows count what responses report.
//!
//! A promoted request passes the same four as one that finds the gate open.
//!
//! # Waiting
//!
//! A waiter owns its place. A slot is *delivered* to it, never asked for again, so no wake-up can be lost
//! between two questions. Dropping the future, or the ticket of [`Gate::try_acquire`], leaves the queue;
//! a slot that was delivered and never collected is given back. If a block falls between delivery and
//! collection, the waiter is back in its place: nothing starts inside a block. When only time can let the next one
//! through, a few of the waiters keep a timer for all, and hand that duty on when they leave.
//!
//! What this asks of callers is what every queue of futures asks: poll a future that is woken, or drop
//! it. One that is kept and never polled again keeps the slot it was given; four of them, if it fell
//! to them to keep the time, would keep the others waiting until the next operation on the gate.
//!
//! # After a 429
//!
//! | what happens | what follows |
//! |---|---|
//! | 429 | blocked until `max(so far, now + max(retry_after, backoff))`; backoff 5 s doubling to 120 s; the slot is free at once |
//! | fifty 429s of calls that were in flight together | one hit; each may still lengthen the block by its own `retry_after` |
//! | the block ends | slots and pace grow evenly over `recovery_period` |
//! | a fresh start | no ramp; a restart within `recovery_period` of a block's end goes on with its ramp |
//! | a success that started before the block's end | nothing |
//! | a success that started after it | the hits are forgotten |
//! | overload (529, 503) | no block; advice to try that call again after 0.5 s doubling to 16 s; slots and pace are halved and grow back |
//! | `retry_after` above 300 s, or a quota | everyone is refused at once until the reset, or until [`Gate::unblock`] |
//!
//! A [`BlockStore`] keeps the block across restarts; see [`Gate::with_store`]. Limits can be changed while the gate
//! runs; see [`Gate::reconfigure`].
//!
//! # Costs
//!
//! Joining, being served, leaving and asking for a position cost O(log n) or less, amortised, in the
//! number of waiters, per model group. Memory follows the number of requests that wait or run,
//! plus eight bytes for each start in the window.

mod block;
mod clock;
mod config;
mod desk;
mod gate;
mod group;
mod moment;
mod outcome;
mod pace;
mod permit;
mod priority;
mod pure;
mod queue;
mod ramp;
mod reconfigure;
mod request;
mod retry_after;
mod saver;
mod slab;
mod stats;
mod stored_block;
mod sync;
mod tokens;
mod view;
mod waiter;
mod window;

pub use block::{QUOTA_ABOVE, overload_wait};
pub use config::{ConfigError, DEFAULT_GROUP, GateConfig, GroupConfig};
pub use desk::View;
pub use gate::{Gate, OpenError, TryAcquire};
pub use moment::Moment;
pub use outcome::{Advice, CancelError, NotRunning, Outcome, Refusal, RejectReason, Usage};
pub use permit::Permit;
pub use priority::{Priority, UnknownPriority};
pub use pure::{Admission, Answer, Effect, PureGate};
pub use request::{Request, RequestId};
pub use retry_after::parse_retry_after;
pub use slab::Ticket;
pub use stats::Stats;
pub use stored_block::{BlockEnd, BlockStore, StoreFault, StoredBlock};
pub use view::{BlockView, Details, GateState, GroupView, QueuedRequest, RunningRequest};
pub use waiter::{Acquire, QueuedTicket};
