//! What a gateway is built from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use rota_core::glob::Globs;

/// The section `gateway` of `rota.yml`, with the defaults where it is silent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// How long a call is held before its client is told to come again.
    pub hold: Duration,
    /// Whose key goes to the provider.
    pub credentials: Credentials,
    /// The providers, by the first part of their paths here.
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// Budgets of model groups, beside those of the policy.
    pub groups: BTreeMap<String, GroupLimits>,
    /// What may be spent.
    pub budget: Budget,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        let upstream = |api: Api, url: &str, key: &str| UpstreamConfig {
            api,
            url: Target::parse(url).unwrap_or_else(|error| unreachable!("{error}")),
            key_env: Some(key.to_owned()),
        };
        let anthropic = upstream(Api::Anthropic, "https://api.anthropic.com", "ANTHROPIC_API_KEY");
        let openai = upstream(Api::OpenAi, "https://api.openai.com", "OPENAI_API_KEY");
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8787)),
            hold: Duration::from_secs(240),
            credentials: Credentials::Inject,
            upstreams: [("anthropic", anthropic), ("openai", openai)]
                .map(|(name, upstream)| (name.to_owned(), upstream))
                .into(),
            groups: BTreeMap::new(),
            budget: Budget::default(),
        }
    }
}

/// Whose key goes to the provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// The gateway's, in place of the token that the caller shows.
    Inject,
    /// The caller's own; its token comes in `x-rota-token`.
    Pass,
}

/// Which API a provider speaks: it decides what passes the gate and what an error looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// Messages.
    Anthropic,
    /// Chat completions and responses.
    OpenAi,
}

/// One provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamConfig {
    /// What it speaks.
    pub api: Api,
    /// Where it is.
    pub url: Target,
    /// The variable that holds its key where the gateway runs.
    pub key_env: Option<String>,
}

/// The budget of a model group; what is left out is taken from the gate's policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupLimits {
    /// Globs on the model's name.
    pub models: Vec<String>,
    /// Starts in any window.
    pub max_requests_per_window: Option<u32>,
    /// Length of the window.
    pub rate_window_secs: Option<u32>,
    /// Starts at once inside the window.
    pub burst: Option<u32>,
    /// Input tokens a minute.
    pub max_input_tokens_per_minute: Option<u64>,
    /// Output tokens a minute.
    pub max_output_tokens_per_minute: Option<u64>,
}

/// What may be spent; above it new calls are refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Budget {
    /// In all on one day of UTC, in billionths of a dollar.
    pub day_nanos: Option<u64>,
    /// By one task in all, in billionths of a dollar.
    pub task_nanos: Option<u64>,
    /// By globs on the model's name; the first that fits counts.
    pub prices: Vec<(Globs, Price)>,
}

/// Billionths of a dollar per token, which is thousandths of a dollar per million tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Price {
    /// For what is sent.
    pub input: u64,
    /// For what comes back.
    pub output: u64,
    /// For what is sent and kept by the provider; else 1.25 of `input`.
    pub cache_write: Option<u64>,
    /// For what the provider had kept; else a tenth of `input`.
    pub cache_read: Option<u64>,
}

impl Budget {
    /// Whether anything is bounded.
    pub fn is_set(&self) -> bool {
        self.day_nanos.is_some() || self.task_nanos.is_some()
    }

    /// What a model costs, if it is said.
    pub fn price(&self, model: &str) -> Option<Price> {
        self.prices.iter().find(|(globs, _)| globs.matches(model)).map(|(_, price)| *price)
    }
}

/// Where a provider is: fixed by the configuration, whatever a request says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub(crate) is_tls: bool,
    pub(crate) authority: Authority,
    /// In front of every path; no slash at its end.
    pub(crate) base: String,
}

/// Why a text is no place of a provider.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected http:// or https://, a host and perhaps a port and a path, and nothing else")]
pub struct BadTarget;

impl Target {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, BadTarget> {
        let uri: Uri = text.parse().map_err(|_| BadTarget)?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(BadTarget),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.filter(|authority| !authority.host().is_empty()).ok_or(BadTarget)?.clone();
        if uri.query().is_some() || text.contains('#') {
            return Err(BadTarget);
        }
        Ok(Self { is_tls, authority, base: uri.path().trim_end_matches('/').to_owned() })
    }

    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, said or not.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_tls { 443 } else { 80 })
    }

    /// Whether a key on its way there can be read by others: without TLS, to another host.
    pub fn is_exposed(&self) -> bool {
        let is_near = self.host() == "localhost"
            || self.host().parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        !self.is_tls && !is_near
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        for (text, shown, host, port, is_exposed) in [
            ("https://api.anthropic.com", "https://api.anthropic.com", "api.anthropic.com", 443, false),
            (
                "https://proxy.example:8443/a/b/",
                "https://proxy.example:8443/a/b",
                "proxy.example",
                8443,
                false,
            ),
            ("http://127.0.0.1:9", "http://127.0.0.1:9", "127.0.0.1", 9, false),
            ("http://[::1]:9/", "http://[::1]:9", "::1", 9, false),
            ("http://10.0.0.7", "http://10.0.0.7", "10.0.0.7", 80, true),
            ("http://localhost.example", "http://localhost.example", "localhost.example", 80, true),
        ] {
            let target = Target::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((target.to_string().as_str(), target.host(), target.port()), (shown, host, port));
            assert_eq!(target.is_exposed(), is_exposed, "{text}");
        }
        for text in
            ["", "api.example", "ftp://a", "http://", "http://u@h", "http://h?x=1", "http://h#x", "/a"]
        {
            assert_eq!(Target::parse(text), Err(BadTarget), "{text}");
        }
    }

    #[test]
    fn the_first_price_that_fits_counts() {
        let price = |input| Price { input, output: 1, cache_write: None, cache_read: None };
        let prices = vec![(Globs::parse("claude-opus*"), price(5)), (Globs::parse("*"), price(1))];
        let budget = Budget { prices, ..Budget::default() };
        let input = |model| budget.price(model).map(|price| price.input);
        assert_eq!((input("claude-opus-4"), input("other")), (Some(5), Some(1)));
        assert_eq!(Budget::default().price("x"), None);
    }
}
