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
use std::path::Path;
use std::time::Duration;

use rota_core::transition::Command;
use rota_core::{Caller, Status, Task};
use rota_store::Outcome;
use rota_store::intents::read::List;
use rota_store::intents::settle::{Settle, Step};
use tokio::sync::watch;

use super::happening::Happening;
use super::{Manager, QUEUE, Report};
use crate::runner::terminate::{Urgency, end_left_behind};
use crate::shim::attend::adopt;
use crate::shim::orders::Orders;
use crate::shim::record::{Run, RunRecord};
use crate::tenure::{HeldLease, Sent};

/// The first renewal decides how long a lease that was taken over lasts; it is due at once.
const UNTIL_RENEWED: Duration = Duration::from_secs(30);

impl Manager<'_> {
    pub(super) async fn recover(&mut self) -> Outcome<()> {
        let list = List {
            call: self.setup.call.clone(),
            queue: QUEUE.to_owned(),
            statuses: vec![Status::Active],
            assignee: self.setup.call.actor.clone(),
        };
        let sent = Sent::now();
        let views = self.desk.perform(list).await?;
        let mut held: BTreeMap<String, Task> = BTreeMap::new();
        for task in views.into_iter().map(|view| view.task) {
            if let Some(lease) = task.lease() {
                held.insert(lease.to_string(), task);
            }
        }
        self.end_older().await;
        for record in self.runs() {
            match record.read().map(|written| written.run) {
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
    /// marker. What is no loop's is somebody else's.
    async fn end_older(&self) {
        let agents = self.shims.agents.clone();
        let ending = tokio::task::spawn_blocking(move || {
            let listed = std::fs::read_dir(agents).into_iter().flatten().flatten();
            let is_loop = |path: &Path| {
                let run = std::fs::read(path.join("run.json")).ok();
                let run = run.and_then(|run| serde_json::from_slice::<serde_json::Value>(&run).ok());
                run.is_none_or(|run| run["iteration"].is_number())
            };
            let is_older = |path: &Path| path.is_dir() && is_loop(path);
            for folder in listed.filter(|entry| is_older(&entry.path())) {
                end_left_behind(&folder.file_name().to_string_lossy(), None);
                // What cannot be removed is looked at again by the next daemon.
                let _removed = std::fs::remove_dir_all(folder.path());
            }
        });
        if let Err(panicked) = ending.await {
            std::panic::resume_unwind(panicked.into_panic());
        }
    }

    fn runs(&mut self) -> Vec<RunRecord> {
        match RunRecord::all(&self.shims.agents) {
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
        lease.renew_at = sent.at;
        let (id, title, number) = (task.id.to_string(), task.title.clone(), task.iteration);
        let kind = task.kind.clone().unwrap_or_default();
        let Some((iteration, orders)) = self.take_up(task, lease) else { return };
        // Only what is renewed goes on longer than its shim knows of.
        if let Some(running) = self.running.get(&iteration.lease) {
            running.orders.send_modify(|orders| orders.until = run.until);
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
            if !is_loop && record.take().is_ok_and(|taken| taken.is_none()) {
                return;
            }
            let (_keep, orders) = watch::channel(Orders { end: Some(Urgency::Ask), ..Orders::default() });
            if let Ok((_, taken)) = adopt(&record, orders).await {
                // What cannot be put away is looked at again by the next daemon.
                let _put_away = record.put_away(taken);
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
        self.desk.perform(Settle { call: self.setup.call.clone(), steps, then: None }).await?;
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
