//! Parses a `Retry-After` header.

use std::time::{Duration, SystemTime};

/// The wait a `Retry-After` header asks for: seconds or an HTTP date, as seen from `now`.
///
/// A date in the past is a wait of zero. `None` if the value is neither, so that the gate uses its own backoff. A
/// fraction of a second, which is not in the standard but occurs, is rounded up; a number too large to represent is
/// the largest duration.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use rota_gate::parse_retry_after;
///
/// let now = UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
/// assert_eq!(parse_retry_after("120", now), Some(Duration::from_secs(120)));
/// assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now), Some(Duration::from_secs(60)));
/// assert_eq!(parse_retry_after("soon", now), None);
/// ```
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    if value.starts_with(|first: char| first.is_ascii_digit()) {
        return parse_seconds(value);
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

fn parse_seconds(value: &str) -> Option<Duration> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let started = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    // Only a number too large to represent fails to parse here.
    let seconds = whole.parse::<u64>().unwrap_or(u64::MAX).saturating_add(started);
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    /// G3: seconds, date, past date, 0, 86400, garbage.
    #[test]
    fn reads_what_servers_send() {
        let cases = [
            ("0", Some(0)),
            ("1", Some(1)),
            ("60", Some(60)),
            (" 60\t", Some(60)),
            ("086400", Some(86_400)),
            ("86400", Some(86_400)),
            ("0.2", Some(1)),
            ("2.000", Some(2)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("", None),
            (" ", None),
            ("-1", None),
            ("+5", None),
            ("5s", None),
            ("1e3", None),
            ("1.", None),
            (".5", None),
            ("1.2.3", None),
            ("soon", None),
            ("Sun, 32 Nov 1994 08:49:37 GMT", None),
            ("NaN", None),
            ("٣", None),
        ];
        for (value, expected) in cases {
            assert_eq!(parse_retry_after(value, now()), expected.map(Duration::from_secs), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(value in ".{0,64}") {
            let _ = parse_retry_after(&value, now());
        }

        #[test]
        fn every_whole_number_is_read_back(seconds: u64) {
            prop_assert_eq!(parse_retry_after(&seconds.to_string(), now()), Some(Duration::from_secs(seconds)));
        }
    }
}
