//! Instants as UTC milliseconds. Core never reads a clock: every instant is passed in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds in a second.
pub const SECOND_MS: i64 = 1_000;
/// Milliseconds in a minute.
pub const MINUTE_MS: i64 = 60_000;

const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

/// An instant: milliseconds since 1970-01-01T00:00:00Z, from year 0 to the last day but one of year 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixMillis(i64);

/// The text is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not an RFC 3339 time (e.g. 2026-01-01T00:00:00Z)")]
pub struct BadTime {
    /// The given text.
    pub given: String,
}

impl UnixMillis {
    /// The earliest instant that can be written.
    pub const MIN: Self = Self(-62_167_219_200_000);
    /// The latest instant that can be written in every time zone: 9999-12-30T22:00:00.000Z.
    pub const MAX: Self = Self(253_402_207_200_000);

    /// Clamps into the range of RFC 3339.
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

    /// Later by the given milliseconds; saturates at the ends of the range.
    pub const fn plus_ms(self, millis: i64) -> Self {
        Self::new(self.0.saturating_add(millis))
    }

    /// The time since `earlier`; never negative, so a time in the future has age 0.
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
        f.write_str(Written::of(*self).as_str())
    }
}

/// An instant in RFC 3339 with milliseconds. Every journal row has a few, so this is written for speed.
struct Written([u8; 24]);

impl Written {
    fn of(instant: UnixMillis) -> Self {
        let (days, millis) = (instant.0.div_euclid(DAY_MS), instant.0.rem_euclid(DAY_MS));
        let (year, month, day) = civil(days);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], year);
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], millis / (60 * MINUTE_MS));
        put(&mut text[14..16], millis / MINUTE_MS % 60);
        put(&mut text[17..19], millis / SECOND_MS % 60);
        put(&mut text[20..23], millis % SECOND_MS);
        Self(text)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Writes a non-negative number over zeros.
fn put(places: &mut [u8], mut number: i64) {
    for place in places.iter_mut().rev() {
        *place += (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of a number of days since 1970. Years are counted from March, so that the leap day is the last
/// one, and in eras of 400 years, which all have the same length.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let since_march_0000 = days + 719_468;
    let (era, of_era) = (since_march_0000.div_euclid(ERA), since_march_0000.rem_euclid(ERA));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, day)
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

/// `YYYY-MM-DD(T| )HH:MM:SS[.fraction](Z|±HH:MM)`. The parser behind it accepts more forms.
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
        serializer.serialize_str(Written::of(*self).as_str())
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
    fn writes_what_the_library_writes() {
        let (first, last) = (UnixMillis::MIN.0 / DAY_MS, UnixMillis::MAX.0 / DAY_MS);
        for day in first..=last {
            let instant = UnixMillis::new(day * DAY_MS + day.rem_euclid(DAY_MS));
            assert_eq!(instant.to_string(), format!("{:.3}", instant.stamp()));
        }
        for instant in [UnixMillis::MIN, UnixMillis::MAX, UnixMillis::new(-1), UnixMillis::new(0)] {
            assert_eq!(instant.to_string(), format!("{:.3}", instant.stamp()));
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
