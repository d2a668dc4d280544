//! The loop manager: one task owns the state and talks to the store; iterations run in tasks of their own and report.
//!
//! A tick looks after what is under way, re-checks artifacts, and begins what may begin. It is driven by events (an
//! iteration ends, the store changes, a request, a signal), with polling only as the floor. Trouble with one loop is
//! that loop's: it is failed or parked with the reason, and the rest goes on.
//!
//! | to find out | look at |
//! |---|---|
//! | what a tick does | `tick` |
//! | what follows an iteration | `settle` |
//! | what an earlier daemon left, and what becomes of it | `recover` |
//! | how many worktrees there may be, and what becomes of them | `worktrees` |
//! | what others are told | [`happening`] |

mod artifacts;
pub mod happening;
mod recover;
mod settle;
mod tick;
mod worktrees;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rota_core::obstacle::Wait;
use rota_core::transition::Command;
use rota_core::{Caller, LeaseId, Refusal};
use rota_store::intents::Call;
use rota_store::intents::claim::{ArtifactCheck, Claim, Wanted};
use rota_store::intents::iterate::{Backlog, BacklogCounts, Begin};
use rota_store::intents::policy::CurrentPolicy;
pub use rota_store::intents::read::LOOPS as QUEUE;
use rota_store::intents::settle::{Settle, Step};
use rota_store::intents::upstreams::Upstreams;
use rota_store::{AnyStore, Error, Outcome, Published, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::changes::{Changes, at};
use crate::companion::{Companion, Held};
use crate::config::Config;
use crate::folders::{Folders, Place};
use crate::iteration::{Finished, Iteration};
use crate::publish::publish;
use crate::runner::environment::Environment;
use crate::runner::terminate::Urgency;
use crate::shim::attend::Shims;
use crate::shim::orders::OrderSender;
use crate::signals::{Hangup, Signals};
use crate::tenure::{HeldLease, Renewal, Sent};
use crate::worktree::Worktrees;
use happening::{Happening, RunningLoop, Status, TickFigures, UpstreamWait};
use settle::Unsettled;
use worktrees::Removal;

/// Where the policy sets no ceiling, so many loops run at once on one host.
const DEFAULT_SLOTS: usize = 50;
/// How long at most until a renewal that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

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

/// An iteration under way.
struct Running {
    orders: OrderSender,
    started: Instant,
    held: Held,
    lease: HeldLease,
    is_lapsed: bool,
}

impl Running {
    /// The lease was granted or renewed.
    fn extend(&mut self, lease: HeldLease) {
        self.lease = lease;
        self.orders.extend(lease.tenure);
    }

    fn end(&self, urgency: Urgency) {
        self.orders.end(urgency);
    }
}

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
    running: BTreeMap<LeaseId, Running>,
    reports: mpsc::UnboundedSender<Report>,
    policy: Arc<Published>,
    /// The kinds that may begin now.
    kinds: Vec<String>,
    /// Whether a tick is due. A loop that completes begins the next ones in its own transaction, so it asks for none.
    must_look: bool,
    /// Whether something that passes by itself keeps loops from beginning.
    is_held_back: bool,
    disk_is_low: bool,
    /// What held upstreams back at the last look, by upstream.
    upstream_waits: Vec<(String, Wait)>,
    artifacts_after: u64,
    /// How many loops were begun since the last tick that was told.
    begun: usize,
    /// Whether a loop was begun or ended since the last tick.
    has_news: bool,
    /// Open loops, and when they may be counted again.
    pending: Option<(Instant, u64)>,
    /// What the last tick that was news said, without what it selected.
    last_tick: Option<TickFigures>,
    stopping: Option<Urgency>,
    has_ticked: bool,
    failed: Option<Error>,
    /// Iterations that have ended while the store was away, and when it is asked again.
    unsettled: Vec<Unsettled>,
    ask_again_at: Instant,
    /// Whether the store did not answer the last time that something was settled.
    is_away: bool,
}

/// Who is told what happens, and may ask what runs.
pub type Observer<'a> = &'a mut dyn FnMut(&Happening, &dyn Fn() -> Vec<RunningLoop>);

/// What runs, for people.
fn picture(running: &BTreeMap<LeaseId, Running>) -> Vec<RunningLoop> {
    let shown = |(lease, run): (&LeaseId, &Running)| RunningLoop {
        id: lease.task.to_string(),
        lease: lease.to_string(),
        title: run.held.task.title.to_string(),
        kind: run.held.task.kind.clone().unwrap_or_default(),
        iteration: run.held.task.iteration,
        running_secs: run.started.elapsed().as_secs(),
    };
    running.iter().map(shown).collect()
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
        if std::mem::take(&mut manager.must_look) {
            let begun = Instant::now();
            manager.tick().await;
            let took = begun.elapsed();
            manager.setup.companions.iter().for_each(|companion| companion.ticked(took));
        }
        if manager.is_over().await {
            break;
        }
        let (renewal, settlement) = (manager.next_renewal(), manager.next_settlement());
        let poll = manager.config.poll_interval;
        manager.show_latest();
        tokio::select! {
            Some(report) = reported.recv() => {
                manager.is_away = false;
                manager.settle(report).await;
                while let Ok(report) = reported.try_recv() {
                    manager.settle(report).await;
                }
            }
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
            () = at(settlement) => manager.settle_again().await,
            () = at(renewal) => manager.renew().await,
            () = changes.wait(poll) => manager.must_look = true,
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
            store,
            observe,
            running: BTreeMap::new(),
            reports,
            policy,
            kinds: Vec::new(),
            must_look: true,
            is_held_back: false,
            disk_is_low: false,
            upstream_waits: Vec::new(),
            artifacts_after: 0,
            begun: 0,
            has_news: false,
            pending: None,
            last_tick: None,
            stopping: None,
            has_ticked: false,
            failed: None,
            unsettled: Vec::new(),
            ask_again_at: Instant::now(),
            is_away: false,
            setup,
        })
    }
}

impl Manager<'_> {
    fn tell(&mut self, happening: Happening) {
        let running = &self.running;
        (self.observe)(&happening, &|| picture(running));
    }

    fn slots(&self) -> usize {
        let ceiling = self.policy.policy.queue(QUEUE).max_concurrent;
        ceiling.map_or(DEFAULT_SLOTS, |ceiling| ceiling as usize)
    }

    /// What to begin, if anything may, once so many of those that run have ended.
    fn next(&self, ending: usize) -> Option<Begin> {
        let limit = (self.slots() + ending).saturating_sub(self.running.len());
        let (limit, kinds) = self.under_worktree_ceiling(limit, 0);
        let begin = self.begin_up_to(limit, kinds);
        (begin.claim.limit > 0 && !begin.kinds.is_empty()).then_some(begin)
    }

    /// What may begin in the place of a loop whose iteration did not pass, itself included.
    fn next_beside(&self, iteration: &Iteration) -> Begin {
        let limit = (self.slots() + 1).saturating_sub(self.running.len());
        let (limit, kinds) = self.under_worktree_ceiling(limit, usize::from(iteration.kind.worktree));
        self.begin_up_to(limit, kinds)
    }

    /// Begins so many loops of these kinds; of none while nothing may begin.
    fn begin_up_to(&self, limit: usize, kinds: Vec<String>) -> Begin {
        let may = self.stopping.is_none() && !(self.has_ticked && self.setup.until == Until::FirstTick);
        let kinds = if may { kinds } else { Vec::new() };
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
        let folders = Arc::clone(&self.folders);
        Begin {
            upstreams: Upstreams { of_kind, bounds_loops: !self.setup.has_gateway },
            artifacts: Some(ArtifactCheck::by(move |task, parent| {
                folders.has_artifact(task, parent.map(Place::of).as_ref())
            })),
            ..Begin::new(claim, kinds, !self.config.shared_folder)
        }
    }

    fn next_renewal(&self) -> Option<Instant> {
        let held = self.running.values().filter(|run| !run.is_lapsed);
        held.map(|run| run.orders.next_step_at(&run.lease)).min()
    }

    /// Extends the leases that are due; what lost its lease is stopped before its result could count. After we were
    /// stopped or suspended for too long nothing is extended: its shim has ended it, and somebody else may have it.
    async fn renew(&mut self) {
        let sent = Sent::now();
        let due = self.due_renewals(sent);
        if due.is_empty() {
            return;
        }
        let step = |lease: &LeaseId| Step {
            id: lease.task.clone(),
            command: Command::Renew { caller: Caller::lease(lease.clone()), ttl_ms: None },
        };
        let steps = due.iter().map(step).collect();
        let renewed = self.store.perform(&Settle { call: self.setup.call.clone(), steps, then: None }).await;
        let answers = match renewed {
            Ok(settled) => settled.steps,
            Err(error) => {
                for lease in &due {
                    if let Some(run) = self.running.get_mut(lease) {
                        let left = run.lease.expires_at.saturating_duration_since(sent.at);
                        run.lease.renew_at = sent.at + (left / 8).clamp(Duration::from_millis(10), RETRY);
                    }
                }
                return self.trouble(error);
            }
        };
        for (lease, answer) in due.into_iter().zip(answers) {
            match (answer, self.running.get_mut(&lease)) {
                (Ok(task), Some(run)) => run.extend(HeldLease::of(&task, sent)),
                (Err(refusal), Some(_)) => self.lapse(&lease, refusal.to_string()),
                (_, None) => {}
            }
        }
    }

    /// The leases that may be renewed now. One that is due and whose shim does not answer runs out.
    fn due_renewals(&mut self, sent: Sent) -> Vec<LeaseId> {
        let (mut due, mut stale, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (lease, run) in self.running.iter_mut().filter(|(_, run)| !run.is_lapsed) {
            let is_stale = run.lease.is_stale(sent) && run.lease.renew_at <= sent.at;
            match run.orders.renewal(&mut run.lease, sent.at) {
                _ if is_stale => stale.push(lease.clone()),
                Renewal::NotYet => {}
                Renewal::Due => due.push(lease.clone()),
                Renewal::Silent => silent.push(lease.clone()),
            }
        }
        for lease in stale {
            self.lapse(&lease, "it was not renewed in time".to_owned());
        }
        for lease in silent {
            let problem = format!("{}: its shim does not answer, so its lease is not renewed", lease.task);
            self.tell(Happening::Trouble { problem });
        }
        due
    }

    /// Stops a run whose lease is gone.
    fn lapse(&mut self, lease: &LeaseId, why: String) {
        let Some(run) = self.running.get_mut(lease) else { return };
        run.is_lapsed = true;
        run.end(Urgency::Ask);
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
        if self.stopping.is_none() {
            self.tell(Happening::Stopping);
        }
        self.stopping = self.stopping.max(Some(urgency));
        for run in self.running.values() {
            run.end(urgency);
        }
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
        let mut status = Status::new(counts, picture(&self.running), self.slots(), self.stopping.is_some());
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

    async fn is_over(&mut self) -> bool {
        if !self.running.is_empty() {
            return false;
        }
        if self.stopping.is_some() {
            return true;
        }
        if !self.removals.is_empty() {
            return false;
        }
        match self.setup.until {
            Until::Stopped => false,
            Until::FirstTick => true,
            Until::Idle => {
                let Some(counts) = self.counts(false).await else { return false };
                let is_held = self.is_held_back && counts.runnable > 0;
                counts.cooling_until.is_none() && counts.active.is_empty() && !is_held
            }
        }
    }

    async fn end(mut self) -> Outcome<Ending> {
        self.finish_removals().await;
        if let Some(error) = self.failed {
            return Err(error);
        }
        // A store that is away is not waited for once more.
        let counts = if self.is_away { None } else { self.counts(true).await };
        let kept_worktrees = self.kept_worktrees().await;
        Ok(Ending { counts: counts.unwrap_or_default(), stopped: self.stopping.is_some(), kept_worktrees })
    }
}
