//! Reads that were made ahead, in the first flush of a transaction.
//!
//! An intent says what it is about to read ([`Prefetch`]); each step of [`Tx`](crate::Tx) then takes its answer from
//! here instead of asking the server. An answer is dropped as soon as a write could have changed it, so a step that finds
//! none asks as usual: this only saves round trips.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rota_core::obstacle::Stage;
use rota_core::policy::Reclaim;
use rota_core::select::Room;
use rota_core::{Fence, Status, Task, TaskId, UnixMillis};
use tokio_postgres::Row as PgRow;

use super::pipeline::{Reply, Statement};
use super::read_plan::{AHEAD, Asked, ReadPlan};
use super::ready_heads::ReadyHeads;
use super::row::{self, get};
use super::tx::{self, PostgresTx, ids};
use super::{heads, readback, sql};
use crate::fault::Fault;
use crate::intents::{default_policy, read};
use crate::tx::{BlockRow, HeadQuery, Level, Prefetch, QueueRow, Row, SettlementRow, Standing, Tx};
use crate::unlinked::UnlinkedCache;

/// The clock and the policy version of a scope.
#[derive(Clone)]
pub(super) struct Opening {
    pub scope: String,
    pub clock: UnixMillis,
    pub version: Option<String>,
}

/// Answers that were not used yet.
#[derive(Default)]
pub(super) struct Fetched {
    pub opening: Option<Opening>,
    /// The clock as it was read after every lock was taken.
    pub clock: Option<UnixMillis>,
    /// Insertion numbers for new tasks.
    pub numbers: VecDeque<u64>,
    pub unlinked: UnlinkedCache,
    settlement: ById<SettlementRow>,
    existing: ById<Row>,
    retired: ById<Fence>,
    queue: Option<FetchedQueue>,
    expired: Option<(i64, Vec<Row>)>,
    promoted: Option<(i64, usize)>,
    active: Option<(i64, BTreeMap<String, u32>)>,
    heads: Option<Heads>,
    /// The same of a queue with buckets.
    pub ready: Option<ReadyHeads>,
    /// The blocks of all upstreams.
    pub blocks: Option<Vec<BlockRow>>,
    /// The children of a task of a scope.
    children: Option<(String, TaskId, Vec<Row>)>,
}

/// Answers for tasks of one scope; none for an id that does not exist.
struct ById<T> {
    scope: String,
    answers: BTreeMap<TaskId, Option<T>>,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self { scope: String::new(), answers: BTreeMap::new() }
    }
}

impl<T: Clone> ById<T> {
    fn of(scope: &str, ids: &[TaskId], found: impl IntoIterator<Item = (TaskId, T)>) -> Self {
        let mut answers: BTreeMap<TaskId, Option<T>> = ids.iter().map(|id| (id.clone(), None)).collect();
        answers.extend(found.into_iter().map(|(id, answer)| (id, Some(answer))));
        Self { scope: scope.to_owned(), answers }
    }

    /// The answers for these ids, if all of them were fetched.
    fn get(&self, scope: &str, ids: &[TaskId]) -> Option<Vec<T>> {
        if self.scope != scope || ids.is_empty() {
            return None;
        }
        let answers: Option<Vec<Option<T>>> = ids.iter().map(|id| self.answers.get(id).cloned()).collect();
        answers.map(|answers| answers.into_iter().flatten().collect())
    }
}

struct FetchedQueue {
    scope: String,
    name: String,
    is_locked: bool,
    row: Option<QueueRow>,
}

/// The first tasks of a queue without buckets, in order.
struct Heads {
    queue: i64,
    host: Option<String>,
    category: Option<String>,
    specs: Option<Vec<String>>,
    only_kinds: Option<Vec<String>>,
    /// No task of this priority or a more urgent one is among them.
    after: Option<u32>,
    rows: VecDeque<Row>,
    /// There are no others.
    is_all: bool,
    /// Insertion numbers of rows that were handed out and not written since, and their priority.
    handed_out: BTreeSet<u64>,
    handed_from: Option<u32>,
}

impl Heads {
    fn serves(&self, query: &HeadQuery<'_>) -> bool {
        self.queue == query.queue
            && self.host.as_deref() == query.host
            && self.category == query.filter.category
            && self.specs == query.filter.specs
            && self.only_kinds.as_deref() == query.only_kinds
            && query.after >= self.after
            // Rows that were handed out and not granted are missing here.
            && (self.handed_out.is_empty() || query.after >= self.handed_from)
    }
}

impl Fetched {
    pub fn settlement(&self, scope: &str, list: &[TaskId]) -> Option<Vec<SettlementRow>> {
        self.settlement.get(scope, list)
    }

    /// Keeps the parents of heads.
    fn keep_parents(&mut self, scope: &str, rows: Vec<Row>) {
        if self.existing.scope != scope {
            self.existing = ById::of(scope, &[], []);
        }
        self.existing.answers.extend(rows.into_iter().map(|row| (row.task.id.clone(), Some(row))));
    }

    pub fn existing(&self, scope: &str, list: &[TaskId]) -> Option<Vec<Row>> {
        self.existing.get(scope, list)
    }

    pub fn retired(&self, scope: &str, list: &[TaskId]) -> Option<Vec<(TaskId, Fence)>> {
        let fences: Option<Vec<(TaskId, Vec<Fence>)>> = list
            .iter()
            .map(|id| Some((id.clone(), self.retired.get(scope, std::slice::from_ref(id))?)))
            .collect();
        let pairs =
            |(id, fences): (TaskId, Vec<Fence>)| fences.into_iter().map(move |fence| (id.clone(), fence));
        fences.map(|fences| fences.into_iter().flat_map(pairs).collect())
    }

    pub fn queue(&self, scope: &str, name: &str, locks: bool) -> Option<Option<QueueRow>> {
        let queue = self.queue.as_ref()?;
        let is_wanted = queue.scope == scope && queue.name == name && (queue.is_locked || !locks);
        is_wanted.then(|| queue.row.clone())
    }

    /// A queue was paused or resumed, or locked by a statement of its own: what was read before the wait is old.
    pub fn forget_queue(&mut self) {
        self.queue = None;
        self.clock = None;
    }

    /// Expired leases; whoever asks reclaims all of them, so the next one finds none, unless there were more than were read.
    pub fn expired(&mut self, queue: i64) -> Option<Vec<Row>> {
        let (key, rows) = self.expired.as_mut()?;
        let rows = (*key == queue).then(|| std::mem::take(rows))?;
        if rows.len() >= AHEAD {
            self.expired = None;
        }
        Some(rows)
    }

    /// How many tasks were moved into the ready index; the next one who asks finds none to move, unless there were more.
    pub fn promoted(&mut self, queue: i64) -> Option<usize> {
        let (key, count) = self.promoted.as_mut()?;
        let count = (*key == queue).then(|| std::mem::take(count))?;
        if count >= AHEAD {
            self.promoted = None;
        }
        Some(count)
    }

    pub fn active(&self, queue: i64) -> Option<BTreeMap<String, u32>> {
        let (key, active) = self.active.as_ref()?;
        (*key == queue).then(|| active.clone())
    }

    /// The next priority of a query; the outer `None` if only the server can tell.
    pub fn level(&mut self, query: &HeadQuery<'_>) -> Option<Option<Level>> {
        let heads = self.heads.as_mut().filter(|heads| heads.serves(query))?;
        if let Some(after) = query.after.filter(|_| query.after > heads.after) {
            heads.rows.retain(|row| row.task.sort_priority() > after);
            heads.after = query.after;
        }
        let Some(priority) = heads.rows.front().map(|row| row.task.sort_priority()) else {
            return heads.is_all.then_some(None);
        };
        let count = heads.rows.iter().take_while(|row| row.task.sort_priority() == priority).count();
        let is_cut = count == heads.rows.len() && !heads.is_all;
        if is_cut && count < query.per_bucket {
            return None;
        }
        let rows: Vec<Row> = heads.rows.drain(..count.min(query.per_bucket)).collect();
        heads.handed_out.extend(rows.iter().map(|row| row.task.seq));
        heads.handed_from = Some(priority);
        Some(Some(Level { priority, rows }))
    }

    /// Keeps the first tasks of a queue, as many as one bucket of the query may have.
    pub fn keep_heads(&mut self, query: &HeadQuery<'_>, rows: Vec<(Row, bool)>) {
        let is_all = rows.len() < query.per_bucket;
        let rows = self.note_heads(rows);
        self.heads = Some(Heads {
            queue: query.queue,
            host: query.host.map(str::to_owned),
            category: query.filter.category.clone(),
            specs: query.filter.specs.clone(),
            only_kinds: query.only_kinds.map(<[String]>::to_vec),
            after: query.after,
            rows,
            is_all,
            handed_out: BTreeSet::new(),
            handed_from: None,
        });
    }

    /// Keeps the first tasks of a queue that were read ahead.
    fn keep_first(&mut self, fetch: &Fetch<'_>, rows: Vec<(Row, bool)>) {
        let Some(claim) = &fetch.reads.claim else { return };
        let is_all = i64::try_from(rows.len()).unwrap_or(i64::MAX) < fetch.limit;
        let rows = self.note_heads(rows);
        self.heads = Some(Heads {
            queue: fetch.key,
            host: claim.host.map(str::to_owned),
            category: claim.category.map(str::to_owned),
            specs: None,
            only_kinds: claim.only_kinds.map(<[String]>::to_vec),
            after: None,
            rows,
            is_all,
            handed_out: BTreeSet::new(),
            handed_from: None,
        });
    }

    /// Reads tasks that were locked, and then whether each has followers (dependents or children) and blockers.
    pub fn read_settlement(
        &mut self,
        locked: Option<Reply>,
        links: Option<Reply>,
    ) -> Result<Vec<SettlementRow>, Fault> {
        let mut with_followers = BTreeSet::new();
        let mut with_blockers = BTreeSet::new();
        for row in links.map(Reply::rows).unwrap_or_default() {
            let id = row::id(&row, 0)?;
            if get(&row, 1)? {
                with_followers.insert(id.clone());
            }
            if get(&row, 2)? {
                with_blockers.insert(id);
            }
        }
        let mut found = Vec::new();
        for row in locked.map(Reply::rows).unwrap_or_default() {
            let row = row::task(&row)?;
            if !with_blockers.contains(&row.task.id) {
                self.unlinked.note_without_blockers(&row.task);
            }
            let is_linked = row.task.parent.is_some() || with_followers.contains(&row.task.id);
            found.push(SettlementRow { row, is_linked });
        }
        Ok(found)
    }

    fn note_heads(&mut self, rows: Vec<(Row, bool)>) -> VecDeque<Row> {
        for (row, has_blockers) in &rows {
            if !has_blockers {
                self.unlinked.note_without_blockers(&row.task);
            }
        }
        rows.into_iter().map(|(row, _)| row).collect()
    }

    pub fn keep_children(&mut self, scope: &str, parent: &TaskId, rows: Vec<Row>) {
        self.children = Some((scope.to_owned(), parent.clone(), rows));
    }

    /// The children of a task, if they were read and none was written since.
    pub fn children(&mut self, scope: &str, parent: &TaskId) -> Option<Vec<Row>> {
        let (_, _, rows) = self.children.take_if(|(of, kept, _)| of == scope && kept == parent)?;
        Some(rows)
    }

    /// Keeps a reply about the heads of a queue that ranks in buckets.
    fn keep_ready(&mut self, fetch: &Fetch<'_>, what: Asked, reply: Reply) -> Result<(), Fault> {
        let scope = fetch.reads.scope;
        match what {
            Asked::Parents => self.keep_parents(scope, read_all(reply, row::task)?),
            Asked::Blocks => self.blocks = Some(read_all(reply, tx::block_row)?),
            Asked::Blockers => {
                let blockers = read_all(reply, |row| Ok((row::id(row, 4)?, row::blocker(row)?)))?;
                self.ready.iter_mut().for_each(|ready| ready.keep_blockers(blockers.clone()));
            }
            Asked::Levels => {
                let levels = reply.rows().len();
                self.ready.iter_mut().for_each(|ready| ready.keep_levels(levels));
            }
            _ => {
                let (rows, claim) = (read_all(reply, heads::head)?, fetch.reads.claim.as_ref());
                self.ready = claim.map(|claim| ReadyHeads::new(scope, fetch.key, claim, rows));
            }
        }
        Ok(())
    }

    /// An edge of a task was added or removed.
    pub fn note_edge(&mut self, task: &TaskId) {
        self.ready.iter_mut().for_each(|ready| ready.note_edge(task));
    }

    /// A task was inserted.
    pub fn note_insert(&mut self, task: &Task, standing: &Standing) {
        if standing.stage == Stage::Ready || task.parent.is_some() {
            self.ready = None;
        }
        self.children = None;
        if standing.stage == Stage::Ready {
            self.heads = None;
        }
        self.existing.answers.remove(&task.id);
        self.retired.answers.remove(&task.id);
    }

    /// A task was updated: drops every answer that it may have been part of, or may be part of now.
    pub fn note_update(&mut self, old: &Task, next: &Task, standing: &Standing) {
        self.forget_task(next);
        if old.parent != next.parent {
            self.children = None;
        }
        if next.lease_expires_at.is_some_and(|at| at <= next.updated_at) {
            self.expired = None;
        }
        if let Some(heads) = &mut self.heads {
            heads.handed_out.remove(&next.seq);
            if standing.stage == Stage::Ready {
                self.heads = None;
            }
        }
        let is_reparented = old.parent != next.parent;
        if self.ready.as_mut().is_some_and(|ready| !ready.note_update(next, standing) || is_reparented) {
            self.ready = None;
        }
        if (old.status == Status::Active) != (next.status == Status::Active) || old.kind != next.kind {
            self.active = None;
        }
        if is_reparented {
            self.unlinked.forget();
        }
    }

    /// Drops every answer that has the row of a task: the row was written, or its count of open blockers was.
    pub fn forget_task(&mut self, task: &Task) {
        self.settlement.answers.remove(&task.id);
        self.existing.answers.remove(&task.id);
        let is_it = |row: &Row| row.task.seq == task.seq;
        if self.expired.as_ref().is_some_and(|(_, rows)| rows.iter().any(is_it)) {
            self.expired = None;
        }
        if self.heads.as_ref().is_some_and(|heads| heads.rows.iter().any(is_it)) {
            self.heads = None;
        }
        if self.children.as_ref().is_some_and(|(.., rows)| rows.iter().any(is_it)) {
            self.children = None;
        }
    }
}

impl PostgresTx {
    /// Makes the reads of an intent in one flush.
    pub(super) async fn fetch(&mut self, reads: &Prefetch<'_>) -> Result<(), Fault> {
        if let Some(claim) = reads.claim.as_ref().filter(|_| self.writes()) {
            self.learn(reads.scope, claim.queue).await?;
        }
        let plan = self.plan_reads(reads);
        let (whats, statements): (Vec<Asked>, Vec<Statement<'_>>) = plan.statements().into_iter().unzip();
        let replies = self.flush(statements).await?;
        let queue = plan.queue.unwrap_or_default();
        let fetch = Fetch { reads, queue, key: plan.key, is_bounded: plan.is_bounded, limit: plan.limit };
        self.keep(&fetch, whats.into_iter().zip(replies))
    }

    /// The values that the statements of [`ReadPlan`] are bound to.
    fn plan_reads<'a>(&self, reads: &'a Prefetch<'a>) -> ReadPlan<'a> {
        let scope = reads.scope;
        let policy = self.known_policy(scope).map(|known| known.unwrap_or_else(default_policy));
        let claim = reads.claim.as_ref();
        let (mut limit, mut is_bounded, mut reclaims, mut is_plain) = (0_i64, false, false, false);
        if let Some((claim, published)) = claim.zip(policy.as_ref()) {
            let policy = published.policy.queue(claim.queue);
            limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
            is_bounded = self.writes() && (Room::is_bounded_by(policy) || claim.queue == read::LOOPS);
            reclaims = self.writes() && policy.reclaim == Reclaim::Auto;
            is_plain = !policy.is_bucketed();
        }
        let queue = claim.map(|claim| claim.queue).or(reads.add_queue);
        let is_known = claim.is_some() && policy.is_some();
        let key = queue.filter(|_| is_known).and_then(|queue| self.shared.known_queue(scope, queue));
        let (settle, add) = (ids(reads.settle), ids(reads.add));
        ReadPlan {
            scope,
            queue,
            queue_name: queue.unwrap_or_default(),
            key: key.unwrap_or_default(),
            existing: add.iter().copied().chain(ids(reads.look)).collect(),
            numbers: i64::try_from(add.len()).unwrap_or(i64::MAX),
            settle,
            add,
            host: claim.and_then(|claim| claim.host),
            category: claim.and_then(|claim| claim.category),
            only_kinds: claim.and_then(|claim| claim.only_kinds),
            reads_blocks: claim.is_some_and(|claim| claim.blocks),
            limit,
            is_bounded,
            reclaims,
            is_plain,
            writes: self.writes(),
        }
    }

    /// A claim reads ahead by the policy and the queue's key. A process that does not know them asks first, so that the row
    /// of a queue with a ceiling is locked for one round trip here too.
    async fn learn(&mut self, scope: &str, queue: &str) -> Result<(), Fault> {
        if self.known_policy(scope).is_some() && self.shared.known_queue(scope, queue).is_some() {
            return Ok(());
        }
        let look = Statement::Rows(sql::QUEUE, vec![&scope, &queue]);
        let open = Statement::Rows(sql::OPENING_TO_WRITE, vec![&scope]);
        let mut replies = self.flush(vec![look, open]).await?.into_iter();
        let rows = replies.next().map(Reply::rows).unwrap_or_default();
        self.shared.note_queue(scope, queue, rows.first().map(tx::queue_row).transpose()?.as_ref());
        for row in replies.next().map(Reply::rows).unwrap_or_default() {
            let version = self.read_opening(scope, &row)?.version;
            self.published(scope, version).await?;
        }
        Ok(())
    }

    fn keep(
        &mut self,
        fetch: &Fetch<'_>,
        replies: impl Iterator<Item = (Asked, Reply)>,
    ) -> Result<(), Fault> {
        let Fetch { reads, queue, key, is_bounded, .. } = *fetch;
        let scope = reads.scope;
        let mut locked = None;
        for (what, reply) in replies {
            let fetched = &mut self.fetched;
            match what {
                Asked::Nothing => {}
                Asked::Settlement => locked = Some(reply),
                Asked::Followers => {
                    let rows = fetched.read_settlement(locked.take(), Some(reply))?;
                    let rows = rows.into_iter().map(|found| (found.row.task.id.clone(), found));
                    fetched.settlement = ById::of(scope, reads.settle, rows);
                }
                Asked::Existing => {
                    let rows = read_all(reply, row::task)?;
                    let rows = rows.into_iter().map(|row| (row.task.id.clone(), row));
                    let ids: Vec<TaskId> = reads.add.iter().chain(reads.look).cloned().collect();
                    fetched.existing = ById::of(scope, &ids, rows);
                }
                Asked::Retired => {
                    let fences = read_all(reply, tx::retired_fence)?;
                    fetched.retired = ById::of(scope, reads.add, fences);
                }
                Asked::Numbers => fetched.numbers.extend(read_all(reply, row::unsigned_first)?),
                Asked::Queue => {
                    let row = read_all(reply, tx::queue_row)?.into_iter().next();
                    self.shared.note_queue(scope, queue, row.as_ref());
                    let (scope, name) = (scope.to_owned(), queue.to_owned());
                    fetched.queue = Some(FetchedQueue { scope, name, is_locked: is_bounded, row });
                }
                Asked::Expired => fetched.expired = Some((key, read_all(reply, row::task)?)),
                Asked::Active => {
                    fetched.active = Some((key, read_all(reply, tx::active_of_kind)?.into_iter().collect()));
                }
                Asked::Heads => fetched.keep_first(fetch, read_all(reply, heads::head)?),
                Asked::Parents | Asked::Blocks | Asked::Ready | Asked::Blockers | Asked::Levels => {
                    fetched.keep_ready(fetch, what, reply)?;
                }
                Asked::Opening => {
                    for row in reply.rows() {
                        self.keep_opening(scope, &row)?;
                    }
                }
                Asked::OpeningToClaim => {
                    for row in reply.rows() {
                        self.keep_opening_to_claim(fetch, &row)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn keep_opening_to_claim(&mut self, fetch: &Fetch<'_>, row: &PgRow) -> Result<(), Fault> {
        let (scope, name) = (fetch.reads.scope, fetch.queue);
        self.keep_opening(scope, row)?;
        let key = get::<Option<i64>>(row, 4)?;
        let row_of = |key| Ok(QueueRow { key, name: get(row, 5)?, paused: get(row, 6)? });
        let found = key.map(row_of).transpose()?;
        self.shared.note_queue(scope, name, found.as_ref());
        let (scope, name) = (scope.to_owned(), name.to_owned());
        self.fetched.queue = Some(FetchedQueue { scope, name, is_locked: fetch.is_bounded, row: found });
        self.fetched.promoted = Some((fetch.key, row::unsigned(row, 7)?));
        Ok(())
    }

    fn keep_opening(&mut self, scope: &str, row: &PgRow) -> Result<(), Fault> {
        let opening = self.read_opening(scope, row)?;
        self.fetched.clock = Some(opening.clock);
        self.fetched.opening = Some(opening);
        Ok(())
    }

    /// Reads the first columns of an answer to `sql::OPENING` or `sql::OPENING_TO_WRITE`.
    pub(super) fn read_opening(&mut self, scope: &str, row: &PgRow) -> Result<Opening, Fault> {
        if self.writes() && self.trace.is_none() {
            let (number, server_started) = (get(row, 2)?, get(row, 3)?);
            self.trace = Some(readback::Trace::of(number, server_started)?);
        }
        Ok(Opening { scope: scope.to_owned(), clock: row::time(row, 0)?, version: get(row, 1)? })
    }
}

struct Fetch<'a> {
    reads: &'a Prefetch<'a>,
    queue: &'a str,
    key: i64,
    is_bounded: bool,
    limit: i64,
}

fn read_all<T>(reply: Reply, read: impl Fn(&PgRow) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    reply.rows().iter().map(read).collect()
}
