//! `rota supervise`: governed cycles over an issue tracker, one after the other, each bounded in time. The lease in the
//! store is the lock, the label its mirror; the state file says where the cycles stand. What a cycle prints, keeps and
//! sleeps is decided by [`cycle`].

mod answers;
mod claim;
pub mod configured;
pub mod cycle;
mod dispatch;
pub mod environment;
mod git;
pub mod governance;
pub mod inspect;
mod reconcile;
mod result;
mod rivals;
pub mod sources;
pub mod state_file;
mod turn;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cycle::lines::Summary;
use crate::cycle::{Cycle, Ended, Ending, FailureCode, Settings, State};
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, UnixMillis};
use rota_store::intents::Call;
use rota_store::intents::issues::{EditIssue, Guard, NoteChange, SeenBoard};
use rota_store::{AnyStore, Error, Store};
use tokio::sync::{OnceCell, mpsc};
use tokio::time::Instant;

use crate::sources::{Source, Trouble};
use governance::{Files, Rules};
use rota_daemon::config::{LoopKind, SupervisorConfig};
use rota_daemon::folders::Folders;
use rota_daemon::signals::Signals;
use state_file::{StateError, StateFile};
use turn::Turn;

/// How long the lease of a cycle that was cut off may take to be given back.
const ABANDON: Duration = Duration::from_secs(5);

/// What every cycle works with.
pub struct Shared<S> {
    /// The store.
    pub store: AnyStore,
    /// Where, when, who.
    pub call: Call,
    /// Who holds the leases.
    pub agent: String,
    /// Where issues come from.
    pub source: S,
    /// What the supervisor goes by.
    pub config: SupervisorConfig,
    /// How the loops that issues become are run.
    pub kind: LoopKind,
    /// Where the daemon of this workspace keeps the worktrees of loops, if they may have some.
    pub folders: Option<Folders>,
    /// Where the configuration is: paths count from here.
    pub folder: PathBuf,
    rules: Rules,
    held: Mutex<Option<LeaseId>>,
    pin: Mutex<Option<Files>>,
    /// Whether anybody can open issues in the repository, as the tracker said last.
    is_public: AtomicBool,
    /// This store's name among the supervisors of the tracker.
    identity: OnceCell<String>,
    /// Issues that supervisors with other stores have, and until when they are not looked at again.
    elsewhere: Mutex<BTreeMap<u64, Instant>>,
}

impl<S: Source> Shared<S> {
    /// Fails on a pattern that cannot be used.
    pub fn new(
        store: AnyStore,
        call: Call,
        agent: String,
        source: S,
        config: SupervisorConfig,
        folder: PathBuf,
    ) -> Result<Self, regex::Error> {
        let rules = Rules::new(&config.governance)?;
        Ok(Self {
            store,
            call,
            agent,
            source,
            config,
            kind: LoopKind::default(),
            folders: None,
            folder,
            rules,
            held: Mutex::default(),
            pin: Mutex::default(),
            is_public: AtomicBool::new(false),
            identity: OnceCell::new(),
            elsewhere: Mutex::default(),
        })
    }

    fn note_public(&self, is_public: bool) {
        self.is_public.store(is_public, Ordering::Relaxed);
    }

    fn is_public(&self) -> bool {
        self.is_public.load(Ordering::Relaxed)
    }

    /// Whether anybody could have an issue of theirs selected.
    fn is_open_to_everybody(&self) -> bool {
        self.is_public() && self.config.filters.is_empty()
    }

    fn now(&self) -> UnixMillis {
        self.call.now.unwrap_or_else(rota_store::clock::system_now)
    }

    /// The lease of a claim under way, to be given back if the cycle is cut off.
    fn hold(&self, lease: Option<LeaseId>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = lease;
    }

    fn remember_pin(&self, pin: &Files) {
        *self.pin.lock().unwrap_or_else(PoisonError::into_inner) = Some(pin.clone());
    }

    fn remembered_pin(&self) -> Option<Files> {
        self.pin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the lease of a claim back that was cut off. What fails here is found by the next cycle.
    async fn abandon(&self, reason: &str) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lease) = held else { return };
        let fail = Command::Fail {
            caller: Caller::lease(lease.clone()),
            reason: Some(reason.to_owned()),
            default_reason: FAILED_REASON,
        };
        let edit = EditIssue {
            call: self.call.clone(),
            id: lease.task.clone(),
            guard: Guard::Lease(lease),
            command: Some(fail),
            changes: vec![NoteChange::LabelLeaving { by: self.agent.clone() }],
        };
        // A task of its own: a file that is busy keeps its task, and with it the limit, waiting.
        let store = self.store.clone();
        let edited = tokio::spawn(async move { store.perform(&edit).await });
        let _healed_later = tokio::time::timeout(ABANDON, edited).await;
    }
}

/// What ends a cycle before its end.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The store.
    #[error(transparent)]
    Store(#[from] Error),
    /// The tracker.
    #[error(transparent)]
    Tracker(#[from] Trouble),
    /// git.
    #[error("{0}")]
    Git(std::io::Error),
}

/// What the outside is told while cycles run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Lines of the cycle under way.
    Lines(Vec<String>),
    /// A cycle has ended.
    Cycle(Box<Summary>),
    /// Something a person may want to know.
    Warning(String),
    /// A line for stderr that is no warning.
    Notice(String),
}

/// Tells the outside; false if nobody listens any longer.
pub type Teller<'a> = dyn FnMut(Told) -> bool + Send + 'a;

/// When to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// After so many cycles.
    Cycles(u64),
    /// At a signal.
    Stopped,
}

/// What asks the supervisor to end: the first time after the cycle under way, the second time at once.
pub enum Stop {
    /// Signals to this process.
    Signals(Signals),
    /// The daemon it runs in.
    Channel(mpsc::Receiver<()>),
}

impl Stop {
    /// Waits for the next request. A daemon that is gone has asked for the end.
    pub async fn next(&mut self) {
        match self {
            Self::Signals(signals) => drop(signals.next().await),
            Self::Channel(receiver) => drop(receiver.recv().await),
        }
    }
}

/// Runs cycles until it is told to end, or may not go on. Returns why the last cycle claimed nothing.
pub async fn run<S: Source>(
    shared: Arc<Shared<S>>,
    file: &StateFile,
    until: Until,
    stop: &mut Stop,
    tell: &mut Teller<'_>,
) -> Result<Option<FailureCode>, StateError> {
    let mut state = file.read_or_make(shared.config.cycle_interval_secs)?;
    let mut left = until;
    loop {
        let mut asked = 0;
        let ended = {
            let mut cycle = std::pin::pin!(one_cycle(&shared, state, tell));
            loop {
                tokio::select! {
                    ended = &mut cycle => break Some(ended),
                    () = stop.next() => asked += 1,
                }
                // The cycle is bounded: the first request lets it end, the second does not.
                if asked > 1 {
                    break None;
                }
            }
        };
        let Some(ended) = ended else { return Ok(Some(FailureCode::Exception)) };
        let (code, sleep_secs) = (ended.code, ended.sleep_secs);
        let is_heard = conclude(file, ended.clone(), tell)?;
        state = ended.state;
        if let Until::Cycles(count) = &mut left {
            *count = count.saturating_sub(1);
        }
        if asked > 0 || left == Until::Cycles(0) || !is_heard {
            return Ok(code);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(sleep_secs)) => {}
            () = stop.next() => return Ok(code),
        }
    }
}

/// Writes the state of a cycle that has ended and reports its last lines; false if nobody listens any longer.
fn conclude(file: &StateFile, ended: Ended, tell: &mut Teller<'_>) -> Result<bool, StateError> {
    file.write(&ended.state)?;
    Ok(tell(Told::Lines(ended.lines)) && tell(Told::Cycle(Box::new(ended.summary))))
}

/// A cycle that failed before its first step, because the store cannot be opened. Returns how long to sleep, or none
/// if nobody listens any longer.
pub fn cycle_without_store(
    file: &StateFile,
    config: &SupervisorConfig,
    problem: &str,
    tell: &mut Teller<'_>,
) -> Result<Option<Duration>, StateError> {
    let before = file.read_or_make(config.cycle_interval_secs)?;
    let mut cycle = Cycle::begin(before, settings(config), rota_store::clock::system_now());
    tell(Told::Lines(cycle.take_lines()));
    tell(Told::Warning(problem.to_owned()));
    let ended = cycle.end(Ending::Exception);
    let sleep = Duration::from_secs(ended.sleep_secs);
    Ok(conclude(file, ended, tell)?.then_some(sleep))
}

fn settings(config: &SupervisorConfig) -> Settings {
    Settings { interval_secs: config.cycle_interval_secs, claim_label: config.claim_label.clone() }
}

/// One cycle, cut off when its time is up. Its last lines are told by the caller, once the state is kept.
pub async fn one_cycle<S: Source>(shared: &Arc<Shared<S>>, before: State, tell: &mut Teller<'_>) -> Ended {
    let cycle = Arc::new(Mutex::new(Cycle::begin(before, settings(&shared.config), shared.now())));
    let (told, mut news) = mpsc::unbounded_channel();
    let turn = Turn {
        shared: Arc::clone(shared),
        cycle: Arc::clone(&cycle),
        told,
        board: SeenBoard { now: shared.now(), issues: Vec::new(), is_full: false, lease_ms: 0 },
        has_looked: false,
        open: Arc::default(),
        relabelled: Vec::new(),
        chosen: None,
    };
    shared.hold(None);
    let limit = Duration::from_secs(shared.config.cycle_max_runtime_secs);
    let mut task = AbortOnDrop(tokio::spawn(turn.run()));
    let mut deadline = std::pin::pin!(tokio::time::sleep(limit));
    let ending = loop {
        tokio::select! {
            biased;
            Some(news) = news.recv() => drop(tell(news)),
            ran = &mut task.0 => break match ran {
                Ok(Ok(())) => Ending::Complete,
                Ok(Err(broken)) => {
                    tell(Told::Warning(broken.to_string()));
                    Ending::Exception
                }
                Err(error) => {
                    tell(Told::Warning(format!("the cycle broke: {error}")));
                    Ending::Exception
                }
            },
            () = &mut deadline => {
                tell(Told::Warning(format!("the cycle was cut off after {} s", limit.as_secs())));
                break Ending::RuntimeExceeded;
            }
        }
    };
    drop(task);
    while let Ok(news) = news.try_recv() {
        tell(news);
    }
    match ending {
        Ending::Complete => {}
        Ending::RuntimeExceeded => shared.abandon("claim cut off: the cycle exceeded its runtime").await,
        Ending::Exception => shared.abandon("claim cut off: the cycle broke").await,
    }
    let cycle = cycle.lock().unwrap_or_else(PoisonError::into_inner).clone();
    cycle.end(ending)
}

/// A task that does not outlive whoever waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
