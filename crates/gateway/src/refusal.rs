//! Answers that are Rota's own, in the shape of the provider, so that agents parse them and do what fits.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE};
use http::{Response, StatusCode};
use rota_auth::Denied;

use crate::config::Api;

/// Why a call is answered here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says what it is")]
pub(crate) enum Refusal {
    #[error("{0}")]
    Address(Denied),
    #[error("no token of this gateway: show one as the API key (make one with `rota gate token`)")]
    Token,
    #[error(
        "this gateway passes your own login on: show a token of the gateway in x-rota-token (make one with `rota gate \
         token`), and not as the API key"
    )]
    TokenApart,
    #[error("this is the operator's: show the token of .rota/token")]
    NotOperator,
    #[error("no such path here: paths begin with the name of an upstream, or with /v1/ and a call of one")]
    Unknown,
    #[error("x-rota-priority must be critical, high, normal or low")]
    Priority,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("the body could not be read")]
    Unreadable,
    #[error("the body took too long")]
    TooSlow,
    #[error("this gateway speaks no WebSocket: use HTTP")]
    Upgrade,
    #[error("too many large bodies at once")]
    Busy,
    #[error("the provider's limit lasts longer than calls are held here")]
    Held,
    #[error("the configuration is refused, the old one stays: {0}")]
    NotReloaded(String),
    #[error("the gateway is going down")]
    Closing,
    #[error("the provider's quota is used up{0}; the operator ends this with `rota gate unblock`")]
    Quota(String),
    #[error("{variable} is not set where the gateway runs, so there is no key for {upstream}")]
    NoKey { variable: String, upstream: String },
    #[error("the connection to the provider broke before it answered")]
    Broken,
    #[error("the provider did not answer in time")]
    Silent,
    #[error("the store cannot be asked who this is")]
    Store,
    #[error(
        "the budget of {limit} for {whose} is spent ({spent} used); the operator raises it in gateway.budget"
    )]
    Budget { whose: String, limit: String, spent: String },
    #[error("there is a budget, and what this call costs could not be counted: {0}")]
    Unmetered(&'static str),
    #[error("there is a budget, and no price for model {0}: the operator adds it to gateway.budget.prices")]
    NoPrice(String),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Address(denied) => denied.status(),
            Self::Token | Self::TokenApart => StatusCode::UNAUTHORIZED,
            Self::NotOperator | Self::NoKey { .. } => StatusCode::FORBIDDEN,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Priority | Self::Unreadable => StatusCode::BAD_REQUEST,
            Self::NotReloaded(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Upgrade => StatusCode::UPGRADE_REQUIRED,
            Self::Held | Self::Quota(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy | Self::Closing | Self::Store => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken => StatusCode::BAD_GATEWAY,
            Self::Silent => StatusCode::GATEWAY_TIMEOUT,
            Self::Budget { .. } | Self::NoPrice(_) | Self::Unmetered(_) => StatusCode::PAYMENT_REQUIRED,
        }
    }

    /// The words of the two APIs: Anthropic's type, OpenAI's type and code.
    fn words(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Address(denied) => ("permission_error", "invalid_request_error", denied.word()),
            Self::Token | Self::TokenApart => {
                ("authentication_error", "invalid_request_error", "invalid_api_key")
            }
            Self::NotOperator => ("permission_error", "invalid_request_error", "not_operator"),
            Self::NoKey { .. } => ("permission_error", "invalid_request_error", "no_key"),
            Self::Unknown => ("not_found_error", "invalid_request_error", "unknown_url"),
            Self::Priority => ("invalid_request_error", "invalid_request_error", "bad_priority"),
            Self::Unreadable => ("invalid_request_error", "invalid_request_error", "body_unreadable"),
            Self::TooLarge(_) => ("request_too_large", "invalid_request_error", "request_too_large"),
            Self::TooSlow => ("timeout_error", "invalid_request_error", "body_too_slow"),
            Self::Upgrade => ("invalid_request_error", "invalid_request_error", "no_websocket"),
            Self::NotReloaded(_) => ("invalid_request_error", "invalid_request_error", "bad_configuration"),
            Self::Held => ("rate_limit_error", "requests", "rate_limit_exceeded"),
            Self::Quota(_) => ("rate_limit_error", "insufficient_quota", "insufficient_quota"),
            Self::Busy | Self::Closing | Self::Store => ("overloaded_error", "server_error", "unavailable"),
            Self::Broken => ("api_error", "server_error", "upstream_broken"),
            Self::Silent => ("timeout_error", "server_error", "upstream_silent"),
            Self::Budget { .. } => ("billing_error", "insufficient_quota", "budget_used_up"),
            Self::NoPrice(_) => ("billing_error", "insufficient_quota", "no_price"),
            Self::Unmetered(_) => ("billing_error", "insufficient_quota", "usage_unreadable"),
        }
    }

    /// Whole seconds from 1 to 60: the only kind that every client obeys.
    fn retry_after(&self) -> Option<u16> {
        match self {
            Self::Held => Some(30),
            Self::Busy => Some(5),
            Self::Closing | Self::Store => Some(1),
            _ => None,
        }
    }

    /// As an answer of that API.
    pub fn response(&self, api: Api) -> Response<Bytes> {
        let (kind, openai_kind, code) = self.words();
        let message = format!("rota: {self}");
        let body = match api {
            Api::Anthropic => {
                serde_json::json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Api::OpenAi => serde_json::json!({
                "error": {"message": message, "type": openai_kind, "param": null, "code": code}
            }),
        };
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.retry_after() {
            Some(seconds) => drop(headers.insert(RETRY_AFTER, HeaderValue::from(seconds))),
            // Nothing that coming again would change.
            None if !matches!(self, Self::Broken | Self::Silent | Self::TooSlow) => {
                let name = HeaderName::from_static("x-should-retry");
                headers.insert(name, HeaderValue::from_static("false"));
            }
            None => {}
        }
        if *self == Self::Upgrade {
            headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes() {
        let anthropic = Refusal::Held.response(Api::Anthropic);
        assert_eq!(anthropic.headers()["retry-after"], "30");
        let body: serde_json::Value = serde_json::from_slice(anthropic.body()).unwrap_or_default();
        assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &"rate_limit_error".into()));
        let openai = Refusal::Unknown.response(Api::OpenAi);
        assert_eq!(
            (openai.status().as_u16(), &openai.headers()["x-should-retry"]),
            (404, &"false".parse().unwrap_or(HeaderValue::from_static("")))
        );
        let body: serde_json::Value = serde_json::from_slice(openai.body()).unwrap_or_default();
        assert_eq!(
            (&body["error"]["code"], &body["error"]["param"]),
            (&"unknown_url".into(), &serde_json::Value::Null)
        );
    }
}
