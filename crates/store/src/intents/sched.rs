//! What an operator does with a queue: leases by its ceiling, a parked entry reopened, draining around the policy.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rota_core::obstacle;
use rota_core::policy::QueuePolicy;
use rota_core::rank::{self, RankKey, Rankable};
use rota_core::select::Room;
use rota_core::transition::Command;
use rota_core::{Json, Status, Task, TaskId, UnixMillis};

use super::claim::{Choice, Claim, Grant, Wanted, choose, grant_next, let_in};
use super::{Call, Cx, find_queue, write};
use crate::fault::Outcome;
use crate::store::Intent;
use crate::tx::{AnyTx, ClaimReads, Filter, ListFilter, Prefetch, QueueRow, Row, Tx};

/// Grants leases in one transaction; none is no error.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Where, when, who.
    pub call: Call,
    /// From which queue.
    pub queue: String,
    /// How many at most; none for up to the ceiling, or one where there is none.
    pub limit: Option<usize>,
    /// For whom.
    pub agent: Option<String>,
    /// The host that would run them.
    pub host: Option<String>,
}

/// What was granted, and at which `now` that was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leased {
    /// The decision's now.
    pub now: UnixMillis,
    /// In order.
    pub granted: Vec<Grant>,
}

#[async_trait]
impl Intent for Lease {
    type Output = Leased;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Leased> {
        if self.call.now.is_none() {
            let (queue, limit, host) = (self.queue.as_str(), self.limit.unwrap_or(1), self.host.as_deref());
            let claim = Some(ClaimReads { queue, limit, host, ..ClaimReads::default() });
            tx.prefetch(&Prefetch { scope: &self.call.scope, claim, ..Prefetch::default() }).await?;
        }
        let (cx, queue) = Cx::open_for_grant(tx, &self.call, &self.queue).await?;
        let ceiling = cx.policy(&self.queue).max_concurrent;
        let claim = Claim {
            call: self.call.clone(),
            queue: self.queue.clone(),
            limit: self.limit.unwrap_or_else(|| ceiling.map_or(1, |ceiling| ceiling as usize)),
            agent: self.agent.clone(),
            ttl_ms: None,
            wanted: Wanted::default(),
            host: self.host.clone(),
        };
        Ok(Leased { now: cx.now, granted: grant_next(tx, &cx, &claim, queue).await? })
    }
}

/// Opens a parked entry with its attempts forgotten; none if there is no parked one of this id.
#[derive(Clone, Debug)]
pub struct ResetParked {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub id: TaskId,
}

#[async_trait]
impl Intent for ResetParked {
    type Output = Option<Task>;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Option<Task>> {
        let cx = Cx::open(tx, &self.call).await?;
        let row = tx.task(&cx.scope, &self.id).await?;
        let Some(row) = row.filter(|row| row.task.status == Status::Parked) else { return Ok(None) };
        Ok(Some(write::step_or_refuse(tx, &cx, &row, &Command::Reset).await?.task))
    }
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

#[async_trait]
impl Intent for Drain {
    type Output = Drained;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Drained> {
        tx.lock_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        let Some(queue) = find_queue(tx, &cx, &self.queue).await? else { return Ok(Drained::default()) };
        let policy = cx.policy(&self.queue);
        let (free, open) = match &self.repo {
            Some(repo) => self.free_of_repo(tx, &cx, &queue, repo, policy).await?,
            None => self.free(tx, &cx, &queue, policy).await?,
        };
        let mut drained = Vec::new();
        for row in free {
            let Some(row) = tx.task(&cx.scope, &row.task.id).await? else { continue };
            let row = write::step_or_refuse(tx, &cx, &row, &Command::Override { result: None }).await?;
            drained.push(row.task);
        }
        Ok(Drained { remaining: open - drained.len(), drained })
    }
}

impl Drain {
    /// What a claim without ceilings would choose, and how many entries are open.
    async fn free<T: Tx>(
        &self,
        tx: &mut T,
        cx: &Cx,
        queue: &QueueRow,
        policy: &QueuePolicy,
    ) -> Outcome<(Vec<Row>, usize)> {
        let open = tx.count(queue.key, &Filter::default()).await?;
        let open = open.iter().filter(|count| count.status == Status::Open).map(|count| count.count as usize);
        let open = open.sum();
        if queue.paused {
            return Ok((Vec::new(), open));
        }
        let_in(tx, cx, queue).await?;
        let unbounded = QueuePolicy { max_concurrent: None, per_kind: BTreeMap::new(), ..policy.clone() };
        let room = Room::new(&unbounded, BTreeMap::new());
        let filter = &Filter::default();
        let choice = Choice {
            queue,
            policy,
            limit: self.limit,
            host: None,
            filter,
            only_kinds: None,
            room,
            beside: Vec::new(),
        };
        Ok((choose(tx, cx, choice).await?, open))
    }

    /// The same among the entries of one repository, which no index knows.
    async fn free_of_repo<T: Tx>(
        &self,
        tx: &mut T,
        cx: &Cx,
        queue: &QueueRow,
        repo: &str,
        policy: &QueuePolicy,
    ) -> Outcome<(Vec<Row>, usize)> {
        let filter =
            ListFilter { queue: Some(queue.key), statuses: vec![Status::Open], ..ListFilter::default() };
        let mut open = tx.list(&cx.scope, &filter).await?;
        open.retain(|row| repo_of(&row.task).as_deref() == Some(repo));
        let total = open.len();
        let mut free: BTreeMap<RankKey, Row> = BTreeMap::new();
        for row in open {
            let facts = write::facts(tx, cx, &row).await?;
            if !queue.paused && obstacle::obstacles(&row.task, &facts, cx.now).is_empty() {
                free.insert(rank::key(&Rankable::of(&row.task, policy), policy, cx.now), row);
            }
        }
        Ok((free.into_values().take(self.limit).collect(), total))
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
