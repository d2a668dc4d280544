//! Reading: one snapshot each, no locks, nothing journalled.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::event::Event;
use rota_core::explain::{self, Explanation, Surroundings};
use rota_core::obstacle::{self, Facts, Viewer, Wait};
use rota_core::policy::{QueuePolicy, Reclaim};
use rota_core::rank::{self, RankKey, Rankable};
use rota_core::select::Room;
use rota_core::transition::{self, Command};
use rota_core::{Refusal, Status, Task, TaskId};

use super::claim::{Wanted, open_blockers};
use super::upstreams::Upstreams;
use super::{Call, Cx, find_queue, find_task, write};
use crate::fault::{Fault, Outcome};
use crate::in_context;
use crate::store::{Access, Intent};
use crate::tx::{
    AnyTx, Blocker, ClaimReads, EventFilter, Filter, HeadQuery, ListFilter, Prefetch, QueueRow, Ranked, Row,
    StatusCount, Tx,
};

/// A task with the ids of its blockers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskView {
    /// The task.
    pub task: Task,
    /// Its blockers, by id.
    pub deps: Vec<TaskId>,
    /// Since when nothing but time stands in its way; none while something else does.
    pub ready_at: Option<rota_core::UnixMillis>,
}

impl TaskView {
    /// A task that has neither blockers nor a parent.
    pub fn of_unlinked(task: Task) -> Self {
        let facts = Facts { parent: None, open_blockers: 0, blocked_by: Vec::new() };
        let ready_at = obstacle::ready_since(&task, &facts);
        Self { task, deps: Vec::new(), ready_at }
    }
}

/// The top of the queue and everything that is under way.
#[derive(Clone, Debug)]
pub struct Peek {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// How many claimable ones.
    pub limit: usize,
    /// Which.
    pub wanted: Wanted,
    /// The host that would run them.
    pub host: Option<String>,
}

/// What [`Peek`] saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Landscape {
    /// Claimable, in the order they would be granted. An expired lease that a claim would take back is shown as open.
    pub claimable: Vec<TaskView>,
    /// Under way, in order.
    pub active: Vec<TaskView>,
}

#[async_trait]
impl Intent for Peek {
    type Output = Landscape;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Landscape> {
        if self.call.now.is_none() {
            // Globs have to be resolved first.
            let limit = if self.wanted.specs.is_some() { 0 } else { self.limit };
            let (host, category) = (self.host.as_deref(), self.wanted.category.as_deref());
            let claim =
                Some(ClaimReads { queue: &self.queue, limit, host, category, ..ClaimReads::default() });
            tx.prefetch(&Prefetch { scope: &self.call.scope, claim, ..Prefetch::default() }).await?;
        }
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Landscape::default()) };
        let policy = cx.policy(&self.queue);
        let filter = self.wanted.resolve(tx, &cx).await?;
        let viewer = Viewer { queue_paused: queue.paused, host: self.host.clone(), runners: None };
        let under_way = ListFilter {
            queue: Some(queue.key),
            statuses: vec![Status::Active],
            assignee: None,
            filter: filter.clone(),
        };
        let (mut claimable, mut active, mut abandoned) = (Vec::new(), Vec::new(), Vec::new());
        for row in tx.list(&cx.scope, &under_way).await? {
            match as_if_lost(tx, &cx, &row, policy, &viewer).await? {
                Some(lost) => {
                    claimable.push(lost);
                    abandoned.push(row);
                }
                None => active.push(row),
            }
        }
        if !queue.paused {
            claimable.extend(ready(tx, &cx, &queue, self, &filter).await?);
            let mut due = due(tx, &cx, &queue, self, &filter).await?;
            due.retain(|row| obstacle::viewer_obstacles(&row.task, &viewer).is_empty());
            claimable.extend(due);
        }
        let mut claimable = in_order(claimable, policy, &cx);
        claimable.truncate(self.limit);
        // An abandoned task that is not among the first is still under way until a claim takes its lease back.
        abandoned.retain(|row| claimable.iter().all(|shown| shown.task.seq != row.task.seq));
        active.extend(abandoned);
        let count = claimable.len();
        claimable.extend(in_order(active, policy, &cx));
        let mut claimable = views(tx, &cx, claimable).await?;
        let active = claimable.split_off(count);
        Ok(Landscape { claimable, active })
    }
}

/// The row as the next claim would have it once it has taken its lease back; none if it would not.
async fn as_if_lost<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    row: &Row,
    policy: &QueuePolicy,
    viewer: &Viewer,
) -> Result<Option<Row>, Fault> {
    if policy.reclaim == Reclaim::Explicit || !row.task.lease_expired(cx.now) {
        return Ok(None);
    }
    let Ok(applied) = transition::apply(&row.task, &Command::Lose, policy, cx.now) else { return Ok(None) };
    let lost = Row { task: applied.task, open_blockers: row.open_blockers };
    let facts = write::facts(tx, cx, &lost).await?;
    let is_free = obstacle::obstacles(&lost.task, &facts, cx.now).is_empty()
        && obstacle::viewer_obstacles(&lost.task, viewer).is_empty();
    Ok(is_free.then_some(lost))
}

async fn ready<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    queue: &QueueRow,
    peek: &Peek,
    filter: &Filter,
) -> Result<Vec<Row>, Fault> {
    // The heads of a bucket and the longest waiting may be the same.
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let mut after = None;
    while rows.len() < peek.limit {
        let query = HeadQuery {
            queue: queue.key,
            bucketed: cx.policy(&peek.queue).is_bucketed(),
            after,
            per_bucket: peek.limit,
            now: cx.now,
            overdue_before: rank::overdue_before(cx.policy(&peek.queue), cx.now),
            host: peek.host.as_deref(),
            full_kinds: &[],
            only_kinds: None,
            filter,
        };
        let Some(level) = tx.heads(&query).await? else { break };
        after = Some(level.priority);
        rows.extend(level.rows.into_iter().map(|row| (row.task.seq, row)));
    }
    Ok(rows.into_values().collect())
}

/// Tasks that have cooled down but that no claim has let in yet.
async fn due<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    queue: &QueueRow,
    peek: &Peek,
    filter: &Filter,
) -> Result<Vec<Row>, Fault> {
    let policy = cx.policy(&peek.queue);
    let mut ranked = tx.rankables(queue.key, Ranked::Due(cx.now)).await?;
    ranked.sort_by_cached_key(|rankable| rank::key(rankable, policy, cx.now));
    if filter.is_empty() && peek.host.is_none() {
        ranked.truncate(peek.limit);
    }
    let seqs: Vec<u64> = ranked.iter().map(|rankable| rankable.seq).collect();
    let mut rows = tx.tasks_by_seq(&seqs).await?;
    rows.retain(|row| filter.admits(&row.task));
    Ok(rows)
}

fn in_order(rows: Vec<Row>, policy: &QueuePolicy, cx: &Cx) -> Vec<Row> {
    let mut keyed: BTreeMap<RankKey, Row> = BTreeMap::new();
    keyed.extend(rows.into_iter().map(|row| (key(&row, policy, cx), row)));
    keyed.into_values().collect()
}

fn key(row: &Row, policy: &QueuePolicy, cx: &Cx) -> RankKey {
    rank::key(&Rankable::of(&row.task, policy), policy, cx.now)
}

pub(super) async fn views<T: Tx>(tx: &mut T, cx: &Cx, rows: Vec<Row>) -> Result<Vec<TaskView>, Fault> {
    let ids: Vec<TaskId> = rows.iter().map(|row| row.task.id.clone()).collect();
    let mut deps: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
    for (task, blocker) in tx.edges(&cx.scope, &ids).await? {
        deps.entry(task).or_default().push(blocker);
    }
    let mut views = Vec::with_capacity(rows.len());
    for row in rows {
        let mut deps = deps.remove(&row.task.id).unwrap_or_default();
        deps.sort();
        let facts = write::facts(tx, cx, &row).await?;
        let ready_at = obstacle::ready_since(&row.task, &facts);
        views.push(TaskView { task: row.task, deps, ready_at });
    }
    Ok(views)
}

/// A task that was just written, as [`Show`] shows it.
pub(super) async fn view<T: Tx>(tx: &mut T, cx: &Cx, task: Task) -> Result<TaskView, Fault> {
    let blockers = tx.blockers(&cx.scope, &task.id).await?;
    let open = blockers.iter().filter(|blocker| !blocker.status.satisfies_edge()).count();
    let parent = in_context::parent(tx, &cx.scope, &task).await?;
    let open_blockers = u32::try_from(open).unwrap_or(u32::MAX);
    let facts = Facts { parent, open_blockers, blocked_by: Vec::new() };
    let ready_at = obstacle::ready_since(&task, &facts);
    Ok(TaskView { task, deps: blockers.into_iter().map(|blocker| blocker.id).collect(), ready_at })
}

/// The `now` that a decision would be made at.
#[derive(Clone, Debug)]
pub struct Now {
    /// Where, when, who.
    pub call: Call,
}

#[async_trait]
impl Intent for Now {
    type Output = rota_core::UnixMillis;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<rota_core::UnixMillis> {
        Ok(Cx::open(tx, &self.call).await?.now)
    }
}

/// Lists tasks of a queue in the one order.
#[derive(Clone, Debug)]
pub struct List {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// In which states; empty for all.
    pub statuses: Vec<Status>,
    /// Only this holder's.
    pub assignee: Option<String>,
}

#[async_trait]
impl Intent for List {
    type Output = Vec<TaskView>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<TaskView>> {
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Vec::new()) };
        let filter = ListFilter {
            queue: Some(queue.key),
            statuses: self.statuses.clone(),
            assignee: self.assignee.clone(),
            filter: Filter::default(),
        };
        let rows = tx.list(&cx.scope, &filter).await?;
        let rows = in_order(rows, cx.policy(&self.queue), &cx);
        Ok(views(tx, &cx, rows).await?)
    }
}

/// One task in full, with its blockers.
#[derive(Clone, Debug)]
pub struct Show {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
}

#[async_trait]
impl Intent for Show {
    type Output = (TaskView, Vec<Blocker>);

    fn access(&self) -> Access {
        Access::Once
    }

    /// Nothing is decided here, so neither the clock nor the policy is needed.
    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let Some(seen) = tx.in_context(&self.call.scope, &self.id).await? else {
            return Err(Refusal::TaskNotFound { id: self.id.clone() }.into());
        };
        let ready_at = obstacle::ready_since(&seen.row.task, &seen.facts());
        let deps = seen.blockers.iter().map(|blocker| blocker.id.clone()).collect();
        Ok((TaskView { task: seen.row.task, deps, ready_at }, seen.blockers))
    }
}

/// A task's blockers, theirs, and so on.
#[derive(Clone, Debug)]
pub struct Blockers {
    /// Where, when, who.
    pub call: Call,
    /// Whose.
    pub id: TaskId,
}

/// One line of the tree: how deep below the task, and the blocker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockerLine {
    /// 0 for direct ones.
    pub level: usize,
    /// The blocker.
    pub blocker: Blocker,
}

/// A tree is a graph told again at every branch; past this many lines it is cut.
pub const TREE_LINES: usize = 10_000;

#[async_trait]
impl Intent for Blockers {
    type Output = Vec<BlockerLine>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<BlockerLine>> {
        let cx = Cx::open(tx, &self.call).await?;
        find_task(tx, &cx, &self.id).await?;
        let mut lines = Vec::new();
        let mut stack: Vec<BlockerLine> = Vec::new();
        let mut id = self.id.clone();
        let mut level = 0;
        loop {
            let direct = tx.blockers(&cx.scope, &id).await?;
            stack.extend(direct.into_iter().rev().map(|blocker| BlockerLine { level, blocker }));
            let Some(next) = stack.pop().filter(|_| lines.len() < TREE_LINES) else { return Ok(lines) };
            id = next.blocker.id.clone();
            level = next.level + 1;
            lines.push(next);
        }
    }
}

/// Counts a queue's tasks by state.
#[derive(Clone, Debug)]
pub struct PlanStatus {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// Which tasks.
    pub wanted: Wanted,
}

#[async_trait]
impl Intent for PlanStatus {
    type Output = Vec<StatusCount>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<StatusCount>> {
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Vec::new()) };
        let filter = self.wanted.resolve(tx, &cx).await?;
        Ok(tx.count(queue.key, &filter).await?)
    }
}

/// Reads the journal of a scope, or of one task that must exist.
#[derive(Clone, Debug)]
pub struct Journal {
    /// Where, when, who.
    pub call: Call,
    /// Which rows.
    pub filter: EventFilter,
}

#[async_trait]
impl Intent for Journal {
    type Output = Vec<Event>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Vec<Event>> {
        let cx = Cx::open(tx, &self.call).await?;
        if let Some(id) = &self.filter.task {
            find_task(tx, &cx, id).await?;
        }
        Ok(tx.events(&cx.scope, &self.filter).await?)
    }
}

/// What is configured to run loops.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Runners {
    /// The kinds that can be run here, each with the upstream it calls; none where anything can.
    pub kinds: Option<BTreeMap<String, Option<String>>>,
    /// What keeps loops of a kind from beginning on this host.
    pub waits: BTreeMap<String, Vec<Wait>>,
    /// Whether no gateway counts the calls of loops, so that their number is bounded instead.
    pub bounds_loops: bool,
}

impl Runners {
    /// Who asks about a task: only loops need something that is configured.
    pub(super) fn viewer(&self, queue: &QueueRow, host: &Option<String>) -> Viewer {
        let kinds = self.kinds.as_ref().filter(|_| queue.name == LOOPS);
        let runners = kinds.map(|kinds| kinds.keys().cloned().collect());
        Viewer { queue_paused: queue.paused, host: host.clone(), runners }
    }

    /// A room under the limits of the upstreams that the kinds use, as grants see them.
    async fn limit<T: Tx>(&self, tx: &mut T, cx: &Cx, room: Room, kind: Option<&str>) -> Result<Room, Fault> {
        let of_kind = self.kinds.clone().unwrap_or_default();
        let mut kinds: Vec<&str> = of_kind.keys().map(String::as_str).collect();
        kinds.extend(kind);
        let upstreams = Upstreams { of_kind: of_kind.clone(), bounds_loops: self.bounds_loops };
        upstreams.limit(tx, cx, room, &kinds).await
    }
}

/// The queue of loops.
pub const LOOPS: &str = "loops";

/// Explains why a task runs, or not.
#[derive(Clone, Debug)]
pub struct Why {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
    /// The host that would run it.
    pub host: Option<String>,
    /// What is configured to run it.
    pub runners: Runners,
}

#[async_trait]
impl Intent for Why {
    type Output = Explanation;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Explanation> {
        let cx = Cx::open(tx, &self.call).await?;
        let row = find_task(tx, &cx, &self.id).await?;
        let policy = cx.policy(&row.task.queue);
        let Some(queue) = find_queue(tx, &cx, &row.task.queue).await? else {
            unreachable!("a stored task has a stored queue")
        };
        let mut facts = write::facts(tx, &cx, &row).await?;
        facts.blocked_by = open_blockers(tx, &cx, &self.id).await?;
        let viewer = self.runners.viewer(&queue, &self.host);
        let mut room = Room::new(policy, active_after_reclaim(tx, &cx, &queue, policy).await?);
        let mut outside = Vec::new();
        if row.task.queue == LOOPS {
            let here = row.task.kind.as_ref().and_then(|kind| self.runners.waits.get(kind));
            outside.extend(here.into_iter().flatten().cloned());
            room = self.runners.limit(tx, &cx, room, row.task.kind.as_deref()).await?;
        }
        let ahead = ahead(tx, &cx, &queue, &row, policy).await?;
        let around = Surroundings { facts, viewer, room, ahead, outside };
        Ok(explain::explain(&row.task, policy, &around, cx.now))
    }
}

/// Leases that would still count when the next claim chooses: where it takes expired ones back first, those do not.
async fn active_after_reclaim<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    queue: &QueueRow,
    policy: &QueuePolicy,
) -> Result<BTreeMap<String, u32>, Fault> {
    let mut active = tx.active_by_kind(queue.key).await?;
    if policy.reclaim == Reclaim::Auto {
        for row in tx.expired(queue.key, cx.now, usize::MAX).await? {
            let kind = row.task.kind.unwrap_or_default();
            active.entry(kind).and_modify(|count| *count = count.saturating_sub(1));
        }
    }
    Ok(active)
}

/// How many runnable tasks go before this one, and the first five of them.
async fn ahead<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    queue: &QueueRow,
    row: &Row,
    policy: &QueuePolicy,
) -> Result<(u64, Vec<TaskId>), Fault> {
    const SHOWN: usize = 5;
    let own = key(row, policy, cx);
    let mut before: Vec<(RankKey, u64)> = Vec::new();
    for which in [Ranked::Ready(cx.now), Ranked::Due(cx.now)] {
        let ranked = tx.rankables(queue.key, which).await?;
        let keys = ranked.iter().filter(|other| other.seq != row.task.seq);
        before.extend(
            keys.map(|other| (rank::key(other, policy, cx.now), other.seq)).filter(|(key, _)| *key < own),
        );
    }
    let count = before.len() as u64;
    if before.len() > SHOWN {
        before.select_nth_unstable(SHOWN);
        before.truncate(SHOWN);
    }
    before.sort_unstable();
    let seqs: Vec<u64> = before.iter().map(|(_, seq)| *seq).collect();
    let rows = tx.tasks_by_seq(&seqs).await?;
    let ids: BTreeMap<u64, TaskId> = rows.into_iter().map(|row| (row.task.seq, row.task.id)).collect();
    Ok((count, seqs.iter().filter_map(|seq| ids.get(seq).cloned()).collect()))
}
