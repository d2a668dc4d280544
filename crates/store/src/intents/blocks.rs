//! The stored block per upstream: a limit that one loop met holds for all of them, on every host, after every restart.

use rota_core::UnixMillis;
use rota_core::backoff::Backoff;

use super::{Call, Cx};
use crate::fault::Outcome;
use crate::store::{Access, Intent};
use crate::tx::{BlockRow, Tx};

/// The blocks of some upstreams, those that ever had one.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Where, when, who.
    pub call: Call,
    /// Which.
    pub upstreams: Vec<String>,
}

impl Intent for Blocks {
    type Output = (UnixMillis, Vec<BlockRow>);

    fn access(&self) -> Access {
        Access::Read
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Outcome<Self::Output> {
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

impl Intent for NoteLimit {
    type Output = BlockRow;

    async fn run<T: Tx>(&self, tx: &mut T) -> Outcome<BlockRow> {
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

impl Intent for NoteSuccess {
    type Output = ();

    async fn run<T: Tx>(&self, tx: &mut T) -> Outcome<()> {
        let Some(row) = tx.block(&self.upstream).await? else { return Ok(()) };
        let ends_at = row.blocked_until.unwrap_or(UnixMillis::MAX);
        if row.hits > 0 && self.began_at.is_some_and(|began| began >= ends_at) {
            tx.set_block(&BlockRow { hits: 0, ..row }).await?;
        }
        Ok(())
    }
}
