//! `rota supervise`, and what looks at it without running a cycle: `check`, `pin`.

use std::process::ExitCode;
use std::sync::Arc;

use rota_core::supervisor::FailureCode;
use rota_daemon::publish::publish;
use rota_daemon::signals::{Hangup, Signals};
use rota_store::AnyStore;
use rota_store::intents::Call;
use rota_supervise::configured::{Configured, SetupError, WithSource};
use rota_supervise::inspect::{self, CheckReport, PinError, PinnedFile};
use rota_supervise::sources::Source;
use rota_supervise::state_file::{self, StateError, StateFile};
use rota_supervise::{Shared, Stop, Told, Until};
use rota_verbs::{Context, Payload};

use super::number;
use crate::args::Common;
use crate::args_supervise::{SuperviseArgs, SuperviseCommand};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

pub fn run(common: &Common, args: &SuperviseArgs) -> CliResult<ExitCode> {
    let until = until(args)?;
    if common.now.is_some() && !args.once && args.command.is_none() {
        return Err(CliError::value("--now goes with --once only: other cycles go by the clock"));
    }
    let Some(mut supervisor) = configured(common)? else {
        let file = locate::config_file(common)?;
        return Err(CliError::Io(format!(
            "{} has no section 'supervisor' (try supervisor: {{source: local}})",
            file.display()
        )));
    };
    if let Some(file) = &args.settings {
        supervisor.apply_settings(file)?;
    }
    // Fails before anything is opened if there is no usable token.
    supervisor.token::<CliError>(locate::variable)?;
    match &args.command {
        None => cycles(Cycles { common, args, until }, supervisor),
        Some(command) => {
            let cx = locate::context(common)?;
            with_source(&supervisor, &cx, Look { common, command, cx: &cx })?
        }
    }
}

/// Reads where the cycles stand of the supervisor that rota.yml configures; none if it configures none.
pub fn cycles_of(common: &Common) -> CliResult<Option<rota_serve::http::Cycles>> {
    let Some(supervisor) = configured(common)? else { return Ok(None) };
    let file = supervisor.state_file();
    Ok(Some(Arc::new(move || state_file::standing(&file))))
}

/// The section `supervisor` of rota.yml; none if there is none.
pub fn configured(common: &Common) -> CliResult<Option<Configured>> {
    let found = locate::configured(common)?;
    let Some(config) = found.config.supervisor.clone() else { return Ok(None) };
    let folder = std::path::absolute(&found.folder)
        .map_err(|error| CliError::Io(format!("{}: {error}", found.folder.display())))?;
    let dispatch = config.dispatch.as_ref();
    let kind = dispatch.map(|dispatch| found.config.kind(&dispatch.kind)).unwrap_or_default();
    Ok(Some(Configured { config, folder, kind, folders: locate::folders(common)? }))
}

/// The holder of the leases: the agent that was named, or a name of this supervisor.
fn agent(supervisor: &Configured, cx: &Context) -> CliResult<String> {
    match &cx.agent {
        Some(agent) => Ok(agent.clone()),
        None => Ok(supervisor.agent(&locate::host()?)),
    }
}

/// Opens the source and runs an operation on the supervisor.
pub fn with_source<W: WithSource>(supervisor: &Configured, cx: &Context, then: W) -> CliResult<W::Output> {
    let token = supervisor.token::<CliError>(locate::variable)?;
    let caller = (cx.store.clone(), cx.call(), agent(supervisor, cx)?);
    Ok(supervisor.with_source(caller, token.as_ref(), then)?)
}

impl From<SetupError> for CliError {
    fn from(error: SetupError) -> Self {
        Self::Io(error.to_string())
    }
}

fn until(args: &SuperviseArgs) -> CliResult<Until> {
    let cycles = args.cycles.as_deref().map(|text| number::<u64>("--cycles", text)).transpose()?;
    match (args.once, cycles) {
        (true, Some(_)) => Err(CliError::value("--once and --cycles are mutually exclusive")),
        (_, Some(0)) => Err(CliError::value("--cycles counts from 1, got: 0")),
        (true, None) => Ok(Until::Cycles(1)),
        (false, Some(count)) => Ok(Until::Cycles(count)),
        (false, None) => Ok(Until::Stopped),
    }
}

/// `rota supervise` without a subcommand.
#[derive(Clone, Copy)]
struct Cycles<'a> {
    common: &'a Common,
    args: &'a SuperviseArgs,
    until: Until,
}

fn state_error(error: StateError) -> CliError {
    CliError::Io(error.to_string())
}

/// Runs cycles. While the store cannot be reached, each is a failed cycle with its backoff.
fn cycles(mut cycles: Cycles<'_>, supervisor: Configured) -> CliResult<ExitCode> {
    let json = cycles.common.json;
    let mut broken = None;
    let mut show = |told: Told| match tell(json, &told) {
        Ok(()) => true,
        Err(error) => {
            broken.get_or_insert(error);
            false
        }
    };
    let file = StateFile::take(&supervisor.state_file()).map_err(state_error)?;
    let signals = crate::block_on(async { Signals::catch(Hangup::Ends) });
    let mut stop = Stop::Signals(signals.map_err(|error| CliError::Io(format!("signals: {error}")))?);
    let code = loop {
        let opened = locate::context(cycles.common).and_then(|cx| {
            cycles.publish(&cx, agent(&supervisor, &cx)?)?;
            Ok(cx)
        });
        let problem = match opened {
            Ok(cx) => {
                let run = Run { cycles, file: &file, stop: &mut stop, show: &mut show };
                break with_source(&supervisor, &cx, run)?.map_err(state_error)?;
            }
            Err(error) if error.may_pass() => error.in_words(),
            Err(error) => return Err(error),
        };
        let without = rota_supervise::cycle_without_store(&file, &supervisor.config, &problem, &mut show);
        let sleep = without.map_err(state_error)?;
        let is_last = cycles.is_last();
        let Some(sleep) = sleep.filter(|_| !is_last) else { break Some(FailureCode::Exception) };
        let is_stopped = crate::block_on(async {
            tokio::select! {
                () = tokio::time::sleep(sleep) => false,
                () = stop.next() => true,
            }
        });
        if is_stopped {
            break Some(FailureCode::Exception);
        }
    };
    if let Some(error) = broken {
        return Err(error);
    }
    let failed = cycles.until != Until::Stopped && code.is_some_and(FailureCode::is_failure);
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Cycles on a store that is open.
struct Run<'a, 'b> {
    cycles: Cycles<'a>,
    file: &'a StateFile,
    stop: &'a mut Stop,
    show: &'a mut rota_supervise::Teller<'b>,
}

impl WithSource for Run<'_, '_> {
    type Output = Result<Option<FailureCode>, StateError>;

    fn run<S: Source>(self, shared: Shared<S>) -> Self::Output {
        let Cycles { until, .. } = self.cycles;
        crate::block_on(rota_supervise::run(Arc::new(shared), self.file, until, self.stop, self.show))
    }
}

impl Cycles<'_> {
    /// Counts a cycle that was run; whether it was the last one.
    fn is_last(&mut self) -> bool {
        if let Until::Cycles(count) = &mut self.until {
            *count = count.saturating_sub(1);
        }
        self.until == Until::Cycles(0)
    }

    /// Publishes the policy of `rota.yml`, on PostgreSQL only with `--publish`.
    fn publish(&self, cx: &Context, agent: String) -> CliResult<()> {
        let call = Call { actor: Some(agent), ..cx.call() };
        let config = locate::configured(self.common)?.config;
        let may_publish = self.args.publish || !matches!(cx.store, AnyStore::Postgres(_));
        let file = locate::policy_file(self.common)?;
        let published = crate::block_on(publish(&cx.store, &call, &config, may_publish, &file))?;
        published.warnings().iter().try_for_each(|warning| output::warn(warning))
    }
}

/// `rota supervise check` and `rota supervise pin`.
struct Look<'a> {
    common: &'a Common,
    command: &'a SuperviseCommand,
    cx: &'a Context,
}

impl WithSource for Look<'_> {
    type Output = CliResult<ExitCode>;

    fn run<S: Source>(self, shared: Shared<S>) -> CliResult<ExitCode> {
        match self.command {
            SuperviseCommand::Check => self.check(&shared),
            SuperviseCommand::Pin => self.pin(&shared),
        }
    }
}

impl Look<'_> {
    fn check<S: Source>(&self, shared: &Shared<S>) -> CliResult<ExitCode> {
        let report = crate::block_on(inspect::check(shared));
        let valid = report.valid;
        output::emit(self.common.json, report, check_in_words)?;
        Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn pin<S: Source>(&self, shared: &Shared<S>) -> CliResult<ExitCode> {
        let pinned = crate::block_on(inspect::pin(shared, self.cx.agent.clone()));
        let pinned = pinned.map_err(|error| match error {
            PinError::Store(error) => error.into(),
            PinError::Governance(_) => CliError::Io(error.to_string()),
        })?;
        output::emit(self.common.json, pinned, |pinned| {
            let line = |file: &PinnedFile| format!("pinned {}  {}\n", file.sha256, file.path);
            pinned.files.iter().map(line).collect()
        })
    }
}

fn tell(json: bool, told: &Told) -> CliResult<()> {
    match told {
        Told::Lines(lines) if !json => {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            output::print(&text)
        }
        Told::Cycle(summary) if json => output::print(&Payload::new(summary).to_line()),
        Told::Warning(text) => output::warn(text),
        Told::Notice(text) => output::note(text),
        Told::Lines(_) | Told::Cycle(_) => Ok(()),
    }
}

fn check_in_words(report: &CheckReport) -> String {
    let mut text = String::new();
    let pin = if report.governance.is_pinned { "pinned" } else { "not pinned yet" };
    text.push_str(&if report.governance.valid {
        format!("pin         ok ({pin})\n")
    } else {
        format!("pin         failed ({pin})\n")
    });
    for violation in &report.governance.violations {
        text.push_str(&format!("  {}: {}\n", violation.rule, rota_core::text::escaped(&violation.message)));
    }
    for check in &report.checks {
        let word = if check.ok { "ok" } else { "failed" };
        text.push_str(&format!("{:<11} {word}\n", check.check));
        for failure in &check.failures {
            text.push_str(&format!("  {}: {}\n", failure.code, rota_core::text::escaped(&failure.detail)));
        }
    }
    text
}
