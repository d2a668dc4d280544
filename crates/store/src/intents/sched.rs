//! What an operator sees and does with a queue: the plan before anything happens, and draining around the policy.

use std::collections::BTreeMap;

use rota_core::obstacle::{self, Facts, Obstacle};
use rota_core::policy::{QueuePolicy, Reclaim};
use rota_core::rank::{self, RankKey, Rankable};
use rota_core::select::{self, Candidate, Room};
use rota_core::transition::{self, Command};
use rota_core::{Json, Status, Task, UnixMillis};

use super::{Call, Cx, find_queue, write};
use crate::fault::Outcome;
use crate::store::{Access, Intent};
use crate::tx::{ListFilter, Row, Tx};

/// What would be granted at a `now`, and why each other entry would not. Reads only.
#[derive(Clone, Debug)]
pub struct PlanLeases {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// How many at most; none for up to the ceiling, or one where there is none.
    pub limit: Option<usize>,
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
    /// What would not, in the one order.
    pub skipped: Vec<(Task, Skip)>,
}

impl Intent for PlanLeases {
    type Output = LeasePlan;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Outcome<LeasePlan> {
        let cx = Cx::open(tx, &self.call).await?;
        let policy = cx.policy(&self.queue);
        let mut plan = LeasePlan {
            now: cx.now,
            ceiling: policy.max_concurrent,
            in_flight: 0,
            leases: Vec::new(),
            skipped: Vec::new(),
        };
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(plan) };
        let filter = ListFilter { queue: Some(queue.key), ..ListFilter::default() };
        let rows = tx.list(&cx.scope, &filter).await?;
        plan.in_flight = rows.iter().filter(|row| row.task.status == Status::Active).count() as u32;
        let mut active: BTreeMap<String, u32> = BTreeMap::new();
        let mut entries: BTreeMap<RankKey, (Task, Option<Skip>)> = BTreeMap::new();
        for row in rows {
            let row = as_a_claim_finds_it(row, policy, cx.now);
            if row.task.status == Status::Active {
                *active.entry(row.task.kind.clone().unwrap_or_default()).or_default() += 1;
                if !row.task.lease_expired(cx.now) {
                    continue;
                }
            }
            let facts = write::facts(tx, &cx, &row).await?;
            let skip = if queue.paused { Some(Skip::Paused) } else { skip(&row.task, &facts, cx.now) };
            let key = rank::key(&Rankable::of(&row.task, policy), policy, cx.now);
            entries.insert(key, (row.task, skip));
        }
        choose(&mut plan, entries, Room::new(policy, active), policy, self.limit)?;
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

/// The word for what stands in the way; none if nothing does.
fn skip(task: &Task, facts: &Facts, now: UnixMillis) -> Option<Skip> {
    let found = obstacle::obstacles(task, facts, now);
    found.first().map(|first| match first {
        Obstacle::NotOpen { status: Status::Parked } => Skip::Parked,
        Obstacle::NotOpen { .. } => Skip::Terminal,
        Obstacle::Paused | Obstacle::QueuePaused => Skip::Paused,
        Obstacle::CoolingDown { .. } => Skip::Backoff,
        Obstacle::Leased { .. } | Obstacle::LeaseExpiredAwaitingReclaim { .. } => Skip::Leased,
        _ => Skip::Blocked,
    })
}

fn choose(
    plan: &mut LeasePlan,
    entries: BTreeMap<RankKey, (Task, Option<Skip>)>,
    mut room: Room,
    policy: &QueuePolicy,
    limit: Option<usize>,
) -> Outcome<()> {
    let runnable = entries.values().filter(|(_, skip)| skip.is_none());
    let candidate = |task: &Task| Candidate {
        id: task.id.clone(),
        kind: task.kind.clone(),
        rankable: Rankable::of(task, policy),
    };
    let candidates = runnable.map(|(task, _)| candidate(task)).collect();
    let limit = limit.unwrap_or_else(|| room.left().map_or(1, |left| left as usize));
    let chosen = select::select(candidates, &mut room, policy, plan.now, limit).chosen;
    let mut chosen =
        chosen.into_iter().map(|candidate| candidate.id).collect::<std::collections::BTreeSet<_>>();
    for (task, skip) in entries.into_values() {
        if chosen.remove(&task.id) {
            let claim = Command::Claim { agent: None, ttl_ms: None };
            plan.leases.push(transition::apply(&task, &claim, policy, plan.now)?.task);
        } else {
            plan.skipped.push((task, skip.unwrap_or(Skip::Ceiling)));
        }
    }
    Ok(())
}

/// Marks what has no obstacle as done, in order and with one shared time. Ceilings do not apply.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Where, when, who.
    pub call: Call,
    /// Which queue.
    pub queue: String,
    /// How many at most.
    pub limit: usize,
    /// Only entries of this repository.
    pub repo: Option<String>,
}

/// What was drained, and how many entries are still open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drained {
    /// In order.
    pub drained: Vec<Task>,
    /// Still open.
    pub remaining: usize,
}

impl Intent for Drain {
    type Output = Drained;

    async fn run<T: Tx>(&self, tx: &mut T) -> Outcome<Drained> {
        tx.lock_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Drained::default()) };
        let policy = cx.policy(&self.queue);
        let filter =
            ListFilter { queue: Some(queue.key), statuses: vec![Status::Open], ..ListFilter::default() };
        let open = tx.list(&cx.scope, &filter).await?;
        let open: Vec<Row> =
            open.into_iter().filter(|row| self.repo.is_none() || repo_of(&row.task) == self.repo).collect();
        let mut free: BTreeMap<RankKey, Row> = BTreeMap::new();
        let total = open.len();
        for row in open {
            let facts = write::facts(tx, &cx, &row).await?;
            if !queue.paused && obstacle::obstacles(&row.task, &facts, cx.now).is_empty() {
                free.insert(rank::key(&Rankable::of(&row.task, policy), policy, cx.now), row);
            }
        }
        let mut drained = Vec::new();
        for row in free.into_values().take(self.limit) {
            let Some(row) = tx.task(&cx.scope, &row.task.id).await? else { continue };
            let row = write::step_or_refuse(tx, &cx, &row, &Command::Override { result: None }).await?;
            drained.push(row.task);
        }
        Ok(Drained { remaining: total - drained.len(), drained })
    }
}

/// The repository an entry of a queue names in its payload.
pub fn repo_of(task: &Task) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        repo: Option<String>,
    }
    let payload = task.payload.as_ref().map(Json::as_str)?;
    serde_json::from_str::<Named>(payload).ok()?.repo
}
