//! `rota up`, and what asks a running one: `rota status`, `rota down`, `rota reload`.

mod gateway;
mod log;
mod outlived;
mod supervised;
mod tree;
mod view;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rota_core::UnixMillis;
use rota_core::explain::reason_in_words;
use rota_core::obstacle::Reason;
use rota_core::supervisor::Standing;
use rota_core::text::escaped;
use rota_daemon::config::Config;
use rota_daemon::control::{self, Answer, Ask, RunFolder};
use rota_daemon::manager::happening::{Happening, RunningLoop, Status, UpstreamWait};
use rota_daemon::manager::{self, Ending, Setup, Until};
use rota_gateway::panel::{BudgetView, Panel};
use rota_serve::notify;
use rota_store::intents::Call;
use rota_store::intents::read::Now;
use rota_store::{AnyStore, Store};
use rota_verbs::loops::ShowTree;
use rota_verbs::{Context, Verb};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::supervised::Supervised;
use super::endpoint::{Endpoint, Served};
use crate::args::Common;
use crate::args_run::{DownArgs, UpArgs};
use crate::errors::{CliError, CliResult};
use crate::{locate, output};

/// How long `rota down` waits for the end: longer than agents have to end.
const DOWN: Duration = Duration::from_secs(30);
/// How long a message waits for its second try.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// How long to run; an error where the arguments do not go together.
fn until_of(common: &Common, args: &UpArgs) -> CliResult<Until> {
    if common.now.is_some() {
        return Err(CliError::value("--now: `rota up` goes by the store's clock"));
    }
    if args.once && args.until_idle {
        return Err(CliError::value("--once and --until-idle are mutually exclusive"));
    }
    if args.supervise && (args.once || args.until_idle) {
        return Err(CliError::value(
            "--supervise goes on until it is told to end: not with --once or --until-idle",
        ));
    }
    Ok(match (args.once, args.until_idle) {
        (true, _) => Until::FirstTick,
        (_, true) => Until::Idle,
        _ => Until::Stopped,
    })
}

pub fn run(common: &Common, args: &UpArgs) -> CliResult<ExitCode> {
    let until = until_of(common, args)?;
    locate::hide_secrets(common)?;
    rota_serve::prepare().map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    let (_, rota) = locate::workspace()?;
    let run_folder = RunFolder::of(&rota);
    let named = |error: std::io::Error| CliError::Io(format!("{}: {error}", rota.join("run").display()));
    let Some(held) = run_folder.take().map_err(named)? else {
        return Err(CliError::Io(
            "another rota up runs here: see rota status, end it with rota down".to_owned(),
        ));
    };
    let cx = locate::serving_context(common)?;
    let host = locate::host()?;
    let folders = locate::folders(common)?;
    let actor = cx.agent.clone().unwrap_or_else(|| format!("rota-up@{host}:{}", folders.name()));
    let is_server = matches!(cx.store, AnyStore::Postgres(_));
    let environment = BTreeMap::from([("ROTA_SCOPE".into(), cx.scope.clone().into())]);
    let policy_file = locate::policy_file(common)?;
    let (latest, last_known) = watch::channel(None);
    let mut setup = Setup {
        latest,
        verbose: log::least() == log::Level::Debug,
        publish: args.publish || !is_server,
        store: cx.store.clone(),
        call: Call { actor: Some(actor), ..Call::in_scope(&cx.scope) },
        host,
        config: locate::configured(common)?.config,
        config_file: locate::config_file(common)?,
        folders,
        environment,
        until,
        policy_copy: policy_file.clone(),
        shims: super::shims(&rota)?,
        companions: Vec::new(),
        has_gateway: false,
    };
    let began_at = crate::block_on(cx.store.perform(&Now { call: setup.call.clone() }))?;
    let show = gateway::SharedShow::new(show(common.json));
    let hooks = hooks(&setup.config)?;
    let (from, cycles) = (crate::block_on(notify::place(&cx, &hooks))?, super::supervise::cycles_of(common)?);
    let ending = crate::block_on(async {
        let (ask, requests) = mpsc::channel(16);
        let listener = run_folder.listen(&held).map_err(named)?;
        tokio::spawn(control::serve(listener, ask, last_known));
        let served = match args.no_serve {
            true => Served::AgentsOnly,
            false => Served::Api(policy_file, super::gate::gates(common)?, cycles.clone()),
        };
        setup.companions.push(Arc::new(Endpoint::of_daemon(&rota, &cx, served).await?));
        let beside = gateway::Beside::start(&cx, &mut setup, args.no_gateway, &show).await?;
        let quiet = CancellationToken::new();
        let told = tokio::spawn(notify::run(cx.clone(), from, cycles, hooks, FIRST_WAIT, quiet.clone()));
        let supervised = Supervised::start(common, &cx, (until, args.supervise), &rota, &show)?;
        let mut observe = |happening: &Happening, running: AllRunning<'_>| show.see(happening, Some(running));
        let ending = manager::run(setup, requests, &mut observe).await.map_err(CliError::from);
        supervised.stop().await;
        beside.stop().await;
        quiet.cancel();
        // What is worth telling at the end is told for a bounded time.
        drop(told.await);
        ending
    })?;
    let has_failed = report(common, &cx, until, began_at, &ending)?;
    let failed = args.until_idle && (has_failed || ending.stopped);
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Shows the loops that a bounded run had to do with, and the worktrees it leaves; whether one of the loops failed.
fn report(
    common: &Common,
    cx: &Context,
    until: Until,
    began_at: UnixMillis,
    ending: &Ending,
) -> CliResult<bool> {
    if until == Until::Stopped {
        return Ok(false);
    }
    let mut loops = crate::block_on(ShowTree { id: None }.run(cx))?;
    loops.loops.retain(|line| tree::is_since(line, began_at));
    loops.total = loops.loops.len();
    let has_failed = loops.loops.iter().any(tree::has_failed);
    output::emit(common.json, loops, tree::text)?;
    if until == Until::Idle && !ending.kept_worktrees.is_empty() {
        output::warn(&kept_in_words(&ending.kept_worktrees))?;
    }
    Ok(has_failed)
}

/// Whom to tell what needs somebody; a section that cannot be used stops the start.
fn hooks(config: &Config) -> CliResult<Vec<notify::Hook>> {
    let Some(section) = &config.notify else { return Ok(Vec::new()) };
    let variable = |name: &str| rota_store::environment::var(name).ok().filter(|value| !value.is_empty());
    notify::read(section, variable).map_err(|error| CliError::Io(format!("rota.yml: {error}")))
}

/// Says what runs, to whoever wants to know.
type AllRunning<'a> = &'a dyn Fn() -> Vec<RunningLoop>;

/// Somebody who shows what happens.
trait Show: Send {
    /// Shows it; without anybody to ask, what runs is what ran before.
    fn see(&mut self, happening: &Happening, running: Option<AllRunning<'_>>);
}

fn show(json: bool) -> Box<dyn Show> {
    if !json && std::io::stderr().is_terminal() {
        Box::new(view::View::new())
    } else {
        Box::new(log::Log::new(json))
    }
}

fn ask(what: Ask) -> CliResult<Answer> {
    let (_, rota) = locate::workspace()?;
    let answer = RunFolder::of(&rota).ask(what);
    match answer.map_err(|error| CliError::Io(format!("the daemon does not answer: {error}")))? {
        Some(Answer::Refused { problem }) => Err(CliError::Io(problem)),
        Some(answer) => Ok(answer),
        None => Err(CliError::NotRunning),
    }
}

pub fn status(common: &Common) -> CliResult<ExitCode> {
    match ask(Ask::Status) {
        Ok(Answer::Status(status)) => {
            let supervisor = super::supervise::cycles_of(common)?.and_then(|cycles| cycles());
            let shown = Shown { gate: super::gate::panel(common)?, supervisor, status };
            output::emit(common.json, shown, |shown| {
                let cycles = shown.supervisor.as_ref().map(|standing| format!("{}\n", standing.in_words()));
                let gate = gate_in_words(&shown.status, shown.gate.as_ref());
                format!("{}{gate}{}", in_words(&shown.status), cycles.unwrap_or_default())
            })
        }
        Ok(other) => Err(CliError::Io(format!("the daemon answers something else: {other:?}"))),
        Err(CliError::NotRunning) => {
            let agents = outlived::find(&locate::workspace()?.1);
            if !agents.is_empty() {
                output::emit(common.json, agents, outlived::Outlived::text)?;
            }
            Err(CliError::NotRunning)
        }
        Err(error) => Err(error),
    }
}

/// The daemon, the gates of the gateway that it uses, and the cycles of the supervisor if one is configured.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<Panel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supervisor: Option<Standing>,
}

/// Everything that holds calls and loops back: blocks, ramps, the budget.
fn gate_in_words(status: &Status, gate: Option<&Panel>) -> String {
    let mut text = String::new();
    for UpstreamWait { upstream, wait } in &status.waits {
        let why = reason_in_words(&Reason::Wait(wait.clone()));
        text.push_str(&format!("loops that use {} wait: {why}\n", escaped(upstream)));
    }
    let Some(panel) = gate else { return text };
    for gate in &panel.upstreams {
        let (upstream, limit) = (escaped(&gate.upstream), gate.limit());
        text.push_str(&format!(
            "gate {upstream}: {}/{} running, {} queued, rate limited: {limit}\n",
            gate.running, gate.slots, gate.queued
        ));
    }
    if let Some(BudgetView { usd_per_day, usd_today, is_spent, until }) = &panel.budget {
        let (today, most) = (usd_today.rounded(), usd_per_day.rounded());
        let spent =
            if *is_spent { format!(", spent until {}", until.to_seconds_text()) } else { String::new() };
        text.push_str(&format!("budget: ${today} of ${most} today{spent}\n"));
    }
    text
}

fn in_words(status: &Status) -> String {
    let counts: Vec<String> = status.counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let state = if status.stopping { "stopping" } else { "running" };
    let mut text = format!(
        "rota up (pid {}) is {state}: {}/{} slots, {} runnable\n",
        status.pid,
        status.running.len(),
        status.slots,
        status.runnable
    );
    if !counts.is_empty() {
        text.push_str(&format!("loops: {}\n", counts.join(", ")));
    }
    if !status.kept_worktrees.is_empty() {
        text.push_str(&format!("{}\n", escaped(&kept_in_words(&status.kept_worktrees))));
    }
    for run in &status.running {
        let (id, title) = (escaped(&run.id), escaped(&run.title));
        let (kind, age) = (escaped(&run.kind), view::age(run.running_secs));
        text.push_str(&format!("  {kind} {id}  iteration {}  {age}  {title}\n", run.iteration));
    }
    text
}

/// Worktrees that stay on disk, because their loop failed or waits for its next iteration.
fn kept_in_words(names: &[String]) -> String {
    format!("worktrees kept in .rota/worktrees: {}", names.join(", "))
}

#[derive(Serialize)]
struct Stopped {
    stopped: bool,
}

pub fn down(common: &Common, args: &DownArgs) -> CliResult<ExitCode> {
    let (_, rota) = locate::workspace()?;
    let (folder, start) = (RunFolder::of(&rota), Instant::now());
    let was_running = folder.is_taken();
    match ask(Ask::Down { now: args.kill }) {
        Ok(_) => {}
        // One that was here a moment ago is ending already, and may have gone before it could answer.
        Err(_) if was_running => {}
        Err(error) => return Err(error),
    }
    while folder.is_taken() {
        if start.elapsed() > DOWN {
            return Err(CliError::Io(format!("the daemon has not ended after {} s", DOWN.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    output::emit(common.json, Stopped { stopped: true }, |_| "stopped\n".to_owned())
}

/// Lets a running daemon look at once; without one, whoever comes later looks anyway.
pub fn nudge() -> CliResult<()> {
    let (_, rota) = locate::workspace()?;
    // It would have looked by itself a moment later.
    let _told = RunFolder::of(&rota).ask(Ask::Look);
    Ok(())
}

#[derive(Serialize)]
struct Reloaded {
    reloaded: bool,
}

pub fn reload(common: &Common) -> CliResult<ExitCode> {
    match (ask(Ask::Reload), super::gate::reload()) {
        // A gateway that runs by itself reads the same file.
        (Err(CliError::NotRunning), Ok(true)) => {}
        (Err(CliError::NotRunning), Err(problem)) => return Err(problem),
        (answer, gateway) => {
            answer?;
            gateway?;
        }
    }
    output::emit(common.json, Reloaded { reloaded: true }, |_| "reloaded\n".to_owned())
}
