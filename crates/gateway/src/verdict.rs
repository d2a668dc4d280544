//! What an answer of a provider means for the gate: whether it is passed on, held back, or the end for everybody.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, StatusCode};
use rota_gate::parse_retry_after;
use serde::Deserialize;

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// To the client, as it is.
    Pass,
    /// Too fast: everybody waits, then it is sent again.
    RateLimited(Option<Duration>),
    /// Used up: everybody is told at once.
    Quota(Option<Duration>),
    /// This call alone waits, then it is sent again.
    Overloaded(Option<Duration>),
}

/// What a refusal says inside.
#[derive(Deserialize)]
struct Body {
    error: Option<Error>,
}

#[derive(Deserialize)]
struct Error {
    #[serde(rename = "type")]
    kind: Option<String>,
    code: Option<serde_json::Value>,
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    error_code: Option<String>,
}

/// The codes of what no waiting ends.
const USED_UP: [&str; 3] =
    ["enforced_spend_limit_reached", "insufficient_quota", "billing_hard_limit_reached"];

/// Whether a status can be anything but passed on, so that its body must be looked at first.
pub fn is_suspect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 503 | 529)
}

/// Judges an answer whose status is suspect.
pub fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Verdict {
    let wait = retry_after(headers, now);
    match status.as_u16() {
        429 if is_used_up(body) => Verdict::Quota(wait.filter(|wait| *wait > rota_gate::QUOTA_ABOVE)),
        429 => match unified_reset(headers, now) {
            Some(reset) => Verdict::Quota(reset.or(wait)),
            None => Verdict::RateLimited(wait),
        },
        503 | 529 => Verdict::Overloaded(wait),
        _ => Verdict::Pass,
    }
}

fn is_used_up(body: &[u8]) -> bool {
    let Some(error) = serde_json::from_slice::<Body>(body).ok().and_then(|body| body.error) else {
        return false;
    };
    let code = error.code.as_ref().and_then(serde_json::Value::as_str);
    let detail = error.details.as_ref().and_then(|details| details.error_code.as_deref());
    [error.kind.as_deref(), code, detail].into_iter().flatten().any(|word| USED_UP.contains(&word))
}

/// Of a subscription that is used up: when it is renewed, if that is said.
fn unified_reset(headers: &HeaderMap, now: SystemTime) -> Option<Option<Duration>> {
    let status = headers.get("anthropic-ratelimit-unified-status")?;
    (status == "rejected").then(|| {
        let text = headers.get("anthropic-ratelimit-unified-reset")?.to_str().ok()?;
        let seconds = text.parse().ok().map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        seconds.or_else(|| moment(text))?.duration_since(now).ok()
    })
}

/// `retry-after-ms` where it is said, else `retry-after` in seconds or as a date.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let millis = text("retry-after-ms").and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
    millis.or_else(|| parse_retry_after(text("retry-after")?, now))
}

/// How a provider says of one of its budgets how large it is, how much is left, and when all of it is back.
struct Told {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

impl Told {
    const fn by(limit: &'static str, remaining: &'static str, reset: &'static str) -> Self {
        let name = HeaderName::from_static;
        Self { limit: name(limit), remaining: name(remaining), reset: name(reset) }
    }
}

static TOLD: [Told; 6] = [
    Told::by(
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ),
    Told::by(
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ),
    Told::by(
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ),
    Told::by(
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
    ),
    Told::by("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    Told::by("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
];

/// How long to start nothing more, by what an answer says of the provider's own budget: once a tenth or less is left,
/// as long as another tenth takes to come back.
pub fn hold_back(headers: &HeaderMap, now: impl Fn() -> SystemTime) -> Option<Duration> {
    // Where none is told, none is looked for.
    let is_told = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("anthropic-ratelimit-") || name.starts_with("x-ratelimit-")
    };
    if !headers.keys().any(is_told) {
        return None;
    }
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let number = |name: &HeaderName| text(name)?.trim().parse::<u64>().ok();
    let resets = TOLD.iter().filter_map(|told| {
        let (remaining, limit) = (number(&told.remaining)?, number(&told.limit)?);
        let is_low = limit > 0 && remaining.saturating_mul(10) <= limit;
        let reset = text(&told.reset).filter(|_| is_low)?;
        match moment(reset) {
            Some(moment) => moment.duration_since(now()).ok(),
            None => span(reset),
        }
    });
    resets.max().map(|reset| reset / 10)
}

/// A moment in RFC 3339.
fn moment(text: &str) -> Option<SystemTime> {
    text.trim().parse::<jiff::Timestamp>().ok().map(SystemTime::from)
}

/// A span like `6m0s`, `1h2m3.5s` or `12ms`.
fn span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|symbol: char| !symbol.is_ascii_digit() && symbol != '.')?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|symbol: char| !symbol.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = behind;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values.
    type List = &'static [(&'static str, &'static str)];

    fn headers(list: List) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: http::HeaderName = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, value.parse().unwrap_or_else(|error| panic!("{value}: {error}")))
        };
        list.iter().map(pair).collect()
    }

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    #[test]
    fn verdicts() {
        let secs = |seconds| Some(Duration::from_secs(seconds));
        let spend = r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
        let ramp = r#"{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"ramp_limit_exceeded"}}}"#;
        let quota = r#"{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
        const DATE: &str = "Sun, 06 Nov 1994 08:50:37 GMT";
        const STATUS: &str = "anthropic-ratelimit-unified-status";
        const RESET: &str = "anthropic-ratelimit-unified-reset";
        let cases: [(u16, List, &str, Verdict); 14] = [
            (429, &[("retry-after", "7")], "", Verdict::RateLimited(secs(7))),
            (429, &[("retry-after", DATE)], "", Verdict::RateLimited(secs(60))),
            (
                429,
                &[("retry-after-ms", "500"), ("retry-after", "1")],
                "",
                Verdict::RateLimited(Some(Duration::from_millis(500))),
            ),
            (429, &[], "<html>", Verdict::RateLimited(None)),
            (429, &[("retry-after", "2")], ramp, Verdict::RateLimited(secs(2))),
            (429, &[("retry-after", "soon")], "", Verdict::RateLimited(None)),
            (429, &[], spend, Verdict::Quota(None)),
            (429, &[("retry-after", "4")], quota, Verdict::Quota(None)),
            (429, &[(STATUS, "rejected"), (RESET, "784115377")], "", Verdict::Quota(secs(3_600))),
            (429, &[(STATUS, "rejected")], "", Verdict::Quota(None)),
            (429, &[(STATUS, "allowed")], "", Verdict::RateLimited(None)),
            (529, &[], "", Verdict::Overloaded(None)),
            (503, &[("retry-after", "3")], "", Verdict::Overloaded(secs(3))),
            (500, &[("retry-after", "3")], "", Verdict::Pass),
        ];
        for (status, list, body, expected) in cases {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            assert_eq!(
                judge(status, &headers(list), body.as_bytes(), now()),
                expected,
                "{status} {list:?} {body}"
            );
        }
    }

    #[test]
    fn spans() {
        for (text, millis) in [
            ("6m0s", Some(360_000)),
            ("12ms", Some(12)),
            ("1h2m3.5s", Some(3_723_500)),
            ("2s", Some(2_000)),
            ("", None),
            ("5", None),
            ("-1", None),
            ("1x", None),
            ("..s", None),
            ("99999999999999999999999999999d", None),
        ] {
            assert_eq!(span(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn little_left_holds_back_for_a_tenth() {
        const LIMIT: &str = "x-ratelimit-limit-requests";
        const LEFT: &str = "x-ratelimit-remaining-requests";
        const RESET: &str = "x-ratelimit-reset-requests";
        const A_LIMIT: &str = "anthropic-ratelimit-input-tokens-limit";
        const A_LEFT: &str = "anthropic-ratelimit-input-tokens-remaining";
        const A_RESET: &str = "anthropic-ratelimit-input-tokens-reset";
        let cases: [(List, Option<u64>); 7] = [
            (&[(LIMIT, "50"), (LEFT, "5"), (RESET, "40s")], Some(4_000)),
            (&[(LIMIT, "50"), (LEFT, "6"), (RESET, "40s")], None),
            (&[(LIMIT, "50"), (LEFT, "-1"), (RESET, "40s")], None),
            (&[(LIMIT, "0"), (LEFT, "0"), (RESET, "40s")], None),
            (&[(LIMIT, "50"), (LEFT, "0")], None),
            (&[(A_LIMIT, "1000"), (A_LEFT, "0"), (A_RESET, "1994-11-06T08:50:07Z")], Some(3_000)),
            (&[(A_LIMIT, "1000"), (A_LEFT, "0"), (A_RESET, "1994-11-06T08:00:00Z")], None),
        ];
        for (list, millis) in cases {
            assert_eq!(hold_back(&headers(list), now), millis.map(Duration::from_millis), "{list:?}");
        }
    }
}
