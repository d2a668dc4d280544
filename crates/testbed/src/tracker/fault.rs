//! One call in so many goes wrong, in turn in every way there is; the same seed gives the same faults.

/// Which calls go wrong.
#[derive(Clone, Debug)]
pub struct Faults {
    seed: u64,
    one_in: u64,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Normal,
    /// No answer in time, and no effect.
    Late,
    /// 500, and no effect.
    Failed,
    /// A proxy's page.
    Html,
    /// The effect is there, the answer is lost.
    Lost,
    /// Delivered twice.
    Twice,
}

impl Faults {
    /// One call in so many.
    pub const fn one_in(one_in: u64, seed: u64) -> Self {
        Self { seed, one_in }
    }

    pub(super) fn next(&mut self) -> Fate {
        // Steele, Lea and Flood's SplitMix64: a counter that is stirred.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        if !mixed.is_multiple_of(self.one_in) {
            return Fate::Normal;
        }
        match (mixed / self.one_in) % 5 {
            0 => Fate::Late,
            1 => Fate::Failed,
            2 => Fate::Html,
            3 => Fate::Lost,
            _ => Fate::Twice,
        }
    }
}
