//! The answer was lost of a statement that is a transaction of its own: what was done?
//!
//! First the server's process that had it is ended, so that nothing of it can happen later. Then the journal tells, in
//! which every such statement marks its events with the number of its call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rota_core::event::{self, Event, EventKind, Folded};
use rota_core::transition::Verb;
use rota_core::{Task, TaskId};
use tokio::time::Instant;

use super::connect::Session;
use super::tx::PostgresTx;
use super::{Object, PATIENCE, Shared};
use crate::fault::Fault;
use crate::intents::claim::Grant;
use crate::store::Access;
use crate::tx::Tx;
use crate::upkeep::Upkeep;

/// What a call did to one task.
pub(super) struct Found {
    pub event: Event,
    /// The task after it.
    pub task: Task,
}

impl PostgresTx {
    /// What a call did whose answer was lost; the fault that it met if that is nothing.
    pub(super) async fn find_again(
        &mut self,
        scope: &str,
        call: i64,
        met: Fault,
    ) -> Result<Vec<Found>, Fault> {
        let Some(lost) = self.client.take() else {
            unreachable!("a transaction has its connection until it ends")
        };
        let session = lost.session.clone();
        // It must not go back to the pool, and may be the only one that we are allowed.
        drop(Object::take(lost));
        let found = self.shared.found(scope, call, &session).await?;
        if found.is_empty() {
            return Err(met);
        }
        Ok(found)
    }

    /// What a claim granted, with the blockers as they are now.
    pub(super) async fn granted_again(
        &mut self,
        scope: &str,
        found: Vec<Found>,
    ) -> Result<Vec<Grant>, Fault> {
        let mut grants = Vec::with_capacity(found.len());
        for Found { task, .. } in found {
            let blockers = self.blockers(scope, &task.id).await?;
            grants.push(Grant { task, blockers });
        }
        Ok(grants)
    }
}

impl Found {
    pub(super) fn is_grant(&self) -> bool {
        self.event.kind == EventKind::Step(Verb::Claim)
    }
}

impl Shared {
    /// Looks until it is known, for a bounded time.
    async fn found(self: &Arc<Self>, scope: &str, call: i64, session: &Session) -> Result<Vec<Found>, Fault> {
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(2);
        loop {
            let problem = match self.look_for(scope, call, session).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => "it is still at work".to_owned(),
                Err(fault) if fault.exit_code() == 75 => fault.to_string(),
                Err(fault) => return Err(self.unknown(&fault.to_string())),
            };
            if Instant::now() >= until {
                return Err(self.unknown(&problem));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }

    /// None while the process is still there.
    async fn look_for(
        self: &Arc<Self>,
        scope: &str,
        call: i64,
        session: &Session,
    ) -> Result<Option<Vec<Found>>, Fault> {
        let mut tx = PostgresTx::begin(Arc::clone(self), Access::Read).await?;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid = $1::bigint AND backend_start = $2::text::timestamptz";
        let process = i64::from(session.process);
        if !tx.query(end, &[&process, &session.started]).await?.is_empty() {
            tx.roll_back().await;
            return Ok(None);
        }
        tx.roll_back().await;
        // A snapshot from after its end.
        let mut tx = PostgresTx::begin(Arc::clone(self), Access::Read).await?;
        let marked = tx.events_of_call(call, session.first_transaction).await?;
        let ids: BTreeSet<TaskId> = marked.iter().filter_map(|event| event.task.clone()).collect();
        let mut journal: BTreeMap<TaskId, Vec<Event>> = BTreeMap::new();
        for event in tx.events_of(scope, &ids.into_iter().collect::<Vec<_>>()).await? {
            if let Some(task) = event.task.clone() {
                journal.entry(task).or_default().push(event);
            }
        }
        tx.roll_back().await;
        let found = marked.into_iter().map(|event| Ok(Found { task: task_after(&event, &journal)?, event }));
        found.collect::<Result<Vec<_>, Fault>>().map(Some)
    }
}

/// The task as an event left it.
fn task_after(last: &Event, journal: &BTreeMap<TaskId, Vec<Event>>) -> Result<Task, Fault> {
    let own = last.task.as_ref().and_then(|task| journal.get(task)).map_or(&[][..], Vec::as_slice);
    let until = own.iter().filter(|event| event.number <= last.number);
    let folded =
        until.cloned().try_fold(None::<Folded>, |before, event| event::fold(before, &event).map(Some));
    match folded {
        Ok(Some(folded)) => Ok(folded.task),
        Ok(None) => Err(Fault::Unreadable { problem: "an event without a task".to_owned() }),
        Err(error) => Err(Fault::Unreadable { problem: error.to_string() }),
    }
}
