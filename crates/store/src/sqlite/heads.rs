//! The heads of the ready buckets. Each step is one seek in an index, so the cost depends on the number of buckets
//! and never on the number of tasks.

use rota_core::Json;
use rusqlite::{OptionalExtension, params};

use super::tx::SqliteTx;
use super::{row, sql};
use crate::fault::Fault;
use crate::tx::{HeadQuery, Level, Row};

struct Bucket {
    kind: String,
    host: String,
    static_score: i64,
}

impl SqliteTx {
    pub(super) fn level(&self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        let after = query.after.map_or(-1, i64::from);
        let priority: Option<u32> =
            self.one(sql::NEXT_PRIORITY, params![query.queue, after], |row| row.get(0))?;
        let Some(priority) = priority else { return Ok(None) };
        let mut rows = Vec::new();
        let mut bucket: Option<Bucket> = None;
        let mut overdue_of: Option<(String, String)> = None;
        loop {
            let Some(next) = self.next_bucket(query.queue, priority, bucket.as_ref())? else { break };
            let elsewhere = query.host.is_some_and(|here| !next.host.is_empty() && next.host != here);
            if !elsewhere && !query.full_kinds.contains(&next.kind) {
                self.oldest(query, priority, &next, &mut rows)?;
                let place = (next.kind.clone(), next.host.clone());
                if overdue_of.as_ref() != Some(&place) {
                    self.overdue(query, priority, &next, &mut rows)?;
                    overdue_of = Some(place);
                }
            }
            bucket = Some(next);
        }
        Ok(Some(Level { priority, rows }))
    }

    fn next_bucket(
        &self,
        queue: i64,
        priority: u32,
        after: Option<&Bucket>,
    ) -> Result<Option<Bucket>, Fault> {
        let (kind, host, score) = match after {
            Some(bucket) => (bucket.kind.as_str(), bucket.host.as_str(), bucket.static_score),
            None => ("", "", i64::MIN),
        };
        self.one(sql::NEXT_BUCKET, params![queue, priority, kind, host, score], |row| {
            Ok(Bucket { kind: row.get(0)?, host: row.get(1)?, static_score: row.get(2)? })
        })
    }

    fn oldest(
        &self,
        query: &HeadQuery<'_>,
        priority: u32,
        of: &Bucket,
        into: &mut Vec<Row>,
    ) -> Result<(), Fault> {
        let limit = i64::try_from(query.per_bucket).unwrap_or(i64::MAX);
        let now = query.now.get();
        if query.filter.is_empty() {
            let bound = params![query.queue, priority, of.kind, of.host, of.static_score, now, limit];
            return self.extend(sql::BUCKET_HEADS, bound, row::task, into);
        }
        let specs = query.filter.specs.as_ref().map(Json::of);
        let specs = specs.as_ref().map(Json::as_str);
        let category = query.filter.category.as_deref();
        let bound =
            params![query.queue, priority, of.kind, of.host, of.static_score, now, limit, category, specs];
        self.extend(sql::BUCKET_HEADS_FILTERED, bound, row::task, into)
    }

    fn overdue(
        &self,
        query: &HeadQuery<'_>,
        priority: u32,
        of: &Bucket,
        into: &mut Vec<Row>,
    ) -> Result<(), Fault> {
        let Some(before) = query.overdue_before else { return Ok(()) };
        let limit = i64::try_from(query.per_bucket).unwrap_or(i64::MAX);
        let specs = query.filter.specs.as_ref().map(Json::of);
        let specs = specs.as_ref().map(Json::as_str);
        let category = query.filter.category.as_deref();
        let (before, now) = (before.get(), query.now.get());
        let bound = params![query.queue, priority, of.kind, of.host, before, now, limit, category, specs];
        self.extend(sql::OVERDUE_HEADS, bound, row::task, into)
    }

    /// The first row of a query, if there is one.
    pub(super) fn one<T>(
        &self,
        text: &str,
        bound: impl rusqlite::Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Fault> {
        let run = || self.connection().prepare_cached(text)?.query_row(bound, read).optional();
        run().map_err(|error| self.fault(error))
    }

    /// Every row of a query.
    pub(super) fn extend<T>(
        &self,
        text: &str,
        bound: impl rusqlite::Params,
        read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
        into: &mut Vec<T>,
    ) -> Result<(), Fault> {
        let run = || {
            let mut statement = self.connection().prepare_cached(text)?;
            let mut rows = statement.query(bound)?;
            while let Some(row) = rows.next()? {
                into.push(read(row)?);
            }
            Ok(())
        };
        run().map_err(|error| self.fault(error))
    }
}
