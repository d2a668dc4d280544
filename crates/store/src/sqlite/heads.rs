//! The heads of the ready buckets. Each step is one seek in an index, so the cost depends on the number of buckets
//! and never on the number of tasks.

use rota_core::{Json, Task};
use rusqlite::{OptionalExtension, params};

use super::tx::SqliteTx;
use super::{row, sql};
use crate::fault::Fault;
use crate::tx::{HeadQuery, Level, Row};

/// Heads are large, so there is room for those of a usual batch from the beginning.
const MOST_AT_ONCE: usize = 128;

/// A task that may be granted, and whether it has blockers, done or not.
struct Head {
    row: Row,
    has_blockers: bool,
}

impl Head {
    fn read(row: &rusqlite::Row<'_>, before: Option<&Task>) -> rusqlite::Result<Self> {
        Ok(Self { row: row::task_after(row, before)?, has_blockers: row.get(row::TASK_COLUMNS)? })
    }
}

/// A bucket, known by the oldest task in it.
struct Bucket {
    priority: u32,
    static_score: i64,
    head: Head,
}

impl Bucket {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            priority: row.get(row::TASK_COLUMNS + 1)?,
            static_score: row.get(row::TASK_COLUMNS + 2)?,
            head: Head::read(row, None)?,
        })
    }

    fn kind(&self) -> &str {
        self.head.row.task.kind.as_deref().unwrap_or_default()
    }

    fn host(&self) -> &str {
        self.head.row.task.host.as_deref().unwrap_or_default()
    }

    /// Whether its head is all that is wanted of it.
    fn head_suffices(&self, query: &HeadQuery<'_>) -> bool {
        let due = self.head.row.task.next_eligible_at.is_none_or(|due| due <= query.now);
        query.per_bucket == 1 && query.filter.is_empty() && due
    }
}

impl SqliteTx {
    pub(super) fn level(&mut self, query: &HeadQuery<'_>) -> Result<Option<Level>, Fault> {
        let after = query.after.map_or(-1, i64::from);
        let first = self.one(sql::FIRST_HEAD, params![query.queue, after], Bucket::read)?;
        let Some(mut bucket) = first else { return Ok(None) };
        let priority = bucket.priority;
        let mut rows = Vec::new();
        let mut overdue_of: Option<(String, String)> = None;
        loop {
            let (kind, host) = (bucket.kind().to_owned(), bucket.host().to_owned());
            let elsewhere = query.host.is_some_and(|here| !host.is_empty() && host != here);
            let of_kind = query.only_kinds.is_none_or(|kinds| kinds.contains(&kind));
            let wanted = of_kind && !elsewhere && !query.full_kinds.contains(&kind);
            if wanted && overdue_of.as_ref().is_none_or(|(of, at)| *of != kind || *at != host) {
                self.overdue(query, &bucket, &mut rows)?;
                overdue_of = Some((kind.clone(), host.clone()));
            }
            if wanted && !bucket.head_suffices(query) {
                self.oldest(query, &bucket, &mut rows)?;
            }
            let bound = params![query.queue, priority, kind, host, bucket.static_score];
            let next = self.one(sql::NEXT_HEAD, bound, Bucket::read)?;
            if wanted && bucket.head_suffices(query) {
                rows.push(bucket.head);
            }
            match next {
                Some(next) => bucket = next,
                None => break,
            }
        }
        let rows = rows.into_iter().map(|head| self.remember(head)).collect();
        Ok(Some(Level { priority, rows }))
    }

    fn remember(&mut self, head: Head) -> Row {
        if !head.has_blockers {
            self.unlinked.note_without_blockers(&head.row.task);
        }
        head.row
    }

    fn oldest(&self, query: &HeadQuery<'_>, of: &Bucket, into: &mut Vec<Head>) -> Result<(), Fault> {
        let limit = i64::try_from(query.per_bucket).unwrap_or(i64::MAX);
        let now = query.now.get();
        into.reserve(query.per_bucket.min(MOST_AT_ONCE));
        if query.filter.is_empty() {
            let bound = params![query.queue, of.priority, of.kind(), of.host(), of.static_score, now, limit];
            return self.extend_heads(sql::BUCKET_HEADS, bound, into);
        }
        let specs = query.filter.specs.as_ref().map(Json::of);
        let specs = specs.as_ref().map(Json::as_str);
        let category = query.filter.category.as_deref();
        let bound = params![
            query.queue,
            of.priority,
            of.kind(),
            of.host(),
            of.static_score,
            now,
            limit,
            category,
            specs
        ];
        self.extend_heads(sql::BUCKET_HEADS_FILTERED, bound, into)
    }

    /// The longest waiting of the bucket's kind and host, over all of their buckets.
    fn overdue(&self, query: &HeadQuery<'_>, of: &Bucket, into: &mut Vec<Head>) -> Result<(), Fault> {
        let Some(before) = query.overdue_before else { return Ok(()) };
        let limit = i64::try_from(query.per_bucket).unwrap_or(i64::MAX);
        let specs = query.filter.specs.as_ref().map(Json::of);
        let specs = specs.as_ref().map(Json::as_str);
        let category = query.filter.category.as_deref();
        let (before, now) = (before.get(), query.now.get());
        let bound =
            params![query.queue, of.priority, of.kind(), of.host(), before, now, limit, category, specs];
        self.extend_heads(sql::OVERDUE_HEADS, bound, into)
    }

    fn extend_heads(
        &self,
        text: &str,
        bound: impl rusqlite::Params,
        into: &mut Vec<Head>,
    ) -> Result<(), Fault> {
        let push = |row: &rusqlite::Row<'_>, into: &mut Vec<Head>| {
            let head = Head::read(row, into.last().map(|head| &head.row.task))?;
            into.push(head);
            Ok(())
        };
        self.fold(text, bound, into, push)
    }

    /// The first row of a query, if there is one.
    pub(super) fn one<T>(
        &self,
        text: &str,
        bound: impl rusqlite::Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Fault> {
        let run = || self.statement(text)?.query_row(bound, read).optional();
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
        self.fold(text, bound, into, |row, into| {
            into.push(read(row)?);
            Ok(())
        })
    }

    pub(super) fn fold<T>(
        &self,
        text: &str,
        bound: impl rusqlite::Params,
        into: &mut T,
        add: impl Fn(&rusqlite::Row<'_>, &mut T) -> rusqlite::Result<()>,
    ) -> Result<(), Fault> {
        let run = || {
            let mut statement = self.statement(text)?;
            let mut rows = statement.query(bound)?;
            while let Some(row) = rows.next()? {
                add(row, into)?;
            }
            Ok(())
        };
        run().map_err(|error| self.fault(error))
    }
}
