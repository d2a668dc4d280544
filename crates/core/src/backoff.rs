//! How long a task waits after a counted attempt. Pure arithmetic, no randomness.
//!
//! ```
//! use rota_core::backoff::Backoff;
//! let backoff = Backoff { base_ms: 1_000, factor_thousandths: 2_000, cap_ms: 60_000 };
//! let waits: Vec<i64> = (1..=8).map(|attempts| backoff.after(attempts) / 1_000).collect();
//! assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
//! ```

/// `min(base × factor^(attempts−1), cap)`; the factor is decimal, stored in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The first wait.
    pub base_ms: u64,
    /// The factor of each further wait, in thousandths; at least 1,000.
    pub factor_thousandths: u64,
    /// The longest wait.
    pub cap_ms: u64,
}

impl Backoff {
    /// The wait in milliseconds after the given number of counted attempts; zero after none.
    pub fn after(&self, attempts: u32) -> i64 {
        if attempts == 0 {
            return 0;
        }
        let cap = u128::from(self.cap_ms);
        let mut wait = u128::from(self.base_ms) * 1_000;
        // Thousandths are kept between steps, so that a factor of 1.5 is not rounded at every step.
        for _ in 1..attempts {
            if wait == 0 || wait / 1_000 >= cap || self.factor_thousandths <= 1_000 {
                break;
            }
            wait = wait.saturating_mul(u128::from(self.factor_thousandths)) / 1_000;
        }
        i64::try_from((wait / 1_000).min(cap)).unwrap_or(i64::MAX)
    }
}

/// The wait after the n-th consecutive rate limit if the policy is not available: 5 s doubling to 120 s.
pub const AFTER_RATE_LIMIT: Backoff = Backoff { base_ms: 5_000, factor_thousandths: 2_000, cap_ms: 120_000 };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worked_examples() {
        let cases: [(Backoff, &[i64]); 4] = [
            (
                Backoff { base_ms: 1_000, factor_thousandths: 2_000, cap_ms: 60_000 },
                &[0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000],
            ),
            (
                Backoff { base_ms: 100, factor_thousandths: 1_500, cap_ms: 1_000 },
                &[0, 100, 150, 225, 337, 506, 759, 1_000],
            ),
            (Backoff { base_ms: 7, factor_thousandths: 1_000, cap_ms: 60_000 }, &[0, 7, 7, 7]),
            (Backoff { base_ms: 0, factor_thousandths: 2_000, cap_ms: 60_000 }, &[0, 0, 0]),
        ];
        for (backoff, waits) in cases {
            for (attempts, wait) in (0..).zip(waits) {
                assert_eq!(backoff.after(attempts), *wait, "{backoff:?} after {attempts}");
            }
        }
        let limited: Vec<i64> = (1..=7).map(|row| AFTER_RATE_LIMIT.after(row) / 1_000).collect();
        assert_eq!(limited, [5, 10, 20, 40, 80, 120, 120]);
    }

    proptest! {
        /// C5: monotone, capped, and no overflow at any edge.
        #[test]
        fn monotone_and_capped(base_ms: u64, factor in 1_000u64.., cap_ms: u64, attempts: u32) {
            let backoff = Backoff { base_ms, factor_thousandths: factor, cap_ms };
            let wait = backoff.after(attempts);
            prop_assert!(wait >= 0);
            prop_assert!(wait as u128 <= u128::from(cap_ms));
            prop_assert!(backoff.after(attempts.saturating_add(1)) >= wait || attempts == u32::MAX);
        }
    }
}
