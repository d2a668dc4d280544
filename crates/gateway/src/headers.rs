//! Which headers pass. All of them, unchanged, but: those of one hop, Host, lengths, credentials, and our own.

use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue};

use crate::config::{Api, Credentials};
use crate::upstream::Key;

/// Where a caller shows its token when the key is its own.
pub const TOKEN: HeaderName = HeaderName::from_static("x-rota-token");
/// How urgent a caller says its call is.
pub const PRIORITY: HeaderName = HeaderName::from_static("x-rota-priority");
/// How long a call waited here.
pub const WAIT: HeaderName = HeaderName::from_static("x-rota-wait-ms");
/// How often it was sent.
pub const ATTEMPTS: HeaderName = HeaderName::from_static("x-rota-attempts");

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const OURS: &str = "x-rota-";
/// The first version that shows keys as Bearer.
const BEARER_SINCE: &[u8] = b"2026";

/// What belongs to one hop, besides what `Connection` names, or is our own.
fn is_of_the_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "host"
            | "content-length"
            | "expect"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "http2-settings"
    ) || name.starts_with(OURS)
}

/// What says who a caller is.
fn is_of_the_caller(name: &str) -> bool {
    matches!(name, "authorization" | "x-api-key" | "api-key" | "cookie")
}

/// What `Connection` says is of this hop, too.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    if !headers.contains_key(CONNECTION) {
        return Vec::new();
    }
    let lists =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    lists.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Shows each header that a provider is sent, with the key in the form that fits.
pub(crate) fn to_upstream(
    headers: &HeaderMap,
    api: Api,
    credentials: Credentials,
    key: Option<&Key>,
    mut send: impl FnMut(&HeaderName, &HeaderValue),
) {
    let is_injected = credentials == Credentials::Inject;
    let named = named(headers);
    for (name, value) in headers {
        let is_replaced = is_injected && is_of_the_caller(name.as_str());
        if !is_replaced && !is_of_the_hop(name.as_str()) && !named.contains(name) {
            send(name, value);
        }
    }
    let Some(key) = key.filter(|_| is_injected) else { return };
    let takes_bearer = match api {
        Api::OpenAi => true,
        Api::Anthropic => headers.get(VERSION).is_some_and(|version| version.as_bytes() >= BEARER_SINCE),
    };
    if takes_bearer { send(&AUTHORIZATION, &key.bearer) } else { send(&API_KEY, &key.bare) }
}

/// Leaves of an answer's headers what a client is sent.
pub fn to_client(headers: &mut HeaderMap, waited_ms: u64, attempts: u32) {
    strip(headers);
    headers.insert(WAIT, number(waited_ms));
    headers.insert(ATTEMPTS, number(u64::from(attempts)));
}

/// Takes out what was of one hop.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let mut gone = named(headers);
    gone.extend(headers.keys().filter(|name| is_of_the_hop(name.as_str())).cloned());
    for name in gone {
        headers.remove(name);
    }
}

/// Of a call that nothing was in the way of, nothing need be written down.
fn number(number: u64) -> HeaderValue {
    match number {
        0 => HeaderValue::from_static("0"),
        1 => HeaderValue::from_static("1"),
        _ => HeaderValue::from(number),
    }
}

/// The tokens a caller may mean, most certain first. With keys of their own callers show it apart.
pub fn shown(headers: &HeaderMap, credentials: Credentials) -> impl Iterator<Item = &[u8]> {
    let own = (credentials == Credentials::Inject).then(|| own_keys(headers));
    headers.get_all(TOKEN).iter().map(HeaderValue::as_bytes).chain(own.into_iter().flatten())
}

/// What a caller shows as keys.
fn own_keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bare = headers.get_all(API_KEY).iter().map(HeaderValue::as_bytes);
    bare.chain(headers.get_all(AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes())))
}

/// What is behind `Bearer `; the scheme's case does not matter.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use rota_store::Secret;

    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let name: HeaderName = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            headers.append(name, value.parse().unwrap_or_else(|error| panic!("{value}: {error}")));
        }
        headers
    }

    fn text(headers: &HeaderMap) -> String {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?")))
            .collect();
        lines.sort();
        lines.join("\n")
    }

    fn sent(headers: &HeaderMap, api: Api, credentials: Credentials, key: Option<&Key>) -> HeaderMap {
        let mut sent = HeaderMap::new();
        to_upstream(headers, api, credentials, key, |name, value| {
            sent.append(name, value.clone());
        });
        sent
    }

    const SENT: [(&str, &str); 17] = [
        ("host", "here"),
        ("connection", "keep-alive, X-Private"),
        ("x-private", "1"),
        ("keep-alive", "5"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("content-length", "3"),
        ("expect", "100-continue"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "secret"),
        ("x-rota-token", "secret"),
        ("x-rota-anything", "1"),
        ("x-api-key", "secret"),
        ("authorization", "Bearer secret"),
        ("cookie", "secret"),
        ("anthropic-beta", "a"),
        ("anthropic-beta", "b"),
    ];

    #[test]
    fn the_key_comes_in_the_form_that_fits() {
        let key = Key::new(&Secret::from("k"));
        let both = "anthropic-beta: a\nanthropic-beta: b\n";
        for (version, api, expected) in [
            ("2023-06-01", Api::Anthropic, format!("{both}anthropic-version: 2023-06-01\nx-api-key: k")),
            (
                "2026-10-21",
                Api::Anthropic,
                format!("{both}anthropic-version: 2026-10-21\nauthorization: Bearer k"),
            ),
            (
                "2023-06-01",
                Api::OpenAi,
                format!("{both}anthropic-version: 2023-06-01\nauthorization: Bearer k"),
            ),
        ] {
            let mut given = headers(&SENT);
            given.insert("anthropic-version", HeaderValue::from_static(version));
            assert_eq!(text(&sent(&given, api, Credentials::Inject, key.as_ref())), expected);
        }
    }

    #[test]
    fn a_callers_own_login_passes() {
        let sent = sent(&headers(&SENT), Api::Anthropic, Credentials::Pass, None);
        assert_eq!(
            text(&sent),
            "anthropic-beta: a\nanthropic-beta: b\nauthorization: Bearer secret\ncookie: secret\nx-api-key: secret"
        );
    }

    #[test]
    fn an_answer_comes_without_what_was_of_its_hop() {
        let mut given = headers(&SENT);
        given.insert(ATTEMPTS, HeaderValue::from_static("7"));
        to_client(&mut given, 12, 1);
        assert_eq!(
            text(&given),
            "anthropic-beta: a\nanthropic-beta: b\nauthorization: Bearer secret\ncookie: secret\nx-api-key: \
             secret\nx-rota-attempts: 1\nx-rota-wait-ms: 12"
        );
    }

    #[test]
    fn tokens_are_looked_for_where_they_belong() {
        let given = headers(&[("x-api-key", "a"), ("authorization", "bearer b"), ("x-rota-token", "c")]);
        let tokens = |headers: &HeaderMap, credentials| {
            shown(headers, credentials).map(<[u8]>::to_vec).collect::<Vec<Vec<u8>>>()
        };
        assert_eq!(tokens(&given, Credentials::Inject), [b"c", b"a", b"b"]);
        assert_eq!(tokens(&given, Credentials::Pass), [b"c"]);
        assert_eq!(tokens(&headers(&[("authorization", "Basic b")]), Credentials::Inject), [b""; 0]);
    }
}
