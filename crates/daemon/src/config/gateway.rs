//! The section `gateway` of `rota.yml`.

use std::collections::BTreeMap;
use std::time::Duration;

use rota_core::glob::Globs;
use rota_gateway::config::GroupLimits;
use rota_gateway::{Api, Budget, Credentials, GatewayConfig, Price, Target, UpstreamConfig};

use super::policy_words;
use super::walk::{Field, KeyError, Section};

/// What the file says of the gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewaySection {
    /// How this workspace's own is run.
    pub config: GatewayConfig,
    /// Another one that is used instead.
    pub url: Option<Target>,
}

/// Dollars in a budget, in thousandths.
const DOLLARS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000_000;
/// Dollars for a million tokens, in thousandths.
const PRICE: std::ops::RangeInclusive<u64> = 0..=1_000_000_000;

pub(super) fn section(field: &Field<'_>) -> Result<GatewaySection, KeyError> {
    let mut section = field.section()?;
    let mut config = GatewayConfig::default();
    if let Some(listen) = section.take("listen") {
        let text = listen.text()?;
        let numbers = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address = numbers.as_deref().unwrap_or(text).parse();
        config.listen = address.map_err(|_| listen.wrong("ADDRESS:PORT (e.g. 127.0.0.1:8787)"))?;
    }
    if let Some(hold) = section.take("hold_secs") {
        config.hold = Duration::from_secs(hold.whole(&(1..=3_600))?);
    }
    if let Some(credentials) = section.take("credentials") {
        config.credentials =
            credentials.word(&[("inject", Credentials::Inject), ("pass", Credentials::Pass)])?;
    }
    if let Some(upstreams) = section.take("upstreams") {
        for (name, field) in upstreams.entries()? {
            let known = config.upstreams.get(name);
            let upstream = upstream(name, known, &field)?;
            config.upstreams.insert(name.to_owned(), upstream);
        }
    }
    if let Some(groups) = section.take("groups") {
        let read = |(name, field): (&str, Field<'_>)| Ok((name.to_owned(), group(&field)?));
        config.groups =
            groups.entries()?.into_iter().map(read).collect::<Result<BTreeMap<_, _>, KeyError>>()?;
    }
    config.budget = budget(section.section("budget")?)?;
    let url = section.take("url").map(|field| target(&field)).transpose()?;
    section.finish()?;
    Ok(GatewaySection { config, url })
}

fn target(field: &Field<'_>) -> Result<Target, KeyError> {
    Target::parse(field.text()?).map_err(|error| field.error(error.to_string()))
}

fn upstream(
    name: &str,
    known: Option<&UpstreamConfig>,
    field: &Field<'_>,
) -> Result<UpstreamConfig, KeyError> {
    rota_core::id::check_name("upstream", name).map_err(|error| field.error(error.to_string()))?;
    if ["rota", "v1"].contains(&name) || name.contains('/') {
        return Err(field.error("is a path of the gateway's own; choose another name"));
    }
    // The store keeps more than blocks by names that have one.
    if name.contains(':') {
        return Err(field.error("must not contain ':'"));
    }
    let mut section = field.section()?;
    let api = match section.take("api") {
        Some(api) => Some(api.word(&[("anthropic", Api::Anthropic), ("openai", Api::OpenAi)])?),
        None => known.map(|known| known.api),
    };
    let api = api.ok_or_else(|| field.error("needs api: anthropic or openai"))?;
    let url = match section.take("url") {
        Some(url) => Some(target(&url)?),
        None => known.map(|known| known.url.clone()),
    };
    let url = url.ok_or_else(|| field.error("needs url: where it is"))?;
    let key_env = match section.take("key_env") {
        Some(key) if key.is_false() => None,
        Some(key) => Some(key.text_or("the name of a variable, or false")?.to_owned()),
        None => known.and_then(|known| known.key_env.clone()),
    };
    section.finish()?;
    Ok(UpstreamConfig { api, url, key_env })
}

fn group(field: &Field<'_>) -> Result<GroupLimits, KeyError> {
    let mut section = field.section()?;
    let models = match section.take("models") {
        Some(models) => models.list()?.ok_or_else(|| models.wrong("a list of patterns"))?,
        None => Vec::new(),
    };
    if models.is_empty() {
        return Err(field.error("needs models: a list of patterns"));
    }
    let mut whole = |key: &str, most: u64| match section.take(key) {
        Some(field) => field.whole(&(1..=most)).map(Some),
        None => Ok(None),
    };
    let most = u64::from(u32::MAX);
    let limits = GroupLimits {
        models: models.into_iter().map(str::to_owned).collect(),
        max_requests_per_window: whole("max_requests_per_window", most)?.map(policy_words::narrow),
        rate_window_secs: whole("rate_window_secs", most)?.map(policy_words::narrow),
        burst: whole("burst", most)?.map(policy_words::narrow),
        max_input_tokens_per_minute: whole("max_input_tokens_per_minute", u64::MAX)?,
        max_output_tokens_per_minute: whole("max_output_tokens_per_minute", u64::MAX)?,
    };
    section.finish()?;
    Ok(limits)
}

fn budget(mut section: Section<'_>) -> Result<Budget, KeyError> {
    let mut dollars = |key: &str| match section.take(key) {
        // Thousandths of a dollar are a million billionths.
        Some(field) => field.thousandths(&DOLLARS).map(|thousandths| Some(thousandths * 1_000_000)),
        None => Ok(None),
    };
    let (day_nanos, task_nanos) = (dollars("usd_per_day")?, dollars("usd_per_task")?);
    let prices = match section.take("prices") {
        None => Vec::new(),
        Some(prices) => {
            let read = |(models, field): (&str, Field<'_>)| Ok((Globs::parse(models), price(&field)?));
            prices.entries()?.into_iter().map(read).collect::<Result<_, KeyError>>()?
        }
    };
    let missing = section.path_of("prices");
    section.finish()?;
    let budget = Budget { day_nanos, task_nanos, prices };
    if budget.is_set() && budget.prices.is_empty() {
        let problem = "is missing: without prices nothing can be counted against the budget".to_owned();
        return Err(KeyError::Key { path: missing, problem });
    }
    Ok(budget)
}

/// Dollars for a million tokens, in thousandths: the same number as billionths of a dollar for one.
fn price(field: &Field<'_>) -> Result<Price, KeyError> {
    let mut section = field.section()?;
    let mut each = |key: &str| section.take(key).map(|field| field.thousandths(&PRICE)).transpose();
    let (input, output) = (each("input")?, each("output")?);
    let (cache_write, cache_read) = (each("cache_write")?, each("cache_read")?);
    section.finish()?;
    match (input, output) {
        (Some(input), Some(output)) => Ok(Price { input, output, cache_write, cache_read }),
        _ => Err(field.error("needs input and output, in dollars for a million tokens")),
    }
}
