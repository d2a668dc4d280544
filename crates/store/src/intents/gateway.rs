//! What the gateway asks and writes down: whose a call is and how urgent, the tokens that people made, what was used.

use async_trait::async_trait;
use rota_core::policy::GateLevel;
use rota_core::transition::Command;
use rota_core::{Caller, Fence, Status, Task, TaskId, UnixMillis};

use super::settle::Settle;
use super::{Call, Cx, find_task};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, GateTokenRow, Tx, UsageFilter, UsageRow};

/// How many parents are asked for a priority: deeper than any tree may be.
const ANCESTORS: usize = 64;
/// A day of UTC.
const DAY_MS: i64 = 86_400_000;

/// The day a moment is in, counted from 1970-01-01.
pub fn day_of(now: UnixMillis) -> i64 {
    now.get().div_euclid(DAY_MS)
}

/// When the day after a day begins.
pub fn end_of_day(day: i64) -> UnixMillis {
    UnixMillis::new(day.saturating_add(1).saturating_mul(DAY_MS))
}

/// How urgent the calls of a lease are; none once the lease has ended or expired.
#[derive(Clone, Debug)]
pub struct LevelOfLease {
    /// Where, when, who.
    pub call: Call,
    /// Whose.
    pub task: TaskId,
    /// Which grant.
    pub fence: Fence,
}

#[async_trait]
impl Intent for LevelOfLease {
    type Output = Option<LeaseLevel>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let now = self.call.now.unwrap_or(tx.clock().await?);
        let Some(row) = tx.task(&self.call.scope, &self.task).await? else { return Ok(None) };
        let is_held = row.task.status == Status::Active && row.task.fence == self.fence;
        let expires_at = row.task.lease_expires_at.filter(|at| is_held && *at > now);
        let Some(expires_at) = expires_at else { return Ok(None) };
        let level = level_of(tx, &row.task).await?;
        Ok(Some(LeaseLevel { level, left_ms: expires_at.get().saturating_sub(now.get()).unsigned_abs() }))
    }
}

/// The level of a lease that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseLevel {
    /// How urgent its calls are.
    pub level: GateLevel,
    /// How long it lasts, unless it is renewed.
    pub left_ms: u64,
}

/// Parks a task that has spent its budget, whoever holds it: only a person can let it go on.
#[derive(Clone, Debug)]
pub struct ParkSpent {
    /// Where, when, who.
    pub call: Call,
    /// The task.
    pub task: TaskId,
    /// What is spent.
    pub reason: String,
}

#[async_trait]
impl Intent for ParkSpent {
    /// Whether it was parked; a task that has ended meanwhile is not.
    type Output = bool;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<bool> {
        let Some(row) = tx.task(&self.call.scope, &self.task).await? else { return Ok(false) };
        if !matches!(row.task.status, Status::Open | Status::Active) {
            return Ok(false);
        }
        let caller = row.task.lease().map_or_else(Caller::default, Caller::lease);
        let park = Command::Park { caller, reason: self.reason.clone() };
        let settled = Settle::one(self.call.clone(), self.task.clone(), park).run(tx).await?;
        Ok(settled.steps.iter().all(Result::is_ok))
    }
}

/// The task's own priority, else that of the nearest ancestor that has one, else its kind's.
async fn level_of<T: Tx>(tx: &mut T, task: &Task) -> Result<GateLevel, Fault> {
    let mut priority = task.priority;
    let mut parent = task.parent.clone();
    for _ in 0..ANCESTORS {
        let Some(id) = parent.take().filter(|_| priority.is_none()) else { break };
        let Some(row) = tx.task(&task.scope, &id).await? else { break };
        (priority, parent) = (row.task.priority, row.task.parent);
    }
    Ok(match priority {
        Some(number) => level_of_priority(number),
        None if task.kind.as_deref() == Some("plan") => GateLevel::High,
        None => GateLevel::Normal,
    })
}

/// 0 to 3 are the four levels; what is less urgent than low is low.
pub fn level_of_priority(priority: u32) -> GateLevel {
    let index = usize::try_from(priority).unwrap_or(usize::MAX);
    GateLevel::ALL.get(index).copied().unwrap_or(GateLevel::Low)
}

/// Keeps a token that somebody made for an agent.
#[derive(Clone, Debug)]
pub struct MakeGateToken {
    /// Where, when, who.
    pub call: Call,
    /// SHA-256 of it, in hex.
    pub hash: String,
    /// Whose usage it counts as.
    pub task: Option<TaskId>,
    /// How urgent its calls may be.
    pub level: Option<GateLevel>,
    /// How long it is good for.
    pub ttl_ms: Option<i64>,
}

#[async_trait]
impl Intent for MakeGateToken {
    type Output = GateTokenRow;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<GateTokenRow> {
        let cx = Cx::open(tx, &self.call).await?;
        if let Some(task) = &self.task {
            find_task(tx, &cx, task).await?;
        }
        let row = GateTokenRow {
            hash: self.hash.clone(),
            scope: cx.scope.clone(),
            task: self.task.as_ref().map(ToString::to_string),
            level: self.level,
            made_at: cx.now,
            expires_at: self.ttl_ms.map(|ttl| cx.now.plus_ms(ttl)),
        };
        tx.add_gate_token(&row).await?;
        Ok(row)
    }
}

/// A token by its hash, with the level its calls have; none if there is no such token, or no longer.
#[derive(Clone, Debug)]
pub struct FindGateToken {
    /// Where, when, who.
    pub call: Call,
    /// SHA-256 of what was shown, in hex.
    pub hash: String,
}

#[async_trait]
impl Intent for FindGateToken {
    type Output = Option<(GateTokenRow, GateLevel)>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let Some(token) = tx.gate_token(&self.hash).await? else { return Ok(None) };
        let cx = Cx::open(tx, &Call { scope: token.scope.clone(), ..self.call.clone() }).await?;
        if token.expires_at.is_some_and(|at| at <= cx.now) {
            return Ok(None);
        }
        let task = token.task.as_deref().and_then(|id| TaskId::new(id).ok());
        let row = match &task {
            Some(id) => tx.task(&cx.scope, id).await?,
            None => None,
        };
        let level = match (token.level, row) {
            (Some(level), _) => level,
            (None, Some(row)) => level_of(tx, &row.task).await?,
            (None, None) => cx.published.policy.gate.default_priority,
        };
        Ok(Some((token, level)))
    }
}

/// Adds what calls used, on the day it is by the store's clock.
#[derive(Clone, Debug)]
pub struct NoteUsage {
    /// Where, when, who.
    pub call: Call,
    /// What; the day is filled in.
    pub rows: Vec<UsageRow>,
}

#[async_trait]
impl Intent for NoteUsage {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        let now = self.call.now.unwrap_or(tx.clock().await?);
        for row in &self.rows {
            tx.add_usage(&UsageRow { day: day_of(now), ..row.clone() }).await?;
        }
        Ok(())
    }
}

/// What was used, and the day it is.
#[derive(Clone, Debug)]
pub struct Used {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub filter: UsageFilter,
}

#[async_trait]
impl Intent for Used {
    type Output = (i64, Vec<UsageRow>);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let now = self.call.now.unwrap_or(tx.clock().await?);
        Ok((day_of(now), tx.usage(&self.filter).await?))
    }
}
