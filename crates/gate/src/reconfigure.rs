//! Applies another configuration to a running gate: limits change immediately, and counts are kept.

use std::time::Duration;

use crate::block::Backoff;
use crate::config::{ConfigError, GateConfig};
use crate::group::Group;
use crate::moment::{Moment, micros};
use crate::pure::{Phase, PureGate};
use crate::queue::Place;
use crate::slab::Ticket;

impl<N: Default> PureGate<N> {
    /// Applies another configuration. Running requests continue, even if there are fewer slots now; waiters keep
    /// their time of arrival. A group of the same name keeps its window, a new one begins with an empty window.
    ///
    /// # Errors
    /// A value is invalid; nothing changed.
    pub fn reconfigure(&mut self, now: Moment, config: &GateConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.advance(now);
        self.slots = config.max_concurrent;
        self.spread_micros = micros(config.priority_spread);
        self.default_priority = config.default_priority;
        self.block.set_backoff(Backoff {
            initial_micros: micros(config.initial_backoff),
            max_micros: micros(config.max_backoff),
        });
        self.ramp.set_period(self.now, micros(config.recovery_period));
        let mut before = std::mem::take(&mut self.groups);
        self.groups = Group::renewed(&mut before, config, self.now, &self.ramp);
        self.regroup();
        self.advance(now);
        Ok(())
    }

    /// Assigns every request to its group again, and every waiter to its place.
    fn regroup(&mut self) {
        let groups = &self.groups;
        let mut waiting: Vec<(Moment, Ticket)> = Vec::new();
        for (ticket, entry) in self.entries.iter_mut() {
            entry.group = Group::serving(groups, entry.model.as_deref());
            if matches!(entry.phase, Phase::Queued) {
                waiting.push((entry.arrived, ticket));
            }
        }
        // Each level of a queue is filled in the order of arrival.
        waiting.sort_unstable();
        for (arrived, ticket) in waiting {
            let Some(entry) = self.entries.get(ticket) else { continue };
            let (group, priority) = (entry.group, entry.priority);
            let place = Place { key: self.key(arrived, priority), ticket };
            self.groups[group].queue.push(priority, place);
        }
    }

    /// Continues the ramp of an earlier process, whose block ended that long ago.
    pub fn resume_ramp(&mut self, now: Moment, ended_ago: Duration) {
        self.advance(now);
        self.begin_ramp(self.now);
        self.ramp.resume(self.now, micros(ended_ago));
    }
}
