//! The effect of a 429: the block, its backoff, and when hits are cleared.
//!
//! - The block ends at `max(its end so far, now + max(retry_after, backoff))`; the backoff doubles per hit
//!   from `initial_backoff` to `max_backoff`.
//! - A 429 is a hit only if its request started after the last block began, so fifty calls that were in flight
//!   together count once. A 429 that is not a hit still extends the block by its own `retry_after`.
//! - Only [`Block::lift`] shortens a block: neither a shorter 429 nor a success does.
//! - Hits are cleared by the first success of a request that started after the block.
//! - A `retry_after` above [`QUOTA_ABOVE`], or an explicit error of the provider, is a *quota*: blocked until exactly
//!   its reset, or until the block is lifted if no reset is known.

use std::time::Duration;

use crate::moment::{Moment, micros};

/// A `retry_after` above this means a spent quota, not a throttle.
pub const QUOTA_ABOVE: Duration = Duration::from_secs(300);

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    At(Moment),
    /// Only [`Block::lift`] ends it.
    Unblock,
}

impl End {
    pub fn is_ahead(self, now: Moment) -> bool {
        match self {
            End::At(moment) => now < moment,
            End::Unblock => true,
        }
    }

    /// The time left; `None` if only [`Block::lift`] ends it.
    pub fn left(self, now: Moment) -> Option<Duration> {
        match self {
            End::At(moment) => Some(moment.since(now)),
            End::Unblock => None,
        }
    }

    pub fn moment(self) -> Moment {
        match self {
            End::At(moment) => moment,
            End::Unblock => Moment::MAX,
        }
    }

    pub fn is_over_for(self, started: Moment) -> bool {
        !self.is_ahead(started)
    }
}

/// The first and the longest wait after consecutive hits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub initial_micros: u64,
    pub max_micros: u64,
}

impl Backoff {
    /// The wait after the `hits`-th consecutive hit: initial, doubled per hit, capped.
    pub fn after(self, hits: u32) -> u64 {
        let doublings = hits.saturating_sub(1);
        let doubled = u128::from(self.initial_micros) << doublings.min(64);
        u64::try_from(doubled).unwrap_or(u64::MAX).min(self.max_micros)
    }
}

/// The block of one upstream.
#[derive(Debug)]
pub(crate) struct Block {
    backoff: Backoff,
    until: End,
    quota_until: End,
    hits: u32,
    /// The time of the last hit; requests that started before it belong to the same burst.
    began: Option<Moment>,
    /// Incremented by every change that must survive a restart.
    version: u64,
}

impl Block {
    pub fn new(backoff: Backoff) -> Self {
        let over = End::At(Moment::ZERO);
        Self { backoff, until: over, quota_until: over, hits: 0, began: None, version: 0 }
    }

    /// Records a 429 of a request that started at `started`. Returns true if the block's end moved.
    pub fn rate_limited(&mut self, now: Moment, started: Moment, retry_after: Option<Duration>) -> bool {
        if retry_after.is_some_and(|wait| wait > QUOTA_ABOVE) {
            return self.quota(now, started, retry_after);
        }
        let asked = retry_after.map_or(0, micros);
        let wait = if self.is_hit(started) { self.count_hit(now).max(asked) } else { asked };
        wait > 0 && self.extend(End::At(now.plus_micros(wait)))
    }

    /// Records a spent quota. Returns true if the block's end moved.
    pub fn quota(&mut self, now: Moment, started: Moment, resets_in: Option<Duration>) -> bool {
        if self.is_hit(started) {
            self.count_hit(now);
        }
        let end = resets_in.map_or(End::Unblock, |wait| End::At(now.plus(wait)));
        self.quota_until = self.quota_until.max(end);
        self.version += 1;
        self.extend(end)
    }

    /// Records a success: clears the hits if its request started after the block.
    pub fn succeeded(&mut self, started: Moment) {
        if self.hits > 0 && self.until.is_over_for(started) {
            self.hits = 0;
            self.version += 1;
        }
    }

    /// Ends the block now, on an operator's request.
    pub fn lift(&mut self, now: Moment) {
        self.until = self.until.min(End::At(now));
        self.quota_until = self.quota_until.min(End::At(now));
        self.hits = 0;
        self.version += 1;
    }

    /// Adopts a block that was stored by an earlier process or another host. Returns true if the end moved.
    pub fn adopt(&mut self, now: Moment, until: End, quota_until: End, hits: u32) -> bool {
        self.hits = self.hits.max(hits);
        self.quota_until = self.quota_until.max(quota_until);
        let moved = until.is_ahead(now) && self.extend(until);
        if moved {
            self.began = Some(now);
        }
        moved
    }

    pub fn is_blocked(&self, now: Moment) -> bool {
        self.until.is_ahead(now)
    }

    pub fn is_quota(&self, now: Moment) -> bool {
        self.quota_until.is_ahead(now)
    }

    pub fn until(&self) -> End {
        self.until
    }

    pub fn quota_until(&self) -> End {
        self.quota_until
    }

    pub fn set_backoff(&mut self, backoff: Backoff) {
        self.backoff = backoff;
    }

    pub fn longest_backoff(&self) -> Duration {
        Duration::from_micros(self.backoff.max_micros)
    }

    pub fn hits(&self) -> u32 {
        self.hits
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    fn is_hit(&self, started: Moment) -> bool {
        self.began.is_none_or(|began| started > began)
    }

    fn count_hit(&mut self, now: Moment) -> u64 {
        self.hits = self.hits.saturating_add(1);
        self.began = Some(now);
        self.version += 1;
        self.backoff.after(self.hits)
    }

    fn extend(&mut self, end: End) -> bool {
        let moved = end > self.until;
        if moved {
            self.until = end;
            self.version += 1;
        }
        moved
    }
}

/// The first wait of a call after an overload.
const FIRST_OVERLOAD_WAIT: Duration = Duration::from_millis(500);
/// The longest such wait.
const LONGEST_OVERLOAD_WAIT: Duration = Duration::from_secs(16);

/// How long a call waits before it is retried after an overload (529, 503), given the number of consecutive overloads
/// before this one: half a second, doubled each time, at most 16 s.
///
/// ```
/// use std::time::Duration;
/// use rota_gate::overload_wait;
///
/// assert_eq!(overload_wait(0), Duration::from_millis(500));
/// assert_eq!(overload_wait(3), Duration::from_secs(4));
/// assert_eq!(overload_wait(u32::MAX), Duration::from_secs(16));
/// ```
pub fn overload_wait(earlier: u32) -> Duration {
    (FIRST_OVERLOAD_WAIT * (1 << earlier.min(16))).min(LONGEST_OVERLOAD_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { initial_micros: 5_000_000, max_micros: 120_000_000 };

    fn secs(secs: u64) -> Moment {
        Moment::from_secs(secs)
    }

    fn seconds(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs))
    }

    /// One policy, one test: 5, 10, 20, 40, 80, then 120 s for ever.
    #[test]
    fn backoff_doubles_from_five_seconds_to_two_minutes() {
        let cases =
            [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (6, 120), (7, 120), (64, 120), (u32::MAX, 120)];
        for (hits, expected) in cases {
            assert_eq!(BACKOFF.after(hits), expected * 1_000_000, "hit {hits}");
        }
        let widest = Backoff { initial_micros: u64::MAX, max_micros: u64::MAX };
        assert_eq!(widest.after(u32::MAX), u64::MAX);
    }

    /// G3: what one 429 at second 10 does, by its retry-after.
    #[test]
    fn the_end_is_the_later_of_retry_after_and_backoff() {
        let cases = [
            (None, End::At(secs(15)), false),
            (seconds(0), End::At(secs(15)), false),
            (seconds(3), End::At(secs(15)), false),
            (seconds(60), End::At(secs(70)), false),
            (seconds(300), End::At(secs(310)), false),
            (seconds(301), End::At(secs(311)), true),
            (seconds(86_400), End::At(secs(86_410)), true),
            (Some(Duration::MAX), End::At(Moment::MAX), true),
        ];
        for (retry_after, until, quota) in cases {
            let mut block = Block::new(BACKOFF);
            assert!(block.rate_limited(secs(10), secs(9), retry_after));
            assert_eq!((block.until(), block.is_quota(secs(10))), (until, quota), "{retry_after:?}");
            assert_eq!(block.hits(), 1);
        }
    }

    #[test]
    fn a_burst_is_one_hit_and_a_shorter_429_does_not_shorten() {
        let mut block = Block::new(BACKOFF);
        assert!(block.rate_limited(secs(10), secs(9), seconds(60)));
        for (retry_after, until) in [(None, 70), (seconds(5), 70), (seconds(61), 71), (seconds(1), 71)] {
            block.rate_limited(secs(10), secs(10), retry_after);
            assert_eq!((block.until(), block.hits()), (End::At(secs(until)), 1), "{retry_after:?}");
        }
        assert!(block.rate_limited(secs(80), secs(75), None), "started after the block: a second hit");
        assert_eq!((block.until(), block.hits()), (End::At(secs(90)), 2));
    }

    #[test]
    fn only_a_success_from_after_the_block_forgets_the_hits() {
        let mut block = Block::new(BACKOFF);
        block.rate_limited(secs(10), secs(9), seconds(60));
        for started in [0, 9, 10, 69] {
            block.succeeded(secs(started));
            assert_eq!((block.hits(), block.until()), (1, End::At(secs(70))), "started at {started}");
        }
        block.succeeded(secs(70));
        assert_eq!((block.hits(), block.until()), (0, End::At(secs(70))));
    }

    #[test]
    fn a_quota_without_reset_lasts_until_it_is_lifted() {
        let mut block = Block::new(BACKOFF);
        assert!(block.quota(secs(10), secs(9), None));
        assert!(block.is_blocked(Moment::MAX) && block.is_quota(Moment::MAX));
        assert!(!block.rate_limited(secs(11), secs(9), seconds(60)), "nothing shortens it");
        block.lift(secs(20));
        assert!(!block.is_blocked(secs(20)) && !block.is_quota(secs(20)));
        assert_eq!(block.hits(), 0);
    }

    #[test]
    fn every_change_a_restart_must_know_of_moves_the_version() {
        let mut block = Block::new(BACKOFF);
        let mut versions = vec![block.version()];
        block.rate_limited(secs(10), secs(9), seconds(60));
        versions.push(block.version());
        block.succeeded(secs(70));
        versions.push(block.version());
        block.quota(secs(80), secs(75), None);
        versions.push(block.version());
        block.lift(secs(90));
        versions.push(block.version());
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        block.succeeded(secs(91));
        assert_eq!(Some(&block.version()), versions.last(), "nothing to forget");
    }

    #[test]
    fn overload_waits_double_to_sixteen_seconds() {
        let waits = (0..8).map(|earlier| overload_wait(earlier).as_millis() as u64);
        assert_eq!(waits.collect::<Vec<_>>(), [500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000, 16_000]);
    }
}
