//! A COMMIT was sent and no answer came: was it done?
//!
//! The transaction's number, learned when it began, tells whether it is still at work. Whether it was committed is told
//! by what it wrote: after a crash the server may give a number again that it had given to a transaction of which nothing
//! reached the disk, so the number alone could speak of someone else.

use std::time::Duration;

use rota_core::{TaskId, UnixMillis};
use tokio::time::Instant;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::{Shared, TIMEOUT};
use crate::fault::Fault;

/// How long a transaction without a connection may take to be over.
const END: Duration = Duration::from_secs(10);

/// How a transaction can be found again.
pub(super) struct Trace {
    /// Its number on the server.
    pub number: u64,
    /// When the server was started that gave the number.
    pub server_started: String,
    /// The last event of a task that it wrote into the journal.
    pub event: Option<Mark>,
}

impl Trace {
    /// From the words of the server.
    pub fn of(number: String, server_started: String) -> Result<Self, Fault> {
        let number = number
            .parse()
            .map_err(|_| Fault::Unreadable { problem: format!("the number of a transaction: '{number}'") })?;
        Ok(Self { number, server_started, event: None })
    }
}

/// An event as its writer knows it before the server has numbered it.
pub(super) struct Mark {
    pub scope: String,
    pub task: TaskId,
    pub number: u64,
    pub at: UnixMillis,
}

/// What became of a transaction.
#[derive(PartialEq, Eq, Debug)]
enum Fate {
    Committed,
    Undone,
    AtWork,
    Unknown,
}

impl Shared {
    /// Fine if the transaction was committed; the fault that it met if nothing of it was; a fault of its own if that
    /// cannot be found out in bounded time.
    pub async fn read_back(&self, trace: &Trace, met: Fault) -> Result<(), Fault> {
        let until = Instant::now() + TIMEOUT;
        let mut pause = Duration::from_millis(2);
        loop {
            let problem = match self.fate(trace).await {
                Ok(Fate::Committed) => return Ok(()),
                Ok(Fate::Undone) => return Err(met),
                Ok(Fate::AtWork) => "it is still at work".to_owned(),
                Ok(Fate::Unknown) => return Err(self.unknown(&met.to_string())),
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

    /// Waits until a transaction that lost its connection is over: until then its rows are locked, and who skips locked
    /// rows would find nothing where there is something.
    pub async fn let_end(&self, trace: &Trace) -> Result<(), Fault> {
        let until = Instant::now() + END;
        while matches!(self.fate(trace).await, Ok(Fate::AtWork)) {
            if Instant::now() >= until {
                return Err(Fault::Busy { place: self.place.clone(), waited_secs: END.as_secs() });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// The fault for what may or may not have been done.
    pub fn unknown(&self, problem: &str) -> Fault {
        Fault::OutcomeUnknown { place: self.place.clone(), problem: problem.to_owned() }
    }

    async fn fate(&self, trace: &Trace) -> Result<Fate, Fault> {
        let client = self.client().await?;
        // The number and the event are asked for one after the other: what was at work is looked at again.
        let text = format!("SELECT pg_xact_status('{}'), pg_postmaster_start_time()", trace.number);
        let answer = client.simple_query(&text).await;
        let (status, started) = match answer {
            Ok(answer) => first_row(&answer),
            // Never given again after a crash: nothing of it was kept.
            Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => {
                return Ok(Fate::Undone);
            }
            Err(error) => return Err(self.fault(error)),
        };
        if status.as_deref() == Some("in progress") {
            return Ok(Fate::AtWork);
        }
        let Some(Mark { scope, task, number, at }) = &trace.event else {
            let same = started.as_deref() == Some(&trace.server_started);
            return Ok(match status.as_deref() {
                Some("aborted") => Fate::Undone,
                Some("committed") if same => Fate::Committed,
                _ => Fate::Unknown,
            });
        };
        let text = format!(
            "SELECT 1 FROM {}.journal WHERE scope = $1 AND task = $2 AND number = $3 AND at = $4 AND xid = $5",
            self.schema
        );
        let (number, at, xid) = (number.cast_signed(), at.get(), trace.number.cast_signed());
        let task = task.as_str();
        let bound: [(&(dyn ToSql + Sync), Type); 5] = [
            (scope, Type::TEXT),
            (&task, Type::TEXT),
            (&number, Type::INT8),
            (&at, Type::INT8),
            (&xid, Type::INT8),
        ];
        let found = client.query_typed(&text, &bound).await.map_err(|error| self.fault(error))?;
        Ok(if found.is_empty() { Fate::Undone } else { Fate::Committed })
    }
}

/// The first two words of the first row.
pub(super) fn first_row(answer: &[SimpleQueryMessage]) -> (Option<String>, Option<String>) {
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let word = |index: usize| row.and_then(|row| row.try_get(index).ok().flatten()).map(str::to_owned);
    (word(0), word(1))
}
