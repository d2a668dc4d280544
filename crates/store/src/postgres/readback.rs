//! A COMMIT was sent and no answer came: was it done?
//!
//! The transaction's number, learned when it began, tells whether it is still at work. Whether it was committed is told
//! by what it wrote: after a crash the server may give a number again that it had given to a transaction of which nothing
//! reached the disk, so the number alone could speak of someone else.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::{PATIENCE, Shared};
use crate::fault::Fault;

/// How long a transaction without a connection may take to be over.
const END: Duration = Duration::from_secs(10);

/// How a transaction can be found again.
pub(super) struct Trace {
    /// Its number on the server.
    pub number: u64,
    /// When the server was started that gave the number.
    pub server_started: String,
    /// Place and time of the last event it wrote into the journal.
    pub event: Option<(u64, i64)>,
    /// What its events are marked with, if a function wrote them.
    pub call: Option<i64>,
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
        let until = Instant::now() + PATIENCE;
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
        let mark = match (trace.event, trace.call) {
            (Some((place, at)), _) => Some(format!("seq = {place} AND at = {at}")),
            (None, call) => call.map(|call| format!("call = {call}")),
        };
        let Some(mark) = mark else {
            let same = started.as_deref() == Some(&trace.server_started);
            return Ok(match status.as_deref() {
                Some("aborted") => Fate::Undone,
                Some("committed") if same => Fate::Committed,
                _ => Fate::Unknown,
            });
        };
        let text = format!(
            "SELECT 'here' FROM {}.journal WHERE {mark} AND xid = {} LIMIT 1",
            self.schema, trace.number
        );
        let answer = client.simple_query(&text).await.map_err(|error| self.fault(error))?;
        Ok(if first_row(&answer).0.is_some() { Fate::Committed } else { Fate::Undone })
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
