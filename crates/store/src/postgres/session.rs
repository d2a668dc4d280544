//! The life of a transaction: it begins with its first flush, and is committed, rolled back or abandoned.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rota_core::event::Event;

use super::fetched::Fetched;
use super::outbox::{Outbox, Unsent};
use super::pipeline::{Failure, Reply, Statement};
use super::readback::{Mark, Trace, first_row};
use super::tx::PostgresTx;
use super::{Object, Shared, connect, faults, sql};
use crate::fault::Fault;
use crate::store::Access;

/// How long a connection may take to forget a transaction before it is given up.
const UNDO: Duration = Duration::from_secs(10);

/// What a transaction on a session of its own begins with.
const BEGIN: &str = "BEGIN";
const BEGIN_TO_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// What identifies a writing transaction that did not begin with its opening.
const IDENTIFY: &str = "; SELECT pg_current_xact_id(), pg_postmaster_start_time()";

impl PostgresTx {
    pub(super) async fn begin(shared: Arc<Shared>, access: Access) -> Result<Self, Fault> {
        let client = shared.client().await?;
        Ok(Self {
            shared,
            client: Some(client),
            access,
            begun: false,
            trace: None,
            has_appended: false,
            outbox: Outbox::default(),
            fetched: Fetched::default(),
        })
    }

    /// BEGIN, with the settings where the session is not ours.
    fn begin_text(&self, identifies_itself: bool) -> String {
        let is_write = self.access == Access::Write;
        let begin = if is_write { BEGIN } else { BEGIN_TO_READ };
        let settings = match self.shared.prepare.by_name() {
            true => String::new(),
            false => connect::settings("SET LOCAL", &self.shared.schema),
        };
        let identify = if is_write && !identifies_itself { IDENTIFY } else { "" };
        format!("{begin}{settings}{identify}")
    }

    /// Sends what waits in the outbox, then these reads, in one flush. The first one begins the transaction.
    pub(super) async fn flush(&mut self, reads: Vec<Statement<'_>>) -> Result<Vec<Reply>, Fault> {
        let is_opening = |read: &Statement<'_>| {
            matches!(read, Statement::Rows(sql::OPENING_TO_WRITE | sql::OPENING_TO_CLAIM, _))
        };
        let begin = (!self.begun).then(|| self.begin_text(reads.iter().any(is_opening)));
        let unsent = self.outbox.take();
        // From here on it must be undone, also if nobody waits for the answer.
        self.begun = true;
        let mut statements: Vec<Statement<'_>> = begin.iter().map(|text| Statement::Simple(text)).collect();
        statements.extend(unsent.iter().map(Unsent::statement));
        statements.extend(reads);
        let mut replies = self.shared.exchange(self.client(), &statements).await?.into_iter();
        drop(statements);
        if begin.is_some()
            && let Some(Reply::Simple(answer)) = replies.next()
            && let (Some(number), Some(server_started)) = first_row(&answer)
        {
            self.trace = Some(Trace::of(number, server_started)?);
        }
        self.check(&unsent, &mut replies)?;
        Ok(replies.collect())
    }

    /// Every write must have changed the rows that it was for.
    fn check(&self, unsent: &[Unsent], replies: &mut impl Iterator<Item = Reply>) -> Result<(), Fault> {
        for (unsent, reply) in unsent.iter().zip(replies) {
            if unsent.rows.is_some_and(|rows| rows != reply.count()) {
                let problem = format!("a write changed {} rows instead of {:?}", reply.count(), unsent.rows);
                return Err(Fault::LostRace { place: self.shared.place.clone(), problem });
            }
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

    /// Sends what waits in the outbox and COMMIT in one flush. A fault that may pass means that nothing was committed.
    pub(super) async fn end_well(mut self) -> Result<(), Fault> {
        if !self.begun {
            if self.outbox.is_empty() {
                return Ok(());
            }
            // The transaction must be known before COMMIT is sent.
            self.flush(Vec::new()).await?;
        }
        let unsent = self.outbox.take();
        let mut statements: Vec<Statement<'_>> = unsent.iter().map(Unsent::statement).collect();
        if self.has_appended {
            statements.push(Statement::Rows(sql::NOTIFY, Vec::new()));
        }
        statements.push(Statement::Simple("COMMIT"));
        let sent = self.shared.try_exchange(self.client(), &statements).await;
        drop(statements);
        match sent {
            Ok(replies) => {
                // The server has committed: rows that are missing now are a bug, and the journal is right.
                let mut replies = replies.into_iter();
                let checked = self.check(&unsent, &mut replies);
                self.client.take();
                checked.map_err(|fault| self.shared.unknown(&fault.to_string()))
            }
            Err(failure) => self.failed_to_commit(failure).await,
        }
    }

    /// The server refused a write, and with it everything; or the connection was lost, and COMMIT may have arrived.
    async fn failed_to_commit(mut self, failure: Failure) -> Result<(), Fault> {
        let (is_lost, fault) = match failure {
            Failure::Server(error) => (faults::is_lost(&error), self.shared.fault(error)),
            Failure::Fault(fault) => (matches!(fault, Fault::Away { .. }), fault),
        };
        if !is_lost {
            self.roll_back().await;
            return Err(fault);
        }
        // It must not go back to the pool, and may be the only one that we are allowed.
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
        match &self.trace {
            Some(trace) => self.shared.read_back(trace, fault).await,
            None => Err(self.shared.unknown(&fault.to_string())),
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

    /// Ends a transaction that only read: ROLLBACK is sent, and nobody waits for the answer. The next statement on the
    /// connection comes after it.
    pub(super) async fn end_read(mut self) {
        let Some(client) = self.client.take().filter(|_| self.begun) else { return };
        let mut sending = Box::pin(client.batch_execute("ROLLBACK"));
        poll_fn(|context| {
            drop(sending.as_mut().poll(context));
            Poll::Ready(())
        })
        .await;
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
