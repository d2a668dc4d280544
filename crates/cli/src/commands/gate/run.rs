//! Running the gateway: alone, or beside the daemon.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rota_auth::Token;
use rota_core::text::{escaped, json_escaped};
use rota_core::{UnixMillis, Usd};
use rota_daemon::config::Config;
use rota_daemon::gateway::follow::Follower;
use rota_daemon::gateway::{Way, gate_config};
use rota_daemon::manager::happening::Happening;
use rota_daemon::publish::publish;
use rota_gateway::{Gateway, GatewayConfig, Notice, Notices, Setup};
use rota_serve::{listen, stop_signal};
use rota_store::intents::Call;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{AnyStore, Published, Secret, Store};
use rota_verbs::Context;
use tokio::net::TcpListener;

use crate::args::Common;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// A gateway that listens and is not served yet.
pub struct Opened {
    pub gateway: Gateway,
    pub listener: TcpListener,
    pub way: Way,
    pub address: SocketAddr,
    follower: Follower,
    _place: Place,
}

/// The file that says where the gateway of a workspace listens; gone with it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever finds it asks, and learns that nobody listens.
        let _removed = std::fs::remove_file(&self.0);
    }
}

fn place_of(rota: &Path) -> PathBuf {
    rota.join("run").join("gateway")
}

/// Where the gateway of a workspace listens, as far as it says.
pub fn listening(rota: &Path) -> Option<String> {
    let text = locate::read_note(&place_of(rota)).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

/// The parts that a gateway is opened with.
pub struct Opening<'a> {
    pub cx: &'a Context,
    /// All of `rota.yml`, and where it is.
    pub whole: &'a Config,
    pub config_file: PathBuf,
    pub config: &'a GatewayConfig,
    pub rota: &'a Path,
    /// Where the plain copy of the policy goes, if this process publishes what `rota.yml` says.
    pub publishes_to: Option<PathBuf>,
    pub notices: Notices,
}

impl Opened {
    /// Publishes the policy of the file if it may, listens, and reads what is blocked.
    pub async fn new(opening: Opening<'_>) -> CliResult<Self> {
        let Opening { cx, whole, config_file, config, rota, publishes_to, notices } = opening;
        let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", config.listen));
        // The token is there before anybody can connect.
        let token =
            Token::of_file(&locate::token_file()?).map_err(|error| CliError::Io(error.to_string()))?;
        let listener = listen::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let call = Call { actor: cx.agent.clone(), ..Call::in_scope(&cx.scope) };
        let policy = policy_of(cx, &call, whole, publishes_to.as_deref()).await?;
        let variable = |name: &str| {
            rota_store::environment::var(name).ok().filter(|value| !value.is_empty()).map(Secret::from)
        };
        let setup = Setup {
            config,
            gate: gate_config(&policy.policy.gate),
            store: cx.store.clone(),
            call: call.clone(),
            token,
            address,
            variable: &variable,
            notices: Arc::clone(&notices),
        };
        let gateway = Gateway::new(setup).await.map_err(|error| CliError::Io(error.to_string()))?;
        let way = Way::to(address, config.credentials);
        let place = place_of(rota);
        let named = |error: std::io::Error| CliError::Io(format!("{}: {error}", place.display()));
        std::fs::create_dir_all(rota.join("run")).map_err(named)?;
        rota_store::replace_for_owner(&place, format!("{}\n", way.url).as_bytes()).map_err(named)?;
        let follower = Follower {
            gateway: gateway.clone(),
            store: cx.store.clone(),
            call,
            config_file,
            publishes_to,
            config: config.clone(),
            policy,
            notices,
        };
        Ok(Self { gateway, listener, way, address, follower, _place: Place(place) })
    }

    /// Serves until `stop` is ready, following the policy and the configuration meanwhile.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let following = tokio::spawn(self.follower.run());
        self.gateway.serve(self.listener, stop).await;
        following.abort();
    }
}

/// The policy in force, once what the file says about it is published where this process publishes it.
async fn policy_of(
    cx: &Context,
    call: &Call,
    whole: &Config,
    publishes_to: Option<&Path>,
) -> CliResult<Arc<Published>> {
    let Some(copy) = publishes_to else {
        return Ok(cx.store.perform(&CurrentPolicy { call: call.clone() }).await?.0);
    };
    let published = publish(&cx.store, call, whole, true, copy).await?;
    published.warnings().iter().try_for_each(|warning| output::warn(warning))?;
    Ok(published.policy)
}

/// What the operator should know once it listens.
pub fn announce(opened: &Opened) -> CliResult<()> {
    let address = opened.address;
    if !address.ip().is_loopback() {
        output::warn(&format!("{address} can be reached from other hosts, and tokens travel unencrypted"))?;
    }
    let token = locate::token_file()?;
    output::note(&format!("gateway on {}, token in {}", opened.way.url, token.display()))
}

/// `rota gateway`: until TERM or INT.
pub fn alone(common: &Common, config: &GatewayConfig, may_publish: bool) -> CliResult<ExitCode> {
    keep_to_itself();
    let (_, rota) = locate::workspace()?;
    let cx = locate::context(common)?;
    let whole = locate::configured(common)?.config;
    let is_json = common.json;
    let notices: Notices = Arc::new(move |notice| {
        // A reader that went away must not end it.
        let _told = output::note_raw(&in_a_line(&notice, is_json));
    });
    crate::block_on(async {
        let stop = stop_signal().map_err(|error| CliError::Io(error.to_string()))?;
        let is_shared = matches!(cx.store, AnyStore::Postgres(_));
        let publishes_to = (may_publish || !is_shared).then(|| locate::policy_file(common)).transpose()?;
        if publishes_to.is_none() {
            warn_if_different(&cx, &whole).await?;
        }
        let config_file = locate::config_file(common)?;
        let opening =
            Opening { cx: &cx, whole: &whole, config_file, config, rota: &rota, publishes_to, notices };
        let opened = Opened::new(opening).await?;
        announce(&opened)?;
        opened.serve(stop.cancelled()).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// On a server the published policy decides, and the operator should know where the file says something else.
async fn warn_if_different(cx: &Context, whole: &Config) -> CliResult<()> {
    let (call, may_publish) = (Call::in_scope(&cx.scope), false);
    let published = publish(&cx.store, &call, whole, may_publish, Path::new("")).await?;
    published.warnings().iter().try_for_each(|warning| output::warn(warning))
}

/// Keys must not get into a core dump. Each connection is a descriptor, of which the system gives few until it is asked.
fn keep_to_itself() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let most = getrlimit(Resource::Nofile).maximum;
    // A system that refuses is as it was.
    let _no_dumps = setrlimit(Resource::Core, none);
    let _raised = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

fn in_a_line(notice: &Notice, is_json: bool) -> String {
    let (event, fields) = match notice {
        Notice::Blocked { upstream, secs, is_quota, hits } => (
            "blocked",
            serde_json::json!({"upstream": upstream, "secs": secs, "quota": is_quota, "hits": hits}),
        ),
        Notice::Open { upstream } => ("open", serde_json::json!({"upstream": upstream})),
        Notice::BudgetSpent { limit, spent, until } => {
            ("budget_spent", serde_json::json!({"usdPerDay": limit, "usdToday": spent, "until": until}))
        }
        Notice::BudgetOpen => ("budget_open", serde_json::json!({})),
        Notice::TaskParked { task, limit } => {
            ("task_parked", serde_json::json!({"task": task, "usdPerTask": limit}))
        }
        Notice::NotReloaded { problem } => ("not_reloaded", serde_json::json!({"problem": problem})),
        Notice::StoreFault { problem } => ("trouble", serde_json::json!({"problem": problem})),
    };
    if is_json {
        let mut line = serde_json::json!({"event": event});
        if let (Some(line), serde_json::Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        return json_escaped(line.to_string());
    }
    let text = match notice {
        Notice::Blocked { upstream, secs: Some(secs), is_quota: false, hits } => {
            format!("{upstream}: rate limited, everybody waits {secs} s (limit {hits} in a row)")
        }
        Notice::Blocked { upstream, secs, .. } => quota(upstream, *secs),
        Notice::Open { upstream } => format!("{upstream}: open again"),
        Notice::BudgetSpent { limit, spent, until } => budget_spent(*limit, *spent, *until),
        Notice::BudgetOpen => BUDGET_OPEN.to_owned(),
        Notice::TaskParked { task, limit } => task_parked(task, *limit),
        Notice::NotReloaded { problem } => {
            format!("the configuration is refused, the old one stays: {problem}")
        }
        Notice::StoreFault { problem } => format!("the store: {problem}"),
    };
    escaped(&text).into_owned()
}

fn quota(upstream: &str, secs: Option<u64>) -> String {
    let until = secs.map_or("until `rota gate unblock`".to_owned(), |secs| format!("for {secs} s"));
    format!("{upstream}: its quota is used up, calls are refused {until}")
}

const BUDGET_OPEN: &str = "the budget of the day has money again: calls go on";

fn budget_spent(limit: Usd, spent: Usd, until: UnixMillis) -> String {
    let (limit, spent, until) = (limit.rounded(), spent.rounded(), until.to_seconds_text());
    format!(
        "the budget of ${limit} a day is spent (${spent}): calls are refused and loops wait until {until}"
    )
}

fn task_parked(task: &str, limit: Usd) -> String {
    format!("{task} has spent its budget of ${} and is parked", limit.rounded())
}

/// What the daemon says of it, in its own words.
pub fn told_as(notice: Notice) -> Happening {
    match notice {
        Notice::Blocked { upstream, secs: Some(secs), is_quota: false, hits } => Happening::RateLimited {
            upstream,
            retry_after_secs: i64::try_from(secs).unwrap_or(i64::MAX),
            consecutive_hits: hits,
        },
        Notice::Blocked { upstream, secs, .. } => Happening::Trouble { problem: quota(&upstream, secs) },
        Notice::Open { upstream } => Happening::OpenAgain { upstream },
        Notice::BudgetSpent { limit, spent, until } => {
            Happening::Trouble { problem: budget_spent(limit, spent, until) }
        }
        Notice::BudgetOpen => Happening::Trouble { problem: BUDGET_OPEN.to_owned() },
        Notice::TaskParked { task, limit } => Happening::Trouble { problem: task_parked(&task, limit) },
        Notice::NotReloaded { problem } => Happening::NotReloaded { problem },
        Notice::StoreFault { problem } => Happening::Trouble { problem },
    }
}
