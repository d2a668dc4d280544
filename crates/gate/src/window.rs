//! The sliding window: at most N starts in any period of the window's length.
//!
//! It keeps a log of the last N starts, so the result is exact: the period is half-open, and a start leaves it
//! exactly one window after it happened.

use std::collections::VecDeque;

use crate::moment::Moment;

/// Log capacity that is kept even if unused.
const SMALL_LOG: usize = 64;

#[derive(Debug)]
pub(crate) struct StartWindow {
    limit: usize,
    window_micros: u64,
    /// Oldest first; never longer than the limit.
    starts: VecDeque<Moment>,
}

impl StartWindow {
    pub fn new(limit: u32, window_micros: u64) -> Self {
        Self { limit: limit as usize, window_micros, starts: VecDeque::new() }
    }

    /// Applies another limit and length; the starts so far count.
    pub fn set_limits(&mut self, limit: u32, window_micros: u64) {
        (self.limit, self.window_micros) = (limit as usize, window_micros);
        let surplus = self.starts.len().saturating_sub(self.limit);
        self.starts.drain(..surplus);
    }

    /// When this window allows the next start. `None` if that is beyond the range of time.
    pub fn opens_at(&self) -> Option<Moment> {
        if self.starts.len() < self.limit {
            return Some(Moment::ZERO);
        }
        self.starts
            .front()
            .map_or(Some(Moment::ZERO), |oldest| oldest.checked_plus_micros(self.window_micros))
    }

    pub fn is_open(&self, now: Moment) -> bool {
        self.starts.len() < self.limit || self.starts.front().is_none_or(|oldest| self.is_over(*oldest, now))
    }

    /// Records a start. The caller has checked `opens_at`.
    pub fn record(&mut self, now: Moment) {
        self.expire(now);
        debug_assert!(self.starts.len() < self.limit, "a start the window had no room for");
        self.starts.push_back(now);
    }

    /// Removes the latest start of that moment, which was withdrawn before it happened.
    pub fn take_back(&mut self, start: Moment) {
        if let Some(index) = self.starts.iter().rposition(|known| *known == start) {
            self.starts.remove(index);
        }
    }

    /// Starts of the last window.
    pub fn used(&self, now: Moment) -> usize {
        let expired = self.starts.partition_point(|start| self.is_over(*start, now));
        self.starts.len() - expired
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    fn expire(&mut self, now: Moment) {
        while self.starts.front().is_some_and(|oldest| self.is_over(*oldest, now)) {
            self.starts.pop_front();
        }
        let capacity = self.starts.capacity();
        if capacity > SMALL_LOG && self.starts.len() < capacity / 8 {
            self.starts.shrink_to(capacity / 4);
        }
    }

    fn is_over(&self, start: Moment, now: Moment) -> bool {
        now.micros_since(start) >= self.window_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 60_000_000;

    fn filled(starts: &[u64]) -> StartWindow {
        let mut window = StartWindow::new(3, WINDOW);
        for start in starts {
            window.record(Moment::from_micros(*start));
        }
        window
    }

    /// G4: the window's edges, to the microsecond.
    #[test]
    fn opens_exactly_one_window_after_the_oldest_start() {
        let cases: [(&[u64], Option<u64>); 5] = [
            (&[], Some(0)),
            (&[5, 6], Some(0)),
            (&[5, 6, 7], Some(WINDOW + 5)),
            (&[5, 6, 7, WINDOW + 5], Some(WINDOW + 6)),
            (&[u64::MAX - 2, u64::MAX - 1, u64::MAX], None),
        ];
        for (starts, expected) in cases {
            assert_eq!(filled(starts).opens_at(), expected.map(Moment::from_micros), "{starts:?}");
        }
    }

    #[test]
    fn counts_only_the_last_window() {
        let window = filled(&[0, 10, 20]);
        for (now, used) in [(20, 3), (WINDOW - 1, 3), (WINDOW, 2), (WINDOW + 15, 1), (WINDOW + 20, 0)] {
            assert_eq!(window.used(Moment::from_micros(now)), used, "at {now}");
        }
    }

    #[test]
    fn new_limits_count_the_starts_so_far() {
        let mut window = filled(&[0, 10, 20]);
        window.set_limits(2, WINDOW);
        assert_eq!((window.opens_at(), window.limit()), (Some(Moment::from_micros(WINDOW + 10)), 2));
        window.set_limits(5, WINDOW);
        assert_eq!((window.opens_at(), window.used(Moment::from_micros(20))), (Some(Moment::ZERO), 2));
        window.set_limits(2, 15);
        assert!(window.is_open(Moment::from_micros(25)));
    }

    #[test]
    fn the_log_gives_its_memory_back() {
        let mut window = StartWindow::new(100_000, WINDOW);
        for start in 0..100_000 {
            window.record(Moment::from_micros(start));
        }
        for minute in 2..12 {
            window.record(Moment::from_micros(minute * 2 * WINDOW));
        }
        assert!(window.starts.capacity() <= 256, "{} kept", window.starts.capacity());
    }
}
