//! The statements of one flush that reads ahead, and the order of their locks.

use tokio_postgres::types::ToSql;

use super::pipeline::{Bound, Statement};
use super::{sql, tx};

/// The purpose of a statement; replies come in the order of the statements.
pub(super) enum Asked {
    Nothing,
    Settlement,
    Followers,
    Existing,
    Retired,
    Numbers,
    Queue,
    Expired,
    Active,
    Heads,
    Ready,
    Parents,
    Blockers,
    Levels,
    Blocks,
    Opening,
    OpeningToClaim,
}

/// How many expired leases and tasks that have cooled down are looked at ahead: usually there is none.
pub(super) const AHEAD: usize = 500;
const ROWS_AHEAD: i64 = AHEAD as i64;
/// No limit of time, no list of specs, and a priority that comes before all.
const NO_TIME: Option<i64> = None;
const NO_LIST: Option<Vec<&str>> = None;
const BEFORE_ALL: i64 = -1;

/// The reads that one flush makes for an intent.
pub(super) struct ReadPlan<'a> {
    pub scope: &'a str,
    pub queue: Option<&'a str>,
    pub queue_name: &'a str,
    /// 0 for a queue that is not known, or not claimed from.
    pub key: i64,
    pub settle: Vec<&'a str>,
    pub add: Vec<&'a str>,
    pub existing: Vec<&'a str>,
    /// How many insertion numbers are reserved.
    pub numbers: i64,
    pub host: Option<&'a str>,
    pub category: Option<&'a str>,
    pub only_kinds: Option<&'a [String]>,
    pub reads_blocks: bool,
    pub limit: i64,
    pub is_bounded: bool,
    pub reclaims: bool,
    pub is_plain: bool,
    pub writes: bool,
}

impl ReadPlan<'_> {
    /// The statements, in the order of their locks, which is that of every writer: queue, tasks by id, then only rows that
    /// no other transaction holds. The clock is read after the last statement that may wait, so that no lease is shorter
    /// for a wait.
    pub fn statements(&self) -> Vec<(Asked, Statement<'_>)> {
        let Self { scope, queue_name, key, settle, add, existing, numbers, .. } = self;
        let mut asked: Vec<(Asked, Statement<'_>)> = Vec::new();
        let mut ask = |what, text, bound| asked.push((what, Statement::Rows(text, bound)));
        if self.is_bounded {
            ask(Asked::Nothing, sql::LOCK_QUEUE, vec![scope, queue_name]);
        }
        if !settle.is_empty() {
            ask(Asked::Settlement, sql::TASKS_LOCKED, vec![scope, settle]);
            ask(Asked::Followers, sql::LINKS, vec![scope, settle]);
        }
        if !existing.is_empty() {
            ask(Asked::Existing, sql::TASKS, vec![scope, existing]);
        }
        if !add.is_empty() {
            ask(Asked::Retired, tx::RETIRED, vec![scope, add]);
            ask(Asked::Numbers, sql::RESERVE, vec![numbers]);
        }
        let claims = *key != 0 && self.writes;
        if claims {
            ask(Asked::OpeningToClaim, sql::OPENING_TO_CLAIM, vec![scope, queue_name, &ROWS_AHEAD]);
        } else if self.queue.is_some() {
            ask(Asked::Queue, sql::QUEUE, vec![scope, queue_name]);
        }
        if *key != 0 {
            asked.extend(self.candidates());
        }
        if !claims {
            let opening = if self.writes { sql::OPENING_TO_WRITE } else { sql::OPENING };
            asked.push((Asked::Opening, Statement::Rows(opening, vec![scope])));
        }
        asked
    }

    /// Expired leases, active leases by kind, and the tasks that a claim may choose from.
    fn candidates(&self) -> Vec<(Asked, Statement<'_>)> {
        let Self { scope, key, host, category, only_kinds, limit, .. } = self;
        let mut asked: Vec<(Asked, Statement<'_>)> = Vec::new();
        let mut ask = |what, text, bound| asked.push((what, Statement::Rows(text, bound)));
        if self.reclaims {
            ask(Asked::Expired, sql::EXPIRED_LOCKED, vec![key, &NO_TIME, &ROWS_AHEAD]);
        }
        if self.is_bounded {
            ask(Asked::Active, sql::ACTIVE_BY_KIND, vec![key]);
        }
        if self.is_plain && *limit > 0 {
            let bound: Bound<'_> =
                vec![key, &BEFORE_ALL, &i64::MAX, host, limit, category, &NO_LIST, only_kinds];
            ask(Asked::Heads, if self.writes { sql::PLAIN_HEADS_LOCKED } else { sql::PLAIN_HEADS }, bound);
        }
        if !self.is_plain && *limit > 0 && self.writes {
            let of: [&(dyn ToSql + Sync); 6] = [key, host, category, only_kinds, limit, scope];
            ask(Asked::Ready, sql::READY_HEADS_LOCKED, of[..5].to_vec());
            ask(Asked::Parents, sql::READY_PARENTS, of.to_vec());
            ask(Asked::Blockers, sql::READY_BLOCKERS, of.to_vec());
            ask(Asked::Levels, sql::READY_LEVELS, vec![key]);
        }
        if self.reads_blocks {
            ask(Asked::Blocks, tx::BLOCKS, vec![]);
        }
        asked
    }
}
