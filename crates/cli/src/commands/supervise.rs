//! `rota supervise`, and what looks at it without running a cycle: `check`, `pin`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rota_daemon::config::{LoopKind, SourceConfig, SupervisorConfig, TokenPlace, TrackerConfig, TrackerKind};
use rota_daemon::folders::Folders;
use rota_daemon::publish::publish;
use rota_daemon::signals::{Hangup, Signals};
use rota_store::intents::Call;
use rota_store::intents::issues::{PinGovernance, ReadRecord};
use rota_store::{AnyStore, Secret, Store};
use rota_supervise::cycle::FailureCode;
use rota_supervise::environment::{self, Check};
use rota_supervise::governance;
use rota_supervise::sources::gitea::Gitea;
use rota_supervise::sources::github::GitHub;
use rota_supervise::sources::local::Local;
use rota_supervise::sources::{Connection, Patience, Source};
use rota_supervise::state_file::{self, StateError, StateFile};
use rota_supervise::{Shared, Stop, Told, Until};
use rota_verbs::{Context, Payload};
use serde::{Deserialize, Serialize};

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
    let Some(mut place) = Place::of(common)? else {
        let file = locate::config_file(common)?;
        return Err(CliError::Io(format!(
            "{} has no section 'supervisor' (try supervisor: {{source: local}})",
            file.display()
        )));
    };
    if let Some(file) = &args.settings {
        place.take_settings(file)?;
    }
    place.check_token()?;
    match &args.command {
        None => cycles(Cycles { common, args, until }, place),
        Some(command) => {
            let cx = locate::context(common)?;
            place.with_source(&cx, Look { common, command, cx: &cx })?
        }
    }
}

/// The section `supervisor` and the folder it counts from.
pub struct Place {
    pub config: SupervisorConfig,
    folder: PathBuf,
    kind: LoopKind,
    folders: Folders,
}

/// Reads where the cycles stand of the supervisor that rota.yml configures; none if it configures none.
pub fn cycles_of(common: &Common) -> CliResult<Option<rota_serve::http::Cycles>> {
    let Some(place) = Place::of(common)? else { return Ok(None) };
    let file = place.state_file();
    Ok(Some(Arc::new(move || state_file::standing(&file))))
}

/// Something that is done with a supervisor, whatever its source.
pub trait WithSource {
    type Output;
    fn run<S: Source>(self, shared: Shared<S>) -> Self::Output;
}

impl Place {
    /// None if the configuration has no such section.
    pub fn of(common: &Common) -> CliResult<Option<Self>> {
        let configured = locate::configured(common)?;
        let Some(config) = configured.config.supervisor.clone() else { return Ok(None) };
        let folder = std::path::absolute(&configured.folder)
            .map_err(|error| CliError::Io(format!("{}: {error}", configured.folder.display())))?;
        let dispatch = config.dispatch.as_ref();
        let kind = dispatch.map(|dispatch| configured.config.kind(&dispatch.kind)).unwrap_or_default();
        Ok(Some(Self { config, folder, kind, folders: locate::folders(common)? }))
    }

    pub fn state_file(&self) -> PathBuf {
        self.folder.join(&self.config.state_file)
    }

    fn take_settings(&mut self, file: &str) -> CliResult<()> {
        let given = settings_file(file)?;
        let config = &mut self.config;
        config.cycle_interval_secs = given.cycle_interval_seconds.unwrap_or(config.cycle_interval_secs);
        config.cycle_max_runtime_secs =
            given.cycle_max_runtime_seconds.unwrap_or(config.cycle_max_runtime_secs);
        Ok(())
    }

    /// The holder of the leases: the same after a restart, another for every state file.
    fn agent(&self, cx: &Context) -> CliResult<String> {
        match &cx.agent {
            Some(agent) => Ok(agent.clone()),
            None => Ok(format!("supervisor@{}:{}", locate::host()?, self.state_file().display())),
        }
    }

    /// Fails before anything is opened if there is no token that can be used.
    pub fn check_token(&self) -> CliResult<()> {
        match &self.config.source {
            SourceConfig::Local => Ok(()),
            SourceConfig::Tracker(tracker) => token(tracker, &self.folder).map(drop),
        }
    }

    /// Opens the source and does something with the supervisor on it.
    pub fn with_source<W: WithSource>(&self, cx: &Context, then: W) -> CliResult<W::Output> {
        let agent = self.agent(cx)?;
        let call = Call { actor: Some(agent.clone()), ..cx.call() };
        let store = cx.store.clone();
        let label = self.config.claim_label.clone();
        match self.config.source.clone() {
            SourceConfig::Local => {
                let source = Local::new(store.clone(), call.clone(), label);
                Ok(then.run(self.shared(store, call, agent, source)?))
            }
            SourceConfig::Tracker(tracker) => {
                let token = token(&tracker, &self.folder)?;
                let connection = Connection::new(&tracker, &token, Patience::default())
                    .map_err(|error| CliError::Io(error.to_string()))?;
                Ok(match tracker.kind {
                    TrackerKind::Gitea => {
                        let source = Gitea::new(connection, tracker, label);
                        then.run(self.shared(store, call, agent, source)?)
                    }
                    TrackerKind::GitHub => {
                        let source = GitHub::new(connection, tracker, label);
                        then.run(self.shared(store, call, agent, source)?)
                    }
                })
            }
        }
    }

    fn shared<S: Source>(
        &self,
        store: AnyStore,
        call: Call,
        agent: String,
        source: S,
    ) -> CliResult<Shared<S>> {
        let shared = Shared::new(store, call, agent, source, self.config.clone(), self.folder.clone());
        let mut shared = shared.map_err(|error| CliError::Io(error.to_string()))?;
        (shared.kind, shared.folders) = (self.kind.clone(), Some(self.folders.clone()));
        Ok(shared)
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

/// The two settings that may come in a file of their own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    cycle_interval_seconds: Option<u64>,
    cycle_max_runtime_seconds: Option<u64>,
}

fn settings_file(file: &str) -> CliResult<SettingsFile> {
    let wrong = |problem: String| CliError::Io(format!("--settings {file}: {problem}"));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let given: SettingsFile = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let seconds = [
        ("cycle_interval_seconds", given.cycle_interval_seconds),
        ("cycle_max_runtime_seconds", given.cycle_max_runtime_seconds),
    ];
    for (key, value) in seconds {
        if value.is_some_and(|value| !(1..=86_400).contains(&value)) {
            return Err(wrong(format!("{key}: expected a whole number from 1 to 86400")));
        }
    }
    Ok(given)
}

/// From the environment or a file, never from the configuration itself.
fn token(tracker: &TrackerConfig, folder: &Path) -> CliResult<Secret> {
    let text = match &tracker.token {
        TokenPlace::Variable(name) => locate::variable(name)?.ok_or_else(|| {
            CliError::Io(format!("the variable {name}, which supervisor.token_env names, is not set"))
        })?,
        TokenPlace::File(path) => token_file(&folder.join(path), tracker.allows_shared_token_file)?,
    };
    if text.trim().is_empty() {
        return Err(CliError::Io("the token of the tracker is empty".to_owned()));
    }
    Ok(Secret::from(text.trim()))
}

/// The content of a token file, which only its owner may be able to read.
fn token_file(path: &Path, allows_shared: bool) -> CliResult<String> {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    let failed =
        |error: std::io::Error| CliError::Io(format!("supervisor.token_file {}: {error}", path.display()));
    let mut file = rota_store::open_regular(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 && !allows_shared {
        return Err(CliError::Io(format!(
            "supervisor.token_file {}: other users can read it (mode {:03o}): chmod 600 it, or accept that with \
             allow_insecure: [token_file]",
            path.display(),
            mode & 0o777
        )));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
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
fn cycles(mut cycles: Cycles<'_>, place: Place) -> CliResult<ExitCode> {
    let json = cycles.common.json;
    let mut broken = None;
    let mut show = |told: Told| match tell(json, &told) {
        Ok(()) => true,
        Err(error) => {
            broken.get_or_insert(error);
            false
        }
    };
    let file = StateFile::take(&place.state_file()).map_err(state_error)?;
    let signals = crate::block_on(async { Signals::catch(Hangup::Ends) });
    let mut stop = Stop::Signals(signals.map_err(|error| CliError::Io(format!("signals: {error}")))?);
    let code = loop {
        let opened = locate::context(cycles.common).and_then(|cx| {
            cycles.publish(&cx, place.agent(&cx)?)?;
            Ok(cx)
        });
        let problem = match opened {
            Ok(cx) => {
                let run = Run { cycles, file: &file, stop: &mut stop, show: &mut show };
                break place.with_source(&cx, run)?.map_err(state_error)?;
            }
            Err(error) if error.may_pass() => error.in_words(),
            Err(error) => return Err(error),
        };
        let without = rota_supervise::cycle_without_store(&file, &place.config, &problem, &mut show);
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
        let (checks, governance) = crate::block_on(async {
            let record = ReadRecord { call: shared.call.clone(), source: shared.source.key() };
            let record = shared.store.perform(&record).await;
            let pin = record.ok().flatten().and_then(|record| record.pin);
            let violations = match governance::load(&shared.folder, &shared.config.governance) {
                Ok(found) => pin.as_ref().map_or(Vec::new(), |pin| governance::compare(pin, &found)),
                Err(violations) => violations,
            };
            let violations = violations
                .into_iter()
                .map(|violation| Violated { rule: violation.rule.word(), message: violation.message });
            let violations: Vec<Violated> = violations.collect();
            let governance =
                GovernanceCheck { valid: violations.is_empty(), is_pinned: pin.is_some(), violations };
            (environment::validate(shared).await, governance)
        });
        let valid = governance.valid && checks.iter().all(|check| check.ok);
        let report = CheckReport { valid, failures: environment::codes(&checks), governance, checks };
        output::emit(self.common.json, report, check_in_words)?;
        Ok(if valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn pin<S: Source>(&self, shared: &Shared<S>) -> CliResult<ExitCode> {
        let files = governance::load(&shared.folder, &shared.config.governance);
        let files = files.map_err(|violations| {
            let problems: Vec<String> = violations.into_iter().map(|violation| violation.message).collect();
            CliError::Io(format!("nothing was pinned: {}", problems.join("; ")))
        })?;
        let pin = PinGovernance {
            call: Call { actor: self.cx.agent.clone(), ..shared.call.clone() },
            source: shared.source.key(),
            files,
            only_first: false,
            reason: "rota supervise pin".to_owned(),
        };
        let files = crate::block_on(shared.store.perform(&pin))?.files;
        let pinned = Pinned {
            governance: governance::hash_of_all(&files),
            files: files.into_iter().map(|(path, sha256)| PinnedFile { path, sha256 }).collect(),
        };
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

#[derive(Serialize)]
struct CheckReport {
    valid: bool,
    failures: Vec<String>,
    governance: GovernanceCheck,
    checks: Vec<Check>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GovernanceCheck {
    valid: bool,
    is_pinned: bool,
    violations: Vec<Violated>,
}

#[derive(Serialize)]
struct Violated {
    rule: &'static str,
    message: String,
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

#[derive(Serialize)]
struct Pinned {
    governance: String,
    files: Vec<PinnedFile>,
}

#[derive(Serialize)]
struct PinnedFile {
    path: String,
    sha256: String,
}
