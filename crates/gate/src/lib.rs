//! One budget for many callers of a rate-limited API.
//!
//! Ten agents share one API key. Without coordination each retries by itself: urgent work waits behind the rest, one
//! 429 becomes ten, and the length of the queue is unknown. A semaphore limits how many calls run at once and nothing
//! more. This crate is a gate for all of them:
//!
//! - **slots**: a limit on concurrent requests, held by RAII permits;
//! - **a priority queue** without starvation;
//! - **a sliding window** of starts, paced, and token windows if the provider has them;
//! - **one backoff for all callers** after a 429, with a ramp instead of a thundering herd when it ends;
//! - **a view**: running and waiting requests, their positions and estimated waits.
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
//! [`PureGate`] decides. It is a state machine without I/O, clock or async: `now` is passed in as a [`Moment`], and
//! changes for waiting requests are returned as [`Effect`]s. It can be driven by a simulator, a test, or another
//! runtime. [`Gate`] is the handle for tokio around it: one lock, the wakers of the waiters, one clock. It has no
//! background task and no unsafe code.
//!
//! # How a request passes
//!
//! 1. **Its place.** A waiter of level L (critical 0 … low 3) is ordered as if it had arrived L × `priority_spread`
//!    later. The key never changes while it waits, so urgent work overtakes, and no request waits more than three
//!    spreads behind later arrivals.
//! 2. **The block.** Nothing starts while a 429 blocks the gate.
//! 3. **A slot.** `max_concurrent`, fewer while the gate ramps up.
//! 4. **The budget** of its model group: never more than `max_requests_per_window` starts in any period of
//!    `rate_window`; after `burst` immediate starts they are spread evenly, because providers refill by the second;
//!    token windows count what responses report.
//!
//! A request that leaves the queue passes the same four checks as one that finds the gate open.
//!
//! # Waiting
//!
//! A waiter owns its place. A slot is *delivered* to it and never requested again, so no wake-up can be lost between
//! two polls. Dropping the future, or the ticket of [`Gate::try_acquire`], leaves the queue; a slot that was
//! delivered and never collected is freed. If a block begins between delivery and collection, the waiter returns to
//! its place, because nothing starts during a block. If only time can admit the next waiter, a few of the waiters
//! keep a timer for all, and pass that duty on when they leave.
//!
//! Callers must do what every queue of futures requires: poll a future that is woken, or drop it. A future that is
//! kept and never polled again keeps its slot; four of them, if they keep the timer, would delay the others until the
//! next operation on the gate.
//!
//! # After a 429
//!
//! | event | effect |
//! |---|---|
//! | 429 | blocked until `max(so far, now + max(retry_after, backoff))`; backoff 5 s doubling to 120 s; the slot is free immediately |
//! | fifty 429s of calls that were in flight together | one hit; each may still lengthen the block by its own `retry_after` |
//! | the block ends | slots and pace grow evenly over `recovery_period` |
//! | a fresh start | no ramp; a restart within `recovery_period` of a block's end continues its ramp |
//! | a success that started before the block's end | nothing |
//! | a success that started after it | the hits are forgotten |
//! | overload (529, 503) | no block; advice to retry that call after 0.5 s doubling to 16 s; slots and pace are halved and grow back |
//! | `retry_after` above 300 s, or a quota | every request is refused until the reset, or until [`Gate::unblock`] |
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
