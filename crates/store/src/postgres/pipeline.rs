//! Sends several statements in one flush and waits for all answers: one round trip, however many statements.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row as PgRow, SimpleQueryMessage};

use super::connection::Usage;
use super::prepare::names_broke;
use super::value::type_of;
use super::{Object, Shared};
use crate::fault::Fault;

/// How long the answers to a flush may take. The server cancels a statement after 60 s; this limit is for a silent server.
const ANSWER: Duration = Duration::from_secs(90);

/// Values of a statement.
pub(super) type Bound<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// One statement of a flush.
pub(super) enum Statement<'a> {
    /// Text without values, by the simple protocol; may be several statements.
    Simple(&'a str),
    /// Answered by its rows.
    Rows(&'a str, Bound<'a>),
    /// Answered by the number of rows that it changed.
    Count(&'a str, Bound<'a>),
}

/// The answer to one statement.
pub(super) enum Reply {
    Simple(Vec<SimpleQueryMessage>),
    Rows(Vec<PgRow>),
    Count(u64),
}

impl Reply {
    pub fn rows(self) -> Vec<PgRow> {
        match self {
            Self::Rows(rows) => rows,
            Self::Simple(_) | Self::Count(_) => Vec::new(),
        }
    }

    pub fn count(&self) -> u64 {
        match self {
            Self::Count(count) => *count,
            Self::Rows(rows) => rows.len() as u64,
            Self::Simple(_) => 0,
        }
    }
}

impl Shared {
    /// Sends all statements, in order, before it waits for the first answer. The error is that of the first statement
    /// that failed; the server skips the ones after it.
    pub async fn exchange(&self, client: &Object, statements: &[Statement<'_>]) -> Result<Vec<Reply>, Fault> {
        self.try_exchange(client, statements).await.map_err(|error| match error {
            Failure::Server(error) => self.fault(error),
            Failure::Fault(fault) => fault,
        })
    }

    /// The same with the error of the connection as it is, for a caller that has to know whether the connection was lost.
    pub async fn try_exchange(
        &self,
        client: &Object,
        statements: &[Statement<'_>],
    ) -> Result<Vec<Reply>, Failure> {
        let run = async {
            let prepared = self.prepared(client, statements).await?;
            let sent = statements.iter().zip(&prepared).map(|(statement, prepared)| {
                let sending: Sending<'_> = Box::pin(send(client, statement, prepared.as_ref()));
                sending
            });
            in_order(sent.collect()).await.into_iter().collect::<Result<Vec<Reply>, Error>>()
        };
        match tokio::time::timeout(ANSWER, run).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) if names_broke(&error) => {
                // Nothing was committed: the transaction is retried without prepared statements.
                self.prepare.decide(false);
                client.forget_statements();
                Err(Failure::Fault(Fault::LostRace { place: self.place.clone(), problem: error.to_string() }))
            }
            Ok(Err(error)) => Err(Failure::Server(error)),
            Err(_) => {
                let problem = format!("no answer within {} s", ANSWER.as_secs());
                Err(Failure::Fault(Fault::Away { place: self.place.clone(), problem }))
            }
        }
    }

    /// The prepared form of each statement, from its third use on.
    async fn prepared(
        &self,
        client: &Object,
        statements: &[Statement<'_>],
    ) -> Result<Vec<Option<tokio_postgres::Statement>>, Error> {
        let mut prepared: Vec<Option<tokio_postgres::Statement>> = Vec::with_capacity(statements.len());
        let mut missing = Vec::new();
        for statement in statements {
            let usage = match statement {
                Statement::Rows(text, _) | Statement::Count(text, _) if self.prepare.by_name() => {
                    Some((*text, client.note_use(text)))
                }
                _ => None,
            };
            prepared.push(match usage {
                Some((_, Usage::Prepared(statement))) => Some(statement),
                Some((text, Usage::ToPrepare)) => {
                    missing.push((prepared.len(), text));
                    None
                }
                _ => None,
            });
        }
        let preparing = missing.iter().map(|(_, text)| Box::pin(client.prepare(text))).collect();
        for ((index, text), made) in missing.iter().zip(in_order(preparing).await) {
            let made = made?;
            client.keep(text, made.clone());
            prepared[*index] = Some(made);
        }
        Ok(prepared)
    }
}

/// Why a flush failed.
pub(super) enum Failure {
    Server(Error),
    Fault(Fault),
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send + 'a>>;

async fn send(
    client: &Object,
    statement: &Statement<'_>,
    prepared: Option<&tokio_postgres::Statement>,
) -> Result<Reply, Error> {
    match (statement, prepared) {
        (Statement::Simple(text), _) => client.simple_query(text).await.map(Reply::Simple),
        (Statement::Rows(_, bound), Some(prepared)) => client.query(prepared, bound).await.map(Reply::Rows),
        (Statement::Rows(text, bound), None) => {
            client.query_typed(text, &typed(bound)).await.map(Reply::Rows)
        }
        (Statement::Count(_, bound), Some(prepared)) => {
            client.execute(prepared, bound).await.map(Reply::Count)
        }
        (Statement::Count(text, bound), None) => {
            client.execute_typed(text, &typed(bound)).await.map(Reply::Count)
        }
    }
}

fn typed<'a>(bound: &[&'a (dyn ToSql + Sync)]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    bound.iter().map(|value| (*value, type_of(*value))).collect()
}

/// Polls futures in order, so that the first poll of each sends its statement after those before it; waits for all.
async fn in_order<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_complete = true;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_some() {
                continue;
            }
            match Pin::new(future).poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => is_complete = false,
            }
        }
        if is_complete { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
