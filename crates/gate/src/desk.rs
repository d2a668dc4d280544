//! The pure gate behind one lock, with the wakers of the waiters.
//!
//! Every operation takes the lock, lets the pure gate decide, collects the wakers, and calls them after the lock is
//! released, so that no foreign code (a waker, the drop of a task) ever runs under it.
//!
//! A grant is *delivered*: the pure gate gives the slot to the waiter's ticket, and the waiter only collects it.
//! Nothing is requested twice, so nothing can be lost in between.
//!
//! If only time can admit the next waiter, some waiters are timekeepers: they set a timer for the next opening. They
//! are chosen among the waiters that were polled; when one leaves, another is appointed and woken in the same
//! critical section. So no background task is needed, and a waiter must be polled when it is woken, or dropped. One
//! timekeeper would do; there are a few, so that a task that is stuck elsewhere does not delay all.
//!
//! This file, `waiter.rs` and `permit.rs` are compiled a second time by the interleaving tests, with another lock and
//! clock; so they name their imports through `super`.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::watch;

use super::clock::Clock;
use super::saver::Saver;
use super::sync::{Mutex, MutexGuard};
use super::{
    Admission, Advice, Effect, GateState, Moment, NotRunning, Outcome, PureGate, Refusal, Request, Ticket,
};

/// The gate's state, as [`Gate::watch`](crate::Gate::watch) shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Incremented by every operation on the gate.
    pub version: u64,
    /// The state after that operation.
    pub state: GateState,
}

#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    clock: Clock,
    views: watch::Sender<View>,
    saver: Option<Saver>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The waker of each waiter, once it was polled.
    gate: PureGate<Option<Waker>>,
    /// Waiters that were refused and not yet polled since.
    refused: BTreeMap<Ticket, Refusal>,
    /// The number of waiters that have been polled.
    polled: usize,
    /// At most [`TIMEKEEPERS`].
    timekeepers: Vec<Timekeeper>,
    version: u64,
}

/// The number of waiters that keep the timer at once.
const TIMEKEEPERS: usize = 4;

/// A waiter that keeps a timer.
#[derive(Debug)]
struct Timekeeper {
    ticket: Ticket,
    /// The time its timer is set for; `None` while it has been woken to set it.
    armed: Option<Moment>,
}

/// The next action of a waiter.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It has its slot, after waiting this long.
    Granted(Duration),
    Refused(Refusal),
    /// Wait to be woken; set a timer if an opening is given.
    Wait(Option<Moment>),
}

/// The result of a request that may wait.
#[derive(Debug)]
pub(crate) enum Entered {
    Started(Ticket),
    /// It waits to be woken, and sets a timer if an opening is given.
    Queued(Ticket, Option<Moment>),
}

/// Wakers to call once the lock is released. The first one needs no allocation.
#[derive(Default)]
struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }

    fn extend(&mut self, waker: Option<Waker>) {
        waker.into_iter().for_each(|waker| self.push(waker));
    }

    fn wake(self) {
        let Some(first) = self.first else { return };
        first.wake();
        self.rest.into_iter().for_each(Waker::wake);
    }
}

impl Desk {
    pub fn new(gate: PureGate<Option<Waker>>, clock: Clock, saver: Option<Saver>) -> Self {
        let views = watch::Sender::new(View { version: 0, state: gate.state() });
        let state = State { gate, refused: BTreeMap::new(), polled: 0, timekeepers: Vec::new(), version: 0 };
        Self { state: Mutex::new(state), clock, views, saver }
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn saver(&self) -> Option<&Saver> {
        self.saver.as_ref()
    }

    /// Runs one operation on the gate, then wakes the affected waiters.
    pub fn with<R>(&self, operation: impl FnOnce(&mut PureGate<Option<Waker>>, Moment) -> R) -> R {
        self.locked(|state, now| operation(&mut state.gate, now))
    }

    /// A receiver that sees the state after every operation from now on.
    pub fn watch(&self) -> watch::Receiver<View> {
        let receiver = self.views.subscribe();
        self.with(|gate, now| gate.advance(now));
        receiver
    }

    /// Requests a slot; if queued, the waiter counts as polled. One critical section.
    pub fn enter(&self, request: Request, waker: &Waker) -> Result<Entered, Refusal> {
        self.locked(|state, now| match state.gate.request(now, request)? {
            Admission::Started(ticket) => Ok(Entered::Started(ticket)),
            Admission::Queued(ticket) => {
                state.register(ticket, waker);
                Ok(Entered::Queued(ticket, state.keep_time(ticket)))
            }
        })
    }

    /// The next action of a waiter. Registers its waker while it waits.
    pub fn turn(&self, ticket: Ticket, waker: &Waker) -> Turn {
        if let Some(waited) = self.lock().gate.collect(ticket) {
            return Turn::Granted(waited);
        }
        // Dropped after the lock is released: it may hold the last reference to a task.
        let mut replaced = None;
        self.locked(|state, now| {
            state.gate.advance(now);
            if let Some(waited) = state.gate.collect(ticket) {
                return Turn::Granted(waited);
            }
            if let Some(refusal) = state.refused.remove(&ticket) {
                return Turn::Refused(refusal);
            }
            replaced = state.register(ticket, waker);
            Turn::Wait(state.keep_time(ticket))
        })
    }

    /// Leaves the queue, or frees a slot that was never collected.
    pub fn leave(&self, ticket: Ticket) {
        let mut waker = None;
        self.locked(|state, now| {
            state.refused.remove(&ticket);
            state.retire_timekeeper(ticket);
            waker = state.gate.leave(now, ticket).flatten();
            state.polled -= usize::from(waker.is_some());
        });
    }

    /// Ends a request that holds a slot.
    pub fn finish(&self, ticket: Ticket, outcome: Outcome) -> Result<Advice, NotRunning> {
        self.with_saving(|gate, now| gate.finish(now, ticket, outcome))
    }

    /// Runs one operation that may change the block, and stores the block if it did.
    pub fn with_saving<R>(&self, operation: impl FnOnce(&mut PureGate<Option<Waker>>, Moment) -> R) -> R {
        let (answer, version) = self.with(|gate, now| (operation(gate, now), gate.block_version()));
        if let Some(saver) = self.saver.as_ref().filter(|saver| !saver.is_saved(version)) {
            let read =
                |now, unix_ms| self.with(|gate, _| (gate.block_version(), gate.stored_block(now, unix_ms)));
            saver.save(|| self.clock.now(), read);
        }
        answer
    }

    fn locked<R>(&self, operation: impl FnOnce(&mut State, Moment) -> R) -> R {
        let now = self.clock.now();
        let mut wakes = Wakes::default();
        let mut view = None;
        let answer;
        {
            let mut state = self.lock();
            answer = operation(&mut state, now);
            state.deliver(&mut wakes);
            if self.views.receiver_count() > 0 {
                state.version += 1;
                view = Some(View { version: state.version, state: state.gate.state() });
            }
        }
        wakes.wake();
        if let Some(view) = view {
            self.publish(view);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, view: View) {
        self.views.send_if_modified(|shown| {
            let newer = view.version > shown.version;
            if newer {
                *shown = view;
            }
            newer
        });
    }
}

impl State {
    /// Records the gate's effects on waiters, and ensures that there are timekeepers.
    fn deliver(&mut self, wakes: &mut Wakes) {
        while let Some(effect) = self.gate.next_effect() {
            let (ticket, waker) = match effect {
                Effect::Started(ticket, waker) => (ticket, waker),
                Effect::Refused(ticket, refusal, waker) => {
                    self.refused.insert(ticket, refusal);
                    (ticket, waker)
                }
            };
            self.retire_timekeeper(ticket);
            if let Some(waker) = waker {
                self.polled -= 1;
                wakes.push(waker);
            }
        }
        debug_assert!(self.polled <= self.gate.state().queued, "only those who wait are counted");
        if self.polled > 0
            && let Some(opening) = self.gate.next_opening()
        {
            self.appoint_timekeepers(opening, wakes);
        }
    }

    /// Wakes the timekeepers whose timers are set too late, and appoints missing ones.
    fn appoint_timekeepers(&mut self, opening: Moment, wakes: &mut Wakes) {
        let Self { gate, timekeepers, .. } = self;
        for keeper in
            timekeepers.iter_mut().filter(|keeper| keeper.armed.is_some_and(|armed| armed > opening))
        {
            keeper.armed = None;
            wakes.extend(gate.note_mut(keeper.ticket).and_then(|waker| waker.clone()));
        }
        while timekeepers.len() < TIMEKEEPERS.min(self.polled) {
            let is_new = |ticket| timekeepers.iter().all(|keeper| keeper.ticket != ticket);
            let found = gate.find_waiter(|ticket, waker| waker.is_some() && is_new(ticket));
            let Some(ticket) = found else { break };
            timekeepers.push(Timekeeper { ticket, armed: None });
            wakes.extend(gate.note_mut(ticket).and_then(|waker| waker.clone()));
        }
    }

    /// Stores a waiter's waker. Returns the one it replaces, to be dropped once the lock is released.
    fn register(&mut self, ticket: Ticket, waker: &Waker) -> Option<Waker> {
        let note = self.gate.note_mut(ticket)?;
        if note.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        let replaced = note.replace(waker.clone());
        self.polled += usize::from(replaced.is_none());
        replaced
    }

    /// The opening this waiter must set its timer for, if it is a timekeeper.
    fn keep_time(&mut self, ticket: Ticket) -> Option<Moment> {
        let opening = self.gate.next_opening();
        let known = self.timekeepers.iter().position(|keeper| keeper.ticket == ticket);
        match (opening, known) {
            (Some(_), Some(index)) => self.timekeepers[index].armed = opening,
            (Some(_), None) if self.timekeepers.len() < TIMEKEEPERS => {
                self.timekeepers.push(Timekeeper { ticket, armed: opening });
            }
            (Some(_), None) => return None,
            (None, _) => self.retire_timekeeper(ticket),
        }
        opening
    }

    fn retire_timekeeper(&mut self, ticket: Ticket) {
        self.timekeepers.retain(|keeper| keeper.ticket != ticket);
    }
}
