//! One tick: look after what runs, re-check artifacts, see what may begin, begin it.

use std::sync::Arc;

use rota_core::obstacle::Wait;
use rota_core::rank;
use rota_core::{LeaseId, Status, Task};
use rota_store::Store;
use rota_store::intents::claim::Grant;
use rota_store::intents::iterate::{AwaitingArtifact, Lapsed, NoteArtifacts};
use rota_store::intents::loops::StartedOver;
use rota_store::intents::policy::CurrentPolicy;
use tokio::time::Instant;

use super::happening::{Happening, TickFigures};
use super::{Manager, QUEUE, Report, Running};
use crate::companion::Held;
use crate::config::Config;
use crate::iteration::Iteration;
use crate::room;
use crate::shim::orders::{self, OrderReceiver, Orders};
use crate::tenure::{HeldLease, Sent};

/// How many tasks are looked at for their artifact in one tick.
const ARTIFACTS: usize = 200;
/// Open loops are counted for people as long as that takes less than such a part of the time.
const COUNT_SHARE: u32 = 20;

impl Manager<'_> {
    pub(super) async fn tick(&mut self) {
        if self.modified() != self.config_time {
            self.reload().await;
        }
        // Whatever runs is being ended anyway.
        if self.stopping.is_some() {
            return;
        }
        self.check_leases().await;
        match self.store.perform(&CurrentPolicy { call: self.setup.call.clone() }).await {
            Ok((policy, _)) => self.policy = policy,
            Err(error) => return self.trouble(error),
        }
        self.check_artifacts().await;
        self.check_what_may_begin();
        loop {
            let sent = Sent::now();
            let Some(begin) = self.next(0) else { break };
            let begun = match self.store.perform(&begin).await {
                Ok(begun) => begun,
                Err(error) => return self.trouble(error),
            };
            // Where worktrees were the limit, kinds without one may still begin.
            let is_capped = self.is_capped(begun.granted.len());
            self.note_held_back(begun.held_back);
            self.begin(begun.granted, sent).await;
            if !is_capped {
                break;
            }
        }
        self.has_ticked = true;
        if std::mem::take(&mut self.has_news) || self.setup.verbose {
            self.tell_tick().await;
        }
    }

    /// Tells how things stood before anything was selected: what was begun since is added to what is counted now.
    async fn tell_tick(&mut self) {
        let counted = self.pending.filter(|(again_at, _)| *again_at > Instant::now());
        let start = Instant::now();
        let Some(counts) = self.counts(counted.is_none()).await else { return };
        let open = counted.map_or_else(|| counts.of(Status::Open), |(_, open)| open);
        if counted.is_none() {
            let now = Instant::now();
            self.pending = Some((now + (now - start) * COUNT_SHARE, open));
        }
        let selected = std::mem::take(&mut self.begun);
        let running = self.running.len().saturating_sub(selected);
        let figures = TickFigures {
            pending: open + selected as u64,
            runnable: counts.runnable + selected as u64,
            running,
            slots_available: self.slots().saturating_sub(running),
        };
        let is_news = selected > 0 || self.last_tick != Some(figures);
        if is_news {
            self.last_tick = Some(figures);
        }
        self.tell(Happening::Tick { figures, selected, is_news });
    }

    /// Tells which upstreams hold loops back; they pass by themselves.
    fn note_held_back(&mut self, waits: Vec<(String, Wait)>) {
        self.is_held_back |= !waits.is_empty();
        for (upstream, wait) in &waits {
            let upstream = upstream.clone();
            self.tell(match wait {
                Wait::BudgetSpent { budget, until } => {
                    Happening::BudgetSpent { upstream, budget: budget.clone(), until: until.to_string() }
                }
                Wait::RateLimited { until, .. } => {
                    Happening::NotSelecting { upstream, until: until.map(|until| until.to_string()) }
                }
                _ => continue,
            });
        }
        self.upstream_waits = waits;
    }

    /// A loop that was paused, cancelled, deleted or granted elsewhere is stopped at once.
    async fn check_leases(&mut self) {
        let leases: Vec<LeaseId> =
            self.running.iter().filter(|(_, run)| !run.is_lapsed).map(|(lease, _)| lease.clone()).collect();
        if leases.is_empty() {
            return;
        }
        match self.store.perform(&Lapsed { call: self.setup.call.clone(), leases }).await {
            Ok(lapsed) => {
                for (lease, status) in lapsed {
                    let why = status.map_or("it is gone".to_owned(), |status| format!("it is {status} now"));
                    self.lapse(&lease, why);
                }
            }
            Err(error) => self.trouble(error),
        }
    }

    /// Looks at the next few tasks that wait for an artifact.
    async fn check_artifacts(&mut self) {
        let look = AwaitingArtifact {
            call: self.setup.call.clone(),
            queue: QUEUE.to_owned(),
            after_seq: self.artifacts_after,
            limit: ARTIFACTS,
        };
        let waiting = match self.store.perform(&look).await {
            Ok(waiting) => waiting,
            Err(error) => return self.trouble(error),
        };
        self.artifacts_after = match waiting.last() {
            Some(last) if waiting.len() == ARTIFACTS => last.seq,
            _ => 0,
        };
        let is_here = |host: &Option<String>| host.as_ref().is_none_or(|host| *host == self.setup.host);
        let waiting: Vec<Task> = waiting.into_iter().filter(|task| is_here(&task.host)).collect();
        let Some(parents) = self.places_of_parents(&waiting).await else { return };
        let triggered = self.with_artifact(waiting, parents).await;
        if triggered.is_empty() {
            return;
        }
        let note = NoteArtifacts { call: self.setup.call.clone(), triggered };
        if let Err(error) = self.store.perform(&note).await {
            self.trouble(error);
        }
    }

    /// Notes the kinds that have a runner, none of them while the disk of this host is nearly full. Free worktrees and the
    /// limits of upstreams are counted when loops are granted.
    fn check_what_may_begin(&mut self) {
        let config = Arc::clone(&self.config);
        let mut kinds: Vec<(&String, &crate::config::LoopKind)> =
            config.loops.iter().filter(|(_, kind)| kind.run.is_some()).collect();
        self.look_at_disk(&config);
        let is_full = self.free_worktrees() == 0;
        self.is_held_back = kinds.iter().any(|(_, kind)| self.disk_is_low || (is_full && kind.worktree));
        kinds.retain(|_| !self.disk_is_low);
        self.kinds = kinds.into_iter().map(|(name, _)| name.clone()).collect();
    }

    /// One word per change.
    fn look_at_disk(&mut self, config: &Config) {
        let low = room::disk(config, &self.folders);
        if low.is_some() == self.disk_is_low {
            return;
        }
        self.disk_is_low = low.is_some();
        self.tell(match low {
            Some(Wait::DiskLow { available, .. }) => {
                Happening::DiskLow { available_gb: available / 1_000_000_000 }
            }
            _ => Happening::DiskFine,
        });
    }

    /// Starts what was granted.
    pub(super) async fn begin(&mut self, granted: Vec<Grant>, sent: Sent) {
        self.begun += granted.len();
        self.has_news |= !granted.is_empty();
        for grant in granted {
            let task = grant.task;
            let policy = self.policy.policy.queue(QUEUE);
            let now = task.started_at.unwrap_or_default();
            let priority = rank::score(&task, policy, now).map_or(0, |score| score.total);
            let age_ms = now.get().saturating_sub(task.created_at.get());
            let kind = task.kind.clone().unwrap_or_default();
            self.tell(Happening::Selected { id: task.id.to_string(), kind, priority, age_ms });
            self.start(task, sent).await;
        }
    }

    /// Starts an iteration in a task of its own.
    pub(super) async fn start(&mut self, task: Task, sent: Sent) {
        let started_over = self.why_started_over(&task).await;
        let lease = HeldLease::of(&task, sent);
        let (id, title, number) = (task.id.to_string(), task.title.clone(), task.iteration);
        let kind = task.kind.clone().unwrap_or_default();
        let Some((mut iteration, orders)) = self.take_up(task, lease) else { return };
        iteration.started_over = started_over;
        let reports = self.reports.clone();
        tokio::spawn(async move {
            let finished = iteration.run(orders).await;
            // Nobody to hear of it only after the daemon has ended.
            let _told = reports.send(Report { iteration, finished });
        });
        self.tell(Happening::Began {
            id,
            kind,
            title: title.to_string(),
            iteration: number,
            is_adopted: false,
        });
    }

    /// The reason given when a loop was started over; none for one that was not, whose tries are its iterations.
    async fn why_started_over(&mut self, task: &Task) -> Option<String> {
        if task.iteration == task.tries {
            return None;
        }
        let look = StartedOver { call: self.setup.call.clone(), id: task.id.clone() };
        match self.store.perform(&look).await {
            Ok(reason) => reason,
            // It costs the agent a hint, not the loop its run.
            Err(error) => {
                self.trouble(error);
                None
            }
        }
    }

    /// Looks after a lease from now on.
    pub(super) fn take_up(&mut self, task: Task, lease: HeldLease) -> Option<(Iteration, OrderReceiver)> {
        let id = task.lease()?;
        let kind = self.config.kind(task.kind.as_deref().unwrap_or_default());
        let held = Held {
            scope: self.setup.call.scope.clone(),
            lease: id.to_string(),
            uses_api: kind.uses_api.clone(),
            task: task.clone(),
        };
        let mut environment = self.setup.environment.clone();
        for companion in &self.setup.companions {
            let variables = companion.begun(&held);
            environment.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        let (orders, told) = orders::channel(Orders { until: lease.tenure, end: self.stopping, ping: 0 });
        let iteration = Iteration {
            lease: id.clone(),
            kind,
            folders: Arc::clone(&self.folders),
            environment,
            scope: held.scope.clone(),
            shims: Arc::clone(&self.shims),
            worktrees: Arc::clone(&self.worktrees),
            paths: Arc::default(),
            started_over: None,
            task,
        };
        let run = Running { orders, started: Instant::now(), held, lease, is_lapsed: false };
        self.running.insert(id, run);
        Some((iteration, told))
    }
}
