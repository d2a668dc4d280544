//! Counters of the gate.

use std::time::Duration;

/// Counters since the gate was built. Waiting and running time are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests that were admitted, immediately or after waiting.
    pub scheduled: u64,
    /// Requests that were admitted and have ended, however they ended.
    pub completed: u64,
    /// 429s reported, and `try_acquire` calls that returned "rate limited".
    pub rate_limited: u64,
    /// Requests that left before their caller held a permit.
    pub cancelled: u64,
    /// Time from arrival to start, summed over all admitted requests.
    pub total_wait_ms: u64,
    /// Time from start to end, summed over all completed requests.
    pub total_run_ms: u64,
    /// The most requests that ever waited at once.
    pub peak_queue_depth: usize,
    /// The most requests that ever ran at once.
    pub peak_concurrent: usize,
}

impl Stats {
    /// The mean run time, or `None` before a request has completed.
    pub fn average_run(&self) -> Option<Duration> {
        let millis = self.total_run_ms.checked_div(self.completed)?;
        Some(Duration::from_millis(millis))
    }

    /// The mean wait, or `None` before a request was admitted.
    pub fn average_wait(&self) -> Option<Duration> {
        let millis = self.total_wait_ms.checked_div(self.scheduled)?;
        Some(Duration::from_millis(millis))
    }
}

/// The assumed run time before a request has completed.
const FIRST_GUESS: Duration = Duration::from_secs(30);

/// Counts in microseconds, so that many short waits do not round to zero.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub stats: Stats,
    wait_micros: u128,
    run_micros: u128,
}

impl Counters {
    pub fn started(&mut self, waited_micros: u64, running: usize) {
        self.stats.scheduled += 1;
        self.wait_micros += u128::from(waited_micros);
        self.stats.peak_concurrent = self.stats.peak_concurrent.max(running);
    }

    /// Removes a start that was withdrawn before it happened.
    pub fn taken_back(&mut self, waited_micros: u64) {
        self.stats.scheduled -= 1;
        self.wait_micros -= u128::from(waited_micros);
    }

    pub fn queued(&mut self, waiting: usize) {
        self.stats.peak_queue_depth = self.stats.peak_queue_depth.max(waiting);
    }

    pub fn completed(&mut self, ran_micros: u64) {
        self.stats.completed += 1;
        self.run_micros += u128::from(ran_micros);
    }

    pub fn snapshot(&self) -> Stats {
        let millis = |micros: u128| u64::try_from(micros / 1_000).unwrap_or(u64::MAX);
        Stats { total_wait_ms: millis(self.wait_micros), total_run_ms: millis(self.run_micros), ..self.stats }
    }

    /// Position × average run time ÷ slots.
    pub fn estimated_wait(&self, position: usize, slots: usize) -> Duration {
        let average = match self.stats.completed {
            0 => FIRST_GUESS.as_micros(),
            completed => self.run_micros / u128::from(completed),
        };
        let micros = average.saturating_mul(position as u128) / slots as u128;
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimated_wait_is_position_times_average_run_over_slots() {
        let mut counters = Counters::default();
        assert_eq!(counters.estimated_wait(1, 10), Duration::from_secs(3), "30 s guessed per run");
        assert_eq!(counters.estimated_wait(4, 2), Duration::from_secs(60));
        counters.completed(2_000_000);
        counters.completed(4_000_000);
        assert_eq!(counters.estimated_wait(5, 2), Duration::from_millis(7_500));
        assert_eq!(counters.estimated_wait(usize::MAX, 1), Duration::from_micros(u64::MAX));
    }

    #[test]
    fn short_times_add_up_and_averages_need_something_to_divide_by() {
        let mut counters = Counters::default();
        assert_eq!(counters.snapshot().average_run(), None);
        assert_eq!(counters.snapshot().average_wait(), None);
        for _ in 0..10 {
            counters.started(500, 1);
            counters.completed(400);
        }
        let stats = counters.snapshot();
        assert_eq!((stats.total_wait_ms, stats.total_run_ms), (5, 4));
        assert_eq!(stats.average_run(), Some(Duration::ZERO));
    }
}
