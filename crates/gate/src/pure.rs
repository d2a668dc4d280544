//! The pure gate, which makes every decision.
//!
//! It does no I/O, reads no clock and never waits: `now` is passed to each call, and changes for waiting requests are
//! returned as [`Effect`]s. Time never runs backwards; a `now` before the last one counts as the last one.
//!
//! A request passes three checks, whether it starts immediately or is promoted from the queue: the block, the slots
//! (fewer while the gate ramps up), and the budget of its model group. Only [`PureGate::advance`] admits waiters;
//! every operation ends in it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::block::{Backoff, Block, End, overload_wait};
use crate::config::{ConfigError, GateConfig};
use crate::group::Group;
use crate::moment::{Moment, micros};
use crate::outcome::{Advice, CancelError, NotRunning, Outcome, Refusal, RejectReason, Usage};
use crate::priority::Priority;
use crate::queue::Place;
use crate::ramp::Ramp;
use crate::request::{Precomputed, Request, RequestId};
use crate::slab::{Slab, Ticket};
use crate::stats::Counters;

/// The result of a request that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It has a slot.
    Started(Ticket),
    /// It waits; an [`Effect`] will name it.
    Queued(Ticket),
}

/// The result of a request that waits only for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It has a slot.
    Ready(Ticket),
    /// It waits for a slot.
    Queued {
        /// Its ticket; an [`Effect`] will name it.
        ticket: Ticket,
        /// 1 for the next in the queue.
        position: usize,
        /// Position × average run time ÷ slots.
        estimated_wait: Duration,
    },
    /// The block or the budget delays it; it was not queued.
    RateLimited {
        /// When to try again; `None` until the gate is unblocked.
        retry_after: Option<Duration>,
    },
    /// It was rejected.
    Rejected(RejectReason),
}

/// A change for a request that was waiting, with the caller's note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<N = ()> {
    /// It has a slot now, to be collected by [`PureGate::collect`]. Until then the slot may be withdrawn: if its
    /// caller leaves, or by a block, which returns the request to its place in the queue.
    Started(Ticket, N),
    /// It left the queue without a slot.
    Refused(Ticket, Refusal, N),
}

/// A known request.
#[derive(Debug)]
pub(crate) struct Entry<N> {
    pub id: RequestId,
    pub priority: Priority,
    pub group: usize,
    pub model: Option<Arc<str>>,
    pub arrived: Moment,
    pub phase: Phase,
    pub note: N,
}

/// The progress of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// It waits.
    Queued,
    /// It has a slot that its caller has not collected yet.
    Granted { started: Moment },
    /// Its caller holds a permit.
    Running { started: Moment },
}

impl<N> Entry<N> {
    fn is_granted(&self) -> bool {
        matches!(self.phase, Phase::Granted { .. })
    }

    pub fn started(&self) -> Option<Moment> {
        match self.phase {
            Phase::Queued => None,
            Phase::Granted { started } | Phase::Running { started } => Some(started),
        }
    }
}

/// Capacity that is kept even if unused.
const SMALL: usize = 64;

/// The gate as a state machine. `N` is a note that the caller attaches to each request; the gate never reads it.
///
/// ```
/// use rota_gate::{Admission, Effect, GateConfig, Moment, Outcome, PureGate, Request, Usage};
///
/// let mut gate = <PureGate>::new(&GateConfig { max_concurrent: 1, ..GateConfig::default() })?;
/// let now = Moment::ZERO;
/// let Ok(Admission::Started(first)) = gate.request(now, Request::new("a")) else { panic!() };
/// let Ok(Admission::Queued(second)) = gate.request(now, Request::new("b")) else { panic!() };
/// gate.finish(Moment::from_secs(2), first, Outcome::Success(Usage::default())).unwrap();
/// assert_eq!(gate.next_effect(), Some(Effect::Started(second, ())));
/// # Ok::<(), rota_gate::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct PureGate<N = ()> {
    pub(crate) slots: usize,
    pub(crate) spread_micros: u64,
    pub(crate) default_priority: Priority,
    pub(crate) groups: Vec<Group>,
    pub(crate) ramp: Ramp,
    pub(crate) block: Block,
    /// When an overload last slowed the gate down; requests that started before it belong to the same overload.
    slowed: Option<Moment>,
    pub(crate) entries: Slab<Entry<N>>,
    ids: HashMap<RequestId, Ticket, Precomputed>,
    /// Requests that got a slot since the last cleanup; some have collected it.
    granted: Vec<Ticket>,
    pub(crate) running: usize,
    pub(crate) queued: usize,
    pub(crate) now: Moment,
    pub(crate) closed: bool,
    pub(crate) counters: Counters,
    effects: VecDeque<Effect<N>>,
}

impl<N: Default> PureGate<N> {
    /// Builds a gate.
    ///
    /// # Errors
    /// A value of the configuration is invalid; see [`GateConfig::validate`].
    pub fn new(config: &GateConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let backoff = Backoff {
            initial_micros: micros(config.initial_backoff),
            max_micros: micros(config.max_backoff),
        };
        Ok(Self {
            slots: config.max_concurrent,
            spread_micros: micros(config.priority_spread),
            default_priority: config.default_priority,
            groups: Group::all(config),
            ramp: Ramp::full(micros(config.recovery_period)),
            block: Block::new(backoff),
            slowed: None,
            entries: Slab::default(),
            ids: HashMap::default(),
            granted: Vec::new(),
            running: 0,
            queued: 0,
            now: Moment::ZERO,
            closed: false,
            counters: Counters::default(),
            effects: VecDeque::new(),
        })
    }

    /// Requests a slot and waits in the queue if there is none.
    ///
    /// # Errors
    /// The name is in use, the quota is spent, or the gate is closed.
    pub fn request(&mut self, now: Moment, request: Request) -> Result<Admission, Refusal> {
        self.advance(now);
        self.check_name(&request.id).map_err(Refusal::Rejected)?;
        if self.block.is_quota(self.now) {
            return Err(Refusal::Quota { resets_in: self.block.quota_until().left(self.now) });
        }
        let group = Group::serving(&self.groups, request.model.as_deref());
        if self.can_start(group) {
            return Ok(Admission::Started(self.start_at_once(request, group)));
        }
        Ok(Admission::Queued(self.enqueue(request, group)))
    }

    /// Requests a slot. Waits in the queue only for a slot, not for a block or a budget.
    pub fn try_request(&mut self, now: Moment, request: Request) -> Answer {
        self.advance(now);
        if let Err(reason) = self.check_name(&request.id) {
            return Answer::Rejected(reason);
        }
        let group = Group::serving(&self.groups, request.model.as_deref());
        if let Some(retry_after) = self.limited_for(group) {
            self.counters.stats.rate_limited += 1;
            return Answer::RateLimited { retry_after };
        }
        if self.can_start(group) {
            return Answer::Ready(self.start_at_once(request, group));
        }
        let ticket = self.enqueue(request, group);
        // A request that was just queued exists.
        let position = self.position(ticket).unwrap_or(self.queued);
        Answer::Queued { ticket, position, estimated_wait: self.estimated_wait(position) }
    }

    /// Records that the caller of a promoted request has collected its slot, and returns how long it waited. `None`
    /// if there is nothing to collect, for example because a block returned it to the queue.
    pub fn collect(&mut self, ticket: Ticket) -> Option<Duration> {
        let entry = self.entries.get_mut(ticket)?;
        let Phase::Granted { started } = entry.phase else { return None };
        entry.phase = Phase::Running { started };
        Some(started.since(entry.arrived))
    }

    /// Ends a request that has a slot: frees the slot, applies the outcome, admits the next ones.
    ///
    /// # Errors
    /// The request holds no slot; nothing was freed.
    pub fn finish(&mut self, now: Moment, ticket: Ticket, outcome: Outcome) -> Result<Advice, NotRunning> {
        self.now = self.now.max(now);
        let started = self.started_at(ticket)?;
        let Some(entry) = self.forget(ticket) else { return Err(NotRunning) };
        if let Phase::Granted { .. } = entry.phase {
            self.effects.push_back(Effect::Refused(ticket, Refusal::Cancelled, entry.note));
        }
        self.running -= 1;
        self.counters.completed(self.now.micros_since(started));
        let advice = self.learn(started, entry.group, outcome);
        self.advance(now);
        Ok(advice)
    }

    /// Counts tokens a response has reported before its end.
    ///
    /// # Errors
    /// The request holds no slot; nothing was counted.
    pub fn count(&mut self, now: Moment, ticket: Ticket, usage: Usage) -> Result<(), NotRunning> {
        self.now = self.now.max(now);
        self.started_at(ticket)?;
        let entry = self.entries.get(ticket).ok_or(NotRunning)?;
        self.groups[entry.group].count(self.now, usage);
        Ok(())
    }

    /// Prevents starts of a running request's group for a while, because little of the provider's budget is left.
    ///
    /// # Errors
    /// The request holds no slot; nothing changed.
    pub fn hold_back(&mut self, now: Moment, ticket: Ticket, wait: Duration) -> Result<(), NotRunning> {
        self.now = self.now.max(now);
        self.started_at(ticket)?;
        let entry = self.entries.get(ticket).ok_or(NotRunning)?;
        self.groups[entry.group].hold_back(self.now, wait);
        Ok(())
    }

    /// Removes a request whose caller left before it had a permit, and returns its note. `None` if there is no such
    /// request.
    pub fn leave(&mut self, now: Moment, ticket: Ticket) -> Option<N> {
        let note = self.withdraw(ticket);
        self.advance(now);
        note
    }

    /// Removes a waiting request from the queue by its name; an [`Effect`] informs its caller.
    ///
    /// # Errors
    /// No waiting request has this name.
    pub fn cancel(&mut self, now: Moment, id: &RequestId) -> Result<(), CancelError> {
        let ticket = self.ticket_of(id).ok_or(CancelError::Unknown)?;
        let note = self.withdraw(ticket).ok_or(CancelError::Running)?;
        self.effects.push_back(Effect::Refused(ticket, Refusal::Cancelled, note));
        self.advance(now);
        Ok(())
    }

    /// Admits every waiter that may start by now, in order. Every operation ends here.
    pub fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        while self.queued > 0 && self.has_free_slot() && !self.block.is_blocked(self.now) {
            let Some((group, priority, ticket)) = self.next_waiter() else { break };
            self.groups[group].queue.remove(priority, ticket);
            self.queued -= 1;
            let started = self.now;
            let Some(entry) = self.entries.get_mut(ticket) else { continue };
            entry.phase = Phase::Granted { started };
            let waited = started.micros_since(entry.arrived);
            let note = std::mem::take(&mut entry.note);
            self.start(group, waited);
            self.granted.push(ticket);
            self.effects.push_back(Effect::Started(ticket, note));
        }
        if self.granted.len() > 2 * self.running + SMALL {
            let entries = &self.entries;
            self.granted.retain(|ticket| entries.get(*ticket).is_some_and(Entry::is_granted));
            self.granted.shrink_to(2 * self.running + SMALL);
        }
    }

    /// Changes for waiting requests, oldest first.
    pub fn next_effect(&mut self) -> Option<Effect<N>> {
        let effect = self.effects.pop_front();
        if effect.is_none() && self.effects.capacity() > SMALL {
            self.effects.shrink_to(SMALL);
        }
        effect
    }

    /// When time alone will admit the next waiter. `None` if nothing waits, or only the end of a running request can
    /// help.
    pub fn next_opening(&self) -> Option<Moment> {
        if self.queued == 0 || self.running >= self.slots {
            return None;
        }
        let slot = self.ramp.slots_open_at(self.running, self.slots)?;
        let End::At(unblocked) = self.block.until() else { return None };
        let waiting = self.groups.iter().filter(|group| !group.queue.is_empty());
        let budget = waiting.filter_map(|group| group.opens_at(self.now, &self.ramp)).min()?;
        Some(slot.max(unblocked).max(budget).max(self.now))
    }

    /// Ends a block on an operator's request; the gate ramps up from here.
    pub fn unblock(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.block.is_blocked(self.now) || self.block.hits() > 0 {
            self.block.lift(self.now);
            self.begin_ramp(self.now);
        }
        self.advance(now);
    }

    /// Refuses all waiting and later requests. Running requests continue.
    pub fn close(&mut self, now: Moment) {
        self.now = self.now.max(now);
        self.closed = true;
        self.refuse_waiters(Refusal::Rejected(RejectReason::Closed));
    }

    pub(crate) fn longest_backoff(&self) -> Duration {
        self.block.longest_backoff()
    }

    /// Incremented by every change of the block that must survive a restart.
    pub fn block_version(&self) -> u64 {
        self.block.version()
    }

    /// Adopts a block of an earlier process or another host.
    pub(crate) fn adopt(&mut self, now: Moment, until: End, quota_until: End, hits: u32) {
        self.now = self.now.max(now);
        if self.block.adopt(self.now, until, quota_until, hits) {
            self.after_block_moved();
        }
    }

    /// The ticket of a request, by its name.
    pub fn ticket_of(&self, id: &RequestId) -> Option<Ticket> {
        self.ids.get(id).copied()
    }

    /// The note of a waiting request.
    pub fn note_mut(&mut self, ticket: Ticket) -> Option<&mut N> {
        self.entries.get_mut(ticket).map(|entry| &mut entry.note)
    }

    /// The first waiter that is `wanted`, by group, level and arrival.
    pub fn find_waiter(&self, wanted: impl Fn(Ticket, &N) -> bool) -> Option<Ticket> {
        let places = self.groups.iter().flat_map(|group| group.queue.places());
        let mut tickets = places.map(|place| place.ticket);
        tickets.find(|ticket| self.entries.get(*ticket).is_some_and(|entry| wanted(*ticket, &entry.note)))
    }

    pub(crate) fn place(&self, ticket: Ticket, entry: &Entry<N>) -> Place {
        Place { key: self.key(entry.arrived, entry.priority), ticket }
    }

    /// The static key: a waiter of level L is ordered as if it had arrived L spreads later.
    pub(crate) fn key(&self, arrived: Moment, priority: Priority) -> u64 {
        let behind = self.spread_micros.saturating_mul(u64::from(priority.level()));
        arrived.plus_micros(behind).as_micros()
    }

    fn check_name(&self, id: &RequestId) -> Result<(), RejectReason> {
        if self.closed {
            return Err(RejectReason::Closed);
        }
        let Some(ticket) = self.ids.get(id) else { return Ok(()) };
        match self.entries.get(*ticket).map(|entry| entry.phase) {
            Some(Phase::Queued) => Err(RejectReason::AlreadyQueued),
            Some(Phase::Granted { .. } | Phase::Running { .. }) => Err(RejectReason::AlreadyRunning),
            None => Ok(()),
        }
    }

    /// How long the block or the group's budget will delay a new request. Outer `None`: not at all.
    fn limited_for(&self, group: usize) -> Option<Option<Duration>> {
        if self.block.is_blocked(self.now) {
            return Some(self.block.until().left(self.now));
        }
        if self.groups[group].is_open(self.now, &self.ramp) {
            return None;
        }
        let opens = self.groups[group].opens_at(self.now, &self.ramp);
        Some(opens.map(|moment| moment.since(self.now)))
    }

    fn can_start(&self, group: usize) -> bool {
        self.has_free_slot()
            && !self.block.is_blocked(self.now)
            && self.groups[group].is_open(self.now, &self.ramp)
    }

    fn has_free_slot(&self) -> bool {
        self.running < self.ramp.slots(self.now, self.slots)
    }

    /// The next waiter among those whose budget allows a start.
    fn next_waiter(&self) -> Option<(usize, Priority, Ticket)> {
        let heads = self.groups.iter().enumerate().filter_map(|(index, group)| {
            let (priority, place) = group.queue.first()?;
            group.is_open(self.now, &self.ramp).then_some((place, index, priority))
        });
        let (place, index, priority) = heads.min()?;
        Some((index, priority, place.ticket))
    }

    fn start_at_once(&mut self, request: Request, group: usize) -> Ticket {
        self.start(group, 0);
        let started = self.now;
        self.register(request, group, Phase::Running { started })
    }

    fn enqueue(&mut self, request: Request, group: usize) -> Ticket {
        let priority = request.priority.unwrap_or(self.default_priority);
        let ticket = self.register(request, group, Phase::Queued);
        let place = Place { key: self.key(self.now, priority), ticket };
        self.groups[group].queue.push(priority, place);
        self.queued += 1;
        self.counters.queued(self.queued);
        ticket
    }

    fn register(&mut self, request: Request, group: usize, phase: Phase) -> Ticket {
        let priority = request.priority.unwrap_or(self.default_priority);
        let Request { id, model, .. } = request;
        let name = id.clone();
        let entry = Entry { id, priority, group, model, arrived: self.now, phase, note: N::default() };
        let ticket = self.entries.insert(entry);
        let before = self.ids.insert(name, ticket);
        debug_assert!(before.is_none(), "names are checked before they are registered");
        ticket
    }

    /// Records a start in the budget and the statistics.
    fn start(&mut self, group: usize, waited_micros: u64) {
        self.groups[group].record_start(self.now, &self.ramp);
        self.running += 1;
        self.counters.started(waited_micros, self.running);
    }

    fn forget(&mut self, ticket: Ticket) -> Option<Entry<N>> {
        let entry = self.entries.remove(ticket)?;
        self.ids.remove(&entry.id);
        let capacity = self.ids.capacity();
        if capacity > SMALL && self.ids.len() < capacity / 8 {
            self.ids.shrink_to(2 * self.ids.len() + SMALL);
        }
        Some(entry)
    }

    /// Removes a request whose caller holds no permit. `None` if it is unknown or runs.
    fn withdraw(&mut self, ticket: Ticket) -> Option<N> {
        let entry = self.entries.get(ticket)?;
        match entry.phase {
            Phase::Running { .. } => return None,
            Phase::Granted { .. } => self.running -= 1,
            Phase::Queued => {
                self.groups[entry.group].queue.remove(entry.priority, ticket);
                self.queued -= 1;
            }
        }
        self.counters.stats.cancelled += 1;
        self.forget(ticket).map(|entry| entry.note)
    }

    fn learn(&mut self, started: Moment, group: usize, outcome: Outcome) -> Advice {
        let now = self.now;
        match outcome {
            Outcome::Success(usage) => {
                self.groups[group].count(now, usage);
                self.block.succeeded(started);
                Advice::Done
            }
            Outcome::RateLimited { retry_after } => {
                let moved = self.block.rate_limited(now, started, retry_after);
                self.after_429(moved)
            }
            Outcome::Quota { resets_in } => {
                let moved = self.block.quota(now, started, resets_in);
                self.after_429(moved)
            }
            Outcome::Overloaded { earlier } => {
                if self.slowed.is_none_or(|slowed| started > slowed) {
                    self.slowed = Some(now);
                    self.ramp.shrink(now);
                }
                Advice::RetryIn(overload_wait(earlier))
            }
            Outcome::Failed => Advice::Done,
        }
    }

    fn after_429(&mut self, moved: bool) -> Advice {
        self.counters.stats.rate_limited += 1;
        if moved {
            self.after_block_moved();
        }
        if self.block.is_quota(self.now) {
            return Advice::Stop { resets_in: self.block.quota_until().left(self.now) };
        }
        Advice::AskAgain { blocked_for: self.block.until().left(self.now).unwrap_or(Duration::MAX) }
    }

    fn after_block_moved(&mut self) {
        self.take_back_grants();
        self.begin_ramp(self.block.until().moment());
        if self.block.is_quota(self.now) {
            self.refuse_waiters(Refusal::Quota { resets_in: self.block.quota_until().left(self.now) });
        }
    }

    /// Returns requests to the queue that have a slot their callers have not collected: nothing may start during a
    /// block, and these have not started.
    fn take_back_grants(&mut self) {
        let mut granted = std::mem::take(&mut self.granted);
        // The latest first, so that each is put in front of the others.
        granted.sort_unstable_by(|left, right| right.cmp(left));
        for ticket in granted {
            let Some(entry) = self.entries.get_mut(ticket) else { continue };
            let Phase::Granted { started } = entry.phase else { continue };
            entry.phase = Phase::Queued;
            let (priority, group, arrived) = (entry.priority, entry.group, entry.arrived);
            let place = Place { key: self.key(arrived, priority), ticket };
            self.groups[group].queue.put_back(priority, place);
            self.groups[group].window.take_back(started);
            self.counters.taken_back(started.micros_since(arrived));
            self.running -= 1;
            self.queued += 1;
        }
    }

    pub(crate) fn begin_ramp(&mut self, at: Moment) {
        let at = at.max(self.now);
        for group in &mut self.groups {
            group.leave_one(self.now, at, &self.ramp);
        }
        self.ramp.restart(self.now, at);
    }

    fn refuse_waiters(&mut self, refusal: Refusal) {
        for index in 0..self.groups.len() {
            let queue = std::mem::take(&mut self.groups[index].queue);
            for place in queue.places() {
                self.queued -= 1;
                self.counters.stats.cancelled += 1;
                if let Some(entry) = self.forget(place.ticket) {
                    self.effects.push_back(Effect::Refused(place.ticket, refusal, entry.note));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
