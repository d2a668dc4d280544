//! What the gateway asks and writes down: whose a call is and how urgent, the tokens that people made, what was used.

use async_trait::async_trait;
use rota_core::policy::GateLevel;
use rota_core::{Fence, Status, Task, TaskId, UnixMillis};

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

/// Billionths of a dollar for people: cents, or as many places as a small sum needs.
pub fn dollars(nanos: u64) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let digits = format!("{rest:09}");
    let shown = digits.trim_end_matches('0').len().clamp(2, 6);
    format!("{whole}.{}", &digits[..shown])
}

/// How urgent the calls of a lease are; none once the lease has ended.
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
    type Output = Option<GateLevel>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let Some(row) = tx.task(&self.call.scope, &self.task).await? else { return Ok(None) };
        let is_held = row.task.status == Status::Active && row.task.fence == self.fence;
        Ok(if is_held { Some(level_of(tx, &row.task).await?) } else { None })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_for_people() {
        for (nanos, text) in [
            (0, "0.00"),
            (1_500_000_000, "1.50"),
            (12_345_000, "0.012345"),
            (18_000_000_000, "18.00"),
            (999, "0.000000"),
        ] {
            assert_eq!(dollars(nanos), text);
        }
    }
}
