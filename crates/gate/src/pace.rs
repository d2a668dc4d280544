//! Pacing within the window: a bucket of `burst` starts that refills evenly.
//!
//! Providers refill by the second, so fifty simultaneous starts cause a 429 where fifty spread over a minute do not.
//! The bucket is stored as one number, the paced time at which it would be full again; it reads the paced time of the
//! ramp, so after a block it refills slowly at first.

/// One start costs `window` units and one microsecond of paced time adds `limit` units: no rounding.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: u128,
    window: u128,
    /// The capacity of the bucket beyond the requested start, in units.
    depth: u128,
    /// Paced time, in units, at which the bucket is full.
    full_at: u128,
}

impl Pace {
    pub fn new(limit: u32, window_micros: u64, burst: u32) -> Self {
        let (limit, window) = (u128::from(limit), u128::from(window_micros));
        Self { limit, window, depth: (u128::from(burst) - 1) * window, full_at: 0 }
    }

    /// The paced time at which the next start fits. `None` if that is beyond the range of time.
    pub fn opens_at(&self) -> Option<u64> {
        match self.full_at.checked_sub(self.depth) {
            None | Some(0) => Some(0),
            Some(units) => u64::try_from(units.div_ceil(self.limit)).ok(),
        }
    }

    /// True if a start fits at this paced time. Equivalent to `opens_at`, without its division.
    pub fn is_open(&self, paced: u64) -> bool {
        self.full_at <= u128::from(paced) * self.limit + self.depth
    }

    /// Takes a start out of the bucket.
    pub fn record(&mut self, paced: u64) {
        self.full_at = self.full_at.max(u128::from(paced) * self.limit) + self.window;
    }

    /// Applies another limit, window and burst. The number of missing starts is kept, up to the bucket's capacity.
    pub fn set_limits(&mut self, paced: u64, limit: u32, window_micros: u64, burst: u32) {
        let missing = self.full_at.saturating_sub(u128::from(paced) * self.limit);
        let missing = missing.div_ceil(self.window.max(1)).min(u128::from(burst));
        *self = Self::new(limit, window_micros, burst);
        self.full_at = u128::from(paced) * self.limit + missing * self.window;
    }

    /// Leaves a single start in the bucket, `late` microseconds of paced time after `paced`.
    pub fn leave_one(&mut self, paced: u64, late: u64) {
        self.full_at = (u128::from(paced) + u128::from(late)) * self.limit + self.depth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_burst_at_once_then_one_by_one() {
        let mut pace = Pace::new(50, 60 * SECOND, 10);
        for _ in 0..10 {
            assert_eq!(pace.opens_at(), Some(0));
            pace.record(0);
        }
        for start in 1..40 {
            let open = pace.opens_at().unwrap();
            assert_eq!(open, start * 1_200_000);
            assert!(pace.is_open(open) && !pace.is_open(open - 1));
            pace.record(open);
        }
    }

    #[test]
    fn odd_quotients_are_never_rounded_down() {
        let mut pace = Pace::new(7, 60 * SECOND, 1);
        let mut opens = Vec::new();
        for _ in 0..15 {
            let open = pace.opens_at().unwrap();
            opens.push(open);
            pace.record(open);
        }
        for pair in opens.windows(2) {
            assert!((pair[1] - pair[0]) * 7 >= 60 * SECOND - 7, "{pair:?}");
        }
        assert!(opens[7] >= 60 * SECOND);
    }

    #[test]
    fn an_idle_bucket_fills_to_the_burst_and_no_further() {
        let mut pace = Pace::new(50, 60 * SECOND, 2);
        pace.record(1_000 * SECOND);
        pace.record(1_000 * SECOND);
        assert_eq!(pace.opens_at(), Some(1_001_200_000));
    }

    #[test]
    fn after_a_block_one_start_is_left() {
        let mut pace = Pace::new(50, 60 * SECOND, 10);
        pace.leave_one(5 * SECOND, 0);
        assert!(pace.is_open(5 * SECOND) && !pace.is_open(5 * SECOND - 1));
        pace.record(5 * SECOND);
        assert_eq!(pace.opens_at(), Some(5 * SECOND + 1_200_000));
        pace.leave_one(9 * SECOND, 7);
        assert_eq!(pace.opens_at(), Some(9 * SECOND + 7));
    }

    #[test]
    fn new_limits_keep_what_is_missing() {
        let mut pace = Pace::new(50, 60 * SECOND, 10);
        (0..10).for_each(|_| pace.record(0));
        pace.set_limits(0, 60, 60 * SECOND, 5);
        assert_eq!(pace.opens_at(), Some(SECOND), "a smaller bucket is empty, not in debt");
        pace.set_limits(0, 60, 60 * SECOND, 20);
        assert!(pace.is_open(0), "5 of 20 are missing");
        pace.set_limits(0, u32::MAX, u64::MAX, u32::MAX);
    }

    #[test]
    fn the_end_of_time_is_never_reached() {
        let mut pace = Pace::new(u32::MAX, u64::MAX, u32::MAX);
        for _ in 0..10 {
            pace.record(u64::MAX);
        }
        pace.leave_one(u64::MAX, u64::MAX);
        assert_eq!(Pace::new(1, u64::MAX, 1).opens_at(), Some(0));
        let mut pace = Pace::new(1, 2, 1);
        pace.record(u64::MAX);
        assert_eq!(pace.opens_at(), None);
    }
}
