//! Instants as UTC milliseconds. Core never reads a clock: every instant comes in from outside.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds in a second.
pub const SECOND_MS: i64 = 1_000;
/// Milliseconds in a minute.
pub const MINUTE_MS: i64 = 60_000;

/// An instant: milliseconds since 1970-01-01T00:00:00Z, from year 0 to the last day but one of year 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixMillis(i64);

/// The text is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)")]
pub struct BadTime {
    /// What was given.
    pub given: String,
}

impl UnixMillis {
    /// The earliest instant that can be written.
    pub const MIN: Self = Self(-62_167_219_200_000);
    /// The latest instant that can be written in every time zone: 9999-12-30T22:00:00.000Z.
    pub const MAX: Self = Self(253_402_207_200_000);

    /// Clamps into the range that RFC 3339 can write.
    pub const fn new(millis: i64) -> Self {
        if millis < Self::MIN.0 {
            Self::MIN
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    /// The milliseconds since 1970.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Later by so many milliseconds; stops at the ends of the range.
    pub const fn plus_ms(self, millis: i64) -> Self {
        Self::new(self.0.saturating_add(millis))
    }

    /// How long ago `earlier` was; never below zero, so a stamp from the future has age 0.
    pub const fn age_ms_of(self, earlier: Self) -> i64 {
        let age = self.0.saturating_sub(earlier.0);
        if age < 0 { 0 } else { age }
    }

    /// RFC 3339 with whole seconds, as the text of `rota task` shows times.
    pub fn to_seconds_text(self) -> String {
        format!("{:.0}", self.stamp())
    }

    fn stamp(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.stamp())
    }
}

impl FromStr for UnixMillis {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        let bad = || BadTime { given: text.chars().take(80).collect() };
        if !has_rfc3339_shape(text.as_bytes()) {
            return Err(bad());
        }
        let stamp: jiff::Timestamp = text.parse().map_err(|_| bad())?;
        Ok(Self::new(stamp.as_millisecond()))
    }
}

/// `YYYY-MM-DD(T| )HH:MM:SS[.fraction](Z|±HH:MM)`. The parser behind it reads more forms than that.
fn has_rfc3339_shape(text: &[u8]) -> bool {
    const PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    if text.len() < PATTERN.len() {
        return false;
    }
    let (head, mut tail) = text.split_at(PATTERN.len());
    let head_fits = head.iter().zip(PATTERN).all(|(byte, wanted)| match wanted {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        other => byte == other,
    });
    if let Some(fraction) = tail.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > 9 {
            return false;
        }
        tail = &fraction[digits..];
    }
    let zone_fits = match tail {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()),
        _ => false,
    };
    head_fits && zone_fits
}

impl Serialize for UnixMillis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UnixMillis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for UnixMillis {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_any_rfc3339_and_shows_utc() {
        for (given, shown) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000Z"),
            ("2026-01-01t00:00:00.5z", "2026-01-01T00:00:00.500Z"),
            ("2026-01-01 02:30:00+02:30", "2026-01-01T00:00:00.000Z"),
            ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123Z"),
            ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
            ("9999-12-30T22:00:00.000Z", "9999-12-30T22:00:00.000Z"),
        ] {
            let read: UnixMillis = given.parse().unwrap_or_else(|error| panic!("{given}: {error}"));
            assert_eq!(read.to_string(), shown, "{given}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for given in [
            "",
            "tomorrow",
            "2026-01-01",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T25:00:00Z",
            "2026-01-01T00:00:00+0200",
            "2026-01-01T00:00:00Z[UTC]",
            "1767225600",
            "２026-01-01T00:00:00Z",
        ] {
            assert!(given.parse::<UnixMillis>().is_err(), "{given}");
        }
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(UnixMillis::MAX.plus_ms(i64::MAX), UnixMillis::MAX);
        assert_eq!(UnixMillis::MIN.plus_ms(i64::MIN), UnixMillis::MIN);
        assert_eq!(UnixMillis::MIN.age_ms_of(UnixMillis::MAX), 0);
        assert_eq!(UnixMillis::MAX.to_string(), "9999-12-30T22:00:00.000Z");
        assert_eq!(UnixMillis::MIN.to_string(), "0000-01-01T00:00:00.000Z");
        assert_eq!(UnixMillis::new(999).to_seconds_text(), "1970-01-01T00:00:00Z");
    }
}
