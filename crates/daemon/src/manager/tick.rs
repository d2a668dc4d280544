//! One tick: look after what runs, re-check artifacts, see what may begin, begin it.

use std::sync::Arc;
use std::time::Duration;

use rota_core::obstacle::Wait;
use rota_core::rank;
use rota_core::{LeaseId, Status, Task, UnixMillis};
use rota_store::intents::blocks::Blocks;
use rota_store::intents::claim::Grant;
use rota_store::intents::iterate::{AwaitingArtifact, Lapsed, NoteArtifacts};
use rota_store::intents::policy::CurrentPolicy;
use tokio::sync::watch;
use tokio::time::Instant;

use super::happening::Happening;
use super::{Manager, QUEUE, Report, Running};
use crate::companion::Held;
use crate::config::Config;
use crate::iteration::Iteration;
use crate::room;
use crate::shim::orders::Orders;
use crate::tenure::{HeldLease, Sent};

/// How many tasks are looked at for their artifact in one tick.
const ARTIFACTS: usize = 200;
/// How often open loops are counted for people.
const COUNT_EVERY: Duration = Duration::from_secs(1);

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
        match self.desk.perform(CurrentPolicy { call: self.setup.call.clone() }).await {
            Ok((policy, _)) => self.policy = policy,
            Err(error) => return self.trouble(error),
        }
        self.check_artifacts().await;
        self.check_what_may_begin().await;
        let sent = Sent::now();
        let granted = match self.next(0) {
            Some(begin) => match self.desk.perform(begin).await {
                Ok(granted) => granted,
                Err(error) => return self.trouble(error),
            },
            None => Vec::new(),
        };
        self.has_ticked = true;
        self.begin(granted, sent);
        let is_news = std::mem::take(&mut self.has_news);
        if is_news || self.setup.verbose {
            self.tell_tick(is_news).await;
        }
    }

    /// Counting what is open looks at every loop, so it is done at most once a second; the rest is counted each time.
    async fn tell_tick(&mut self, is_news: bool) {
        let counted = self.pending.filter(|(when, _)| when.elapsed() < COUNT_EVERY);
        let Some(counts) = self.counts(counted.is_none()).await else { return };
        let pending = counted.map_or_else(|| counts.of(Status::Open), |(_, pending)| pending);
        if counted.is_none() {
            self.pending = Some((Instant::now(), pending));
        }
        let running = self.running.len();
        let selected = std::mem::take(&mut self.begun);
        self.tell(Happening::Tick {
            pending,
            runnable: counts.runnable,
            selected,
            running,
            slots_available: self.slots().saturating_sub(running),
            is_news,
        });
    }

    /// A loop that was paused, cancelled, deleted or granted elsewhere is stopped at once.
    async fn check_leases(&mut self) {
        let leases: Vec<LeaseId> =
            self.running.iter().filter(|(_, run)| !run.is_lapsed).map(|(lease, _)| lease.clone()).collect();
        if leases.is_empty() {
            return;
        }
        match self.desk.perform(Lapsed { call: self.setup.call.clone(), leases }).await {
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
        let waiting = match self.desk.perform(look).await {
            Ok(waiting) => waiting,
            Err(error) => return self.trouble(error),
        };
        self.artifacts_after = match waiting.last() {
            Some(last) if waiting.len() == ARTIFACTS => last.seq,
            _ => 0,
        };
        let is_here = |host: &Option<String>| host.as_ref().is_none_or(|host| *host == self.setup.host);
        let there = |task: &&Task| is_here(&task.host) && self.folders.has_artifact(task);
        let triggered: Vec<_> = waiting.iter().filter(there).map(|task| task.id.clone()).collect();
        if triggered.is_empty() {
            return;
        }
        let note = NoteArtifacts { call: self.setup.call.clone(), triggered };
        if let Err(error) = self.desk.perform(note).await {
            self.trouble(error);
        }
    }

    /// Which kinds have a runner, and nothing that holds them back: a blocked upstream, worktrees, the disk.
    async fn check_what_may_begin(&mut self) {
        let config = Arc::clone(&self.config);
        let mut kinds: Vec<(&String, &crate::config::LoopKind)> =
            config.loops.iter().filter(|(_, kind)| kind.run.is_some()).collect();
        self.look_at_disk(&config);
        let configured = kinds.len();
        kinds.retain(|(name, _)| room::waits(&config, &self.folders, name).is_empty());
        self.is_held_back = kinds.len() < configured;
        let blocked = self.blocked_upstreams(&kinds).await;
        if !blocked.is_empty() {
            self.is_held_back = true;
            kinds.retain(|(_, kind)| {
                kind.uses_api.as_ref().is_none_or(|upstream| !blocked.contains(upstream))
            });
        }
        self.kinds = kinds.into_iter().map(|(name, _)| name.clone()).collect();
    }

    async fn blocked_upstreams(&mut self, kinds: &[(&String, &crate::config::LoopKind)]) -> Vec<String> {
        let mut upstreams: Vec<String> = kinds.iter().filter_map(|(_, kind)| kind.uses_api.clone()).collect();
        upstreams.sort();
        upstreams.dedup();
        if upstreams.is_empty() {
            return Vec::new();
        }
        let read = Blocks { call: self.setup.call.clone(), upstreams: upstreams.clone() };
        let (now, rows) = match self.desk.perform(read).await {
            Ok(read) => read,
            // Unknown is blocked: nothing begins on a guess.
            Err(error) => {
                self.trouble(error);
                return upstreams;
            }
        };
        let holds = |until: Option<UnixMillis>| until.is_none_or(|until| until > now);
        let blocked: Vec<_> =
            rows.into_iter().filter(|row| row.hits > 0 && holds(row.blocked_until)).collect();
        for row in &blocked {
            let until = row.blocked_until.map(|until| until.to_string());
            self.tell(Happening::NotSelecting { upstream: row.upstream.clone(), until });
        }
        blocked.into_iter().map(|row| row.upstream).collect()
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
    pub(super) fn begin(&mut self, granted: Vec<Grant>, sent: Sent) {
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
            self.start(task, sent);
        }
    }

    /// Starts an iteration in a task of its own.
    pub(super) fn start(&mut self, task: Task, sent: Sent) {
        let lease = HeldLease::of(&task, sent);
        let (id, title, number) = (task.id.to_string(), task.title.clone(), task.iteration);
        let kind = task.kind.clone().unwrap_or_default();
        let Some((iteration, orders)) = self.take_up(task, lease) else { return };
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

    /// Looks after a lease from now on.
    pub(super) fn take_up(
        &mut self,
        task: Task,
        lease: HeldLease,
    ) -> Option<(Iteration, watch::Receiver<Orders>)> {
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
        let (orders, told) = watch::channel(Orders { until: lease.tenure, end: self.stopping });
        let iteration = Iteration {
            lease: id.clone(),
            kind,
            folders: Arc::clone(&self.folders),
            environment,
            scope: held.scope.clone(),
            shims: Arc::clone(&self.shims),
            task,
        };
        let run = Running { orders, started: Instant::now(), held, lease, is_lapsed: false };
        self.running.insert(id, run);
        Some((iteration, told))
    }
}
