//! The public handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::{ConfigError, GateConfig};
use crate::desk::{Desk, View};
use crate::outcome::{Advice, CancelError, NotRunning, Outcome, RejectReason};
use crate::permit::Permit;
use crate::priority::Priority;
use crate::pure::{Answer, PureGate};
use crate::request::{Request, RequestId};
use crate::saver::Saver;
use crate::stats::Stats;
use crate::stored_block::{BlockStore, StoreFault};
use crate::view::{Details, GateState};
use crate::waiter::{Acquire, QueuedTicket};

/// One budget for many callers. Clones share it.
///
/// ```
/// use rota_gate::{Gate, GateConfig, Outcome, Priority, Usage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::new(GateConfig::default())?;
/// let permit = gate.acquire("exec-001", Priority::High).await?;
/// // … call the API …
/// permit.report(Outcome::Success(Usage { input_tokens: 1_200, output_tokens: 80 }))?;
/// assert_eq!(gate.stats().completed, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Gate {
    desk: Arc<Desk>,
}

/// The answer of [`Gate::try_acquire`].
#[derive(Debug)]
pub enum TryAcquire {
    /// The request may start.
    Ready(Permit),
    /// All slots are taken.
    Queued {
        /// Await it to get the permit; drop it to leave the queue.
        ticket: QueuedTicket,
        /// 1 for the next in the queue.
        position: usize,
        /// Position × average run time ÷ slots.
        estimated_wait: Duration,
    },
    /// The block or the budget delays it; the request was not queued.
    RateLimited {
        /// When to try again; `None` until the gate is unblocked.
        retry_after: Option<Duration>,
    },
    /// The request was rejected.
    Rejected {
        /// The reason.
        reason: RejectReason,
    },
}

/// Why a gate with a store could not be built.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The stored block could not be read; it might forbid every start.
    #[error(transparent)]
    Store(#[from] StoreFault),
}

impl Gate {
    /// Builds a gate without persistence.
    ///
    /// # Errors
    /// A value of the configuration is invalid, for example a limit of zero.
    pub fn new(config: GateConfig) -> Result<Self, ConfigError> {
        let desk = Desk::new(PureGate::new(&config)?, Clock::start(), None);
        Ok(Self { desk: Arc::new(desk) })
    }

    /// Builds a gate whose block is stored under the upstream's name, and adopts the stored block. A gate that finds
    /// a block, or one that ended within the recovery period, ramps from the block's end; any other starts at full
    /// speed.
    ///
    /// # Errors
    /// A value of the configuration is invalid, or the store failed.
    pub fn with_store(
        config: GateConfig,
        upstream: &str,
        store: Arc<dyn BlockStore>,
    ) -> Result<Self, OpenError> {
        let gate = PureGate::new(&config)?;
        let saver = Saver::new(store, upstream);
        let desk = Desk::new(gate, Clock::start(), Some(saver));
        let gate = Self { desk: Arc::new(desk) };
        let Some(saver) = gate.desk.saver() else { return Ok(gate) };
        if let Some(stored) = saver.load()? {
            let unix_ms = saver.unix_millis();
            let ended_ago = stored.ended_ago(unix_ms).filter(|ago| *ago < config.recovery_period);
            gate.desk.with(|gate, now| {
                gate.adopt_block(now, unix_ms, stored);
                if let Some(ended_ago) = ended_ago {
                    gate.resume_ramp(now, ended_ago);
                }
            });
        }
        Ok(gate)
    }

    /// Waits for a slot. Dropping the future leaves the queue; dropping the permit frees the slot.
    pub fn acquire(&self, id: impl Into<RequestId>, priority: Priority) -> Acquire {
        self.acquire_request(Request::new(id).priority(priority))
    }

    /// Waits for a slot, for a model or with the default priority.
    pub fn acquire_request(&self, request: Request) -> Acquire {
        Acquire::new(Arc::clone(&self.desk), request)
    }

    /// Requests a slot without waiting for a block or a budget.
    ///
    /// ```
    /// use rota_gate::{Gate, GateConfig, Priority, TryAcquire};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gate = Gate::new(GateConfig { max_concurrent: 1, ..GateConfig::default() })?;
    /// let TryAcquire::Ready(permit) = gate.try_acquire("a", Priority::Normal) else { panic!() };
    /// let TryAcquire::Queued { ticket, position, .. } = gate.try_acquire("b", Priority::Normal) else { panic!() };
    /// assert_eq!(position, 1);
    /// drop(permit);
    /// let _permit = ticket.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self, id: impl Into<RequestId>, priority: Priority) -> TryAcquire {
        self.try_acquire_request(Request::new(id).priority(priority))
    }

    /// Requests a slot without waiting, for a model or with the default priority.
    pub fn try_acquire_request(&self, request: Request) -> TryAcquire {
        match self.desk.with(|gate, now| gate.try_request(now, request)) {
            Answer::Ready(ticket) => {
                TryAcquire::Ready(Permit::new(Arc::clone(&self.desk), ticket, Duration::ZERO))
            }
            Answer::Queued { ticket, position, estimated_wait } => {
                let ticket = QueuedTicket::new(Arc::clone(&self.desk), ticket);
                TryAcquire::Queued { ticket, position, estimated_wait }
            }
            Answer::RateLimited { retry_after } => TryAcquire::RateLimited { retry_after },
            Answer::Rejected(reason) => TryAcquire::Rejected { reason },
        }
    }

    /// Removes a waiting request from the queue; its caller gets an error.
    ///
    /// # Errors
    /// No waiting request has this name.
    pub fn cancel(&self, id: impl Into<RequestId>) -> Result<(), CancelError> {
        let id = id.into();
        self.desk.with(|gate, now| gate.cancel(now, &id))
    }

    /// Reports how a request ended, by its name: frees the slot and returns the advice. The holder of the permit uses
    /// [`Permit::report`]; if the request was ended by name, dropping the permit frees nothing more.
    ///
    /// # Errors
    /// No request with this name has a slot; nothing was freed.
    pub fn report(&self, id: impl Into<RequestId>, outcome: Outcome) -> Result<Advice, NotRunning> {
        let id = id.into();
        self.desk.with_saving(|gate, now| {
            let ticket = gate.ticket_of(&id).ok_or(NotRunning)?;
            gate.finish(now, ticket, outcome)
        })
    }

    /// The gate's current state.
    pub fn state(&self) -> GateState {
        self.desk.with(|gate, now| {
            gate.advance(now);
            gate.state()
        })
    }

    /// Running and waiting requests. Costs O(n log n) in the number of requests, under the gate's lock.
    pub fn details(&self) -> Details {
        self.desk.with(|gate, now| {
            gate.advance(now);
            gate.details()
        })
    }

    /// Counters since the gate was built.
    pub fn stats(&self) -> Stats {
        self.desk.with(|gate, _| gate.stats())
    }

    /// A channel with the state after every operation, always the latest. A change by time alone (a block that ends
    /// while nothing waits) appears at the next operation.
    ///
    /// ```
    /// use rota_gate::{Gate, GateConfig, Priority};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gate = Gate::new(GateConfig::default())?;
    /// let mut views = gate.watch();
    /// let _permit = gate.acquire("a", Priority::Normal).await?;
    /// views.changed().await?;
    /// assert_eq!(views.borrow_and_update().state.running, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> watch::Receiver<View> {
        self.desk.watch()
    }

    /// Ends a block, including a quota's, and clears the hits; the gate ramps up from here.
    pub fn unblock(&self) {
        self.desk.with_saving(|gate, now| gate.unblock(now));
    }

    /// Applies another configuration immediately: slots, windows, groups, waits. Running requests continue, waiters
    /// keep their time of arrival, and counted starts stay counted.
    ///
    /// ```
    /// use rota_gate::{Gate, GateConfig};
    ///
    /// let gate = Gate::new(GateConfig::default())?;
    /// gate.reconfigure(&GateConfig { max_concurrent: 3, ..GateConfig::default() })?;
    /// assert_eq!(gate.state().slots, 3);
    /// # Ok::<(), rota_gate::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// A value is invalid; nothing changed.
    pub fn reconfigure(&self, config: &GateConfig) -> Result<(), ConfigError> {
        self.desk.with(|gate, now| gate.reconfigure(now, config))
    }

    /// The priority of a request without one.
    pub fn default_priority(&self) -> Priority {
        self.desk.with(|gate, _| gate.default_priority)
    }

    /// Refuses all waiting and later requests. Running requests continue.
    pub fn close(&self) {
        self.desk.with(|gate, now| gate.close(now));
    }

    /// Adopts the block in the store, for a gate whose upstream another host uses too. It can only extend the block.
    /// Does nothing without a store.
    ///
    /// # Errors
    /// The store failed; the block is unchanged.
    pub fn refresh_block(&self) -> Result<(), StoreFault> {
        let Some(saver) = self.desk.saver() else { return Ok(()) };
        if let Some(stored) = saver.load()? {
            let unix_ms = saver.unix_millis();
            self.desk.with(|gate, now| gate.adopt_block(now, unix_ms, stored));
        }
        Ok(())
    }

    /// The error of the last save, if the stored block is older than the gate's.
    pub fn store_fault(&self) -> Option<Arc<StoreFault>> {
        self.desk.saver().and_then(Saver::fault)
    }
}
