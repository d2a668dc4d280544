//! Money: whole billionths of a dollar, a decimal string in JSON.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANOS: u64 = 1_000_000_000;

/// An amount of US dollars. In JSON it is a string of dollars with two to nine decimals, like `"12.50"` or
/// `"0.000135"`: exact, and the same wherever money is shown. Arithmetic saturates at the largest amount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Usd(u64);

impl Usd {
    /// The largest amount that every store can represent.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// From billionths of a dollar.
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// In billionths of a dollar.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The sum, at most [`Usd::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::from_nanos(self.0.saturating_add(other.0))
    }

    /// Dollars for display: at least cents, at most millionths.
    pub fn rounded(self) -> String {
        decimal(self.0, 6)
    }
}

/// Dollars with at least two and at most the given number of decimals.
fn decimal(nanos: u64, most: usize) -> String {
    let digits = format!("{:09}", nanos % NANOS);
    let shown = digits.trim_end_matches('0').len().clamp(2, most);
    format!("{}.{}", nanos / NANOS, &digits[..shown])
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(self.0, 9))
    }
}

/// A string that is not an amount of money.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected dollars like 12.50, with at most nine decimals")]
pub struct BadUsd;

impl FromStr for Usd {
    type Err = BadUsd;

    fn from_str(text: &str) -> Result<Self, BadUsd> {
        let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(rest) || rest.len() > 9 {
            return Err(BadUsd);
        }
        let whole: u64 = whole.parse().map_err(|_| BadUsd)?;
        let rest: u64 = format!("{rest:0<9}").parse().map_err(|_| BadUsd)?;
        let nanos = whole.checked_mul(NANOS).and_then(|nanos| nanos.checked_add(rest)).ok_or(BadUsd)?;
        if nanos > Self::MAX.0 { Err(BadUsd) } else { Ok(Self(nanos)) }
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Usd {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Usd".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "US dollars, exact, with two to nine decimals.",
            "pattern": r"^[0-9]+\.[0-9]{2,9}$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_exact_shape() {
        for (nanos, text, rounded) in [
            (0, "0.00", "0.00"),
            (1_500_000_000, "1.50", "1.50"),
            (135_000, "0.000135", "0.000135"),
            (999, "0.000000999", "0.000000"),
            (18_000_000_000, "18.00", "18.00"),
            (i64::MAX as u64, "9223372036.854775807", "9223372036.854775"),
        ] {
            let usd = Usd::from_nanos(nanos);
            assert_eq!((usd.to_string(), usd.rounded()), (text.to_owned(), rounded.to_owned()));
            assert_eq!(text.parse(), Ok(usd));
            let json = serde_json::to_string(&usd).unwrap_or_default();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Usd>(&json).ok(), Some(usd));
        }
        for bad in
            ["", ".5", "-1", "1e3", "1.0000000001", "9223372036.854775808", "99999999999999999999", "1,5"]
        {
            assert_eq!(bad.parse::<Usd>(), Err(BadUsd), "{bad}");
        }
    }

    #[test]
    fn sums_stay_at_the_largest_amount() {
        assert_eq!(Usd::from_nanos(u64::MAX), Usd::MAX);
        assert_eq!(Usd::MAX.plus(Usd::from_nanos(1)), Usd::MAX);
    }
}
