//! What an operator sees before anything happens: the leases that would be granted at a `now`, and why each other entry
//! would not. Reads only, and never more of a backlog than it lists.

use async_trait::async_trait;
use rota_core::obstacle::{self, Obstacle, Viewer};
use rota_core::policy::{QueuePolicy, Reclaim};
use rota_core::rank;
use rota_core::select::{self, Room};
use rota_core::transition::{self, Command};
use rota_core::{Status, Task, TaskId, UnixMillis};

use super::claim::{Choice, candidate, choose};
use super::{Call, Cx, find_queue, write};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, Filter, QueueRow, Ranked, Row, Tx};

/// More entries that would not be granted than this are only counted.
pub const LISTED: usize = 1_000;
/// How many tasks that have cooled down are looked at together.
const BATCH: usize = 500;

/// What would be granted at a `now`, and why each other entry would not. Reads only.
#[derive(Clone, Debug)]
pub struct PlanLeases {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// How many at most; none for up to the ceiling, or one where there is none.
    pub limit: Option<usize>,
    /// The host that would run them.
    pub host: Option<String>,
}

/// Why an entry is not in a plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Skip {
    /// The ceiling, or the limit that was asked for.
    Ceiling,
    /// Parked.
    Parked,
    /// Not before a time.
    Backoff,
    /// Its lease expired and was not reclaimed.
    Leased,
    /// Finished.
    Terminal,
    /// Something else comes first.
    Blocked,
    /// Held back by a person.
    Paused,
}

impl Skip {
    /// The word in payloads.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ceiling => "concurrency-ceiling",
            Self::Parked => "parked",
            Self::Backoff => "backoff",
            Self::Leased => "leased",
            Self::Terminal => "terminal",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
        }
    }

    const fn of(obstacle: &Obstacle) -> Self {
        match obstacle {
            Obstacle::NotOpen { status: Status::Parked } => Self::Parked,
            Obstacle::NotOpen { .. } => Self::Terminal,
            Obstacle::Paused | Obstacle::QueuePaused => Self::Paused,
            Obstacle::CoolingDown { .. } => Self::Backoff,
            Obstacle::Leased { .. } | Obstacle::LeaseExpiredAwaitingReclaim { .. } => Self::Leased,
            _ => Self::Blocked,
        }
    }
}

/// The plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasePlan {
    /// The decision's now.
    pub now: UnixMillis,
    /// The queue's ceiling.
    pub ceiling: Option<u32>,
    /// Unsettled leases, expired ones too.
    pub in_flight: u32,
    /// What would be granted, in order, as it would be then.
    pub leases: Vec<Task>,
    /// What would not, by priority, age and insertion; at most [`LISTED`].
    pub skipped: Vec<(TaskId, Skip)>,
    /// How many would not.
    pub skipped_total: usize,
}

#[async_trait]
impl Intent for PlanLeases {
    type Output = LeasePlan;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<LeasePlan> {
        let cx = Cx::open(tx, &self.call).await?;
        let policy = cx.policy(&self.queue);
        let mut plan = LeasePlan {
            now: cx.now,
            ceiling: policy.max_concurrent,
            in_flight: 0,
            leases: Vec::new(),
            skipped: Vec::new(),
            skipped_total: 0,
        };
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(plan) };
        let viewer = Viewer { queue_paused: queue.paused, host: self.host.clone(), runners: None };
        let mut active = tx.active_by_kind(queue.key).await?;
        plan.in_flight = active.values().sum();
        let expired = tx.expired(queue.key, cx.now, usize::MAX).await?;
        let held = plan.in_flight as usize - expired.len();
        let mut beside = Vec::new();
        for row in expired.into_iter().map(|row| as_a_claim_finds_it(row, policy, cx.now)) {
            if row.task.status == Status::Active {
                continue;
            }
            active.entry(row.task.kind.clone().unwrap_or_default()).and_modify(|count| *count -= 1);
            if skip(tx, &cx, &row, &viewer).await?.is_none() {
                beside.push(row);
            }
        }
        let room = Room::new(policy, active);
        if !queue.paused {
            let limit = self.limit.unwrap_or_else(|| room.left().map_or(1, |left| left as usize));
            beside.extend(due(tx, &cx, &queue, policy, room.clone(), limit, &viewer).await?);
            let host = self.host.as_deref();
            let filter = &Filter::default();
            let only_kinds = None;
            let choice = Choice { queue: &queue, policy, limit, host, filter, only_kinds, room, beside };
            for row in choose(tx, &cx, choice).await? {
                let claim = Command::Claim { agent: None, ttl_ms: None };
                plan.leases.push(transition::apply(&row.task, &claim, policy, cx.now)?.task);
            }
        }
        list_skipped(tx, &cx, &queue, policy, &viewer, held, &mut plan).await?;
        Ok(plan)
    }
}

/// A claim takes expired leases back before it chooses, where the policy says so.
fn as_a_claim_finds_it(row: Row, policy: &QueuePolicy, now: UnixMillis) -> Row {
    if policy.reclaim == Reclaim::Explicit || !row.task.lease_expired(now) {
        return row;
    }
    match transition::apply(&row.task, &Command::Lose, policy, now) {
        Ok(applied) => Row { task: applied.task, ..row },
        Err(_) => row,
    }
}

/// Those that have cooled down, that no claim has let in yet, and that would be chosen if there were no others: who
/// would not be then is not with others either.
async fn due<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    queue: &QueueRow,
    policy: &QueuePolicy,
    mut room: Room,
    limit: usize,
    viewer: &Viewer,
) -> Result<Vec<Row>, Fault> {
    let mut ranked = tx.rankables(queue.key, Ranked::Due(cx.now)).await?;
    ranked.sort_by_cached_key(|rankable| rank::key(rankable, policy, cx.now));
    let mut found: Vec<Row> = Vec::new();
    for batch in ranked.chunks(BATCH) {
        let wanted = limit - found.len();
        if wanted == 0 || room.left() == Some(0) {
            break;
        }
        let seqs: Vec<u64> = batch.iter().map(|rankable| rankable.seq).collect();
        let mut rows = tx.tasks_by_seq(&seqs).await?;
        rows.retain(|row| obstacle::viewer_obstacles(&row.task, viewer).is_empty());
        let candidates = rows.iter().map(|row| candidate(row, policy)).collect();
        let chosen = select::select(candidates, &mut room, policy, cx.now, wanted);
        let is_chosen = |row: &Row| chosen.iter().any(|candidate| candidate.rankable.seq == row.task.seq);
        found.extend(rows.into_iter().filter(is_chosen));
    }
    Ok(found)
}

/// The word for what stands in the way; none if nothing does.
async fn skip<T: Tx>(tx: &mut T, cx: &Cx, row: &Row, viewer: &Viewer) -> Result<Option<Skip>, Fault> {
    let facts = write::facts(tx, cx, row).await?;
    let mut found = obstacle::obstacles(&row.task, &facts, cx.now);
    found.extend(obstacle::viewer_obstacles(&row.task, viewer));
    Ok(found.first().map(Skip::of))
}

async fn list_skipped<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    queue: &QueueRow,
    policy: &QueuePolicy,
    viewer: &Viewer,
    held: usize,
    plan: &mut LeasePlan,
) -> Result<(), Fault> {
    let limit = LISTED + plan.leases.len();
    let rows = tx.list_unleased(queue.key, cx.now, limit).await?;
    plan.skipped_total = if rows.len() < limit {
        rows.len() - plan.leases.len()
    } else {
        let counts = tx.count(queue.key, &Filter::default()).await?;
        let there = counts.iter().filter(|count| count.status != Status::Deleted);
        there.map(|count| count.count as usize).sum::<usize>() - held - plan.leases.len()
    };
    let planned: std::collections::BTreeSet<TaskId> =
        plan.leases.iter().map(|task| task.id.clone()).collect();
    for row in rows.into_iter().filter(|row| !planned.contains(&row.task.id)).take(LISTED) {
        let row = as_a_claim_finds_it(row, policy, cx.now);
        let why = skip(tx, cx, &row, viewer).await?.unwrap_or(Skip::Ceiling);
        plan.skipped.push((row.task.id, why));
    }
    Ok(())
}
