//! What an earlier daemon of this workspace left, and what becomes of it. ARCHITECTURE.md lists the steps between a grant
//! and its settlement; whatever the earlier one had done last, the next one begins with a look at all of them:
//!
//! | written down | lease | shim | then |
//! |---|---|---|---|
//! | run | ours | alive | goes on under this daemon |
//! | run, exit | ours | gone | settled by what the record says |
//! | run, began | ours | gone | what it left behind is ended; the attempt failed |
//! | run | ours | gone | was never begun: given back |
//! | run | not ours any more | any | ended and forgotten |
//! | nothing | ours | none | was never begun: given back |

use std::collections::BTreeMap;
use std::time::Duration;

use rota_core::transition::Command;
use rota_core::{Caller, Status, Task};
use rota_store::intents::read::List;
use rota_store::intents::settle::{Settle, Step};
use rota_store::{Outcome, Store};

use super::happening::Happening;
use super::{Manager, QUEUE, Report};
use crate::files::{Dir, Owner, off_runtime};
use crate::runner::terminate::{Urgency, end_without_shim};
use crate::shim::attend::adopt;
use crate::shim::orders::{self, Orders};
use crate::shim::record::{Run, RunRecord};
use crate::tenure::{HeldLease, Sent};

/// The first renewal decides how long a lease that was taken over lasts; it is due at once.
const UNTIL_RENEWED: Duration = Duration::from_secs(30);

/// The longest file of an older run that is read.
const OLDER_BYTES: u64 = 1_024 * 1_024;

impl Manager<'_> {
    pub(super) async fn recover(&mut self) -> Outcome<()> {
        let list = List {
            call: self.setup.call.clone(),
            queue: QUEUE.to_owned(),
            statuses: vec![Status::Active],
            assignee: self.setup.call.actor.clone(),
        };
        let sent = Sent::now();
        let views = self.store.perform(&list).await?;
        let mut held: BTreeMap<String, Task> = BTreeMap::new();
        for task in views.into_iter().map(|view| view.task) {
            if let Some(lease) = task.lease() {
                held.insert(lease.to_string(), task);
            }
        }
        self.end_older().await;
        for (record, read) in self.runs().await {
            match read {
                Ok(Some(run)) => {
                    let is_ours = |task: &Task| {
                        run.scope == self.setup.call.scope && run.iteration == Some(task.iteration)
                    };
                    match held.get(&run.lease).filter(|task| is_ours(task)).cloned() {
                        Some(task) => {
                            held.remove(&run.lease);
                            self.resume(task, &run, record, sent);
                        }
                        None => self.put_away(record, run.iteration.is_some()),
                    }
                }
                Ok(None) => self.put_away(record, false),
                Err(error) => {
                    let problem = format!("{}: {error}", record.path().display());
                    self.tell(Happening::Trouble { problem });
                }
            }
        }
        self.give_back(held.into_values().collect()).await
    }

    /// Ends the loops that a daemon before this way of writing runs down has left: each was a folder by the name of its
    /// marker. A folder that is no loop's belongs to a `rota work`.
    async fn end_older(&self) {
        let agents = self.shims.agents.clone();
        let ending = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
            let agents = Dir::open(&agents)?;
            for name in agents.names()? {
                let Ok(folder) = agents.sub(&name) else { continue };
                let run = folder.read("run.json", Owner::Us, OLDER_BYTES).ok();
                let run = run.and_then(|run| serde_json::from_slice::<serde_json::Value>(&run).ok());
                if run.is_some_and(|run| !run["iteration"].is_number()) {
                    continue;
                }
                end_without_shim(&name.to_string_lossy(), None);
                agents.remove_all(&name)?;
            }
            Ok(())
        });
        match ending.await {
            // What cannot be looked at or removed is looked at again by the next daemon.
            Ok(_ended) => {}
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// The runs that are written down, with what their records say. Files are read on a thread for blocking work.
    async fn runs(&mut self) -> Vec<(RunRecord, std::io::Result<Option<Run>>)> {
        let agents = self.shims.agents.clone();
        let read = |record: RunRecord| {
            let run = record.read().map(|written| written.run);
            (record, run)
        };
        let all = off_runtime(move || Ok(RunRecord::all(&agents)?.into_iter().map(read).collect()));
        match all.await {
            Ok(records) => records,
            Err(error) => {
                let problem = format!("{}: {error}", self.shims.agents.display());
                self.tell(Happening::Trouble { problem });
                Vec::new()
            }
        }
    }

    /// Goes on with a run. Its lease is renewed at once, and what is refused is ended.
    fn resume(&mut self, task: Task, run: &Run, record: RunRecord, sent: Sent) {
        let mut lease = HeldLease::lasting(UNTIL_RENEWED, sent);
        (lease.ping_at, lease.renew_at) = (sent.at, sent.at);
        let (id, title, number) = (task.id.to_string(), task.title.clone(), task.iteration);
        let kind = task.kind.clone().unwrap_or_default();
        let Some((iteration, orders)) = self.take_up(task, lease) else { return };
        // Only what is renewed goes on longer than its shim knows of.
        if let Some(running) = self.holder.get_mut(&iteration.lease) {
            running.orders.extend(run.until);
            running.started = running.started.checked_sub(run.age()).unwrap_or(running.started);
        }
        let reports = self.reports.clone();
        tokio::spawn(async move {
            let finished = iteration.resume(record, orders).await;
            let _told = reports.send(Report { iteration, finished });
        });
        self.tell(Happening::Began {
            id,
            kind,
            title: title.to_string(),
            iteration: number,
            is_adopted: true,
        });
    }

    /// Ends and forgets a run that is nobody's any more. One that is no loop's and still looked after is somebody else's.
    fn put_away(&mut self, record: RunRecord, is_loop: bool) {
        tokio::spawn(async move {
            let looked_at = record.clone();
            let taken = off_runtime(move || looked_at.take().map(|taken| taken.is_none())).await;
            if !is_loop && taken.is_ok_and(|is_attended| is_attended) {
                return;
            }
            let (ending, orders) = orders::channel(Orders::default());
            ending.end(Urgency::Ask);
            if let Ok((_, taken)) = adopt(&record, orders).await {
                // What cannot be put away is looked at again by the next daemon.
                let _put_away = off_runtime(move || record.put_away(taken)).await;
            }
        });
    }

    /// Gives back what was granted and never begun.
    async fn give_back(&mut self, tasks: Vec<Task>) -> Outcome<()> {
        if tasks.is_empty() {
            return Ok(());
        }
        let interrupt = |task: &Task| {
            let caller = Caller::lease(task.lease()?);
            Some(Step { id: task.id.clone(), command: Command::Interrupt { caller } })
        };
        let steps = tasks.iter().filter_map(interrupt).collect();
        self.store.perform(&Settle { call: self.setup.call.clone(), steps, then: None }).await?;
        for task in tasks {
            let kind = task.kind.clone().unwrap_or_default();
            self.tell(Happening::Ended {
                id: task.id.to_string(),
                kind,
                outcome: "interrupted",
                detail: None,
            });
        }
        Ok(())
    }
}
