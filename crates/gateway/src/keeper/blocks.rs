//! The blocks of gates in the store: written when a gate's changes, read every second, because another host's gate, a
//! loop without a gateway, or the operator may have changed them.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rota_core::UnixMillis;
use rota_gate::{BlockEnd, BlockStore, Gate, StoredBlock};
use rota_store::clock::system_now;
use rota_store::intents::Call;
use rota_store::intents::blocks::{Blocks as ReadBlocks, KeepBlock, QUOTA, RATE_LIMITED, UNBLOCKED};
use rota_store::{AnyStore, BlockRow, Outcome, Store};
use tokio::sync::Notify;

use super::{Notice, Notices};

pub(super) struct Blocks {
    upstreams: Vec<String>,
    /// As the store has them, or will.
    kept: Mutex<BTreeMap<String, StoredBlock>>,
    /// Not yet written.
    unwritten: Mutex<BTreeMap<String, StoredBlock>>,
    changed: Notify,
    /// How far the store's clock is ahead of ours.
    ahead_ms: AtomicI64,
}

/// What was seen the last time.
#[derive(Default)]
pub(super) struct Seen {
    updated: BTreeMap<String, UnixMillis>,
    blocked: BTreeMap<String, bool>,
}

impl Blocks {
    pub async fn read(store: &AnyStore, call: &Call, upstreams: Vec<String>) -> Outcome<Self> {
        let blocks = Self {
            upstreams,
            kept: Mutex::default(),
            unwritten: Mutex::default(),
            changed: Notify::new(),
            ahead_ms: AtomicI64::new(0),
        };
        for row in blocks.rows(store, call).await? {
            lock(&blocks.kept).insert(row.upstream.clone(), stored(&row));
        }
        Ok(blocks)
    }

    async fn rows(&self, store: &AnyStore, call: &Call) -> Outcome<Vec<BlockRow>> {
        let ask = ReadBlocks { call: call.clone(), upstreams: self.upstreams.clone() };
        let (now, rows) = store.perform(&ask).await?;
        self.ahead_ms.store(now.get() - system_now().get(), Ordering::Relaxed);
        Ok(rows)
    }

    /// Has the store looked after at once.
    pub fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Ready when there is something to write.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Writes what gates changed; what cannot be written is kept for the next time.
    pub async fn write(&self, store: &AnyStore, call: &Call) -> Outcome<()> {
        let unwritten = lock(&self.unwritten).clone();
        for (upstream, block) in unwritten {
            let until = match block.until {
                BlockEnd::UnixMillis(millis) => {
                    Some(UnixMillis::new(i64::try_from(millis).unwrap_or(i64::MAX)))
                }
                BlockEnd::Unblock => None,
            };
            let reason = if block.quota_until >= block.until { QUOTA } else { RATE_LIMITED };
            let (call, reason) = (call.clone(), reason.to_owned());
            let keep = KeepBlock { call, upstream: upstream.clone(), until, hits: block.hits, reason };
            store.perform(&keep).await?;
            let mut left = lock(&self.unwritten);
            // It may have changed again meanwhile.
            if left.get(&upstream) == Some(&block) {
                left.remove(&upstream);
            }
        }
        Ok(())
    }

    /// Takes over what others wrote.
    pub async fn look(
        &self,
        store: &AnyStore,
        call: &Call,
        gates: &[(String, Gate)],
        seen: &mut Seen,
    ) -> Outcome<()> {
        for row in self.rows(store, call).await? {
            let Some((_, gate)) = gates.iter().find(|(name, _)| *name == row.upstream) else { continue };
            let is_news = seen.updated.insert(row.upstream.clone(), row.updated_at) != Some(row.updated_at);
            if !is_news {
                continue;
            }
            if row.hits == 0 && row.reason.as_deref() == Some(UNBLOCKED) {
                gate.unblock();
                lock(&self.kept).remove(&row.upstream);
            } else {
                lock(&self.kept).insert(row.upstream.clone(), stored(&row));
                // What is kept in memory can be read.
                let _taken = gate.refresh_block();
            }
        }
        Ok(())
    }
}

impl Seen {
    /// Says when an upstream is blocked and when it is open again.
    pub fn tell(&mut self, gates: &[(String, Gate)], notices: &Notices) {
        for (name, gate) in gates {
            let state = gate.state();
            let was = self.blocked.insert(name.clone(), state.block.is_some()).unwrap_or(false);
            match state.block {
                Some(block) if !was => notices(Notice::Blocked {
                    upstream: name.clone(),
                    secs: block.ends_in.map(|left| left.as_secs().max(1)),
                    is_quota: block.quota,
                    hits: state.hits,
                }),
                None if was => notices(Notice::Open { upstream: name.clone() }),
                _ => {}
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row as a gate reads it.
fn stored(row: &BlockRow) -> StoredBlock {
    let until = match row.blocked_until {
        // Over, whatever it says; a gate that is built now goes on with its ramp.
        Some(until) if row.hits == 0 => {
            BlockEnd::UnixMillis(u64::try_from(until.min(row.updated_at).get()).unwrap_or(0))
        }
        None if row.hits == 0 => BlockEnd::UnixMillis(0),
        Some(until) => BlockEnd::UnixMillis(u64::try_from(until.get()).unwrap_or(0)),
        None => BlockEnd::Unblock,
    };
    let is_quota = row.hits > 0 && (row.blocked_until.is_none() || row.reason.as_deref() == Some(QUOTA));
    StoredBlock { until, quota_until: if is_quota { until } else { BlockEnd::UnixMillis(0) }, hits: row.hits }
}

impl BlockStore for Blocks {
    fn load(&self, upstream: &str) -> Result<Option<StoredBlock>, Box<dyn Error + Send + Sync>> {
        Ok(lock(&self.kept).get(upstream).copied())
    }

    fn save(&self, upstream: &str, block: StoredBlock) -> Result<(), Box<dyn Error + Send + Sync>> {
        lock(&self.kept).insert(upstream.to_owned(), block);
        lock(&self.unwritten).insert(upstream.to_owned(), block);
        self.changed.notify_one();
        Ok(())
    }

    fn unix_millis(&self) -> u64 {
        let now = system_now().get().saturating_add(self.ahead_ms.load(Ordering::Relaxed));
        u64::try_from(now).unwrap_or(0)
    }
}
