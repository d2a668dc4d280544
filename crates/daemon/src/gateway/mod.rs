//! The gateway as a companion of the daemon: every child gets a token of its own lease and what points its agent here.

pub mod follow;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rota_auth::{LeaseToken, Token};
use rota_core::policy::{GateLevel, GatePolicy};
use rota_gate::{GateConfig, GroupConfig};
use rota_gateway::{Credentials, Keeper, priority_of};

use crate::companion::{Companion, Held};
use crate::files::Dir;

/// What a window is kept longer for, where the policy does not say: calls overtake each other on the way.
const WINDOW_MARGIN: Duration = Duration::from_millis(100);

/// The gate's part of a policy, as a gate reads it.
pub fn gate_config(policy: &GatePolicy) -> GateConfig {
    let seconds = |secs: u32| Duration::from_secs(u64::from(secs));
    let margin = policy.window_margin_ms.map(|millis| Duration::from_millis(u64::from(millis)));
    let groups = policy.groups.iter().map(|(name, group)| GroupConfig {
        name: name.clone(),
        models: group.models.clone(),
        max_requests_per_window: group.max_requests_per_window,
        rate_window: group.rate_window_secs.map(seconds),
        burst: group.burst,
        input_tokens_per_minute: group.max_input_tokens_per_minute,
        output_tokens_per_minute: group.max_output_tokens_per_minute,
    });
    GateConfig {
        max_concurrent: usize::try_from(policy.max_concurrent).unwrap_or(usize::MAX),
        max_requests_per_window: policy.max_requests_per_window,
        rate_window: seconds(policy.rate_window_secs),
        burst: policy.burst,
        window_margin: margin.unwrap_or(WINDOW_MARGIN),
        default_priority: priority_of(policy.default_priority),
        priority_spread: seconds(policy.priority_spread_secs),
        initial_backoff: seconds(policy.initial_backoff_secs),
        max_backoff: seconds(policy.max_backoff_secs),
        recovery_period: seconds(policy.recovery_period_secs),
        input_tokens_per_minute: policy.max_input_tokens_per_minute,
        output_tokens_per_minute: policy.max_output_tokens_per_minute,
        groups: groups.collect(),
    }
}

/// The word for a level.
pub fn level_of(word: &str) -> Option<GateLevel> {
    GateLevel::from_word(word)
}

/// How agents reach a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Without a slash at the end.
    pub url: String,
    /// Whose key goes to the provider.
    pub credentials: Credentials,
}

impl Way {
    /// To a listener of this host; one that listens everywhere is reached by the loopback address.
    pub fn to(address: SocketAddr, credentials: Credentials) -> Self {
        let mut near = address;
        if near.ip().is_unspecified() {
            near.set_ip(if near.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        Self { url: format!("http://{near}"), credentials }
    }

    /// What points Claude Code and the SDKs here. With logins of their own agents show the token apart.
    pub fn variables(&self, token: &str) -> Vec<(String, String)> {
        let url = &self.url;
        let mut list = vec![
            ("ANTHROPIC_BASE_URL", format!("{url}/anthropic")),
            ("OPENAI_BASE_URL", format!("{url}/openai/v1")),
            ("ROTA_GATEWAY", url.clone()),
            ("ROTA_GATE_TOKEN", token.to_owned()),
        ];
        match self.credentials {
            Credentials::Inject => {
                list.push(("ANTHROPIC_API_KEY", token.to_owned()));
                list.push(("OPENAI_API_KEY", token.to_owned()));
            }
            Credentials::Pass => {
                list.push(("ANTHROPIC_CUSTOM_HEADERS", format!("x-rota-token: {token}")));
            }
        }
        list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What points Codex here: its settings, since it reads no variable for this.
    pub fn codex_settings(&self) -> String {
        let own = match self.credentials {
            Credentials::Inject => "",
            Credentials::Pass => "env_http_headers = { \"x-rota-token\" = \"ROTA_GATE_TOKEN\" }\n",
        };
        format!(
            "model_provider = \"rota\"\n\n[model_providers.rota]\nname = \"rota\"\nbase_url = \"{}/openai/v1\"\n\
             env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n{own}",
            self.url
        )
    }
}

/// Gives children their tokens.
pub struct Identities {
    way: Way,
    token: Token,
    /// Of the gateway in this process; another one's asks the store by itself.
    keeper: Option<Arc<Keeper>>,
    /// Where Codex finds its settings.
    codex_home: String,
}

impl Identities {
    /// Writes the settings for Codex.
    pub fn new(way: Way, token: Token, keeper: Option<Arc<Keeper>>, rota: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(rota)?;
        let rota = rota.canonicalize()?;
        // Agents are told about this folder, and may have put a link into it.
        let folder = Dir::open_or_create(&rota, Path::new("codex"))?;
        folder.write("config.toml", way.codex_settings().as_bytes())?;
        let codex_home = rota.join("codex").to_string_lossy().into_owned();
        Ok(Self { way, token, keeper, codex_home })
    }
}

impl Companion for Identities {
    fn begun(&self, held: &Held) -> Vec<(String, String)> {
        if let Some(keeper) = &self.keeper {
            keeper.expect(&held.lease);
        }
        let task = held.task.id.to_string();
        let claim = LeaseToken { scope: held.scope.clone(), task, lease: held.lease.clone() };
        let mut variables = self.way.variables(self.token.sign(&claim).expose());
        variables.push(("CODEX_HOME".to_owned(), self.codex_home.clone()));
        variables
    }

    fn ended(&self, held: &Held) {
        if let Some(keeper) = &self.keeper {
            keeper.revoke(&held.lease);
        }
    }
}
