//! A window over tokens, counted as responses report them.
//!
//! The usage of a request is unknown when it starts, so the window cannot guarantee its limit: it closes once the
//! reported sum reaches the limit, and opens when enough of it has expired. Reports are collected in slices of the
//! window, each as old as its youngest report, so memory is bounded and the window never opens early.

use std::collections::VecDeque;

use crate::moment::Moment;

/// Slices a window is cut into.
const SLICES: u64 = 256;

#[derive(Debug)]
pub(crate) struct TokenWindow {
    limit: u64,
    window_micros: u64,
    slices: VecDeque<Slice>,
}

#[derive(Debug)]
struct Slice {
    began: Moment,
    last: Moment,
    tokens: u64,
}

impl TokenWindow {
    pub fn new(limit: u64, window_micros: u64) -> Self {
        Self { limit, window_micros, slices: VecDeque::new() }
    }

    /// Applies another limit and length; the tokens so far count.
    pub fn set_limits(&mut self, limit: u64, window_micros: u64) {
        (self.limit, self.window_micros) = (limit, window_micros);
    }

    pub fn count(&mut self, now: Moment, tokens: u64) {
        while self.slices.front().is_some_and(|slice| self.is_over(slice, now)) {
            self.slices.pop_front();
        }
        if tokens == 0 {
            return;
        }
        let length_micros = self.window_micros / SLICES;
        match self.slices.back_mut() {
            Some(slice) if now.micros_since(slice.began) < length_micros => {
                slice.last = now;
                slice.tokens = slice.tokens.saturating_add(tokens);
            }
            _ => self.slices.push_back(Slice { began: now, last: now, tokens }),
        }
    }

    /// When the reported sum falls below the limit. `None` if that is beyond the range of time.
    pub fn opens_at(&self, now: Moment) -> Option<Moment> {
        let mut left = self.sum(now);
        if left < u128::from(self.limit) {
            return Some(Moment::ZERO);
        }
        for slice in self.slices.iter().filter(|slice| !self.is_over(slice, now)) {
            left -= u128::from(slice.tokens);
            if left < u128::from(self.limit) {
                return slice.last.checked_plus_micros(self.window_micros);
            }
        }
        None
    }

    /// Tokens reported in the last window.
    pub fn used(&self, now: Moment) -> u64 {
        u64::try_from(self.sum(now)).unwrap_or(u64::MAX)
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn sum(&self, now: Moment) -> u128 {
        let current = self.slices.iter().filter(|slice| !self.is_over(slice, now));
        current.map(|slice| u128::from(slice.tokens)).sum()
    }

    fn is_over(&self, slice: &Slice, now: Moment) -> bool {
        now.micros_since(slice.last) >= self.window_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    #[test]
    fn closes_at_the_limit_and_opens_when_enough_is_old() {
        type Reports = &'static [(u64, u64)];
        let cases: [(Reports, Option<u64>); 6] = [
            (&[], Some(0)),
            (&[(0, 99)], Some(0)),
            (&[(0, 100)], Some(MINUTE)),
            (&[(0, 1), (1_000_000, 100)], Some(MINUTE + 1_000_000)),
            (&[(0, 60), (1_000_000, 60)], Some(MINUTE)),
            (&[(0, u64::MAX), (1_000_000, u64::MAX)], Some(MINUTE + 1_000_000)),
        ];
        for (reports, expected) in cases {
            let mut window = TokenWindow::new(100, MINUTE);
            for (micros, tokens) in reports {
                window.count(at(*micros), *tokens);
            }
            assert_eq!(window.opens_at(at(2_000_000)), expected.map(at), "{reports:?}");
        }
    }

    #[test]
    fn a_slice_is_as_old_as_its_youngest_report() {
        let mut window = TokenWindow::new(100, MINUTE);
        window.count(at(0), 50);
        window.count(at(1_000), 50);
        assert_eq!(window.opens_at(at(2_000)), Some(at(MINUTE + 1_000)));
    }

    #[test]
    fn memory_is_bounded_by_the_slices() {
        let mut window = TokenWindow::new(1_000, MINUTE);
        for step in 0..1_000_000 {
            window.count(at(step * 100), 1);
        }
        assert!(window.slices.len() <= SLICES as usize + 1, "{} slices", window.slices.len());
    }

    #[test]
    fn at_the_end_of_time_it_stays_shut() {
        let mut window = TokenWindow::new(1, MINUTE);
        window.count(Moment::MAX, 5);
        assert_eq!(window.opens_at(Moment::MAX), None);
    }
}
