//! The loop manager: one task owns the state and a `LeaseHolder`; iterations run in tasks of their own and report.
//!
//! Everything that is due goes to the store in one transaction: renewals, the ends of iterations, new loops. A tick is such
//! a request that also looks whether leases have lapsed, which policy is in force and which tasks wait for an artifact; with
//! nothing due it is the only transaction. Ticks are driven by events (an iteration ends, the store changes, a request, a
//! signal), with polling only as the floor. Trouble with one loop is that loop's: it is failed or parked with the reason,
//! and the rest goes on.
//!
//! | to find out | look at |
//! |---|---|
//! | what is asked of the store, and what follows from the answer | `tick` |
//! | what follows an iteration | `settle` |
//! | what an earlier daemon left, and what becomes of it | `recover` |
//! | how many worktrees there may be, and what becomes of them | `worktrees` |
//! | what others are told | [`happening`] |

mod artifacts;
pub mod happening;
mod recover;
mod settle;
#[cfg(test)]
mod tests;
mod tick;
mod worktrees;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rota_core::obstacle::Wait;
use rota_core::{LeaseId, Refusal, TaskId};
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::iterate::{Backlog, BacklogCounts, Begin};
use rota_store::intents::policy::CurrentPolicy;
pub use rota_store::intents::read::LOOPS as QUEUE;
use rota_store::intents::upstreams::Upstreams;
use rota_store::{AnyStore, Error, Outcome, Published, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::changes::{Changes, at};
use crate::companion::{Companion, Held};
use crate::config::Config;
use crate::folders::Folders;
use crate::iteration::{Finished, Iteration};
use crate::lease_holder::{Lease, LeaseHolder};
use crate::publish::publish;
use crate::runner::environment::Environment;
use crate::runner::terminate::Urgency;
use crate::shim::attend::Shims;
use crate::signals::{Hangup, Signals};
use crate::worktree::Worktrees;
use happening::{Happening, RunningLoop, Status, TickFigures, UpstreamWait};
use settle::EndedIteration;
use worktrees::Removal;

/// Where the policy sets no ceiling, so many loops run at once on one host.
const DEFAULT_SLOTS: usize = 50;
/// How long people who ask what runs wait for what is counted in the store.
const COUNTING: Duration = Duration::from_secs(2);

/// Everything a daemon is started with.
pub struct Setup {
    /// Where tasks are kept.
    pub store: AnyStore,
    /// Scope and name.
    pub call: Call,
    /// This host.
    pub host: String,
    /// The configuration, as read.
    pub config: Config,
    /// Where it was read from.
    pub config_file: PathBuf,
    /// Where things are.
    pub folders: Folders,
    /// What every program sees of the store.
    pub environment: Environment,
    /// How long to run.
    pub until: Until,
    /// Whether what the file says about the policy is published.
    pub publish: bool,
    /// Whether ticks without news are told too.
    pub verbose: bool,
    /// Where the plain copy of a policy that was published goes.
    pub policy_copy: PathBuf,
    /// Who starts programs.
    pub shims: Shims,
    /// Who else wants to know which leases are held here.
    pub companions: Vec<Arc<dyn Companion>>,
    /// Whether a gateway counts the calls of agents; without one their loops are counted instead.
    pub has_gateway: bool,
    /// What is going on as far as it is known without the store, for whoever asks while the store is waited for.
    pub latest: watch::Sender<Option<Status>>,
}

/// How long to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Somebody stops it.
    Stopped,
    /// Nothing is left that could run.
    Idle,
    /// What the first tick began has ended.
    FirstTick,
}

/// What others ask of a running daemon.
#[derive(Debug)]
pub enum Request {
    /// What is going on.
    Status(oneshot::Sender<Status>),
    /// Stop.
    Down(Urgency),
    /// Read the configuration again; the answer is what is wrong with it.
    Reload(oneshot::Sender<Option<String>>),
    /// Something changed: look.
    Look,
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// What is in the queue now.
    pub counts: BacklogCounts,
    /// Whether a signal or a request ended it.
    pub stopped: bool,
    /// The worktrees that are still on disk, by name.
    pub kept_worktrees: Vec<String>,
}

/// Each loop as companions know it, and how its iteration ended.
type Holder = LeaseHolder<Held, EndedIteration>;

/// What an iteration's task reports.
struct Report {
    iteration: Iteration,
    finished: Finished,
}

/// The owner of it all.
struct Manager<'a> {
    setup: Setup,
    config: Arc<Config>,
    config_time: Option<SystemTime>,
    store: AnyStore,
    folders: Arc<Folders>,
    shims: Arc<Shims>,
    worktrees: Arc<Worktrees>,
    /// Worktrees of loops that have ended, being saved and removed.
    removals: JoinSet<Removal>,
    observe: Observer<'a>,
    holder: Holder,
    /// What the request in flight asked for besides.
    asked: Asked,
    reports: mpsc::UnboundedSender<Report>,
    policy: Arc<Published>,
    /// The kinds that may begin now.
    kinds: Vec<String>,
    /// Whether a tick is due. The request that settles an iteration begins the next loops too, so it asks for none.
    must_look: bool,
    /// Whether something that passes by itself keeps loops from beginning.
    is_held_back: bool,
    disk_is_low: bool,
    /// What held upstreams back at the last look, by upstream.
    upstream_waits: Vec<(String, Wait)>,
    artifacts_after: u64,
    /// Tasks whose artifact was seen, for the next request.
    triggered: Vec<TaskId>,
    /// Whether nothing was left that could run, as the last tick without leases saw it; none if none has looked since.
    is_idle: Option<bool>,
    /// How many loops were begun since the last tick that was told.
    begun: usize,
    /// Whether a loop was begun or ended since the last tick.
    has_news: bool,
    /// Open loops, and when they may be counted again.
    pending: Option<(Instant, u64)>,
    /// What the last tick that was news said, without what it selected.
    last_tick: Option<TickFigures>,
    has_ticked: bool,
    failed: Option<Error>,
}

/// What a request of the manager asked for.
#[derive(Default)]
struct Asked {
    /// The leases of the ends, in order.
    ends: Vec<LeaseId>,
    /// Whether it was a tick.
    is_tick: bool,
    /// The tasks whose artifact was seen.
    triggered: Vec<TaskId>,
}

/// Who is told what happens, and may ask what runs.
pub type Observer<'a> = &'a mut dyn FnMut(&Happening, &dyn Fn() -> Vec<RunningLoop>);

/// What runs, for people.
fn picture(holder: &Holder) -> Vec<RunningLoop> {
    let shown = |(lease, run): (&LeaseId, &Lease<Held, EndedIteration>)| RunningLoop {
        id: lease.task.to_string(),
        lease: lease.to_string(),
        title: run.run.task.title.to_string(),
        kind: run.run.task.kind.clone().unwrap_or_default(),
        iteration: run.run.task.iteration,
        running_secs: run.started.elapsed().as_secs(),
    };
    holder.iter().map(shown).collect()
}

/// Runs until told to stop, or for as long as the setup says.
pub async fn run(
    setup: Setup,
    mut requests: mpsc::Receiver<Request>,
    observe: Observer<'_>,
) -> Outcome<Ending> {
    let mut changes = Changes::watch(&setup.store).await?;
    let wrong = |error: std::io::Error| Refusal::BadValue { problem: format!("signals: {error}") };
    let mut signals = Signals::catch(Hangup::IsOther).map_err(wrong)?;
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map_err(wrong)?;
    let (reports, mut reported) = mpsc::unbounded_channel();
    let mut manager = Manager::new(setup, reports, observe).await?;
    manager.config_time = manager.modified();
    manager.publish_policy().await?;
    manager.recover().await?;
    loop {
        manager.send_due().await;
        if manager.is_over() {
            break;
        }
        let is_free = manager.holder.is_free();
        let moment = manager.holder.next_moment(manager.must_look, None);
        let poll = manager.config.poll_interval;
        manager.show_latest();
        tokio::select! {
            Some(report) = reported.recv() => {
                manager.ended(report).await;
                while let Ok(report) = reported.try_recv() {
                    manager.ended(report).await;
                }
            }
            (request, answer) = manager.holder.answer() => manager.heard(request, answer).await,
            urgency = signals.next() => manager.stop(urgency),
            _ = hangup.recv() => {
                manager.reload().await;
                manager.must_look = true;
            }
            Some(request) = requests.recv() => {
                manager.answer(request).await;
                manager.must_look = true;
            }
            Some(removed) = manager.removals.join_next() => manager.removed(removed),
            () = at(moment), if is_free => {}
            () = changes.wait(poll), if is_free => manager.must_look = true,
        }
    }
    manager.end().await
}

impl<'a> Manager<'a> {
    async fn new(
        setup: Setup,
        reports: mpsc::UnboundedSender<Report>,
        observe: Observer<'a>,
    ) -> Outcome<Self> {
        // It asks again by itself, and has agents and people to attend to meanwhile.
        let store = setup.store.clone().impatient();
        let (policy, _) = store.perform(&CurrentPolicy { call: setup.call.clone() }).await?;
        let folders = Arc::new(setup.folders.clone());
        Ok(Self {
            config: Arc::new(setup.config.clone()),
            config_time: None,
            worktrees: Arc::new(Worktrees::find(Arc::clone(&folders)).await),
            removals: JoinSet::new(),
            folders,
            shims: Arc::new(setup.shims.clone()),
            holder: LeaseHolder::new(store.clone()),
            asked: Asked::default(),
            store,
            observe,
            reports,
            policy,
            kinds: Vec::new(),
            must_look: true,
            is_held_back: false,
            disk_is_low: false,
            upstream_waits: Vec::new(),
            artifacts_after: 0,
            triggered: Vec::new(),
            is_idle: None,
            begun: 0,
            has_news: false,
            pending: None,
            last_tick: None,
            has_ticked: false,
            failed: None,
            setup,
        })
    }
}

impl Manager<'_> {
    fn tell(&mut self, happening: Happening) {
        let holder = &self.holder;
        (self.observe)(&happening, &|| picture(holder));
    }

    fn slots(&self) -> usize {
        let ceiling = self.policy.policy.queue(QUEUE).max_concurrent;
        ceiling.map_or(DEFAULT_SLOTS, |ceiling| ceiling as usize)
    }

    /// The loops that may begin, up to the number of free places; of no kinds while nothing may begin.
    fn next(&self) -> Begin {
        let is_stopping = self.holder.stopping().is_some();
        let has_begun_all = self.has_ticked && self.setup.until == Until::FirstTick;
        let may = !is_stopping && !has_begun_all;
        let kinds = if may { self.kinds.clone() } else { Vec::new() };
        self.begin_up_to(self.slots().saturating_sub(self.holder.len()), kinds)
    }

    /// No loops.
    fn nothing(&self) -> Begin {
        self.begin_up_to(0, Vec::new())
    }

    fn begin_up_to(&self, limit: usize, kinds: Vec<String>) -> Begin {
        let claim = Claim {
            call: self.setup.call.clone(),
            queue: QUEUE.to_owned(),
            limit,
            agent: self.setup.call.actor.clone(),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: Some(self.setup.host.clone()),
        };
        let of_kind = self.config.loops.iter();
        let of_kind = of_kind.map(|(name, kind)| (name.clone(), kind.uses_api.clone())).collect();
        Begin {
            upstreams: Upstreams { of_kind, bounds_loops: !self.setup.has_gateway },
            artifacts: Some(self.artifact_check()),
            worktrees: Some(self.worktree_limit()),
            ..Begin::new(claim, kinds, !self.config.shared_folder)
        }
    }

    /// Stops a run whose lease is gone.
    fn lapse(&mut self, lease: &LeaseId, why: String) {
        let Some(run) = self.holder.get_mut(lease) else { return };
        run.is_held = false;
        run.orders.end(Urgency::Ask);
        self.tell(Happening::Lapsed { id: lease.task.to_string(), why });
    }

    /// What may pass is told and tried again; anything else ends the daemon.
    fn trouble(&mut self, error: Error) {
        self.tell(Happening::Trouble { problem: error.to_string() });
        if !matches!(&error, Error::Fault(fault) if fault.exit_code() == 75) {
            self.failed.get_or_insert(error);
            self.stop(Urgency::Ask);
        }
    }

    fn stop(&mut self, urgency: Urgency) {
        if self.holder.stopping().is_none() {
            self.tell(Happening::Stopping);
        }
        self.holder.stop(urgency);
    }

    async fn answer(&mut self, request: Request) {
        match request {
            Request::Status(to) => {
                // A store that is away must not keep people from seeing what runs.
                let counted = tokio::time::timeout(COUNTING, self.counts(true)).await;
                let mut status = self.status(&counted.ok().flatten().unwrap_or_default());
                status.kept_worktrees = self.kept_worktrees().await;
                // Whoever asked may have gone.
                let _told = to.send(status);
            }
            Request::Down(urgency) => self.stop(urgency),
            Request::Reload(to) => {
                let problem = self.reload().await;
                let _told = to.send(problem);
            }
            Request::Look => {}
        }
    }

    fn status(&self, counts: &BacklogCounts) -> Status {
        let is_stopping = self.holder.stopping().is_some();
        let mut status = Status::new(counts, picture(&self.holder), self.slots(), is_stopping);
        let shown = |(upstream, wait): &(String, Wait)| UpstreamWait {
            upstream: upstream.clone(),
            wait: wait.clone(),
        };
        status.waits = self.upstream_waits.iter().map(shown).collect();
        status
    }

    fn show_latest(&self) {
        self.setup.latest.send_replace(Some(self.status(&BacklogCounts::default())));
    }

    async fn counts(&mut self, whole: bool) -> Option<BacklogCounts> {
        let backlog = Backlog { call: self.setup.call.clone(), queue: QUEUE.to_owned(), whole };
        match self.store.perform(&backlog).await {
            Ok(counts) => Some(counts),
            Err(error) => {
                self.trouble(error);
                None
            }
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.setup.config_file).and_then(|data| data.modified()).ok()
    }

    /// Reads the configuration again; a bad one is refused and the old one stays.
    async fn reload(&mut self) -> Option<String> {
        self.config_time = self.modified();
        let read = Config::read_if_there(&self.setup.config_file).map_err(|error| error.to_string());
        let problem = match read {
            Ok(config) => {
                let before = std::mem::replace(&mut self.config, Arc::new(config.unwrap_or_default()));
                match self.publish_policy().await {
                    Ok(()) => None,
                    Err(error) => {
                        self.config = before;
                        Some(error.to_string())
                    }
                }
            }
            Err(problem) => Some(problem),
        };
        self.tell(match &problem {
            None => Happening::Reloaded,
            Some(problem) => Happening::NotReloaded { problem: problem.clone() },
        });
        problem
    }

    /// Publishes what the file says about the policy, or says that it differs.
    async fn publish_policy(&mut self) -> Outcome<()> {
        let Setup { store, call, publish: may_publish, policy_copy, .. } = &self.setup;
        let published = publish(store, call, &self.config, *may_publish, policy_copy).await?;
        self.policy = published.policy;
        if let Some(changes) = published.differs {
            self.tell(Happening::PolicyDiffers { version: self.policy.version.clone(), changes });
        }
        if let Some(error) = published.not_mirrored {
            self.tell(Happening::Trouble { problem: format!("published, but not mirrored: {error}") });
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        if !self.holder.is_free() || !self.holder.is_empty() {
            return false;
        }
        if self.holder.stopping().is_some() {
            return true;
        }
        if !self.removals.is_empty() {
            return false;
        }
        match self.setup.until {
            Until::Stopped => false,
            Until::FirstTick => self.has_ticked,
            Until::Idle => self.is_idle == Some(true),
        }
    }

    async fn end(mut self) -> Outcome<Ending> {
        self.finish_removals().await;
        if let Some(error) = self.failed {
            return Err(error);
        }
        // A store that is away is not waited for once more.
        let counts = if self.holder.is_away() { None } else { self.counts(true).await };
        let kept_worktrees = self.kept_worktrees().await;
        let is_stopped = self.holder.stopping().is_some();
        Ok(Ending { counts: counts.unwrap_or_default(), stopped: is_stopped, kept_worktrees })
    }
}
