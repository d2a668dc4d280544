//! The life of a transaction: it begins with its first statement, and ends well, badly, or forgotten.

use std::sync::Arc;
use std::time::Duration;

use rota_core::event::Event;

use super::readback::{Mark, Trace, first_row};
use super::tx::PostgresTx;
use super::{Object, Shared, faults};
use crate::fault::Fault;
use crate::store::Access;

/// How long a connection may take to forget a transaction before it is given up.
const UNDO: Duration = Duration::from_secs(10);

impl PostgresTx {
    pub(super) async fn begin(shared: Arc<Shared>, access: Access) -> Result<Self, Fault> {
        let client = shared.client().await?;
        Ok(Self { shared, client: Some(client), access, begun: false, trace: None, has_appended: false })
    }

    /// Sends BEGIN and what belongs to it, in one round trip. A writer learns its number, to be found by again.
    pub(super) async fn ensure_begun(&mut self) -> Result<(), Fault> {
        if self.begun {
            return Ok(());
        }
        let (how, number) = match self.access {
            Access::Write => ("BEGIN", "; SELECT pg_current_xact_id(), pg_postmaster_start_time()"),
            Access::Read | Access::Once => ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ""),
        };
        let begin = format!(
            "{how}; SET LOCAL search_path = {}; SET LOCAL lock_timeout = '30s'; \
             SET LOCAL statement_timeout = '60s'; SET LOCAL idle_in_transaction_session_timeout = '5s'; \
             SET LOCAL enable_seqscan = on{number}",
            self.shared.schema
        );
        // From here on it must be undone, also if nobody waits for the answer.
        self.begun = true;
        let client = self.client();
        let answer = self.shared.answer(client, client.simple_query(&begin)).await?;
        if let (Some(number), Some(server_started)) = first_row(&answer) {
            let number = number.parse().map_err(|_| Fault::Unreadable {
                problem: format!("the number of a transaction: '{number}'"),
            })?;
            self.trace = Some(Trace { number, server_started, event: None });
        }
        Ok(())
    }

    pub(super) fn client(&self) -> &Object {
        match &self.client {
            Some(client) => client,
            None => unreachable!("a transaction has its connection until it ends"),
        }
    }

    /// An event was written: by it the transaction is known again.
    pub(super) fn leave_trace(&mut self, event: &Event) {
        if let (Some(trace), Some(task)) = (&mut self.trace, &event.task) {
            trace.event = Some(Mark {
                scope: event.scope.clone(),
                task: task.clone(),
                number: event.number,
                at: event.at,
            });
        }
    }

    /// Commits. A fault that may pass means that nothing was committed.
    pub(super) async fn end_well(mut self) -> Result<(), Fault> {
        let Some(client) = self.client.take() else { return Ok(()) };
        if !self.begun {
            return Ok(());
        }
        let Err(error) = client.batch_execute("COMMIT").await else { return Ok(()) };
        let is_lost = faults::is_lost(&error);
        let fault = self.shared.fault(error);
        match &self.trace {
            Some(trace) if is_lost => {
                // It must not go back to the pool, and may be the only one that we are allowed.
                drop(Object::take(client));
                self.shared.read_back(trace, fault).await
            }
            _ => Err(fault),
        }
    }

    /// Forgets it together with its connection: the server is away, or cannot be written to any more.
    pub(super) fn give_up(mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
        // The other connections were made to the same server.
        self.shared.pool.retain(|_, _| false);
    }

    /// Undoes it and keeps the connection, if there still is one.
    pub(super) async fn roll_back(mut self) {
        if let Some(client) = self.client.take().filter(|_| self.begun) {
            undo(client).await;
        }
    }
}

async fn undo(client: Object) {
    let undone = tokio::time::timeout(UNDO, client.batch_execute("ROLLBACK")).await;
    if !matches!(undone, Ok(Ok(()))) {
        // The connection is broken: it must not go back to the pool half-way.
        drop(Object::take(client));
    }
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        let Some(client) = self.client.take().filter(|_| self.begun) else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(undo(client))),
            Err(_) => drop(Object::take(client)),
        }
    }
}
