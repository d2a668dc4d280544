//! `rota work [--queue Q] [--jobs N] [--until-empty] -- CMD…`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rota_core::text::escaped;
use rota_daemon::companion::Companion;
use rota_daemon::runner::environment::{Environment, dropped_keys, passed};
use rota_daemon::runner::process::find_program;
use rota_daemon::work::{self, GiveUp, Progress, Summary, Work};
use rota_store::intents::Call;
use rota_store::intents::claim::Grant;
use rota_verbs::Payload;
use rota_verbs::claim::Claimed;
use serde::Serialize;

use super::endpoint::Endpoint;
use super::gate::NearGateway;
use super::number;
use crate::args::Common;
use crate::args_run::WorkArgs;
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// More commands at once than this is a slip of the finger.
const MOST_JOBS: usize = 1_000;

pub fn run(common: &Common, args: WorkArgs) -> CliResult<ExitCode> {
    locate::hide_secrets(common)?;
    let jobs: usize = number("--jobs", &args.jobs)?;
    if !(1..=MOST_JOBS).contains(&jobs) {
        return Err(CliError::value(format!("--jobs must be from 1 to {MOST_JOBS}, got: {jobs}")));
    }
    if common.now.is_some() {
        return Err(CliError::value("--now: `rota work` goes by the store's clock"));
    }
    let give_up = match args.give_up.as_deref().map(|text| number::<u32>("--give-up", text)).transpose()? {
        None => GiveUp::ByDefault,
        Some(0) => GiveUp::Never,
        Some(most) => GiveUp::After(most),
    };
    let folder = std::env::current_dir().map_err(|error| CliError::Io(format!("current folder: {error}")))?;
    let argv = with_program_found(args.command, &folder)?;
    rota_serve::prepare().map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    let cx = locate::serving_context(common)?;
    let host = locate::host()?;
    let agent = cx.agent.clone().unwrap_or_else(|| format!("{host}:{}", std::process::id()));
    let mut environment = environment(common, args.pass_env)?;
    environment.insert("ROTA_SCOPE".into(), cx.scope.clone().into());
    let endpoint = crate::block_on(Endpoint::for_agents(&cx))?;
    let mut companions: Vec<Arc<dyn Companion>> = vec![Arc::new(endpoint)];
    if !args.no_gateway {
        companions.push(Arc::new(NearGateway::new(common)?));
    }
    let work = Work {
        call: Call { actor: Some(agent.clone()), ..Call::in_scope(&cx.scope) },
        queue: args.queue,
        agent,
        host: Some(host),
        jobs,
        give_up,
        until_empty: args.until_empty,
        argv,
        folder,
        environment,
        output_to_stderr: common.json,
        shims: super::shims(&locate::workspace()?.1)?,
        companions,
    };
    let render = |grant: &Grant| output::markdown::claimed(&Claimed::of(grant.clone()));
    let mut view = View { idle: false, terminal: std::io::stderr().is_terminal() };
    let summary = crate::block_on(work::run(cx.store, work, &render, &mut |progress| view.show(&progress)));
    let summary = summary?;
    report(common.json, &summary)?;
    // Without --until-empty a signal is how it ends.
    let has_all = !args.until_empty || !summary.interrupted;
    Ok(if has_all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The environment that commands get. A key that the allow list leaves out is named, so that no agent fails silently.
fn environment(common: &Common, named: Vec<String>) -> CliResult<Environment> {
    for name in &named {
        if name.is_empty() || name.contains(['=', '*', '\0']) || name.starts_with("ROTA_") {
            let problem = format!("--pass-env must be the name of a variable outside ROTA_*, got: {name}");
            return Err(CliError::value(problem));
        }
    }
    let mut allowed = locate::configured(common)?.config.work_pass_env;
    allowed.extend(named);
    let passed = passed(&allowed, rota_store::environment::vars_os());
    let dropped = dropped_keys(&passed, rota_store::environment::vars_os());
    if let Some(first) = dropped.first() {
        let keys = dropped.join(", ");
        let hint = format!("use --pass-env {first}, or work: {{pass_env: [\u{2026}]}} in rota.yml");
        output::warn(&format!("commands do not see {keys} ({hint})"))?;
    }
    Ok(passed)
}

/// A command that is not there is the caller's slip, and costs no task an attempt.
fn with_program_found(mut argv: Vec<OsString>, folder: &Path) -> CliResult<Vec<OsString>> {
    let Some(program) = argv.first_mut() else {
        return Err(CliError::value("missing command after -- (e.g. rota work -- ./agent.sh)"));
    };
    let path = std::env::var_os("PATH");
    let found = find_program(program, folder, path.as_deref()).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "no such file, and none of that name in PATH",
            ErrorKind::PermissionDenied => "not a file that may be executed (try chmod +x)",
            _ => return CliError::Io(format!("'{}' cannot be run: {error}", program.to_string_lossy())),
        };
        CliError::Io(format!("'{}' cannot be run: {hint}", program.to_string_lossy()))
    })?;
    *program = found.into_os_string();
    Ok(argv)
}

#[derive(Serialize)]
struct Report {
    /// How often each outcome came.
    outcomes: BTreeMap<String, u64>,
    interrupted: bool,
}

fn report(json: bool, summary: &Summary) -> CliResult<()> {
    if json {
        let outcomes = summary.outcomes.iter();
        let outcomes = outcomes.map(|(outcome, count)| (outcome.replace("_l", "L"), *count)).collect();
        let report = Report { outcomes, interrupted: summary.interrupted };
        return output::print(&Payload::new(report).to_text());
    }
    let counts: Vec<String> =
        summary.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    say(&if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") });
    Ok(())
}

struct View {
    idle: bool,
    terminal: bool,
}

impl View {
    fn show(&mut self, progress: &Progress) {
        let was_idle = std::mem::replace(&mut self.idle, *progress == Progress::Idle);
        match progress {
            Progress::Started { lease, title } => {
                say(&format!("started {} {}", escaped(lease.task.as_str()), escaped(title)));
            }
            Progress::Settled { lease, outcome, detail, took } => {
                let detail = detail.as_ref().map_or(String::new(), |detail| format!(": {}", escaped(detail)));
                say(&format!("{outcome} {} ({}){detail}", escaped(lease.task.as_str()), seconds(*took)));
            }
            Progress::SettledElsewhere { lease, outcome } => {
                say(&format!("{outcome} {} (said by somebody else)", escaped(lease.task.as_str())));
            }
            Progress::Late { lease, refusal } => {
                say(&format!("late {}: {}", escaped(lease.task.as_str()), escaped(refusal)));
            }
            Progress::Trouble { problem } => say(&format!("warning: {}, asking again", escaped(problem))),
            Progress::Silent { lease } => {
                let id = escaped(lease.task.as_str());
                say(&format!("warning: {id}: its shim does not answer, so its lease is not renewed"));
            }
            Progress::Idle if !was_idle && self.terminal => say("waiting for tasks (Ctrl-C ends it)"),
            Progress::Idle => {}
            Progress::Stopping => say("stopping: the commands are asked to end"),
        }
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// Nobody has to listen.
fn say(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}
