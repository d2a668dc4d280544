//! `rota up`, and what asks a running one: `rota status`, `rota down`, `rota reload`.

mod endpoint;
mod gateway;
mod log;
mod tree;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rota_core::Status as TaskStatus;
use rota_core::text::escaped;
use rota_daemon::config::Config;
use rota_daemon::control::{self, Answer, Ask, RunFolder};
use rota_daemon::folders::Folders;
use rota_daemon::manager::happening::{Happening, RunningLoop, Status};
use rota_daemon::manager::{self, Setup, Until};
use rota_serve::notify;
use rota_store::AnyStore;
use rota_store::intents::Call;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

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
    Ok(match (args.once, args.until_idle) {
        (true, _) => Until::FirstTick,
        (_, true) => Until::Idle,
        _ => Until::Stopped,
    })
}

pub fn run(common: &Common, args: &UpArgs) -> CliResult<ExitCode> {
    let until = until_of(common, args)?;
    rota_serve::prepare().map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    let runtime = rota_store::runtime().map_err(|error| CliError::Io(format!("runtime: {error}")))?;
    let (workspace, rota) = locate::workspace()?;
    let run_folder = RunFolder::of(&rota);
    let named = |error: std::io::Error| CliError::Io(format!("{}: {error}", rota.join("run").display()));
    let Some(held) = run_folder.take().map_err(named)? else {
        return Err(CliError::Io(
            "another rota up runs here: see rota status, end it with rota down".to_owned(),
        ));
    };
    let cx = locate::context(common)?;
    let host = locate::host()?;
    let folders = Folders { workspace, rota: rota.clone() };
    let actor = cx.agent.clone().unwrap_or_else(|| format!("rota-up@{host}:{}", folders.name()));
    let mut environment = std::collections::BTreeMap::new();
    environment.insert("ROTA_SCOPE".into(), cx.scope.clone().into());
    let is_server = matches!(cx.store, AnyStore::Postgres(_));
    if let Some(store) = locate::store_for_children(common)?.filter(|_| !is_server) {
        environment.insert("ROTA_STORE".into(), store.into());
    }
    let policy_file = locate::policy_file(common)?;
    let serves = !args.no_serve || is_server;
    let mut setup = Setup {
        verbose: log::least() == log::Level::Debug,
        publish: args.publish || !is_server,
        store: cx.store.clone(),
        call: Call { scope: cx.scope.clone(), now: None, actor: Some(actor) },
        host,
        config: locate::configured(common)?.config,
        config_file: locate::config_file(common)?,
        folders,
        environment,
        until,
        policy_copy: policy_file.clone(),
        shims: super::shims(&rota)?,
        companions: Vec::new(),
    };
    let show = gateway::SharedShow::new(show(common.json));
    let hooks = hooks(&setup.config)?;
    let ending = runtime.block_on(async {
        let (ask, requests) = mpsc::channel(16);
        let listener = run_folder.listen(&held).map_err(named)?;
        tokio::spawn(control::serve(listener, ask));
        if serves {
            let gates = super::gate::gates(common)?;
            setup.companions.push(Arc::new(endpoint::Endpoint::open(&rota, &cx, policy_file, gates).await?));
        }
        let beside = gateway::Beside::start(&cx, &mut setup, args.no_gateway, &show).await?;
        let quiet = CancellationToken::new();
        let told = tokio::spawn(notify::run(cx.clone(), hooks, FIRST_WAIT, quiet.clone()));
        let mut observe = |happening: &Happening, running: AllRunning<'_>| show.see(happening, Some(running));
        let ending = manager::run(setup, requests, &mut observe).await.map_err(CliError::from);
        beside.stop().await;
        quiet.cancel();
        // What is worth telling at the end is told for a bounded time.
        drop(told.await);
        ending
    })?;
    if until != Until::Stopped {
        let loops = rota_store::block_on(rota_verbs::loops::tree(&cx, None))?;
        output::emit(common.json, loops, tree::text)?;
    }
    let bad = ending.counts.of(TaskStatus::Failed) + ending.counts.of(TaskStatus::Parked);
    let failed = args.until_idle && (bad > 0 || ending.stopped);
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Whom to tell what needs somebody; a section that cannot be used stops the start.
fn hooks(config: &Config) -> CliResult<Vec<notify::Hook>> {
    let Some(section) = &config.notify else { return Ok(Vec::new()) };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
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
    match ask(Ask::Status)? {
        Answer::Status(status) => output::emit(common.json, status, in_words),
        other => Err(CliError::Io(format!("the daemon answers something else: {other:?}"))),
    }
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
    for run in &status.running {
        let (id, title) = (escaped(&run.id), escaped(&run.title));
        let (kind, age) = (escaped(&run.kind), view::age(run.running_secs));
        text.push_str(&format!("  {kind} {id}  iteration {}  {age}  {title}\n", run.iteration));
    }
    text
}

#[derive(Serialize)]
struct Stopped {
    stopped: bool,
}

pub fn down(common: &Common, args: &DownArgs) -> CliResult<ExitCode> {
    ask(Ask::Down { now: args.kill })?;
    let (_, rota) = locate::workspace()?;
    let (folder, start) = (RunFolder::of(&rota), Instant::now());
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
    ask(Ask::Reload)?;
    output::emit(common.json, Reloaded { reloaded: true }, |_| "reloaded\n".to_owned())
}
