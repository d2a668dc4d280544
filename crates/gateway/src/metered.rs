//! Which calls can be counted against a budget. Where there is one, everything else that may cost money is refused before
//! it is sent: a call whose usage cannot be read would be free.

use http::header::{ACCEPT_ENCODING, HeaderValue};
use http::{HeaderMap, Method};

use crate::config::Api;
use crate::members;
use crate::meter;
use crate::refusal::Refusal;

/// The last parts of paths that are posted to and cost nothing.
const FREE: [&str; 4] = ["count_tokens", "input_tokens", "cancel", "files"];

/// Refuses an endpoint that may cost money and does not report it. Calls of models report theirs.
pub(crate) fn check_endpoint(method: &Method, path: &str, is_model_call: bool) -> Result<(), Refusal> {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE];
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if is_model_call || reads.contains(method) || FREE.contains(&last) {
        return Ok(());
    }
    Err(Refusal::Unmetered("this endpoint does not report what it uses"))
}

/// The encodings of an answer that can be read, of those that a client accepts; none where it does not say.
pub(crate) fn encodings(headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return Ok(None);
    }
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let wanted: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    let coding = |entry: &str| entry.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let named = || wanted.iter().copied().filter(|entry| !entry.is_empty());
    let readable: Vec<&str> = named().filter(|entry| meter::reads(&coding(entry))).collect();
    if readable.is_empty() && named().any(|entry| coding(entry) != "*") {
        return Err(Refusal::Unmetered("an answer in none of the accepted encodings can be read (use gzip)"));
    }
    let kept = if readable.is_empty() { "identity".to_owned() } else { readable.join(", ") };
    Ok(HeaderValue::from_str(&kept).ok())
}

/// Refuses a call of a model whose answer will not say what it used, or that hides which model it is for.
pub(crate) fn check_call(api: Api, path: &str, model: &str, body: &[u8]) -> Result<(), Refusal> {
    if model.is_empty() {
        return Err(Refusal::Unmetered("the model cannot be read from the request"));
    }
    if api == Api::Anthropic {
        return Ok(());
    }
    let (mut streams, mut is_background, mut reports) = (false, false, None);
    let is_object = members::each(body, |name, value| match name {
        b"stream" => streams |= is_on(value),
        b"background" => is_background |= is_on(value),
        // One that is said twice counts only if both say so.
        b"stream_options" => reports = Some(reports.unwrap_or(true) && includes_usage(value)),
        _ => {}
    });
    let is_chat = path.trim_end_matches('/').ends_with("/chat/completions");
    if !is_object {
        return Err(Refusal::Unmetered("the request cannot be read"));
    }
    if is_chat && streams && reports != Some(true) {
        return Err(Refusal::Unmetered(
            "a chat stream reports its usage only with \"stream_options\": {\"include_usage\": true}",
        ));
    }
    if is_background {
        return Err(Refusal::Unmetered("a background response does not report what it uses"));
    }
    Ok(())
}

fn is_on(value: &[u8]) -> bool {
    value != b"false" && value != b"null"
}

fn includes_usage(options: &[u8]) -> bool {
    let mut includes = None;
    let is_object = members::each(options, |name, value| {
        if name == b"include_usage" {
            includes = Some(includes.unwrap_or(true) && value == b"true");
        }
    });
    is_object && includes == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (method, path, is_model_call, is_allowed) in [
            ("POST", "/v1/messages", true, true),
            ("POST", "/v1/messages/count_tokens", false, true),
            ("POST", "/v1/responses/input_tokens/", false, true),
            ("POST", "/v1/messages/batches", false, false),
            ("POST", "/v1/messages/batches/b_1/cancel", false, true),
            ("GET", "/v1/messages/batches/b_1/results", false, true),
            ("DELETE", "/v1/files/f", false, true),
            ("POST", "/v1/files", false, true),
            ("POST", "/v1/batches", false, false),
            ("POST", "/v1/images/generations", false, false),
            ("POST", "/v1/embeddings", false, false),
            ("POST", "/v1/audio/speech", false, false),
            ("PUT", "/v1/anything", false, false),
        ] {
            let method: Method = method.parse().unwrap_or_default();
            assert_eq!(check_endpoint(&method, path, is_model_call).is_ok(), is_allowed, "{method} {path}");
        }
    }

    #[test]
    fn accepted_encodings_are_narrowed_to_those_that_can_be_read() {
        for (asked, sent) in [
            ("gzip, deflate, br, zstd", Some("gzip, deflate, br")),
            ("zstd;q=1.0, gzip;q=0.5", Some("gzip;q=0.5")),
            ("*", Some("identity")),
            ("", Some("identity")),
            ("zstd", None),
            ("zstd, *", None),
            ("ZSTD, lzma", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(asked));
            let kept = encodings(&headers).ok().flatten();
            assert_eq!(kept.as_ref().and_then(|kept| kept.to_str().ok()), sent, "{asked}");
            assert_eq!(encodings(&headers).is_ok(), sent.is_some(), "{asked}");
        }
        assert_eq!(encodings(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn calls() {
        let chat = "/v1/chat/completions";
        for (api, path, model, body, is_allowed) in [
            (Api::Anthropic, "/v1/messages", "m", r#"{"model":"m","stream":true}"#, true),
            (Api::Anthropic, "/v1/messages", "", "not json", false),
            (Api::OpenAi, chat, "m", r#"{"model":"m"}"#, true),
            (Api::OpenAi, chat, "m", r#"{"model":"m","stream":false}"#, true),
            (Api::OpenAi, chat, "m", r#"{"model":"m","stream":true}"#, false),
            (Api::OpenAi, chat, "m", r#"{"model":"m","str\u0065am":true}"#, false),
            (Api::OpenAi, chat, "m", r#"{"model":"m","stream":false,"stream":true}"#, false),
            (Api::OpenAi, chat, "m", r#"{"stream":true,"stream_options":{"include_usage":true}}"#, true),
            (Api::OpenAi, chat, "m", r#"{"stream":true,"stream_options":{"include_usage":false}}"#, false),
            (Api::OpenAi, chat, "m", r#"{"stream":true,"stream_options":null}"#, false),
            (
                Api::OpenAi,
                chat,
                "m",
                r#"{"stream":true,"stream_options":{"include_usage":true},"stream_options":{}}"#,
                false,
            ),
            (
                Api::OpenAi,
                chat,
                "m",
                r#"{"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}"#,
                false,
            ),
            (Api::OpenAi, "/v1/responses", "m", r#"{"model":"m","stream":true}"#, true),
            (Api::OpenAi, "/v1/responses", "m", r#"{"model":"m","background":true}"#, false),
            (Api::OpenAi, "/v1/responses", "m", "[]", false),
        ] {
            assert_eq!(check_call(api, path, model, body.as_bytes()).is_ok(), is_allowed, "{path} {body}");
        }
    }
}
