//! `rota work`: claims, runs a command for each task, keeps the leases, settles by exit codes, goes on.
//!
//! One owner knows what is under way. Its `LeaseHolder` asks the store for everything that is due in one transaction:
//! outcomes, renewals and new tasks. While a request is in flight the owner goes on listening to signals and to commands
//! that end, so a store that is busy or away holds up nobody, and ends that come meanwhile share the next request. Each
//! command runs in a task of its own and reports its end.
//!
//! A `rota work` that is killed settles nothing: each command's shim ends it when nobody renews its lease, and the tasks
//! are granted again.

mod exchange;
mod job;
mod verdict;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rota_core::{LeaseId, Refusal, TaskId};
use rota_store::intents::Call;
use rota_store::intents::claim::Grant;
use rota_store::intents::policy::CurrentPolicy;
use rota_store::{AnyStore, Error, Outcome, Store};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::changes::{Changes, at};
use crate::companion::{Companion, Held};
use crate::lease_holder::LeaseHolder;
use crate::runner::environment::Environment;
use crate::runner::terminate::Urgency;
use crate::shim::attend::Shims;
use crate::shim::orders::{self, Orders};
use crate::signals::{Hangup, Signals};
use crate::tenure::{HeldLease, Sent};
use job::JobEnd;
use verdict::Verdict;

/// How long we wait to be told of new work before looking for ourselves.
const POLL: Duration = Duration::from_secs(1);
/// Failures of one task here after which it is parked, where neither the caller nor the policy says anything.
const GIVE_UP_AFTER: u32 = 3;

/// What to work on, and how.
#[derive(Clone)]
pub struct Work {
    /// Where and who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// The name the leases are under.
    pub agent: String,
    /// The host that tasks would run on.
    pub host: Option<String>,
    /// Commands at once.
    pub jobs: usize,
    /// When to park a task that only fails.
    pub give_up: GiveUp,
    /// Whether to end when nothing is left to claim.
    pub until_empty: bool,
    /// The command.
    pub argv: Vec<OsString>,
    /// Where it runs.
    pub folder: PathBuf,
    /// What it sees, without what is said of its task.
    pub environment: Environment,
    /// Whether what it prints goes to stderr, because stdout is for us.
    pub output_to_stderr: bool,
    /// Who starts it.
    pub shims: Shims,
    /// Who else goes along.
    pub companions: Vec<Arc<dyn Companion>>,
}

/// When a task that only ever fails here is parked. The queue `tasks` has no limit of its own, and would try for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveUp {
    /// After three failures, unless the queue's policy has a limit.
    ByDefault,
    /// After so many, whatever the policy allows.
    After(u32),
    /// Never here: that is the policy's business.
    Never,
}

/// What happened, for whoever watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// A command was started.
    Started {
        /// For this lease.
        lease: LeaseId,
        /// The task's title.
        title: String,
    },
    /// A task was settled.
    Settled {
        /// Under this lease.
        lease: LeaseId,
        /// As what.
        outcome: &'static str,
        /// Why, where there is something to say.
        detail: Option<String>,
        /// How long the command took.
        took: Duration,
    },
    /// The task was settled under this lease by somebody else, as a rule by the command itself.
    SettledElsewhere {
        /// Under this lease.
        lease: LeaseId,
        /// As what.
        outcome: &'static str,
    },
    /// Nobody wants the outcome any more.
    Late {
        /// The lease that is gone.
        lease: LeaseId,
        /// What the store says.
        refusal: String,
    },
    /// The store does not answer; it is asked again.
    Trouble {
        /// What it says.
        problem: String,
    },
    /// The shim of a command does not answer, so that its lease is not renewed.
    Silent {
        /// The lease.
        lease: LeaseId,
    },
    /// Nothing to do for now.
    Idle,
    /// No more is begun.
    Stopping,
}

/// What was done in all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Tasks by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

/// As companions know each run, once they were told, and how the command ended.
type Holder = LeaseHolder<Option<Held>, Verdict>;

/// The owner of what is under way.
struct Worker<'a> {
    work: Work,
    store: AnyStore,
    render: &'a dyn Fn(&Grant) -> String,
    tell: &'a mut dyn FnMut(Progress),
    holder: Holder,
    give_up_after: Option<u32>,
    /// How often each task failed here.
    failures: BTreeMap<TaskId, u32>,
    /// Tasks that we gave back and that may be claimed again after a while.
    cooling: BTreeMap<TaskId, Instant>,
    ends: mpsc::UnboundedSender<(LeaseId, JobEnd)>,
    /// Whether there may be something to claim.
    look: bool,
    /// How many tasks the request in flight claims.
    claimed: usize,
    summary: Summary,
    failed: Option<Error>,
}

/// Works until nothing is left or somebody stops it.
pub async fn run(
    store: AnyStore,
    work: Work,
    render: &dyn Fn(&Grant) -> String,
    tell: &mut dyn FnMut(Progress),
) -> Outcome<Summary> {
    let mut changes = Changes::watch(&store).await?;
    let mut signals = Signals::catch(Hangup::Ends)
        .map_err(|error| Refusal::BadValue { problem: format!("signals: {error}") })?;
    // It asks again by itself, and goes on with its commands meanwhile.
    let store = store.impatient();
    let give_up_after = give_up_after(&store, &work).await?;
    let (ends, mut ended) = mpsc::unbounded_channel();
    let mut worker = Worker {
        work,
        holder: LeaseHolder::new(store.clone()),
        store,
        render,
        tell,
        give_up_after,
        failures: BTreeMap::new(),
        cooling: BTreeMap::new(),
        ends,
        look: true,
        claimed: 0,
        summary: Summary::default(),
        failed: None,
    };
    loop {
        worker.send_due();
        let is_free = worker.holder.is_free();
        if is_free && worker.is_finished() {
            break;
        }
        let moment = worker.next_moment();
        let has_room = worker.room() > 0;
        tokio::select! {
            Some((lease, end)) = ended.recv() => {
                worker.ended(lease, end);
                while let Ok((lease, end)) = ended.try_recv() {
                    worker.ended(lease, end);
                }
            }
            (request, answer) = worker.holder.answer() => worker.heard(request, answer).await,
            urgency = signals.next() => worker.stop(urgency),
            () = at(moment), if is_free => {}
            () = changes.wait(POLL), if is_free && has_room => worker.look = true,
        }
    }
    match worker.failed {
        Some(error) => Err(error),
        None => Ok(worker.summary),
    }
}

async fn give_up_after(store: &AnyStore, work: &Work) -> Outcome<Option<u32>> {
    Ok(match work.give_up {
        GiveUp::Never => None,
        GiveUp::After(most) => Some(most),
        GiveUp::ByDefault => {
            let (published, _) = store.perform(&CurrentPolicy { call: work.call.clone() }).await?;
            let has_limit = published.policy.queue(&work.queue).max_attempts.is_some();
            (!has_limit).then_some(GIVE_UP_AFTER)
        }
    })
}

impl Worker<'_> {
    /// Places for new commands.
    fn room(&self) -> usize {
        let taken = self.holder.iter().filter(|(_, job)| job.end.is_none()).count();
        if self.holder.stopping().is_some() { 0 } else { self.work.jobs.saturating_sub(taken) }
    }

    /// Nothing under way, and nothing to wait for.
    fn is_finished(&self) -> bool {
        let has_all = self.work.until_empty && !self.look && self.cooling.is_empty();
        self.holder.is_empty() && (self.holder.stopping().is_some() || has_all)
    }

    /// When there is something to do that nobody tells us of.
    fn next_moment(&self) -> Option<Instant> {
        let cooled = self.cooling.values().copied().min();
        self.holder.next_moment(self.look && self.room() > 0, cooled)
    }

    /// Starts the command of a granted task. When we are stopping, the task goes back instead; one whose commands
    /// reported too many failures by themselves is given up.
    fn start(&mut self, grant: Grant, sent: Sent) {
        let task = &grant.task;
        let Some(lease) = task.lease() else { return };
        self.cooling.remove(&task.id);
        let held = HeldLease::of(task, sent);
        let (orders, told) =
            orders::channel(Orders { until: held.tenure, end: self.holder.stopping(), ping: 0 });
        let failures = self.failures.get(&task.id).copied().unwrap_or(0);
        let end = if self.holder.stopping().is_some() {
            Some(Verdict::interrupted(&lease))
        } else if self.give_up_after.is_some_and(|most| failures >= most) {
            let last = task.fail_reason.as_deref().unwrap_or("reported by the command");
            Some(Verdict::given_up(&lease, failures, last))
        } else {
            None
        };
        let mut known_as = None;
        if end.is_none() {
            let input = (self.render)(&grant);
            let mut environment = job::environment(&self.work, task, &lease);
            let known = Held {
                scope: self.work.call.scope.clone(),
                task: task.clone(),
                lease: lease.to_string(),
                uses_api: None,
            };
            for companion in &self.work.companions {
                let variables = companion.begun(&known);
                environment.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
            }
            known_as = Some(known);
            let run = job::run_of(&self.work, &lease, held.tenure);
            let shims = self.work.shims.clone();
            let id = rota_core::text::escaped(task.id.as_str());
            let prefix = (self.work.jobs > 1).then(|| format!("[{id}] "));
            let sink = job::Sink { prefix, to_stderr: self.work.output_to_stderr };
            let (ends, key) = (self.ends.clone(), lease.clone());
            tokio::spawn(async move {
                let end = job::run(shims, run, environment, input, sink, told).await;
                // Nobody to hear of it only after the work has ended.
                drop(ends.send((key, end)));
            });
            (self.tell)(Progress::Started { lease: lease.clone(), title: task.title.to_string() });
        }
        self.holder.insert(lease, orders, held, known_as, end);
    }

    /// A lease is not used here any more.
    fn forget(&mut self, lease: &LeaseId) {
        if let Some(known) = self.holder.remove(lease).and_then(|job| job.run) {
            self.work.companions.iter().for_each(|companion| companion.ended(&known));
        }
    }

    /// A command has ended; the next request settles it.
    fn ended(&mut self, lease: LeaseId, end: JobEnd) {
        let Some(job) = self.holder.get_mut(&lease) else { return };
        if !job.is_held {
            self.forget(&lease);
            self.look = true;
            return;
        }
        if let Err(error) = &end.ended {
            // What cannot be started once cannot be started for the rest of the backlog either.
            let program = self.work.argv.first().map(|program| program.to_string_lossy().into_owned());
            let problem = format!("'{}' cannot be run: {error}", program.unwrap_or_default());
            self.failed.get_or_insert(Refusal::BadValue { problem }.into());
        }
        job.end = Some(Verdict::of(&lease, end));
        self.count_failure(&lease);
        if self.failed.is_some() {
            self.wind_down(Urgency::Ask);
        }
    }

    /// A task that only ever fails would be claimed again and again where the policy sets no limit.
    fn count_failure(&mut self, lease: &LeaseId) {
        let Some(verdict) = self.holder.get_mut(lease).and_then(|job| job.end.as_mut()) else { return };
        if verdict.outcome != verdict::FAILED {
            return;
        }
        let count = self.failures.entry(lease.task.clone()).or_default();
        *count += 1;
        if self.give_up_after.is_some_and(|most| *count >= most) {
            *verdict = Verdict::given_up(lease, *count, verdict.detail.as_deref().unwrap_or_default());
        }
    }

    /// Somebody wants it to end.
    fn stop(&mut self, urgency: Urgency) {
        self.summary.interrupted = true;
        self.wind_down(urgency);
    }

    fn wind_down(&mut self, urgency: Urgency) {
        let has_commands = self.holder.iter().any(|(_, job)| job.end.is_none());
        if self.holder.stopping().is_none() && has_commands {
            (self.tell)(Progress::Stopping);
        }
        self.holder.stop(urgency);
    }

    fn count(&mut self, outcome: &'static str) {
        *self.summary.outcomes.entry(outcome).or_default() += 1;
    }
}
