//! Views of the gate: its state at one moment, and its running and waiting requests.

use std::time::Duration;

use crate::moment::Moment;
use crate::outcome::{NotRunning, Usage};
use crate::priority::Priority;
use crate::pure::{Entry, Phase, PureGate};
use crate::queue::Place;
use crate::request::RequestId;
use crate::slab::Ticket;
use crate::stats::Stats;

/// The gate at one moment, in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateState {
    /// Slots the gate was built with.
    pub slots: usize,
    /// Slots that may be used now; fewer than `slots` while the gate ramps up.
    pub slots_now: usize,
    /// Requests that hold a slot.
    pub running: usize,
    /// Requests that wait for one.
    pub queued: usize,
    /// True while a block lasts or the window of a group is full.
    pub rate_limited: bool,
    /// True while the window of a group is full, of starts or of tokens.
    pub window_full: bool,
    /// True while the starts of a group are spread out, because its burst is used up.
    pub pacing: bool,
    /// The block, while it lasts.
    pub block: Option<BlockView>,
    /// 429s in a row that counted.
    pub hits: u32,
    /// True while the gate ramps up, after a block or an overload.
    pub ramping: bool,
    /// True once the gate was closed.
    pub closed: bool,
    /// Counters.
    pub stats: Stats,
}

/// A block that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// True for a spent quota, false for a throttle.
    pub quota: bool,
    /// Time left; `None` until the gate is unblocked.
    pub ends_in: Option<Duration>,
}

/// The gate at one moment, request by request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// The figures.
    pub state: GateState,
    /// Running requests: most urgent first, then longest running.
    pub running: Vec<RunningRequest>,
    /// Waiting requests, in the order of service.
    pub queued: Vec<QueuedRequest>,
    /// The budgets; the default group is last.
    pub groups: Vec<GroupView>,
}

/// A request that holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRequest {
    /// Its name.
    pub id: RequestId,
    /// Its urgency.
    pub priority: Priority,
    /// The group whose budget it drew on.
    pub group: Box<str>,
    /// How long it waited before it started.
    pub waited: Duration,
    /// How long it has been running.
    pub running_for: Duration,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRequest {
    /// Its name.
    pub id: RequestId,
    /// Its urgency.
    pub priority: Priority,
    /// The group whose budget it draws on.
    pub group: Box<str>,
    /// 1 for the next in the queue.
    pub position: usize,
    /// How long it has been waiting.
    pub waiting_for: Duration,
    /// Position × average run time ÷ slots.
    pub estimated_wait: Duration,
}

/// The budget of one model group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// The group's name.
    pub name: Box<str>,
    /// Starts in the last window.
    pub starts: usize,
    /// Most starts in a window.
    pub max_starts: usize,
    /// Tokens reported in the last minute.
    pub tokens: Usage,
    /// Most input tokens per minute.
    pub max_input_tokens: Option<u64>,
    /// Most output tokens per minute.
    pub max_output_tokens: Option<u64>,
}

impl<N: Default> PureGate<N> {
    /// The gate's figures.
    pub fn state(&self) -> GateState {
        let now = self.now;
        let block = self
            .block
            .is_blocked(now)
            .then(|| BlockView { quota: self.block.is_quota(now), ends_in: self.block.until().left(now) });
        let full = |moment: Option<Moment>| moment.is_none_or(|opens| opens > now);
        let window_full = self.groups.iter().any(|group| full(group.windows_open_at(now)));
        GateState {
            slots: self.slots,
            slots_now: self.ramp.slots(now, self.slots),
            running: self.running,
            queued: self.queued,
            rate_limited: block.is_some() || window_full,
            window_full,
            pacing: self.groups.iter().any(|group| group.is_pacing(now, &self.ramp)),
            block,
            hits: self.block.hits(),
            ramping: self.ramp.is_ramping(now),
            closed: self.closed,
            stats: self.stats(),
        }
    }

    /// Running and waiting requests. Costs O(n log n) in the number of requests.
    pub fn details(&self) -> Details {
        Details {
            state: self.state(),
            running: self.running_requests(),
            queued: self.queued_requests(),
            groups: self.group_views(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// A waiter's position, 1 being next. Costs O(log n) per group. `None` if it does not wait.
    pub fn position(&self, ticket: Ticket) -> Option<usize> {
        let entry = self.entries.get(ticket).filter(|entry| matches!(entry.phase, Phase::Queued))?;
        let place = self.place(ticket, entry);
        Some(1 + self.groups.iter().map(|group| group.queue.ahead_of(place)).sum::<usize>())
    }

    /// Position × average run time ÷ slots; a run counts as 30 s before a request has completed.
    pub fn estimated_wait(&self, position: usize) -> Duration {
        self.counters.estimated_wait(position, self.slots)
    }

    /// When the request started.
    ///
    /// # Errors
    /// It holds no slot.
    pub fn started_at(&self, ticket: Ticket) -> Result<Moment, NotRunning> {
        self.entries.get(ticket).and_then(Entry::started).ok_or(NotRunning)
    }

    fn running_requests(&self) -> Vec<RunningRequest> {
        let started =
            self.entries.iter().filter_map(|(ticket, entry)| Some((ticket, entry, entry.started()?)));
        let mut rows: Vec<_> = started.collect();
        rows.sort_unstable_by_key(|(ticket, entry, started)| (entry.priority, *started, *ticket));
        let view = |(_, entry, started): (Ticket, &Entry<N>, Moment)| RunningRequest {
            id: entry.id.clone(),
            priority: entry.priority,
            group: self.groups[entry.group].name.clone(),
            waited: started.since(entry.arrived),
            running_for: self.now.since(started),
        };
        rows.into_iter().map(view).collect()
    }

    fn queued_requests(&self) -> Vec<QueuedRequest> {
        let mut places: Vec<Place> = self.groups.iter().flat_map(|group| group.queue.places()).collect();
        places.sort_unstable();
        let entries = places.iter().filter_map(|place| self.entries.get(place.ticket));
        let view = |(index, entry): (usize, &Entry<N>)| QueuedRequest {
            id: entry.id.clone(),
            priority: entry.priority,
            group: self.groups[entry.group].name.clone(),
            position: index + 1,
            waiting_for: self.now.since(entry.arrived),
            estimated_wait: self.estimated_wait(index + 1),
        };
        entries.enumerate().map(view).collect()
    }

    fn group_views(&self) -> Vec<GroupView> {
        let now = self.now;
        let view = |group: &crate::group::Group| GroupView {
            name: group.name.clone(),
            starts: group.window.used(now),
            max_starts: group.window.limit(),
            tokens: Usage {
                input_tokens: group.input.as_ref().map_or(0, |window| window.used(now)),
                output_tokens: group.output.as_ref().map_or(0, |window| window.used(now)),
            },
            max_input_tokens: group.input.as_ref().map(|window| window.limit()),
            max_output_tokens: group.output.as_ref().map(|window| window.limit()),
        };
        self.groups.iter().map(view).collect()
    }
}
