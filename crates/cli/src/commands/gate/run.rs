//! Running the gateway: alone, or beside the daemon.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rota_core::text::escaped;
use rota_daemon::config::Config;
use rota_daemon::gateway::{Way, gate_config};
use rota_daemon::manager::happening::Happening;
use rota_door::Token;
use rota_gateway::{Gateway, GatewayConfig, Notice, Notices, Setup};
use rota_serve::{listen, stop_signal};
use rota_store::intents::Call;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{AnyStore, Secret};
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
    let text = std::fs::read_to_string(place_of(rota)).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

impl Opened {
    /// Listens, and reads what is blocked.
    pub async fn new(
        cx: &Context,
        whole: &Config,
        config: &GatewayConfig,
        rota: &Path,
        notices: Notices,
    ) -> CliResult<Self> {
        let failed = |error: std::io::Error| CliError::Io(format!("{}: {error}", config.listen));
        // The token is there before anybody can connect.
        let token =
            Token::of_file(&locate::token_file()?).map_err(|error| CliError::Io(error.to_string()))?;
        let listener = listen::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let call = Call { scope: cx.scope.clone(), now: None, actor: cx.agent.clone() };
        let published = cx.store.perform_beside(CurrentPolicy { call: call.clone() }).await?.0;
        // As `rota up` would publish it.
        let is_shared = matches!(cx.store, AnyStore::Postgres(_));
        let policy = if is_shared { Ok(published.policy.clone()) } else { whole.apply_to(&published.policy) };
        let policy = policy.map_err(|error| CliError::Io(error.to_string()))?;
        let variable =
            |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(Secret::from);
        let setup = Setup {
            config,
            gate: gate_config(&policy.gate),
            store: cx.store.clone(),
            call,
            token,
            address,
            variable: &variable,
            notices,
        };
        let gateway = Gateway::new(setup).await.map_err(|error| CliError::Io(error.to_string()))?;
        let way = Way::to(address, config.credentials);
        let place = place_of(rota);
        let named = |error: std::io::Error| CliError::Io(format!("{}: {error}", place.display()));
        std::fs::create_dir_all(rota.join("run")).map_err(named)?;
        std::fs::write(&place, format!("{}\n", way.url)).map_err(named)?;
        Ok(Self { gateway, listener, way, address, _place: Place(place) })
    }

    /// Serves until `stop` is ready.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        self.gateway.serve(self.listener, stop).await;
    }
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
pub fn alone(common: &Common, config: &GatewayConfig) -> CliResult<ExitCode> {
    keep_to_itself();
    let runtime = rota_store::runtime().map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    let (_, rota) = locate::workspace()?;
    let cx = locate::context(common)?;
    let whole = locate::configured(common)?.config;
    let is_json = common.json;
    let notices: Notices = Arc::new(move |notice| {
        // A reader that went away must not end it.
        let _told = output::note_raw(&in_a_line(&notice, is_json));
    });
    runtime.block_on(async {
        let stop = stop_signal().map_err(|error| CliError::Io(error.to_string()))?;
        let opened = Opened::new(&cx, &whole, config, &rota, notices).await?;
        announce(&opened)?;
        opened.serve(stop.cancelled()).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Agents of the same user must not read the key from this process: not from its environment in `/proc`, and not from a
/// core dump. And each connection is a descriptor, of which the system gives few until it is asked.
fn keep_to_itself() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    #[cfg(target_os = "linux")]
    let _is_hidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
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
        Notice::StoreFault { problem } => ("trouble", serde_json::json!({"problem": problem})),
    };
    if is_json {
        let mut line = serde_json::json!({"event": event});
        if let (Some(line), serde_json::Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        return line.to_string();
    }
    let text = match notice {
        Notice::Blocked { upstream, secs: Some(secs), is_quota: false, hits } => {
            format!("{upstream}: rate limited, everybody waits {secs} s (limit {hits} in a row)")
        }
        Notice::Blocked { upstream, secs, .. } => quota(upstream, *secs),
        Notice::Open { upstream } => format!("{upstream}: open again"),
        Notice::StoreFault { problem } => format!("the store: {problem}"),
    };
    escaped(&text).into_owned()
}

fn quota(upstream: &str, secs: Option<u64>) -> String {
    let until = secs.map_or("until `rota gate unblock`".to_owned(), |secs| format!("for {secs} s"));
    format!("{upstream}: its quota is used up, calls are refused {until}")
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
        Notice::StoreFault { problem } => Happening::Trouble { problem },
    }
}
