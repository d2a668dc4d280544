//! `rota work`: claims, runs a command for each task, keeps the leases, settles by exit codes, goes on.
//!
//! One task owns what is under way and talks to the store; each command runs in a task of its own and reports its end.
//! A `rota work` that is killed settles nothing: its leases expire, and the tasks are granted again.

mod job;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, Json, LeaseId, Refusal, TaskId};
use rota_store::intents::Call;
use rota_store::intents::claim::{Claim, Grant, Wanted};
use rota_store::intents::settle::{Settle, Settled, Step};
use rota_store::{AnyStore, Error, Outcome};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::changes::Changes;
use crate::desk::Desk;
use crate::runner::environment::Environment;
use crate::runner::process::{Ended, Meaning, in_words};
use crate::runner::terminate::Urgency;
use crate::signals::Signals;
use job::JobEnd;

/// How long we wait to be told of new work before looking for ourselves.
const POLL: Duration = Duration::from_secs(1);
/// The first wait after the store did not answer, and the longest.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// What to work on, and how.
#[derive(Clone, Debug)]
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
    /// After so many failures of one task here it is parked, whatever the policy allows; none for never.
    pub give_up_after: Option<u32>,
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

/// A command under way.
struct Running {
    lease: LeaseId,
    stop: watch::Sender<Option<Urgency>>,
    started: Instant,
    renew_every: Duration,
    renew_at: Instant,
    expires_at: Instant,
    is_lost: bool,
}

/// The owner of what is under way.
struct Worker<'a> {
    work: Work,
    desk: Desk,
    render: &'a dyn Fn(&Grant) -> String,
    tell: &'a mut dyn FnMut(Progress),
    running: BTreeMap<LeaseId, Running>,
    /// How often each task failed here.
    failures: BTreeMap<TaskId, u32>,
    ends: mpsc::UnboundedSender<(LeaseId, JobEnd)>,
    summary: Summary,
    stopping: Option<Urgency>,
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
    let mut signals =
        Signals::catch().map_err(|error| Refusal::BadValue { problem: format!("signals: {error}") })?;
    let (ends, mut ended) = mpsc::unbounded_channel();
    let mut worker = Worker {
        work,
        desk: Desk { store },
        render,
        tell,
        running: BTreeMap::new(),
        failures: BTreeMap::new(),
        ends,
        summary: Summary::default(),
        stopping: None,
        failed: None,
    };
    let mut look = true;
    loop {
        if look && worker.has_room() {
            look = worker.claim_more().await;
        }
        if worker.running.is_empty() && (worker.stopping.is_some() || (worker.work.until_empty && !look)) {
            break;
        }
        let may_claim = worker.has_room();
        let renewal = worker.next_renewal();
        tokio::select! {
            Some((lease, end)) = ended.recv() => {
                worker.settle(lease, end).await;
                look = worker.has_room();
            }
            urgency = signals.next() => worker.stop(urgency),
            () = at(renewal) => worker.renew().await,
            () = changes.wait(POLL), if may_claim => look = true,
        }
    }
    match worker.failed {
        Some(error) => Err(error),
        None => Ok(worker.summary),
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Worker<'_> {
    fn has_room(&self) -> bool {
        self.stopping.is_none() && self.running.len() < self.work.jobs
    }

    fn next_renewal(&self) -> Option<Instant> {
        self.running.values().filter(|job| !job.is_lost).map(|job| job.renew_at).min()
    }

    fn claim(&self, limit: usize) -> Claim {
        Claim {
            call: self.work.call.clone(),
            queue: self.work.queue.clone(),
            limit,
            agent: Some(self.work.agent.clone()),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: self.work.host.clone(),
        }
    }

    /// Fills the free places; false if there is nothing more to be had.
    async fn claim_more(&mut self) -> bool {
        let free = self.work.jobs - self.running.len();
        match self.desk.perform(self.claim(free)).await {
            Ok(granted) => {
                let count = granted.len();
                granted.into_iter().for_each(|grant| self.start(grant));
                if self.running.is_empty() {
                    (self.tell)(Progress::Idle);
                }
                count == free
            }
            Err(error) => {
                self.trouble(error);
                false
            }
        }
    }

    /// What may pass is told and tried again; anything else ends the work.
    fn trouble(&mut self, error: Error) {
        if matches!(&error, Error::Fault(fault) if fault.exit_code() == 75) {
            return (self.tell)(Progress::Trouble { problem: error.to_string() });
        }
        self.failed.get_or_insert(error);
        self.stop(Urgency::Ask);
    }

    fn start(&mut self, grant: Grant) {
        let task = &grant.task;
        let Some(lease) = task.lease() else { return };
        let ttl_ms = match (task.lease_expires_at, task.started_at) {
            (Some(until), Some(since)) => until.get().saturating_sub(since.get()).max(0).unsigned_abs(),
            _ => 0,
        };
        let ttl = Duration::from_millis(ttl_ms);
        let (stop, stopped) = watch::channel(self.stopping);
        let input = (self.render)(&grant);
        let launch = job::launch(&self.work, task, &lease);
        let prefix =
            (self.work.jobs > 1).then(|| format!("[{}] ", rota_core::text::escaped(task.id.as_str())));
        let sink = job::Sink { prefix, to_stderr: self.work.output_to_stderr };
        let (ends, key) = (self.ends.clone(), lease.clone());
        tokio::spawn(async move {
            let end = job::run(launch, input, sink, stopped).await;
            // Nobody to hear of it only after the work has ended.
            drop(ends.send((key, end)));
        });
        (self.tell)(Progress::Started { lease: lease.clone(), title: task.title.clone() });
        let now = Instant::now();
        let renew_every = (ttl / 3).max(Duration::from_millis(10));
        let (renew_at, expires_at) = (now + renew_every, now + ttl);
        let running = Running {
            lease: lease.clone(),
            stop,
            started: now,
            renew_every,
            renew_at,
            expires_at,
            is_lost: false,
        };
        self.running.insert(lease, running);
    }

    /// Settles what has ended and claims the next in the same transaction.
    async fn settle(&mut self, lease: LeaseId, end: JobEnd) {
        let Some(job) = self.running.remove(&lease) else { return };
        let took = job.started.elapsed();
        if job.is_lost {
            return;
        }
        let (outcome, detail, command) = self.or_give_up(&lease, verdict(&lease, end));
        let then = self.has_room().then(|| self.claim(1));
        let step = Step { id: lease.task.clone(), command };
        let settle = Settle { call: self.work.call.clone(), steps: vec![step], then };
        let Some(settled) = self.patiently(settle, job.expires_at).await else { return };
        match settled.steps.into_iter().next() {
            Some(Err(refusal)) => {
                *self.summary.outcomes.entry("late").or_default() += 1;
                (self.tell)(Progress::Late { lease, refusal: refusal.to_string() });
            }
            _ => {
                *self.summary.outcomes.entry(outcome).or_default() += 1;
                (self.tell)(Progress::Settled { lease, outcome, detail, took });
            }
        }
        settled.granted.into_iter().for_each(|grant| self.start(grant));
    }

    /// A task that only ever fails would be claimed again and again where the policy sets no limit.
    fn or_give_up(&mut self, lease: &LeaseId, verdict: Verdict) -> Verdict {
        let ("failed", Some(reason), _) = &verdict else {
            self.failures.remove(&lease.task);
            return verdict;
        };
        let count = self.failures.entry(lease.task.clone()).or_default();
        *count += 1;
        if self.work.give_up_after.is_none_or(|most| *count < most) {
            return verdict;
        }
        let reason = format!("failed {count} times under one rota work, last: {reason}");
        self.failures.remove(&lease.task);
        let park = Command::Park { caller: Caller::lease(lease.clone()), reason: reason.clone() };
        ("parked", Some(reason), park)
    }

    /// Asks again while the store is away, as long as the lease could still be ours.
    async fn patiently(&mut self, settle: Settle, until: Instant) -> Option<Settled> {
        let mut wait = PATIENCE.0;
        loop {
            match self.desk.perform(settle.clone()).await {
                Ok(settled) => return Some(settled),
                Err(Error::Fault(fault)) if fault.exit_code() == 75 && Instant::now() + wait < until => {
                    (self.tell)(Progress::Trouble { problem: fault.to_string() });
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(PATIENCE.1);
                }
                Err(error) => {
                    self.trouble(error);
                    return None;
                }
            }
        }
    }

    /// Extends the leases that are due; a command whose lease is gone is stopped.
    async fn renew(&mut self) {
        let now = Instant::now();
        let due: Vec<LeaseId> = self
            .running
            .values()
            .filter(|job| !job.is_lost && job.renew_at <= now)
            .map(|job| job.lease.clone())
            .collect();
        let step = |lease: &LeaseId| Step {
            id: lease.task.clone(),
            command: Command::Renew { caller: Caller::lease(lease.clone()), ttl_ms: None },
        };
        let steps = due.iter().map(step).collect();
        let renewed = self.desk.perform(Settle { call: self.work.call.clone(), steps, then: None }).await;
        let answers = match renewed {
            Ok(settled) => settled.steps,
            Err(error) => {
                for lease in &due {
                    if let Some(job) = self.running.get_mut(lease) {
                        job.renew_at = now + (job.renew_every / 4).min(PATIENCE.1);
                    }
                }
                return self.trouble(error);
            }
        };
        for (lease, answer) in due.into_iter().zip(answers) {
            let Some(job) = self.running.get_mut(&lease) else { continue };
            match answer {
                Ok(_) => {
                    job.expires_at = now + job.renew_every * 3;
                    job.renew_at = now + job.renew_every;
                }
                Err(refusal) => {
                    job.is_lost = true;
                    job.stop.send_replace(Some(Urgency::Ask));
                    *self.summary.outcomes.entry("late").or_default() += 1;
                    (self.tell)(Progress::Late { lease, refusal: refusal.to_string() });
                }
            }
        }
    }

    fn stop(&mut self, urgency: Urgency) {
        if self.stopping.is_none() {
            (self.tell)(Progress::Stopping);
        }
        self.summary.interrupted = true;
        self.stopping = self.stopping.max(Some(urgency));
        for job in self.running.values() {
            job.stop.send_replace(self.stopping);
        }
    }
}

/// What an end means for the task: its name, what to say of it, and the step.
type Verdict = (&'static str, Option<String>, Command);

fn verdict(lease: &LeaseId, end: JobEnd) -> Verdict {
    let caller = Caller::lease(lease.clone());
    let fail = |reason: String| {
        let command = Command::Fail {
            caller: Caller::lease(lease.clone()),
            reason: Some(reason.clone()),
            default_reason: FAILED_REASON,
        };
        ("failed", Some(reason), command)
    };
    let status = match end.ended {
        Ok(Ended::Exited(status)) => status,
        Ok(Ended::Stopped) => return ("interrupted", None, Command::Interrupt { caller }),
        Ok(Ended::TimedOut) => return fail("timed out".to_owned()),
        Err(error) => return fail(format!("cannot be run: {error}")),
    };
    let said = |otherwise: &str| end.last_error_line.clone().unwrap_or_else(|| otherwise.to_owned());
    match Meaning::of(status) {
        Meaning::Done => {
            let result =
                end.last_line.as_deref().and_then(|line| Json::parse(line).ok()).filter(Json::is_object);
            ("done", None, Command::Done { caller, result })
        }
        Meaning::RateLimited => ("rate_limited", None, Command::RateLimit { caller, blocked_until: None }),
        Meaning::NeedsPerson => {
            let reason = said("the command asks for a person (exit code 77)");
            ("parked", Some(reason.clone()), Command::Park { caller, reason })
        }
        Meaning::Failed => {
            let words = in_words(status);
            fail(end.last_error_line.map_or(words.clone(), |line| format!("{words}: {line}")))
        }
    }
}
