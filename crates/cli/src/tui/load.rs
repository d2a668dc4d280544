//! Fetching what the panes show, and doing what is ordered, by the same verbs as every other command. On a thread of its
//! own: a store that takes its time does not hold up the screen.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rota_core::text::escaped;
use rota_core::{Status, UnixMillis};
use rota_daemon::files::{Dir, Owner};
use rota_daemon::folders::Folders;
use rota_daemon::iteration::OUTPUT;
use rota_serve::http::{Cycles, Gates};
use rota_verbs::TaskPayload;
use rota_verbs::deps::ShowDeps;
use rota_verbs::input::{Id, QueueName};
use rota_verbs::list::ListTasks;
use rota_verbs::log::TailJournal;
use rota_verbs::loops::{CancelLoop, ListLoops, ReiterateLoop, ShowScheduler, ShowTree};
use rota_verbs::overview::ShowOverview;
use rota_verbs::sched::PlanLeases;
use rota_verbs::show::ShowTask;
use rota_verbs::step::{PauseTask, ResetTask, ResumeTask};
use rota_verbs::update::UpdateTask;
use rota_verbs::why::ExplainTask;

use super::Happened;
use super::view::{Act, Data, Line, Pane, View};
use crate::backend::Backend;
use crate::errors::{CliError, CliResult};
use crate::output;

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(500);
/// A look may take one part of so many of the time.
const SHARE: u32 = 100;
/// How many lines of the journal are shown.
const EVENTS: usize = 200;
/// How many entries of a queue are shown.
const ENTRIES: usize = 500;
/// Where the last line of an agent's output is looked for.
const TAIL_BYTES: u64 = 4_096;

/// What is wanted on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub pane: Pane,
    pub queue: String,
    pub task: Option<String>,
}

impl Wanted {
    pub fn of(view: &View) -> Self {
        Self { pane: view.pane, queue: view.queue.clone(), task: view.task.clone() }
    }
}

/// What the loader is told.
pub enum Task {
    Look(Wanted),
    Do(Act, String),
}

/// Loads at once when something is wanted, and again and again after that, as often as it is cheap.
pub fn run(
    backend: &Backend,
    folders: Option<&Folders>,
    gates: &Gates,
    cycles: Option<&Cycles>,
    tasks: &Receiver<Task>,
    told: &Sender<Happened>,
) {
    let mut wanted = Wanted { pane: Pane::Fleet, queue: "loops".to_owned(), task: None };
    let mut rest = Duration::ZERO;
    loop {
        match tasks.recv_timeout(rest) {
            Ok(Task::Look(now)) => wanted = now,
            Ok(Task::Do(act, id)) => {
                let said = done(backend, act, &id).unwrap_or_else(|error| error.in_words());
                if told.send(Happened::Done(said)).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let start = Instant::now();
        let mut data = load(backend, folders, gates, &wanted)
            .unwrap_or_else(|error| Data { trouble: Some(error.in_words()), ..Data::default() });
        if let Some(standing) = cycles.filter(|_| wanted.pane == Pane::Fleet).and_then(|cycles| cycles()) {
            data.footnote.push(standing.in_words());
        }
        if told.send(Happened::Loaded(wanted.clone(), Box::new(data))).is_err() {
            return;
        }
        rest = (start.elapsed() * SHARE).max(SHORTEST);
    }
}

fn done(backend: &Backend, act: Act, id: &str) -> CliResult<String> {
    let shown = escaped(id).into_owned();
    let id: Id = id.parse()?;
    match act {
        Act::Pause => drop(backend.ask(PauseTask { id })?),
        Act::Resume => drop(backend.ask(ResumeTask { id })?),
        Act::Cancel => drop(backend.ask(CancelLoop { id })?),
        Act::Reset => drop(backend.ask(ResetTask { id })?),
        Act::Reiterate => drop(backend.ask(ReiterateLoop { id, reason: None })?),
        Act::Raise => {
            let task = backend.ask(ShowTask { id: id.clone(), with_deps: false })?.task;
            let priority = task.priority.unwrap_or(2);
            let higher =
                priority.checked_sub(1).ok_or_else(|| CliError::Io(format!("{shown} is the most urgent")))?;
            backend.ask(UpdateTask { priority: Some(higher.into()), ..UpdateTask::of(id) })?;
        }
    }
    Ok(format!("done: {} {shown}", act.words()))
}

fn load(backend: &Backend, folders: Option<&Folders>, gates: &Gates, wanted: &Wanted) -> CliResult<Data> {
    let overview = backend.ask(ShowOverview {})?;
    let now = overview.now;
    let mut data = Data::default();
    match wanted.pane {
        Pane::Fleet => data.lines = fleet(backend, folders, &overview.queues, now)?,
        Pane::Queue => {
            data.subject = format!("queue {}", wanted.queue);
            data.lines = queue(backend, &wanted.queue)?;
        }
        Pane::Why => {
            if let Some(id) = &wanted.task {
                data.subject.clone_from(id);
                let text = output::why::text(&backend.ask(ExplainTask { id: id.parse()? })?);
                let line = |line: &str| Line { cells: vec![line.to_owned()], ..Line::default() };
                data.lines = text.lines().map(line).collect();
            }
        }
        Pane::Gate => {
            data.lines = overview.blocks.iter().map(|block| gate_line(block, now)).collect();
            data.lines.extend(overview.budgets.iter().map(|spent| budget_line(spent, now)));
            data.panel = match backend {
                Backend::Store(_) => gates(),
                Backend::Server(remote) => remote.panel()?,
            };
        }
        Pane::Tree => {
            let tree = backend.ask(ShowTree { id: None })?;
            let texts = output::loops::tree(&tree);
            let line = |(line, text): (&rota_verbs::loops::TreeLine, &str)| Line {
                id: Some(line.task.task.id.to_string()),
                cells: vec![text.to_owned()],
                alarm: matches!(line.task.task.status.as_ref(), "failed" | "parked"),
            };
            data.lines = tree.loops.iter().zip(texts.lines()).map(line).collect();
            if let Some(id) = &wanted.task {
                data.footnote = blockers(backend, id);
            }
        }
        Pane::Log => {
            let tail = backend.ask(TailJournal { task: None, limit: EVENTS })?;
            let line = |event: &rota_verbs::log::EventPayload| Line {
                id: event.task.as_ref().map(ToString::to_string),
                cells: vec![output::log::line(event).trim_end().to_owned()],
                alarm: matches!(event.to.as_deref(), Some("failed" | "parked")),
            };
            data.lines = tail.events.iter().rev().map(line).collect();
        }
    }
    data.overview = Some(overview);
    Ok(data)
}

/// What a task waits for; nothing for one that is gone.
fn blockers(backend: &Backend, id: &str) -> Vec<String> {
    let deps = id.parse().map_err(CliError::from).and_then(|id| backend.ask(ShowDeps { id }));
    let Ok(deps) = deps else { return Vec::new() };
    let mut notes =
        vec![format!("{id} is blocked by: {}", if deps.blockers.is_empty() { "nothing" } else { "" })];
    notes.extend(
        output::show::deps(&deps)
            .lines()
            .filter(|_| !deps.blockers.is_empty())
            .map(|line| format!("  {line}")),
    );
    notes
}

/// What runs, of every queue.
fn fleet(
    backend: &Backend,
    folders: Option<&Folders>,
    queues: &[rota_verbs::overview::QueueOverview],
    now: UnixMillis,
) -> CliResult<Vec<Line>> {
    let mut lines = Vec::new();
    let busy = |name: &str| {
        queues
            .iter()
            .any(|queue| queue.queue == name && (queue.counts.get("active").is_some_and(|count| *count > 0)))
    };
    if busy("loops") {
        let running = backend.ask(ListLoops { status: Some(vec![Status::Active].into()), kind: None })?;
        lines.extend(running.loops.iter().map(|one| fleet_line(&one.task, folders, now)));
    }
    for queue in queues.iter().filter(|queue| queue.queue != "loops" && busy(&queue.queue)) {
        let (queue, status) = (QueueName::known(&queue.queue), Some(vec![Status::Active].into()));
        let running = backend.ask(ListTasks { queue, status, all: false, assignee: None })?;
        lines.extend(running.tasks.iter().map(|task| fleet_line(task, folders, now)));
    }
    Ok(lines)
}

fn fleet_line(task: &TaskPayload, folders: Option<&Folders>, now: UnixMillis) -> Line {
    let left = task.lease_expires_at.map_or(0, |until| until.get() - now.get());
    let said = folders.and_then(|folders| last_output(folders, task));
    let said = said.or_else(|| task.assignee.clone().map(|agent| format!("@{agent}"))).unwrap_or_default();
    Line {
        id: Some(task.id.to_string()),
        cells: vec![
            task.id.to_string(),
            task.kind.clone().unwrap_or_else(|| task.queue.to_string()),
            task.iteration.to_string(),
            task.started_at.map_or(String::new(), |since| span(now.get() - since.get())),
            if left > 0 { span(left) } else { "expired".to_owned() },
            said,
        ],
        alarm: left <= 0,
    }
}

/// The last line that an agent on this host has written.
fn last_output(folders: &Folders, task: &TaskPayload) -> Option<String> {
    let records = folders.find_records(&task.scope, &task.id, task.created_at, task.iteration).ok()?;
    let bytes = Dir::open(&records).ok()?.tail(OUTPUT, Owner::Any, TAIL_BYTES).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn queue(backend: &Backend, queue: &str) -> CliResult<Vec<Line>> {
    if queue == "loops" {
        let pending = backend.ask(ShowScheduler {})?;
        let line = |one: &rota_verbs::loops::PendingLoop| Line {
            id: Some(one.id.to_string()),
            cells: vec![
                one.id.to_string(),
                one.kind.clone().unwrap_or_default(),
                one.priority.to_string(),
                span(one.age_ms),
                one.depth.to_string(),
                one.iteration.to_string(),
                one.verdict(),
            ],
            alarm: false,
        };
        return Ok(pending.loops.iter().map(line).collect());
    }
    let plan = backend.ask(PlanLeases { queue: QueueName::known(queue), limit: Some(ENTRIES.into()) })?;
    let line = |id: &str, score: String, verdict: String| Line {
        id: Some(id.to_owned()),
        cells: vec![
            id.to_owned(),
            queue.to_owned(),
            score,
            String::new(),
            String::new(),
            String::new(),
            verdict,
        ],
        alarm: false,
    };
    let ready =
        plan.leases.iter().map(|lease| line(&lease.id, format!("p{}", lease.priority), "yes".to_owned()));
    let held = plan.skipped.iter().filter(|skipped| skipped.reason != "terminal");
    let held = held.map(|skipped| line(&skipped.id, String::new(), format!("no ({})", skipped.reason)));
    Ok(ready.chain(held).collect())
}

fn gate_line(block: &rota_verbs::overview::BlockPayload, now: UnixMillis) -> Line {
    let state = match (block.blocked, block.blocked_until) {
        (false, _) => "open".to_owned(),
        (true, Some(until)) => format!("blocked for {}", span(until.get() - now.get())),
        (true, None) => "blocked: rota gate unblock".to_owned(),
    };
    let reason = block.reason.clone().unwrap_or_default();
    Line {
        id: None,
        cells: vec![block.upstream.clone(), state, block.hits.to_string(), reason],
        alarm: block.blocked,
    }
}

fn budget_line(spent: &rota_verbs::overview::SpentBudget, now: UnixMillis) -> Line {
    let left = spent.until.map_or(String::new(), |until| format!(" for {}", span(until.get() - now.get())));
    let state = format!("budget spent{left}");
    Line {
        id: None,
        cells: vec![spent.upstream.clone(), state, String::new(), spent.budget.clone()],
        alarm: true,
    }
}

/// `5s`, `12m`, `3h`, `2d`.
pub fn span(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0) / 1_000;
    match seconds {
        0..=99 => format!("{seconds}s"),
        100..=5_999 => format!("{}m", seconds / 60),
        6_000..=359_999 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
