//! The stored block per upstream: a limit that one loop met holds for all of them, on every host, after every restart.

use async_trait::async_trait;
use rota_core::UnixMillis;
use rota_core::backoff::Backoff;

use super::{Call, Cx};
use crate::fault::Outcome;
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

/// Notes that an upstream pushed back. A call that began before the last block did counts as part of the same burst.
#[derive(Clone, Debug)]
pub struct NoteLimit {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstream: String,
    /// When the run began that met it.
    pub began_at: Option<UnixMillis>,
}

#[async_trait]
impl Intent for NoteLimit {
    type Output = BlockRow;

    async fn run(&self, tx: &mut AnyTx) -> Outcome<BlockRow> {
        let cx = Cx::open(tx, &self.call).await?;
        let gate = &cx.published.policy.gate;
        let backoff = Backoff {
            base_ms: u64::from(gate.initial_backoff_secs) * 1_000,
            factor_thousandths: 2_000,
            cap_ms: u64::from(gate.max_backoff_secs) * 1_000,
        };
        let before = tx.block(&self.upstream).await?;
        let same_burst =
            |row: &BlockRow| self.began_at.is_some_and(|began| row.hits > 0 && began <= row.updated_at);
        if let Some(row) = before.as_ref().filter(|row| same_burst(row)) {
            return Ok(row.clone());
        }
        let hits = before.as_ref().map_or(0, |row| row.hits).saturating_add(1);
        let until = cx.now.plus_ms(backoff.after(hits));
        let row = BlockRow {
            upstream: self.upstream.clone(),
            blocked_until: match before {
                // Blocked until somebody unblocks it: that stays.
                Some(BlockRow { blocked_until: None, hits, .. }) if hits > 0 => None,
                Some(BlockRow { blocked_until: Some(old), .. }) => Some(old.max(until)),
                _ => Some(until),
            },
            hits,
            reason: Some("rate limited".to_owned()),
            updated_at: cx.now,
        };
        tx.set_block(&row).await?;
        Ok(row)
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
        let Some(row) = tx.block(&self.upstream).await? else { return Ok(()) };
        let ends_at = row.blocked_until.unwrap_or(UnixMillis::MAX);
        if row.hits > 0 && self.began_at.is_some_and(|began| began >= ends_at) {
            tx.set_block(&BlockRow { hits: 0, ..row }).await?;
        }
        Ok(())
    }
}
