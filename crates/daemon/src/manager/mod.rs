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
//! | what others are told | [`happening`] |

pub mod happening;
mod recover;
mod settle;
mod tick;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rota_core::transition::Command;
use rota_core::{Caller, LeaseId, Refusal};
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Wanted};
use rota_store::intents::iterate::{Backlog, BacklogCounts, Begin};
use rota_store::intents::policy::{CurrentPolicy, PublishPolicy};
pub use rota_store::intents::read::LOOPS as QUEUE;
use rota_store::intents::settle::{Settle, Step};
use rota_store::{AnyStore, Error, Outcome, Published};
use rota_verbs::{Context, mirror};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::changes::{Changes, at};
use crate::companion::{Companion, Held};
use crate::config::Config;
use crate::desk::Desk;
use crate::folders::Folders;
use crate::iteration::{Finished, Iteration};
use crate::runner::environment::Environment;
use crate::runner::terminate::Urgency;
use crate::shim::attend::Shims;
use crate::shim::orders::Orders;
use crate::signals::{Hangup, Signals};
use crate::tenure::{HeldLease, Sent};
use happening::{Happening, RunningLoop, Status};
use settle::Unsettled;

/// Where the policy sets no ceiling, so many loops run at once on one host.
const DEFAULT_SLOTS: usize = 50;
/// How often a policy is published anew when others publish at the same time.
const PUBLISH_TRIES: u32 = 5;
/// How long at most until a renewal that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

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
}

/// An iteration under way.
struct Running {
    orders: watch::Sender<Orders>,
    started: Instant,
    held: Held,
    lease: HeldLease,
    is_lapsed: bool,
}

impl Running {
    /// The lease was granted or renewed.
    fn extend(&mut self, lease: HeldLease) {
        self.lease = lease;
        self.orders.send_modify(|orders| orders.until = lease.tenure);
    }

    fn end(&self, urgency: Urgency) {
        self.orders.send_modify(|orders| orders.end = orders.end.max(Some(urgency)));
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
    desk: Desk,
    folders: Arc<Folders>,
    shims: Arc<Shims>,
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
    artifacts_after: u64,
    /// How many loops were begun since the last tick that was told, and whether any ended.
    begun: usize,
    has_news: bool,
    /// Open loops, and when they were counted.
    pending: Option<(Instant, u64)>,
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
        let desk = Desk { store: setup.store.clone() };
        let (policy, _) = desk.perform(CurrentPolicy { call: setup.call.clone() }).await?;
        Ok(Self {
            config: Arc::new(setup.config.clone()),
            config_time: None,
            folders: Arc::new(setup.folders.clone()),
            shims: Arc::new(setup.shims.clone()),
            desk,
            observe,
            running: BTreeMap::new(),
            reports,
            policy,
            kinds: Vec::new(),
            must_look: true,
            is_held_back: false,
            disk_is_low: false,
            artifacts_after: 0,
            begun: 0,
            has_news: false,
            pending: None,
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
        let may = self.stopping.is_none() && !(self.has_ticked && self.setup.until == Until::FirstTick);
        if !may || limit == 0 || self.kinds.is_empty() {
            return None;
        }
        let claim = Claim {
            call: self.setup.call.clone(),
            queue: QUEUE.to_owned(),
            limit,
            agent: self.setup.call.actor.clone(),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: Some(self.setup.host.clone()),
        };
        Some(Begin { claim, kinds: self.kinds.clone(), binds_host: !self.config.shared_folder })
    }

    fn next_renewal(&self) -> Option<Instant> {
        self.running.values().filter(|run| !run.is_lapsed).map(|run| run.lease.renew_at).min()
    }

    /// Extends the leases that are due; what lost its lease is stopped before its result could count. After we were
    /// stopped or suspended for too long nothing is extended: its shim has ended it, and somebody else may have it.
    async fn renew(&mut self) {
        let sent = Sent::now();
        let due = |run: &Running| !run.is_lapsed && run.lease.renew_at <= sent.at;
        let due: Vec<(LeaseId, bool)> = self
            .running
            .iter()
            .filter(|(_, run)| due(run))
            .map(|(lease, run)| (lease.clone(), run.lease.is_stale(sent)))
            .collect();
        let (stale, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, is_stale)| *is_stale);
        for (lease, _) in stale {
            self.lapse(&lease, "it was not renewed in time".to_owned());
        }
        if due.is_empty() {
            return;
        }
        let step = |(lease, _): &(LeaseId, bool)| Step {
            id: lease.task.clone(),
            command: Command::Renew { caller: Caller::lease(lease.clone()), ttl_ms: None },
        };
        let steps = due.iter().map(step).collect();
        let renewed = self.desk.perform(Settle { call: self.setup.call.clone(), steps, then: None }).await;
        let answers = match renewed {
            Ok(settled) => settled.steps,
            Err(error) => {
                for (lease, _) in &due {
                    if let Some(run) = self.running.get_mut(lease) {
                        let left = run.lease.expires_at.saturating_duration_since(sent.at);
                        run.lease.renew_at = sent.at + (left / 8).clamp(Duration::from_millis(10), RETRY);
                    }
                }
                return self.trouble(error);
            }
        };
        for ((lease, _), answer) in due.into_iter().zip(answers) {
            match (answer, self.running.get_mut(&lease)) {
                (Ok(task), Some(run)) => run.extend(HeldLease::of(&task, sent)),
                (Err(refusal), Some(_)) => self.lapse(&lease, refusal.to_string()),
                (_, None) => {}
            }
        }
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
                let counts = self.counts(true).await.unwrap_or_default();
                let status =
                    Status::new(&counts, picture(&self.running), self.slots(), self.stopping.is_some());
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

    async fn counts(&mut self, whole: bool) -> Option<BacklogCounts> {
        let backlog = Backlog { call: self.setup.call.clone(), queue: QUEUE.to_owned(), whole };
        match self.desk.perform(backlog).await {
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
        let mut tries = 0;
        loop {
            let (current, _) = self.desk.perform(CurrentPolicy { call: self.setup.call.clone() }).await?;
            let wanted = self.config.apply_to(&current.policy).map_err(Refusal::from)?;
            self.policy = Arc::clone(&current);
            if wanted == current.policy {
                return Ok(());
            }
            if !self.setup.publish {
                self.tell(Happening::PolicyDiffers { version: current.version.clone() });
                return Ok(());
            }
            let based_on = Some(current.version.clone());
            let publish = PublishPolicy { call: self.setup.call.clone(), policy: wanted, based_on };
            tries += 1;
            match self.desk.perform(publish).await {
                Ok(policy) => {
                    self.policy = policy;
                    break;
                }
                // Another host's daemon was started in the same moment.
                Err(Error::Refused(Refusal::PolicyMoved { .. })) if tries < PUBLISH_TRIES => {}
                Err(error) => return Err(error),
            }
        }
        let cx = Context { scope: self.setup.call.scope.clone(), ..Context::new(self.setup.store.clone()) };
        if let Err(error) = mirror::write(&cx, &self.setup.policy_copy).await {
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
        if let Some(error) = self.failed {
            return Err(error);
        }
        // A store that is away is not waited for once more.
        let counts = if self.is_away { None } else { self.counts(true).await };
        Ok(Ending { counts: counts.unwrap_or_default(), stopped: self.stopping.is_some() })
    }
}
