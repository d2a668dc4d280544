//! The first tasks of a queue, as claims and `peek` look at them.

use rota_core::UnixMillis;
use tokio_postgres::Row as PgRow;

use super::row::{self, get};
use super::sql;
use super::tx::{Bound, PostgresTx};
use crate::fault::Fault;
use crate::tx::{Filter, HeadQuery, Level, Row, Tx};

impl PostgresTx {
    pub(super) async fn plain_heads(&mut self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        if let Some(level) = self.fetched.level(query) {
            return Ok(level);
        }
        let after = query.after.map_or(-1, i64::from);
        let limit = i64::try_from(query.per_bucket).unwrap_or(i64::MAX);
        let text = if self.writes() { sql::PLAIN_HEADS_LOCKED } else { sql::PLAIN_HEADS };
        let (now, Filter { category, specs }) = (query.now.get(), query.filter);
        let bound: Bound<'_> =
            &[&query.queue, &after, &now, &query.host, &limit, category, specs, &query.only_kinds];
        let rows = self.all(text, bound, head).await?;
        self.fetched.keep_heads(query, rows);
        Ok(self.fetched.level(query).flatten())
    }

    pub(super) async fn bucket_heads(&mut self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        if let Some(level) = self.fetched.ready.as_ref().and_then(|ready| ready.level(query)) {
            return Ok(level);
        }
        let after = query.after.map_or(-1, i64::from);
        let Some(found) = self.one(sql::NEXT_PRIORITY, &[&query.queue, &after]).await? else {
            return Ok(None);
        };
        let limit = i64::try_from(query.per_bucket).unwrap_or(i64::MAX);
        let overdue = query.overdue_before.map(UnixMillis::get);
        let (now, Filter { category, specs }) = (query.now.get(), query.filter);
        let bound: Bound<'_> = &[
            &query.queue,
            &after,
            &query.host,
            &query.full_kinds,
            &now,
            &limit,
            &overdue,
            category,
            specs,
            &query.only_kinds,
        ];
        let seqs = self.all(sql::BUCKET_HEADS, bound, |row| get::<i64>(row, 0)).await?;
        let text = if self.writes() { sql::LOCK_HEADS } else { sql::TASKS_BY_SEQ };
        let rows = self.all(text, &[&seqs], row::task).await?;
        Ok(Some(Level { priority: row::unsigned(&found, 0)?, rows }))
    }
}

/// A head, and whether it has blockers.
pub(super) fn head(row: &PgRow) -> Result<(Row, bool), Fault> {
    Ok((row::task(row)?, get(row, 49)?))
}
