//! `rota serve [--listen ADDRESS:PORT]`, and what everything that listens does first.

use std::net::SocketAddr;
use std::process::ExitCode;

use crate::block_on;
use rota_auth::{Authenticator, Token};
use rota_core::text::escaped;
use rota_serve::client::Target;
use rota_serve::http::{Api, Settings, serve_api};
use rota_serve::{listen, stop_signal};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::Common;
use crate::args_serve::ServeArgs;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

const LISTEN: &str = "127.0.0.1:8788";

pub fn run(common: &Common, args: &ServeArgs) -> CliResult<ExitCode> {
    if common.now.is_some() {
        return Err(CliError::value(
            "--now: `rota serve` goes by the store's clock, unless a call says otherwise",
        ));
    }
    let address = address(args.listen.as_deref(), LISTEN)?;
    if !address.ip().is_loopback() && !args.public {
        return Err(CliError::value(format!(
            "{address} can be reached from other hosts: say --public if it should"
        )));
    }
    rota_serve::prepare().map_err(|error| CliError::Io(error.to_string()))?;
    let collector = collector()?;
    let api = Api::new(Settings {
        context: locate::serving_context(common)?,
        policy_file: Some(locate::policy_file(common)?),
        gates: Some(super::gate::gates(common)?),
        agents_only: false,
        cycles: super::supervise::cycles_of(common)?,
    });
    block_on(async {
        let open = open(address, "").await?;
        let api = match collector {
            Some(collector) => api.with_traces(collector),
            None => api,
        };
        let served = serve_api(api, open.listener, open.auth, open.stop).await;
        served.map_err(|error| CliError::Io(format!("{address}: {error}")))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where traces go, as OpenTelemetry's own variables say it; none where they are not asked for.
pub fn collector() -> CliResult<Option<Target>> {
    let whole = locate::variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")?;
    let base = locate::variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
    let address = whole.or_else(|| base.map(|base| format!("{}/v1/traces", base.trim_end_matches('/'))));
    let read = |address: String| {
        Target::parse(&address).ok_or_else(|| {
            CliError::Io(format!("OTEL_EXPORTER_OTLP_ENDPOINT must be http://… or https://…, got: {address}"))
        })
    };
    address.map(read).transpose()
}

/// Where to listen, as the flag says it.
pub fn address(given: Option<&str>, default: &str) -> CliResult<SocketAddr> {
    let text = given.unwrap_or(default);
    let numbers = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    numbers.parse().map_err(|_| {
        CliError::value(format!("--listen must be ADDRESS:PORT (e.g. {default}), got: {}", escaped(text)))
    })
}

/// A listener, whom it lets in, and what ends it.
pub struct Open {
    pub listener: TcpListener,
    pub auth: Authenticator,
    pub stop: CancellationToken,
}

/// Makes the token before anything listens, then tells where it does.
pub async fn open(address: SocketAddr, path: &str) -> CliResult<Open> {
    let failed = |error: std::io::Error| CliError::Io(format!("{address}: {error}"));
    let file = locate::token_file()?;
    let token = Token::of_file(&file).map_err(|error| CliError::Io(error.to_string()))?;
    let stop = stop_signal().map_err(failed)?;
    let listener = listen::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !address.ip().is_loopback() {
        output::warn(&format!(
            "{address} can be reached from other hosts, and the token travels unencrypted"
        ))?;
    }
    output::note(&format!("listening on http://{address}{path}, token in {}", file.display()))?;
    Ok(Open { listener, auth: Authenticator::new(address, token), stop })
}
