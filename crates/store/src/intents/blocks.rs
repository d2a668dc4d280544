//! The stored block per upstream: a limit that one loop met holds for all of them, on every host, after every restart.
//!
//! A row is found by its name: an upstream's for its block, `budget:` and an upstream's for the budget of its calls. A
//! spent budget is a row like a block's: its end is when the budget begins anew, its reason the budget's key.

use async_trait::async_trait;
use rota_core::backoff::Backoff;
use rota_core::obstacle::Wait;
use rota_core::transition::{Command, RateLimit};
use rota_core::{Caller, LeaseId, Task, UnixMillis};

use super::{Call, Cx, find_task, write};
use crate::fault::{Fault, Outcome};
use crate::store::{Access, Intent};
use crate::tx::{AnyTx, BlockRow, Tx};

/// The blocks of some upstreams, those that ever had one.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstreams: Vec<String>,
}

#[async_trait]
impl Intent for Blocks {
    type Output = (UnixMillis, Vec<BlockRow>);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let now = self.call.now.unwrap_or(tx.clock().await?);
        let mut rows = Vec::new();
        for upstream in &self.upstreams {
            rows.extend(tx.block(upstream).await?);
        }
        Ok((now, rows))
    }
}

/// The prefix of the names of budget rows; no upstream has a colon in its name.
const BUDGET: &str = "budget:";

impl BlockRow {
    /// Whether calls are held back at `now`.
    pub fn holds(&self, now: UnixMillis) -> bool {
        self.hits > 0 && self.blocked_until.is_none_or(|until| until > now)
    }

    /// The upstream whose budget this row is about; none for a block.
    pub fn budget_of(&self) -> Option<&str> {
        self.upstream.strip_prefix(BUDGET)
    }

    /// The wait of loops that use the upstream, while the row holds.
    pub(super) fn wait(self, now: UnixMillis) -> Option<Wait> {
        if !self.holds(now) {
            return None;
        }
        Some(match (self.budget_of().is_some(), self.blocked_until) {
            (true, Some(until)) => Wait::BudgetSpent { budget: self.reason.unwrap_or_default(), until },
            (_, until) => Wait::RateLimited { upstream: self.upstream, until },
        })
    }

    /// When a call that started after the last block succeeded first.
    pub fn last_success(&self) -> Option<UnixMillis> {
        (self.hits == 0 && self.reason.as_deref() != Some(UNBLOCKED)).then_some(self.updated_at)
    }

    /// Whether a run that started then met the same burst of limits as the last block came from.
    fn is_same_burst(&self, began_at: UnixMillis) -> bool {
        match self.hits {
            0 => self.blocked_until.is_some_and(|until| began_at < until),
            _ => began_at <= self.updated_at,
        }
    }
}

/// Everything that holds calls to an upstream back now: its block, a spent budget.
pub(super) async fn waits_of<T: Tx>(tx: &mut T, upstream: &str, now: UnixMillis) -> Result<Vec<Wait>, Fault> {
    let mut waits = Vec::new();
    for name in [upstream, &format!("{BUDGET}{upstream}")] {
        waits.extend(tx.block(name).await?.and_then(|row| row.wait(now)));
    }
    Ok(waits)
}

/// Everything that holds calls to some upstreams back now, by upstream.
#[derive(Clone, Debug)]
pub struct UpstreamWaits {
    /// Where, when, who.
    pub call: Call,
    /// The upstreams.
    pub upstreams: Vec<String>,
}

#[async_trait]
impl Intent for UpstreamWaits {
    type Output = Vec<(String, Wait)>;

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        let now = self.call.now.unwrap_or(tx.clock().await?);
        let mut found = Vec::new();
        for upstream in &self.upstreams {
            let waits = waits_of(tx, upstream, now).await?;
            found.extend(waits.into_iter().map(|wait| (upstream.clone(), wait)));
        }
        Ok(found)
    }
}

/// Writes down whether the budget for calls to some upstreams is spent.
#[derive(Clone, Debug)]
pub struct NoteBudget {
    /// Where, when, who.
    pub call: Call,
    /// The upstreams whose calls the budget pays for.
    pub upstreams: Vec<String>,
    /// The spent budget's key and when it begins anew; none if there is money left.
    pub spent: Option<(String, UnixMillis)>,
}

#[async_trait]
impl Intent for NoteBudget {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        let now = self.call.now.unwrap_or(tx.clock().await?);
        for upstream in &self.upstreams {
            let name = format!("{BUDGET}{upstream}");
            let before = tx.block(&name).await?;
            let row = match &self.spent {
                Some((budget, until)) => BlockRow {
                    upstream: name,
                    blocked_until: Some(*until),
                    hits: 1,
                    reason: Some(budget.clone()),
                    updated_at: now,
                },
                None => match before.clone().filter(|row| row.hits > 0) {
                    Some(row) => BlockRow { hits: 0, updated_at: now, ..row },
                    None => continue,
                },
            };
            let is_same = |before: &BlockRow| BlockRow { updated_at: now, ..before.clone() } == row;
            if !before.as_ref().is_some_and(is_same) {
                tx.set_block(&row).await?;
            }
        }
        Ok(())
    }
}

/// A wait that an upstream asks for, above which its quota is used up.
const QUOTA_ABOVE_MS: i64 = 300_000;
/// The longest wait that is believed: a year.
const LONGEST_WAIT_MS: i64 = 366 * 24 * 3_600_000;
/// The reason of a block that lasts until a quota's reset.
pub const QUOTA: &str = "quota used up";
/// The reason of any other block.
pub const RATE_LIMITED: &str = "rate limited";

/// A limit that a run met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotedLimit {
    /// The upstream's block now.
    pub block: BlockRow,
    /// Whether it counts as a hit. Runs that began before the last block are part of its burst, which counts once.
    pub is_hit: bool,
}

/// Notes that an upstream pushed back. A run that began before the last block did counts as part of the same burst: only
/// the wait that it asks for still moves the block's end.
#[derive(Clone, Debug)]
pub struct NoteLimit {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstream: String,
    /// When the run began that met it.
    pub began_at: Option<UnixMillis>,
    /// How long the upstream asks to wait.
    pub retry_after_ms: Option<i64>,
}

#[async_trait]
impl Intent for NoteLimit {
    type Output = NotedLimit;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<NotedLimit> {
        let cx = Cx::open(tx, &self.call).await?;
        let before = tx.block(&self.upstream).await?;
        let noted = noted(&cx, &self.upstream, before.as_ref(), self.began_at, self.retry_after_ms);
        tx.set_block(&noted.block).await?;
        Ok(noted)
    }
}

/// The wait after each hit in a row.
pub(super) fn backoff_of(cx: &Cx) -> Backoff {
    let gate = &cx.published.policy.gate;
    Backoff {
        base_ms: u64::from(gate.initial_backoff_secs) * 1_000,
        factor_thousandths: 2_000,
        cap_ms: u64::from(gate.max_backoff_secs) * 1_000,
    }
}

fn noted(
    cx: &Cx,
    upstream: &str,
    before: Option<&BlockRow>,
    began_at: Option<UnixMillis>,
    retry_after_ms: Option<i64>,
) -> NotedLimit {
    let asked_ms = retry_after_ms.unwrap_or(0).clamp(0, LONGEST_WAIT_MS);
    let is_hit = !before.is_some_and(|row| began_at.is_some_and(|began| row.is_same_burst(began)));
    let hits = before.map_or(0, |row| row.hits).saturating_add(u32::from(is_hit));
    let wait_ms = if is_hit { asked_ms.max(backoff_of(cx).after(hits)) } else { asked_ms };
    let until = cx.now.plus_ms(wait_ms);
    let is_quota = asked_ms > QUOTA_ABOVE_MS;
    let reason = Some(if is_quota { QUOTA } else { RATE_LIMITED }.to_owned());
    let new = BlockRow {
        upstream: upstream.to_owned(),
        blocked_until: Some(until),
        hits,
        reason,
        updated_at: cx.now,
    };
    let block = match before {
        // Blocked until it is unblocked by hand: that stays.
        Some(row) if row.hits > 0 && row.blocked_until.is_none() => BlockRow { hits, ..row.clone() },
        Some(row) if row.blocked_until.is_some_and(|end| end >= until) => {
            let updated_at = if is_hit { cx.now } else { row.updated_at };
            BlockRow { hits, updated_at, ..row.clone() }
        }
        Some(row) if wait_ms == 0 => row.clone(),
        // The burst's block is extended. One whose hits were forgotten holds again.
        _ => BlockRow { hits: hits.max(1), ..new },
    };
    NotedLimit { block, is_hit }
}

/// Ends a run of a task that met a limit: the block of its upstream and the task's wait, in one transaction. A late worker is
/// refused and blocks nothing.
#[derive(Clone, Debug)]
pub struct EndLimited {
    /// Where, when, who.
    pub call: Call,
    /// Which task, by its lease.
    pub lease: LeaseId,
    /// Whose block it is.
    pub upstream: String,
    /// How long the upstream asks to wait.
    pub retry_after_ms: Option<i64>,
}

#[async_trait]
impl Intent for EndLimited {
    type Output = (Task, NotedLimit);

    async fn run(&self, tx: &mut AnyTx) -> Outcome<Self::Output> {
        tx.share_edges(&self.call.scope).await?;
        let cx = Cx::open(tx, &self.call).await?;
        self.run_in(tx, &cx).await
    }
}

impl EndLimited {
    /// Carries it out inside a transaction. A refusal has changed nothing.
    pub(super) async fn run_in<T: Tx>(&self, tx: &mut T, cx: &Cx) -> Outcome<(Task, NotedLimit)> {
        let row = find_task(tx, cx, &self.lease.task).await?;
        let before = tx.block(&self.upstream).await?;
        let began_at = row.task.started_at;
        let noted = noted(cx, &self.upstream, before.as_ref(), began_at, self.retry_after_ms);
        let limit = RateLimit {
            blocked_until: noted.block.blocked_until.filter(|_| noted.block.holds(cx.now)),
            backoff: Some(backoff_of(cx)),
            others_succeed: before.is_some_and(|row| row.last_success().is_some()),
        };
        let command = Command::RateLimit { caller: Caller::lease(self.lease.clone()), limit };
        let task = write::step_or_refuse(tx, cx, &row, &command).await?.task;
        tx.set_block(&noted.block).await?;
        Ok((task, noted))
    }
}

/// Writes down the block that a gate holds. Of two gates on one upstream the longer block counts, and one that is over
/// ends no other.
#[derive(Clone, Debug)]
pub struct KeepBlock {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstream: String,
    /// No call before this; none for until somebody unblocks it.
    pub until: Option<UnixMillis>,
    /// Limits in a row; zero for a block that is over and forgotten.
    pub hits: u32,
    /// What the provider said.
    pub reason: String,
}

#[async_trait]
impl Intent for KeepBlock {
    type Output = BlockRow;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<BlockRow> {
        let cx = Cx::open(tx, &self.call).await?;
        let holds = |until: Option<UnixMillis>| until.is_none_or(|until| until > cx.now);
        let before = tx.block(&self.upstream).await?;
        let standing = before.filter(|row| row.hits > 0 && holds(row.blocked_until));
        let row = match standing {
            Some(row) if self.hits == 0 => return Ok(row),
            Some(row) => {
                let is_longer = match (self.until, row.blocked_until) {
                    (new, Some(old)) => new.is_none_or(|new| new > old),
                    (_, None) => false,
                };
                let hits = self.hits.max(row.hits);
                if is_longer { self.row(cx.now, hits) } else { BlockRow { hits, updated_at: cx.now, ..row } }
            }
            None => self.row(cx.now, self.hits),
        };
        tx.set_block(&row).await?;
        Ok(row)
    }
}

impl KeepBlock {
    fn row(&self, now: UnixMillis, hits: u32) -> BlockRow {
        let reason = Some(self.reason.clone());
        let upstream = self.upstream.clone();
        BlockRow { upstream, blocked_until: self.until, hits, reason, updated_at: now }
    }
}

/// What the row of an upstream says after somebody ended its block.
pub const UNBLOCKED: &str = "unblocked";

/// Ends a block, a quota's too.
#[derive(Clone, Debug)]
pub struct Unblock {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstream: String,
}

#[async_trait]
impl Intent for Unblock {
    type Output = BlockRow;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<BlockRow> {
        let cx = Cx::open(tx, &self.call).await?;
        let (upstream, reason) = (self.upstream.clone(), Some(UNBLOCKED.to_owned()));
        let row = BlockRow { upstream, blocked_until: Some(cx.now), hits: 0, reason, updated_at: cx.now };
        tx.set_block(&row).await?;
        Ok(row)
    }
}

/// Notes that a run which began after the block went well: the next limit is the first again.
#[derive(Clone, Debug)]
pub struct NoteSuccess {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstream: String,
    /// When the run began.
    pub began_at: Option<UnixMillis>,
}

#[async_trait]
impl Intent for NoteSuccess {
    type Output = ();

    async fn run(&self, tx: &mut AnyTx) -> Outcome<()> {
        let cx = Cx::open(tx, &self.call).await?;
        Ok(note_success(tx, &cx, &self.upstream, self.began_at).await?)
    }
}

/// The same inside a transaction that has begun.
pub(super) async fn note_success<T: Tx>(
    tx: &mut T,
    cx: &Cx,
    upstream: &str,
    began_at: Option<UnixMillis>,
) -> Result<(), Fault> {
    let Some(row) = tx.block(upstream).await? else { return Ok(()) };
    let ends_at = row.blocked_until.unwrap_or(UnixMillis::MAX);
    if row.hits > 0 && began_at.is_some_and(|began| began >= ends_at) {
        tx.set_block(&BlockRow { hits: 0, updated_at: cx.now, ..row }).await?;
    }
    Ok(())
}
