//! The requests to the store, and what follows from their answers: renewals, settlements and new loops, and in a tick a
//! look at leases, policy and artifacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use rota_core::obstacle::Wait;
use rota_core::rank;
use rota_core::{LeaseId, Status, Task, TaskId};
use rota_store::Outcome;
use rota_store::intents::claim::Grant;
use rota_store::intents::iterate::BacklogCounts;
use rota_store::intents::settle::Settle;
use rota_store::intents::sync_leases::{IterationEnd, LeasesSynced, SyncLeases, SyncLoops};
use tokio::time::Instant;

use super::happening::{Happening, TickFigures};
use super::{Asked, Manager, QUEUE, Report, Until};
use crate::companion::Held;
use crate::config::Config;
use crate::iteration::Iteration;
use crate::lease_holder::{Due, Lease, Request, renewal_of};
use crate::room;
use crate::shim::orders::{self, OrderReceiver, Orders};
use crate::tenure::{HeldLease, Sent};

/// Open loops are counted for people as long as that takes less than such a part of the time.
const COUNT_SHARE: u32 = 20;

impl Manager<'_> {
    /// Sends everything that is due in one request, if anything is. After this process was stopped or suspended for too long
    /// a lease is not renewed: its shim has ended the run, and another host may have the lease.
    pub(super) async fn send_due(&mut self) {
        if !self.holder.may_send() {
            return;
        }
        let is_tick = self.is_tick_due().await;
        let sent = Sent::now();
        let Due { renewals, silent, stale } = self.holder.due(sent);
        for lease in stale {
            self.lapse(&lease, "it was not renewed in time".to_owned());
        }
        for lease in silent {
            let problem = format!("{}: its shim does not answer, so its lease is not renewed", lease.task);
            self.tell(Happening::Trouble { problem });
        }
        let ends: Vec<IterationEnd> =
            self.holder.iter().filter_map(|(_, run)| Some(self.end_of(run.end.as_ref()?))).collect();
        if !is_tick && renewals.is_empty() && ends.is_empty() {
            return;
        }
        if is_tick {
            self.check_what_may_begin();
        }
        let watches = |id: &LeaseId, run: &Lease<_, _>| {
            is_tick && run.is_held && run.end.is_none() && !renewals.contains(id)
        };
        let watched = self.holder.iter().filter(|(id, run)| watches(id, run));
        let loops = SyncLoops {
            watched: watched.map(|(id, _)| id.clone()).collect(),
            triggered: self.triggered.clone(),
            awaiting: is_tick.then(|| self.next_awaiting()),
            counts: is_tick && self.setup.until == Until::Idle && self.holder.is_empty(),
            begin: if is_tick || !ends.is_empty() { self.next() } else { self.nothing() },
            ends,
        };
        self.asked = Asked {
            ends: loops.ends.iter().map(|end| end.lease.clone()).collect(),
            is_tick,
            triggered: loops.triggered.clone(),
        };
        let steps = renewals.iter().map(renewal_of).collect();
        let settle = Settle { call: self.setup.call.clone(), steps, then: None };
        self.holder.send(sent, renewals, SyncLeases { settle, loops: Some(loops) });
    }

    /// Whether the next request is a tick. Reads the configuration again if its file has changed.
    async fn is_tick_due(&mut self) -> bool {
        let ends_when_idle = self.setup.until == Until::Idle && self.removals.is_empty();
        let asks_if_idle = ends_when_idle && self.holder.is_empty() && self.is_idle.is_none();
        let is_due = std::mem::take(&mut self.must_look) || asks_if_idle;
        // All runs are being ended anyway.
        if !is_due || self.holder.stopping().is_some() {
            return false;
        }
        if self.modified() != self.config_time {
            self.reload().await;
        }
        true
    }

    /// Goes by the answer to a request.
    pub(super) async fn heard(&mut self, request: Request, answer: Outcome<LeasesSynced>) {
        let Asked { ends, is_tick, triggered } = std::mem::take(&mut self.asked);
        let synced = match answer {
            Ok(synced) => synced,
            Err(error) => {
                self.must_look |= is_tick;
                self.has_ticked |= is_tick;
                self.trouble(error);
                return self.give_up_ends();
            }
        };
        let Some(loops) = synced.loops else {
            self.must_look |= is_tick;
            if let Some((index, refusal)) = synced.undone_by {
                self.children_refused(&ends[index], &refusal).await;
            }
            return;
        };
        self.triggered.retain(|task| !triggered.contains(task));
        for (lease, step) in request.leases.into_iter().zip(synced.settled.steps) {
            match step {
                Ok(task) => self.holder.renewed(&lease, &task, request.sent),
                Err(refusal) => self.lapse(&lease, refusal.to_string()),
            }
        }
        for (lease, status) in loops.lapsed {
            let why = status.map_or("it is gone".to_owned(), |status| format!("it is {status} now"));
            self.lapse(&lease, why);
        }
        self.must_look |= self.policy.version != loops.policy.version;
        self.policy = loops.policy;
        let mut reasons = loops.started_over;
        let had_ends = !ends.is_empty();
        for (lease, ended) in ends.iter().zip(loops.ends) {
            self.settled(lease, ended, request.sent, reasons.remove(&lease.task)).await;
        }
        let granted = synced.settled.granted;
        self.must_look |= had_ends && granted.is_empty();
        let began = !granted.is_empty();
        self.begin(granted, request.sent, reasons);
        if is_tick {
            self.note_held_back(loops.held_back.unwrap_or_default());
            self.look_for_artifacts(loops.awaiting).await;
            self.note_tick(loops.counts.filter(|_| !began)).await;
            let took = request.sent.at.elapsed();
            self.setup.companions.iter().for_each(|companion| companion.ticked(took));
        }
    }

    /// A tick is over, unless it found artifacts: the next request is still part of it. The backlog was counted if no lease
    /// is held.
    async fn note_tick(&mut self, counts: Option<BacklogCounts>) {
        if !self.triggered.is_empty() {
            return;
        }
        self.has_ticked = true;
        if let Some(counts) = counts {
            let is_held = self.is_held_back && counts.runnable > 0;
            self.is_idle = Some(counts.cooling_until.is_none() && counts.active.is_empty() && !is_held);
        }
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
        let running = self.holder.len().saturating_sub(selected);
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

    /// Starts what was granted. `reasons` say why loops were started over.
    fn begin(&mut self, granted: Vec<Grant>, sent: Sent, mut reasons: BTreeMap<TaskId, String>) {
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
            let reason = reasons.remove(&task.id);
            self.start(task, sent, reason);
        }
    }

    /// Starts an iteration in a task of its own.
    pub(super) fn start(&mut self, task: Task, sent: Sent, started_over: Option<String>) {
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
        let (orders, told) =
            orders::channel(Orders { until: lease.tenure, end: self.holder.stopping(), ping: 0 });
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
        self.is_idle = None;
        self.holder.insert(id, orders, lease, held, None);
        Some((iteration, told))
    }
}
