//! Which provider a request is for, and whether it needs a slot. Only the path decides, never a header or a body.

use std::borrow::Cow;

use http::{HeaderMap, Method};

use crate::config::Api;

/// Where a request goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route<'a> {
    /// Answered here, for whoever looks whether somebody is there.
    Greeting,
    /// Asked of the gateway itself.
    Control(&'a str),
    /// To a provider.
    Upstream {
        /// Which, by its place in the list of providers.
        index: usize,
        /// Behind the provider's base, with a slash in front.
        path: &'a str,
        /// Whether it takes a slot: calls of models do, and nothing else.
        is_gated: bool,
    },
    /// Nowhere.
    Unknown,
}

/// The paths that people ask the gateway itself by.
const CONTROL: &str = "rota";

/// Finds it. `apis` are the known providers.
pub fn find<'a>(method: &Method, path: &'a str, headers: &HeaderMap, apis: &[(String, Api)]) -> Route<'a> {
    if path == "/" && (method == Method::GET || method == Method::HEAD) {
        return Route::Greeting;
    }
    // A provider might resolve them, and leave the base it was given.
    let plain = decoded(path);
    if plain.contains('.') && plain.split('/').any(|part| part == "." || part == "..") {
        return Route::Unknown;
    }
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if first == CONTROL {
        return Route::Control(path.trim_start_matches('/'));
    }
    if let Some(index) = apis.iter().position(|(name, _)| name == first) {
        let rest = &path.trim_start_matches('/')[first.len()..];
        if rest.is_empty() || rest == "/" {
            let is_look = method == Method::GET || method == Method::HEAD;
            return if is_look { Route::Greeting } else { Route::Unknown };
        }
        return Route::Upstream {
            index,
            path: rest,
            is_gated: is_gated(apis[index].1, method, &decoded(rest)),
        };
    }
    let Some(api) = bare(&plain, headers) else { return Route::Unknown };
    // The provider of the API's own name, else the first that speaks it.
    let own = if api == Api::Anthropic { "anthropic" } else { "openai" };
    let named = apis.iter().position(|(name, speaks)| name == own && *speaks == api);
    match named.or_else(|| apis.iter().position(|(_, speaks)| *speaks == api)) {
        Some(index) => Route::Upstream { index, path, is_gated: is_gated(api, method, &plain) },
        None => Route::Unknown,
    }
}

/// Which API a path without a provider in front belongs to.
fn bare(path: &str, headers: &HeaderMap) -> Option<Api> {
    let under =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if under("/v1/messages") {
        return Some(Api::Anthropic);
    }
    if under("/v1/chat/completions") || under("/v1/responses") || under("/v1/embeddings") {
        return Some(Api::OpenAi);
    }
    let of_models = if headers.contains_key("anthropic-version") { Api::Anthropic } else { Api::OpenAi };
    under("/v1/models").then_some(of_models)
}

/// Calls of models are. Counting tokens, batches and everything else have limits of their own.
fn is_gated(api: Api, method: &Method, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let is_model_call = match api {
        Api::Anthropic => path.ends_with("/messages"),
        Api::OpenAi => path.ends_with("/chat/completions") || path.ends_with("/responses"),
    };
    is_model_call && method == Method::POST
}

/// With what is written as `%xx` made plain, as a provider may read it.
pub(crate) fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = |digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
            u8::from_str_radix(text, 16).ok()
        };
        match behind.get(..2).filter(|_| *first == b'%').and_then(hex) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str, is_versioned: bool) -> String {
        let apis = [("anthropic", Api::Anthropic), ("mine", Api::OpenAi), ("openai", Api::OpenAi)];
        let apis = apis.map(|(name, api)| (name.to_owned(), api));
        let mut headers = HeaderMap::new();
        if is_versioned {
            headers.insert("anthropic-version", http::HeaderValue::from_static("2023-06-01"));
        }
        let method: Method = method.parse().unwrap_or(Method::GET);
        match find(&method, path, &headers, &apis) {
            Route::Greeting => "greeting".into(),
            Route::Unknown => "unknown".into(),
            Route::Control(path) => format!("control {path}"),
            Route::Upstream { index, path, is_gated } => {
                format!("{} {path} {}", apis[index].0, if is_gated { "gated" } else { "free" })
            }
        }
    }

    #[test]
    fn paths_decide() {
        for (method, path, expected) in [
            ("GET", "/", "greeting"),
            ("HEAD", "/", "greeting"),
            ("POST", "/", "unknown"),
            ("POST", "/v1/messages", "anthropic /v1/messages gated"),
            ("POST", "/v1/messages/", "anthropic /v1/messages/ gated"),
            ("POST", "/v1/%6dessages", "anthropic /v1/%6dessages gated"),
            ("GET", "/v1/messages", "anthropic /v1/messages free"),
            ("POST", "/v1/messages/count_tokens", "anthropic /v1/messages/count_tokens free"),
            ("POST", "/v1/messages/batches", "anthropic /v1/messages/batches free"),
            ("POST", "/anthropic/v1/messages", "anthropic /v1/messages gated"),
            ("HEAD", "/anthropic", "greeting"),
            ("GET", "/openai/", "greeting"),
            ("POST", "/openai/", "unknown"),
            ("POST", "/v1/chat/completions", "openai /v1/chat/completions gated"),
            ("POST", "/v1/responses", "openai /v1/responses gated"),
            ("GET", "/v1/responses/resp_1", "openai /v1/responses/resp_1 free"),
            ("POST", "/v1/responses/resp_1/cancel", "openai /v1/responses/resp_1/cancel free"),
            ("POST", "/v1/embeddings", "openai /v1/embeddings free"),
            ("POST", "/openai/v1/files", "openai /v1/files free"),
            ("POST", "/mine/chat/completions", "mine /chat/completions gated"),
            ("GET", "/v1/models", "openai /v1/models free"),
            ("GET", "/v1/modelsx", "unknown"),
            ("POST", "/v1/files", "unknown"),
            ("GET", "/rota/status", "control rota/status"),
            ("POST", "/anthropic/../openai/v1/responses", "unknown"),
            ("POST", "/anthropic/%2e%2E/x", "unknown"),
            ("POST", "/anthropic/%2e/x", "unknown"),
            ("POST", "//evil.example/v1/messages", "unknown"),
            ("POST", "*", "unknown"),
        ] {
            assert_eq!(route(method, path, false), expected, "{method} {path}");
        }
        assert_eq!(route("GET", "/v1/models/claude", true), "anthropic /v1/models/claude free");
    }
}
