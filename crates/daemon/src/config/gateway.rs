//! The section `gateway` of `rota.yml`.

use std::net::SocketAddr;
use std::time::Duration;

use rota_core::glob::Globs;
use rota_core::shape::{KeyError, Section};
use rota_core::text::escaped;
use rota_gateway::config::GroupLimits;
use rota_gateway::{Api, Budget, Credentials, GatewayConfig, Price, Target, UpstreamConfig};

/// What the file says of the gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewaySection {
    /// How this workspace's own is run.
    pub config: GatewayConfig,
    /// Another one that is used instead.
    pub url: Option<Target>,
}

pub(super) fn section(given: &Section<'_>) -> Result<GatewaySection, KeyError> {
    let mut config = GatewayConfig {
        listen: listen(given)?,
        hold: Duration::from_secs(given.value("hold_secs")),
        budget: given.section("budget").map(|given| budget(&given)).transpose()?.unwrap_or_default(),
        ..GatewayConfig::default()
    };
    let words = [("inject", Credentials::Inject), ("pass", Credentials::Pass)];
    config.credentials = given.word("credentials", &words).unwrap_or(config.credentials);
    for (name, given) in given.sections("upstreams") {
        let upstream = upstream(name, config.upstreams.get(name), &given)?;
        config.upstreams.insert(name.to_owned(), upstream);
    }
    for (name, given) in given.sections("groups") {
        config.groups.insert(name.to_owned(), group(&given)?);
    }
    Ok(GatewaySection { config, url: target(given)? })
}

fn listen(given: &Section<'_>) -> Result<SocketAddr, KeyError> {
    let text: String = given.value("listen");
    let numbers = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numbers.as_deref().unwrap_or(&text).parse().map_err(|_| {
        let problem = format!("expected ADDRESS:PORT (e.g. 127.0.0.1:8787), got \"{}\"", escaped(&text));
        given.error_at("listen", problem)
    })
}

fn target(given: &Section<'_>) -> Result<Option<Target>, KeyError> {
    let target = given.get::<String>("url").map(|url| Target::parse(&url));
    target.transpose().map_err(|error| given.error_at("url", error.to_string()))
}

fn upstream(
    name: &str,
    known: Option<&UpstreamConfig>,
    given: &Section<'_>,
) -> Result<UpstreamConfig, KeyError> {
    rota_core::id::check_name("upstream", name).map_err(|error| given.error(error.to_string()))?;
    if ["rota", "v1"].contains(&name) || name.contains('/') {
        return Err(given.error("is a path of the gateway's own; choose another name"));
    }
    // The store keeps more than blocks by names that have one.
    if name.contains(':') {
        return Err(given.error("must not contain ':'"));
    }
    let api = given.word("api", &[("anthropic", Api::Anthropic), ("openai", Api::OpenAi)]);
    let api = api.or(known.map(|known| known.api));
    let api = api.ok_or_else(|| given.error("needs api: anthropic or openai"))?;
    let url = target(given)?.or_else(|| known.map(|known| known.url.clone()));
    let url = url.ok_or_else(|| given.error("needs url: where it is"))?;
    let mut key_env = known.and_then(|known| known.key_env.clone());
    given.set_or_remove("key_env", &mut key_env);
    Ok(UpstreamConfig { api, url, key_env })
}

fn group(given: &Section<'_>) -> Result<GroupLimits, KeyError> {
    let models: Vec<String> = given.get("models").unwrap_or_default();
    if models.is_empty() {
        return Err(given.error("needs models: a list of patterns"));
    }
    Ok(GroupLimits {
        models,
        max_requests_per_window: given.get("max_requests_per_window"),
        rate_window_secs: given.get("rate_window_secs"),
        burst: given.get("burst"),
        max_input_tokens_per_minute: given.get("max_input_tokens_per_minute"),
        max_output_tokens_per_minute: given.get("max_output_tokens_per_minute"),
    })
}

fn budget(given: &Section<'_>) -> Result<Budget, KeyError> {
    // Thousandths of a dollar are a million billionths.
    let dollars = |key: &str| given.get::<u64>(key).map(|thousandths| thousandths * 1_000_000);
    let price = |(models, given): (&str, Section<'_>)| Ok((Globs::parse(models), price(&given)?));
    let budget = Budget {
        day_nanos: dollars("usd_per_day"),
        task_nanos: dollars("usd_per_task"),
        prices: given.sections("prices").map(price).collect::<Result<_, KeyError>>()?,
    };
    if budget.is_set() && budget.prices.is_empty() {
        let problem = "is missing: without prices nothing can be counted against the budget";
        return Err(given.error_at("prices", problem));
    }
    Ok(budget)
}

/// Dollars for a million tokens, in thousandths: the same number as billionths of a dollar for one.
fn price(given: &Section<'_>) -> Result<Price, KeyError> {
    match (given.get("input"), given.get("output")) {
        (Some(input), Some(output)) => Ok(Price {
            input,
            output,
            cache_write: given.get("cache_write"),
            cache_read: given.get("cache_read"),
        }),
        _ => Err(given.error("needs input and output, in dollars for a million tokens")),
    }
}
