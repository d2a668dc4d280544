//! The ramp: a gradual return to full speed after a block.
//!
//! Over the recovery period the gate's *reach* grows evenly from nothing to full. It scales the number of usable
//! slots (at least one, so that the upstream can be tried) and the speed of *paced time*, the clock that the pacing
//! of starts reads: it stands still during a block, accelerates while the gate ramps up, and then runs like ordinary
//! time. In figures, `e` after the block, with recovery period R: slots = max(1, slots × e ÷ R), and paced time has
//! advanced by e² ÷ 2R. An overload halves the reach.

use crate::moment::Moment;

#[derive(Debug)]
pub(crate) struct Ramp {
    period_micros: u64,
    /// Growth is measured from here; before it, nothing grows.
    anchor: Moment,
    /// The reach at the anchor, in microseconds of the period.
    anchor_reach: u64,
    /// Paced time at the anchor.
    anchor_paced: u64,
}

impl Ramp {
    /// A gate at full reach.
    pub fn full(period_micros: u64) -> Self {
        Self { period_micros, anchor: Moment::ZERO, anchor_reach: period_micros, anchor_paced: 0 }
    }

    /// Restarts from nothing at `at`, which may be in the future (the end of a block).
    pub fn restart(&mut self, now: Moment, at: Moment) {
        self.anchor_paced = self.paced(now);
        self.anchor_reach = 0;
        self.anchor = at.max(now);
    }

    /// Continues a ramp that began `reach` microseconds ago, in an earlier process.
    pub fn resume(&mut self, now: Moment, reach: u64) {
        self.restart(now, now);
        self.anchor_reach = reach.min(self.period_micros);
    }

    /// Applies another recovery period. A gate that is half way up stays half way up.
    pub fn set_period(&mut self, now: Moment, period_micros: u64) {
        let (reach, before) = (self.reach(now), self.period_micros);
        self.anchor_paced = self.paced(now);
        self.anchor = self.anchor.max(now);
        self.period_micros = period_micros;
        self.anchor_reach = match before {
            0 => period_micros,
            before => (u128::from(reach) * u128::from(period_micros) / u128::from(before)) as u64,
        };
    }

    /// Halves the reach without a pause.
    pub fn shrink(&mut self, now: Moment) {
        if now < self.anchor {
            return;
        }
        let reach = self.reach(now);
        self.anchor_paced = self.paced(now);
        self.anchor_reach = reach / 2;
        self.anchor = now;
    }

    /// True until the gate has its full reach again.
    pub fn is_ramping(&self, now: Moment) -> bool {
        self.reach(now) < self.period_micros
    }

    /// How many of `slots` may be used now.
    pub fn slots(&self, now: Moment, slots: usize) -> usize {
        let reach = self.reach(now);
        if reach >= self.period_micros {
            return slots;
        }
        let allowed = slots as u128 * u128::from(reach) / u128::from(self.period_micros);
        (allowed as usize).max(1)
    }

    /// When more than `in_flight` of `slots` may be used. Requires `in_flight < slots`.
    pub fn slots_open_at(&self, in_flight: usize, slots: usize) -> Option<Moment> {
        if in_flight == 0 {
            return Some(Moment::ZERO);
        }
        let wanted = (in_flight as u128 + 1) * u128::from(self.period_micros);
        let reach = wanted.div_ceil(slots as u128) as u64;
        if reach <= self.anchor_reach {
            return Some(self.anchor);
        }
        self.anchor.checked_plus_micros(reach - self.anchor_reach)
    }

    /// Paced time at `now`.
    pub fn paced(&self, now: Moment) -> u64 {
        let elapsed = now.micros_since(self.anchor);
        if self.anchor_reach >= self.period_micros {
            return self.anchor_paced.saturating_add(elapsed);
        }
        let grown = self.area(self.anchor_reach.saturating_add(elapsed)) - self.area(self.anchor_reach);
        self.anchor_paced.saturating_add(grown)
    }

    /// The first moment at which paced time has reached `paced`.
    pub fn when_paced(&self, paced: u64) -> Option<Moment> {
        let Some(missing) = paced.checked_sub(self.anchor_paced).filter(|missing| *missing > 0) else {
            return Some(Moment::ZERO);
        };
        if self.anchor_reach >= self.period_micros {
            return self.anchor.checked_plus_micros(missing);
        }
        let area = self.area(self.anchor_reach).checked_add(missing)?;
        let reach = self.reach_of_area(area)?;
        self.anchor.checked_plus_micros(reach - self.anchor_reach)
    }

    /// The reach at `now`, in microseconds of the period.
    fn reach(&self, now: Moment) -> u64 {
        self.anchor_reach.saturating_add(now.micros_since(self.anchor)).min(self.period_micros)
    }

    /// Paced time accumulated while the reach grew from nothing to `reach`.
    fn area(&self, reach: u64) -> u64 {
        let ramped = u128::from(reach.min(self.period_micros));
        let under_ramp = ramped * ramped / (2 * u128::from(self.period_micros.max(1)));
        (under_ramp as u64).saturating_add(reach.saturating_sub(self.period_micros))
    }

    /// The smallest reach whose area is at least `area`.
    fn reach_of_area(&self, area: u64) -> Option<u64> {
        let full = self.area(self.period_micros);
        if area > full {
            return self.period_micros.checked_add(area - full);
        }
        let square = u128::from(area) * 2 * u128::from(self.period_micros);
        let root = square.isqrt() as u64;
        Some(if u128::from(root) * u128::from(root) < square { root + 1 } else { root })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const PERIOD: u64 = 30 * SECOND;

    fn secs(secs: u64) -> Moment {
        Moment::from_secs(secs)
    }

    fn ramping_from(at: Moment) -> Ramp {
        let mut ramp = Ramp::full(PERIOD);
        ramp.restart(Moment::ZERO, at);
        ramp
    }

    #[test]
    fn slots_grow_evenly_from_one_to_all() {
        let ramp = ramping_from(secs(100));
        let cases = [(0, 1), (100, 1), (103, 1), (106, 2), (115, 5), (129, 9), (130, 10), (500, 10)];
        for (now, slots) in cases {
            assert_eq!(ramp.slots(secs(now), 10), slots, "at {now} s");
        }
        assert!(ramp.is_ramping(secs(129)) && !ramp.is_ramping(secs(130)));
    }

    #[test]
    fn paced_time_stands_gathers_speed_and_then_runs() {
        let ramp = ramping_from(secs(100));
        let cases =
            [(50, 0), (100, 0), (106, 600_000), (115, 3_750_000), (130, 15 * SECOND), (131, 16 * SECOND)];
        for (now, paced) in cases {
            assert_eq!(ramp.paced(secs(now)), paced, "at {now} s");
        }
    }

    #[test]
    fn an_overload_halves_the_reach_once_it_is_asked_to() {
        let mut ramp = Ramp::full(PERIOD);
        ramp.shrink(secs(10));
        assert_eq!(ramp.slots(secs(10), 10), 5);
        assert_eq!(ramp.slots(secs(25), 10), 10);
        ramp.shrink(secs(10));
        assert_eq!(ramp.slots(secs(10), 10), 2);
        let mut blocked = ramping_from(secs(100));
        blocked.shrink(secs(50));
        assert_eq!(blocked.slots(secs(130), 10), 10, "a block is not shortened or lengthened by it");
    }

    #[test]
    fn a_new_period_keeps_the_share_of_the_slots() {
        let mut ramp = ramping_from(secs(100));
        ramp.set_period(secs(115), 60 * SECOND);
        assert_eq!((ramp.slots(secs(115), 10), ramp.slots(secs(145), 10)), (5, 10));
        ramp.set_period(secs(115), 0);
        assert_eq!(ramp.slots(secs(115), 10), 10);
        ramp.set_period(secs(116), PERIOD);
        assert!(!ramp.is_ramping(secs(116)), "a gate at full speed stays there");
        let mut blocked = ramping_from(secs(100));
        blocked.set_period(secs(50), 10 * SECOND);
        assert_eq!((blocked.slots(secs(105), 10), blocked.slots(secs(110), 10)), (5, 10));
    }

    #[test]
    fn a_ramp_is_resumed_where_it_was() {
        let mut ramp = Ramp::full(PERIOD);
        ramp.resume(secs(0), 15 * SECOND);
        assert_eq!((ramp.slots(secs(0), 10), ramp.slots(secs(15), 10)), (5, 10));
        ramp.resume(secs(20), 99 * SECOND);
        assert!(!ramp.is_ramping(secs(20)));
    }

    #[test]
    fn without_a_recovery_period_there_is_no_ramp() {
        let mut ramp = Ramp::full(0);
        ramp.restart(secs(1), secs(5));
        assert_eq!(ramp.slots(secs(5), 10), 10);
        assert_eq!(ramp.paced(secs(7)), SECOND + 2 * SECOND);
        ramp.shrink(secs(7));
        assert_eq!(ramp.slots(secs(7), 10), 10);
    }

    proptest! {
        /// `when_paced` is the exact inverse of `paced`, and `slots_open_at` of `slots`.
        #[test]
        fn inverses_are_exact(
            period in 0u64..100_000_000,
            anchor in 0u64..1_000_000_000,
            shrink_after in prop::option::of(0u64..100_000_000),
            ask in 1u64..200_000_000,
            in_flight in 0usize..9,
        ) {
            let mut ramp = Ramp::full(period);
            ramp.restart(Moment::ZERO, Moment::from_micros(anchor));
            let mut from = anchor;
            if let Some(after) = shrink_after {
                from += after;
                ramp.shrink(Moment::from_micros(from));
            }
            let wanted = ramp.paced(Moment::from_micros(from)) + ask;
            let when = ramp.when_paced(wanted).unwrap();
            prop_assert!(ramp.paced(when) >= wanted);
            prop_assert!(ramp.paced(Moment::from_micros(when.as_micros() - 1)) < wanted);

            let open = ramp.slots_open_at(in_flight, 10).unwrap();
            prop_assert!(ramp.slots(open.max(Moment::from_micros(from)), 10) > in_flight);
            if open > Moment::from_micros(from) {
                prop_assert!(ramp.slots(Moment::from_micros(open.as_micros() - 1), 10) <= in_flight);
            }
        }

        #[test]
        fn the_ends_of_time_do_not_panic(now: u64, at: u64, period: u64, paced: u64) {
            let mut ramp = Ramp::full(period);
            ramp.restart(Moment::from_micros(now), Moment::from_micros(at));
            ramp.shrink(Moment::from_micros(now));
            let _ = (ramp.slots(Moment::MAX, usize::MAX), ramp.paced(Moment::MAX), ramp.when_paced(paced));
            let _ = (ramp.slots_open_at(usize::MAX - 1, usize::MAX), ramp.is_ramping(Moment::from_micros(now)));
            ramp.set_period(Moment::from_micros(at), paced);
            ramp.resume(Moment::from_micros(now), u64::MAX);
            let _ = (ramp.slots(Moment::MAX, usize::MAX), ramp.paced(Moment::MAX));
        }
    }
}
