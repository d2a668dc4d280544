//! The pure gate's instant: whole microseconds since an origin the caller chose.
//!
//! Monotonic and a separate type, so that no wall-clock time can enter a decision. Every sum either saturates or
//! reports that it does not fit; nothing here can overflow.

use std::time::Duration;

/// An instant, in microseconds since the origin of one gate.
///
/// ```
/// use std::time::Duration;
/// use rota_gate::Moment;
///
/// let start = Moment::from_micros(1_500);
/// assert_eq!(start.plus(Duration::from_millis(1)), Moment::from_micros(2_500));
/// assert_eq!(start.since(Moment::ZERO), Duration::from_micros(1_500));
/// assert_eq!(Moment::ZERO.since(start), Duration::ZERO, "never negative");
/// assert_eq!(Moment::MAX.plus(Duration::from_secs(1)), Moment::MAX, "saturates");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The origin.
    pub const ZERO: Moment = Moment(0);
    /// The last instant, some 584,000 years after the origin.
    pub const MAX: Moment = Moment(u64::MAX);

    /// The instant that many microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The instant that many milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// The instant that many seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This instant moved forward, at most to [`Moment::MAX`].
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// The time since `earlier`; zero if that is in the future.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    pub(crate) const fn micros_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) const fn plus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Moved forward, or `None` if the result does not fit.
    pub(crate) const fn checked_plus_micros(self, micros: u64) -> Option<Self> {
        match self.0.checked_add(micros) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

/// Whole microseconds of a duration, rounded up, so that a wait is never too short.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micros_round_up_and_saturate() {
        let cases = [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_nanos(1_000), 1),
            (Duration::from_nanos(1_001), 2),
            (Duration::from_secs(60), 60_000_000),
            (Duration::MAX, u64::MAX),
        ];
        for (duration, expected) in cases {
            assert_eq!(micros(duration), expected, "{duration:?}");
        }
    }

    #[test]
    fn arithmetic_stays_inside_at_both_ends() {
        assert_eq!(Moment::MAX.checked_plus_micros(1), None);
        assert_eq!(Moment::MAX.checked_plus_micros(0), Some(Moment::MAX));
        assert_eq!(Moment::MAX.plus_micros(9), Moment::MAX);
        assert_eq!(Moment::ZERO.micros_since(Moment::MAX), 0);
        assert_eq!(Moment::from_secs(u64::MAX), Moment::MAX);
        assert_eq!(Moment::from_millis(2), Moment::from_micros(2_000));
    }
}
