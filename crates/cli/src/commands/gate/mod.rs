//! `rota gateway` and `rota gate`

mod near;
mod run;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::block_on;
use rota_auth::Token;
use rota_core::policy::GateLevel;
use rota_core::text::escaped;
use rota_daemon::config::GatewaySection;
use rota_daemon::gateway::{Way, level_of};
use rota_gateway::asking::{self, AskFault};
use rota_gateway::panel::Panel;
use rota_gateway::{GatewayConfig, TOKEN_PREFIX, Target, hash_of};
use rota_serve::http::Gates;
use rota_store::Secret;
use rota_verbs::gate::{self, NewToken};
use serde::Serialize;

use super::{help_of, number};
use crate::args::Common;
use crate::args_gate::{
    GateArgs, GateCommand, GateEnvArgs, GateExecArgs, GateStatusArgs, GateTokenArgs, GateUnblockArgs,
    GateUsageArgs, GatewayArgs,
};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub use near::NearGateway;
pub use run::{Opened, Opening, told_as};

/// How often a panel is drawn anew.
const WATCH: Duration = Duration::from_secs(1);
/// How long a token lasts that `rota gate env` makes, in seconds.
const ENV_TOKEN: u32 = 30 * 24 * 3_600;

/// `rota gate`
pub fn run(common: &Common, args: GateArgs) -> CliResult<ExitCode> {
    let Some(command) = args.command else {
        return Err(CliError::Usage { message: "missing command".into(), usage: Some(help_of(&["gate"])) });
    };
    match command {
        GateCommand::Status(args) => status(common, &args).map_err(|error| of_verb(error, "status")),
        GateCommand::Exec(args) => exec(common, &args).map_err(|error| of_verb(error, "exec")),
        GateCommand::Usage(args) => usage(common, &args).map_err(|error| of_verb(error, "usage")),
        GateCommand::Token(args) => token(common, &args).map_err(|error| of_verb(error, "token")),
        GateCommand::Env(args) => env(common, &args).map_err(|error| of_verb(error, "env")),
        GateCommand::Unblock(args) => unblock(common, &args).map_err(|error| of_verb(error, "unblock")),
    }
}

fn of_verb(error: CliError, verb: &str) -> CliError {
    error.with_usage_of(&["gate", verb])
}

/// `rota gateway`
pub fn gateway(common: &Common, args: &GatewayArgs) -> CliResult<ExitCode> {
    if common.now.is_some() {
        return Err(CliError::value("--now: `rota gateway` goes by the store's clock"));
    }
    locate::hide_secrets(common)?;
    let mut config = section(common)?.config;
    if let Some(listen) = &args.listen {
        config.listen = address(listen, &config)?;
    }
    run::alone(common, &config, args.publish)
}

fn section(common: &Common) -> CliResult<GatewaySection> {
    Ok(locate::configured(common)?.config.gateway.unwrap_or_default())
}

fn address(text: &str, config: &GatewayConfig) -> CliResult<SocketAddr> {
    let numbers = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let example = config.listen;
    numbers.parse().map_err(|_| {
        CliError::value(format!("--listen must be ADDRESS:PORT (e.g. {example}), got: {}", escaped(text)))
    })
}

fn level(text: &str) -> CliResult<GateLevel> {
    level_of(text).ok_or_else(|| {
        let words = "--priority must be critical, high, normal or low";
        CliError::value(format!("{words}, got: {}", escaped(text)))
    })
}

/// Where the gateway is that this workspace uses: what a variable or the configuration says, else where the one that
/// runs here listens, else where one would.
fn place(common: &Common) -> CliResult<(Target, Way)> {
    let section = section(common)?;
    let (_, rota) = locate::workspace()?;
    let url = target(locate::variable("ROTA_GATEWAY")?, &section, &rota)?;
    let way = Way { url: url.to_string(), credentials: section.config.credentials };
    Ok((url, way))
}

fn target(variable: Option<String>, section: &GatewaySection, rota: &Path) -> CliResult<Target> {
    let read =
        |text: &str| Target::parse(text).map_err(|error| CliError::value(format!("ROTA_GATEWAY: {error}")));
    match (variable, &section.url) {
        (Some(url), _) => read(&url),
        (None, Some(url)) => Ok(url.clone()),
        (None, None) => match run::listening(rota) {
            Some(url) => read(&url),
            None => read(&Way::to(section.config.listen, section.config.credentials).url),
        },
    }
}

/// Who knows the gates of this workspace: its gateway, for as long as one runs.
pub fn gates(common: &Common) -> CliResult<Gates> {
    let (section, (_, rota)) = (section(common)?, locate::workspace()?);
    let (variable, file) = (locate::variable("ROTA_GATEWAY")?, locate::token_file()?);
    Ok(Arc::new(move || {
        let target = target(variable.clone(), &section, &rota).ok()?;
        let token = Token::of_file(&file).ok()?;
        asking::status(&target, token.secret()).ok()
    }))
}

/// How the gates of this workspace stand; none where no gateway runs, or it does not answer.
pub fn panel(common: &Common) -> CliResult<Option<Panel>> {
    let is_known = section(common)?.url.is_some() || run::listening(&locate::workspace()?.1).is_some();
    Ok(if is_known { gates(common)?() } else { None })
}

/// Has the gateway of this workspace read its configuration again; false where none runs.
pub fn reload() -> CliResult<bool> {
    let Some(url) = run::listening(&locate::workspace()?.1) else { return Ok(false) };
    let target = Target::parse(&url).map_err(|error| CliError::Io(format!("gateway: {error}")))?;
    match asking::reload(&target, operator()?.secret()) {
        Ok(()) => Ok(true),
        // One that was killed left the file behind.
        Err(AskFault::NotRunning(_)) => Ok(false),
        Err(AskFault::Refused { said, .. }) => {
            let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
            let message = said["error"]["message"].as_str().unwrap_or("the gateway refuses it").to_owned();
            Err(CliError::Io(message))
        }
        Err(error) => Err(CliError::Io(error.to_string())),
    }
}

fn operator() -> CliResult<Token> {
    Token::of_file(&locate::token_file()?).map_err(|error| CliError::Io(error.to_string()))
}

fn asked(error: AskFault) -> CliError {
    match error {
        AskFault::NotRunning(place) => CliError::NoGateway(place),
        other => CliError::Io(other.to_string()),
    }
}

fn status(common: &Common, args: &GateStatusArgs) -> CliResult<ExitCode> {
    let look = looker(common)?;
    if !args.watch {
        return output::emit(common.json, look()?, Panel::text);
    }
    // From the top of an empty screen; what is not a terminal gets one picture after the other.
    let is_screen = !common.json && rustix::termios::isatty(std::io::stdout());
    crate::block_on(async {
        let stop = rota_serve::stop_signal().map_err(|error| CliError::Io(error.to_string()))?;
        loop {
            let again = Arc::clone(&look);
            let panel = tokio::task::spawn_blocking(move || again()).await;
            let panel = panel.map_err(|error| CliError::Io(error.to_string()))??;
            if is_screen {
                output::clear_screen()?;
            }
            output::emit(common.json, panel, Panel::text)?;
            tokio::select! {
                () = stop.cancelled() => return Ok(ExitCode::SUCCESS),
                () = tokio::time::sleep(WATCH) => {}
            }
        }
    })
}

type Looker = Arc<dyn Fn() -> CliResult<Panel> + Send + Sync>;

/// Who is asked how the gates are: the gateway that is named or runs here, else the server that is asked for everything.
fn looker(common: &Common) -> CliResult<Looker> {
    let is_named = locate::variable("ROTA_GATEWAY")?.is_some() || section(common)?.url.is_some();
    let is_here = is_named || run::listening(&locate::workspace()?.1).is_some();
    if let Some(remote) = locate::remote(common)?.filter(|_| !is_here) {
        return Ok(Arc::new(move || {
            remote.panel()?.ok_or_else(|| CliError::NoGateway(remote.endpoint.name()))
        }));
    }
    let ((target, _), token) = (place(common)?, operator()?);
    Ok(Arc::new(move || asking::status(&target, token.secret()).map_err(asked)))
}

fn exec(common: &Common, args: &GateExecArgs) -> CliResult<ExitCode> {
    let priority = args.priority.as_deref().map(level).transpose()?.map(GateLevel::word);
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(CliError::value("a command is wanted behind --"));
    };
    let ((target, _), token) = (place(common)?, operator()?);
    if !section(common)?.config.upstreams.contains_key(&args.upstream) {
        return Err(CliError::value(format!("--upstream: rota.yml names no {}", escaped(&args.upstream))));
    }
    let slot = asking::slot(&target, token.secret(), &args.upstream, priority).map_err(asked)?;
    let ended = std::process::Command::new(program).args(arguments).status();
    drop(slot);
    let shown = program.to_string_lossy();
    let ended = ended.map_err(|error| CliError::Io(format!("{}: {error}", escaped(&shown))))?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    let by_signal =
        std::os::unix::process::ExitStatusExt::signal(&ended).and_then(|signal| u8::try_from(signal).ok());
    Ok(ExitCode::from(code.or(by_signal.map(|signal| signal.saturating_add(128))).unwrap_or(1)))
}

fn usage(common: &Common, args: &GateUsageArgs) -> CliResult<ExitCode> {
    let cx = locate::context(common)?;
    let used = block_on(gate::usage(&cx, args.task.as_deref(), args.today))?;
    output::emit(common.json, used, output::gate::usage)
}

/// Makes a token that the store knows.
fn made(common: &Common, new: NewToken) -> CliResult<(Secret, gate::MadeToken)> {
    let random = Token::random().map_err(|error| CliError::Io(error.to_string()))?;
    let token = Secret::from(format!("{TOKEN_PREFIX}{}", random.secret().expose()));
    let new = NewToken { hash: hash_of(token.expose().as_bytes()), ..new };
    let made = block_on(gate::token(&locate::context(common)?, new))?;
    Ok((token, made))
}

#[derive(Serialize)]
struct ShownToken {
    token: String,
    #[serde(flatten)]
    made: gate::MadeToken,
}

fn token(common: &Common, args: &GateTokenArgs) -> CliResult<ExitCode> {
    let new = NewToken {
        hash: String::new(),
        task: args.task.clone(),
        level: args.priority.as_deref().map(level).transpose()?,
        ttl_secs: args.ttl.as_deref().map(|ttl| number("--ttl", ttl)).transpose()?,
    };
    let (token, made) = made(common, new)?;
    let shown = ShownToken { token: token.expose().to_owned(), made };
    output::emit(common.json, shown, |shown| format!("{}\n", shown.token))
}

#[derive(Serialize)]
struct Environment {
    variables: std::collections::BTreeMap<String, String>,
    codex: String,
}

fn env(common: &Common, args: &GateEnvArgs) -> CliResult<ExitCode> {
    let (_, way) = place(common)?;
    let token = match &args.token {
        Some(token) => Secret::from(token.as_str()),
        None => {
            let new = NewToken { hash: String::new(), task: None, level: None, ttl_secs: Some(ENV_TOKEN) };
            made(common, new)?.0
        }
    };
    let variables = way.variables(token.expose()).into_iter().collect();
    let shown = Environment { variables, codex: way.codex_settings() };
    output::emit(common.json, shown, |shown| {
        let quoted = |text: &String| format!("'{}'", text.replace('\'', "'\\''"));
        let exports =
            shown.variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        let settings = shown.codex.lines().map(|line| format!("#   {line}\n"));
        let codex = "# Codex reads no variable for this; in its config.toml, or as -c options:\n".to_owned();
        exports.chain([codex]).chain(settings).collect()
    })
}

fn unblock(common: &Common, args: &GateUnblockArgs) -> CliResult<ExitCode> {
    let known: Vec<String> = section(common)?.config.upstreams.into_keys().collect();
    if let Some(unknown) = args.upstreams.iter().find(|name| !known.contains(name)) {
        let problem = format!("no upstream '{}' (known: {})", escaped(unknown), known.join(", "));
        return Err(CliError::value(problem));
    }
    let wanted = if args.upstreams.is_empty() { known } else { args.upstreams.clone() };
    let unblocked = block_on(gate::unblock(&locate::context(common)?, &wanted))?;
    output::emit(common.json, unblocked, |done| format!("unblocked {}\n", done.unblocked.join(", ")))
}
