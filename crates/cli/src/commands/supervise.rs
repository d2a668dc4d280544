//! `rota supervise`, and what looks at it without running a cycle: `check`, `pin`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rota_core::cycle::FailureCode;
use rota_daemon::config::{SourceConfig, SupervisorConfig, TokenPlace, TrackerConfig, TrackerKind};
use rota_daemon::desk::Desk;
use rota_daemon::sources::gitea::Gitea;
use rota_daemon::sources::github::GitHub;
use rota_daemon::sources::local::Local;
use rota_daemon::sources::{Connection, Patience, Source};
use rota_daemon::supervisor::environment::{self, Check};
use rota_daemon::supervisor::governance;
use rota_daemon::supervisor::{self, Shared, Told, Until};
use rota_store::intents::Call;
use rota_store::intents::issues::{PinGovernance, ReadRecord};
use rota_store::intents::policy::{CurrentPolicy, PublishPolicy};
use rota_store::{AnyStore, Secret, Store, block_on};
use rota_verbs::{Context, Payload, mirror};
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
    let (config, folder, has_worktrees) = configured(common, args)?;
    let runtime = rota_store::runtime().map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    let cx = locate::context(common)?;
    let state_file = folder.join(&config.state_file);
    let agent = match &cx.agent {
        Some(agent) => agent.clone(),
        // The same after a restart, another for every state file: leases are known again by it.
        None => format!("supervisor@{}:{}", locate::host()?, state_file.display()),
    };
    let call = Call { scope: cx.scope.clone(), now: cx.now, actor: Some(agent.clone()) };
    let desk = Desk { store: cx.store.clone() };
    let job = Job { common, args, until, cx: &cx, has_worktrees, runtime };
    let label = config.claim_label.clone();
    match config.source.clone() {
        SourceConfig::Local => {
            let source = Local::new(desk.clone(), call.clone(), label);
            job.on(desk, call, agent, source, config, folder)
        }
        SourceConfig::Tracker(tracker) => {
            let token = token(&tracker, &folder)?;
            let connection = Connection::new(&tracker, &token, Patience::default())
                .map_err(|error| CliError::Io(error.to_string()))?;
            match tracker.kind {
                TrackerKind::Gitea => {
                    let source = Gitea::new(connection, tracker, label);
                    job.on(desk, call, agent, source, config, folder)
                }
                TrackerKind::GitHub => {
                    let source = GitHub::new(connection, tracker, label);
                    job.on(desk, call, agent, source, config, folder)
                }
            }
        }
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

fn configured(common: &Common, args: &SuperviseArgs) -> CliResult<(SupervisorConfig, PathBuf, bool)> {
    let configured = locate::configured(common)?;
    let Some(mut supervisor) = configured.config.supervisor.clone() else {
        let file = locate::config_file(common)?;
        return Err(CliError::Io(format!(
            "{} has no section 'supervisor' (try supervisor: {{source: local}})",
            file.display()
        )));
    };
    let folder = std::path::absolute(&configured.folder)
        .map_err(|error| CliError::Io(format!("{}: {error}", configured.folder.display())))?;
    let kind = supervisor.dispatch.as_ref().map(|dispatch| configured.config.kind(&dispatch.kind));
    if let Some(file) = &args.settings {
        let given = settings_file(file)?;
        supervisor.cycle_interval_secs =
            given.cycle_interval_seconds.unwrap_or(supervisor.cycle_interval_secs);
        supervisor.cycle_max_runtime_secs =
            given.cycle_max_runtime_seconds.unwrap_or(supervisor.cycle_max_runtime_secs);
    }
    Ok((supervisor, folder, kind.is_some_and(|kind| kind.worktree)))
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
        TokenPlace::File(path) => {
            let path = folder.join(path);
            let read = std::fs::read_to_string(&path);
            read.map_err(|error| CliError::Io(format!("supervisor.token_file {}: {error}", path.display())))?
        }
    };
    if text.trim().is_empty() {
        return Err(CliError::Io("the token of the tracker is empty".to_owned()));
    }
    Ok(Secret::from(text.trim()))
}

/// What to do, whatever the source.
struct Job<'a> {
    common: &'a Common,
    args: &'a SuperviseArgs,
    until: Until,
    cx: &'a Context,
    has_worktrees: bool,
    runtime: &'static tokio::runtime::Runtime,
}

impl Job<'_> {
    fn on<S: Source>(
        &self,
        desk: Desk,
        call: Call,
        agent: String,
        source: S,
        config: SupervisorConfig,
        folder: PathBuf,
    ) -> CliResult<ExitCode> {
        let shared = Shared::new(desk, call, agent, source, config, folder);
        let mut shared = shared.map_err(|error| CliError::Io(error.to_string()))?;
        shared.loops_have_worktrees = self.has_worktrees;
        match &self.args.command {
            None => self.cycles(shared),
            Some(SuperviseCommand::Check) => self.check(&shared),
            Some(SuperviseCommand::Pin) => self.pin(&shared),
        }
    }

    /// What rota.yml says about the policy counts from here on; on a server only if that is wanted.
    fn publish(&self, call: &Call) -> CliResult<()> {
        let current = CurrentPolicy { call: call.clone() };
        let (current, _) = block_on(self.cx.store.perform(&current))?;
        let wanted = locate::configured(self.common)?.config.apply_to(&current.policy);
        let wanted = wanted.map_err(rota_core::Refusal::from)?;
        if wanted == current.policy {
            return Ok(());
        }
        if matches!(self.cx.store, AnyStore::Postgres(_)) && !self.args.publish {
            return output::warn(
                "rota.yml says something else about the policy than what is published (--publish)",
            );
        }
        let based_on = Some(current.version.clone());
        block_on(self.cx.store.perform(&PublishPolicy { call: call.clone(), policy: wanted, based_on }))?;
        let file = locate::policy_file(self.common)?;
        match block_on(mirror::write(self.cx, &file)) {
            Ok(_) => Ok(()),
            Err(error) => output::warn(&format!("published, but not mirrored: {error}")),
        }
    }

    fn cycles<S: Source>(&self, shared: Shared<S>) -> CliResult<ExitCode> {
        self.publish(&shared.call)?;
        let json = self.common.json;
        let mut broken = None;
        let mut show = |told: Told| match tell(json, &told) {
            Ok(()) => true,
            Err(error) => {
                broken.get_or_insert(error);
                false
            }
        };
        let ended = self.runtime.block_on(supervisor::run(Arc::new(shared), self.until, &mut show));
        let code = ended.map_err(|error| CliError::Io(error.to_string()))?;
        if let Some(error) = broken {
            return Err(error);
        }
        let failed = self.until != Until::Stopped && code.is_some_and(FailureCode::is_failure);
        Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn check<S: Source>(&self, shared: &Shared<S>) -> CliResult<ExitCode> {
        let (checks, governance) = self.runtime.block_on(async {
            let record = ReadRecord { call: shared.call.clone(), source: shared.source.key() };
            let record = shared.desk.perform(record).await;
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
        };
        let files = self.runtime.block_on(shared.desk.perform(pin))?;
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
