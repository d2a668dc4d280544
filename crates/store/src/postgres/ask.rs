//! How a statement is sent: by a name that the connection keeps, or whole each time.
//!
//! A pooler in transaction mode (PgBouncer) gives each transaction whatever connection to the server is free, so a
//! name may be unknown there, or worse, someone else's. Whoever is not the server itself is found out when we connect
//! ([`super::connect`]), before anything is sent by name; what slips through is found by its error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio_postgres::Row as PgRow;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{ToSql, Type};

use super::{Object, Shared};
use crate::fault::Fault;

/// How long an answer may take. The server gives up after 60 s by itself; this is for one that is silent.
const ANSWER: Duration = Duration::from_secs(90);

const UNDECIDED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// Whether statements are sent by name. Shared by all connections of a store.
#[derive(Clone)]
pub(super) struct Prepare {
    state: Arc<AtomicU8>,
    is_fixed: bool,
}

impl Prepare {
    /// By name, unless someone stands between us and the server.
    pub fn auto() -> Self {
        Self { state: Arc::new(AtomicU8::new(UNDECIDED)), is_fixed: false }
    }

    /// Always by name.
    pub fn on() -> Self {
        Self { state: Arc::new(AtomicU8::new(ON)), is_fixed: true }
    }

    /// Never by name.
    pub fn off() -> Self {
        Self { state: Arc::new(AtomicU8::new(OFF)), is_fixed: true }
    }

    /// What a look at a connection says; once off, it stays off.
    pub fn decide(&self, direct: bool) {
        if !self.is_fixed {
            let next = if direct { ON } else { OFF };
            self.state.fetch_max(next, Ordering::AcqRel);
        }
    }

    /// Whether to send by name.
    pub fn by_name(&self) -> bool {
        self.state.load(Ordering::Acquire) == ON
    }
}

impl Shared {
    /// The rows of one statement.
    pub async fn rows(
        &self,
        client: &Object,
        text: &str,
        bound: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<PgRow>, Fault> {
        let run = async {
            if self.prepare.by_name() {
                let statement = client.prepare_cached(text).await?;
                client.query(&statement, bound).await
            } else {
                client.query_typed(text, &typed(bound)).await
            }
        };
        self.answer(client, run).await
    }

    /// How many rows one statement changed.
    pub async fn changed(
        &self,
        client: &Object,
        text: &str,
        bound: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Fault> {
        let run = async {
            if self.prepare.by_name() {
                let statement = client.prepare_cached(text).await?;
                client.execute(&statement, bound).await
            } else {
                client.execute_typed(text, &typed(bound)).await
            }
        };
        self.answer(client, run).await
    }

    /// Waits for an answer, not for ever.
    pub async fn answer<T>(
        &self,
        client: &Object,
        run: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(ANSWER, run).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if names_broke(&error) => {
                // Nothing was committed: the transaction is tried again, without names.
                self.prepare.decide(false);
                client.statement_cache.clear();
                Err(Fault::LostRace { place: self.place.clone(), problem: error.to_string() })
            }
            Ok(Err(error)) => Err(self.fault(error)),
            Err(_) => {
                let problem = format!("no answer within {} s", ANSWER.as_secs());
                Err(Fault::Away { place: self.place.clone(), problem })
            }
        }
    }
}

/// Errors of statements whose name the server does not know, knows already, or knows as something else.
fn names_broke(error: &tokio_postgres::Error) -> bool {
    let Some(server) = error.as_db_error() else { return false };
    match server.code() {
        &SqlState::INVALID_SQL_STATEMENT_NAME
        | &SqlState::DUPLICATE_PSTATEMENT
        | &SqlState::PROTOCOL_VIOLATION => true,
        // The tables changed under a statement that was compiled before.
        &SqlState::FEATURE_NOT_SUPPORTED => server.message().contains("cached plan"),
        _ => false,
    }
}

/// The types of values: what Rota sends, in the order of how often.
fn typed<'a>(bound: &[&'a (dyn ToSql + Sync)]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    const KNOWN: [Type; 6] =
        [Type::INT8, Type::TEXT, Type::BOOL, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY];
    let mut scratch = BytesMut::new();
    let mut type_of = |value: &(dyn ToSql + Sync)| {
        let fits = KNOWN.into_iter().find(|kind| {
            scratch.clear();
            value.to_sql_checked(kind, &mut scratch).is_ok()
        });
        fits.unwrap_or(Type::UNKNOWN)
    };
    bound.iter().map(|value| (*value, type_of(*value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_type() {
        let (words, numbers) = (vec!["a"], vec![Some(1_i64)]);
        let (none, absent): (Option<i64>, Option<&str>) = (None, None);
        let bound: [&(dyn ToSql + Sync); 7] = [&1_i64, &"a", &true, &words, &numbers, &none, &absent];
        let types: Vec<Type> = typed(&bound).into_iter().map(|(_, kind)| kind).collect();
        let expected =
            [Type::INT8, Type::TEXT, Type::BOOL, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::INT8, Type::TEXT];
        assert_eq!(types, expected);
    }

    #[test]
    fn once_off_it_stays_off() {
        let prepare = Prepare::auto();
        assert!(!prepare.by_name());
        prepare.decide(true);
        assert!(prepare.by_name());
        prepare.decide(false);
        prepare.decide(true);
        assert!(!prepare.by_name());
        let fixed = Prepare::on();
        fixed.decide(false);
        assert!(fixed.by_name());
    }
}
