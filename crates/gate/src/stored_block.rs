//! The block as a store keeps it: in wall-clock time, so that a restart or another host knows it.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::block::{End, QUOTA_ABOVE};
use crate::moment::Moment;
use crate::pure::PureGate;

/// When a stored block is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockEnd {
    /// At this time, in milliseconds since the Unix epoch.
    UnixMillis(u64),
    /// When someone unblocks the gate.
    Unblock,
}

/// The block of one upstream, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBlock {
    /// No request starts before.
    pub until: BlockEnd,
    /// The quota is used up until then; in the past for a mere throttle.
    pub quota_until: BlockEnd,
    /// 429s in a row that counted.
    pub hits: u32,
}

impl StoredBlock {
    /// How long the block has been over at that reading of the wall clock; `None` if there was none, or it lasts.
    pub(crate) fn ended_ago(&self, unix_ms: u64) -> Option<Duration> {
        match self.until {
            BlockEnd::UnixMillis(0) | BlockEnd::Unblock => None,
            BlockEnd::UnixMillis(millis) => unix_ms.checked_sub(millis).map(Duration::from_millis),
        }
    }
}

/// A store that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the stored block could not be {action}")]
pub struct StoreFault {
    /// `read` or `written`.
    pub action: &'static str,
    /// What the store said.
    pub source: Box<dyn Error + Send + Sync>,
}

/// Keeps the block of each upstream across restarts.
///
/// The calls come from whoever reports an outcome, never under the gate's lock, one `save` at a time,
/// and only when the block changed. They should be quick: a store that is slow hands the value to
/// a task of its own. After a crash before `save` returns, either block may be found.
///
/// ```
/// use std::collections::HashMap;
/// use std::error::Error;
/// use std::sync::{Arc, Mutex};
/// use rota_gate::{BlockStore, Gate, GateConfig, StoredBlock};
///
/// #[derive(Default)]
/// struct InMemory(Mutex<HashMap<String, StoredBlock>>);
///
/// impl BlockStore for InMemory {
///     fn load(&self, upstream: &str) -> Result<Option<StoredBlock>, Box<dyn Error + Send + Sync>> {
///         Ok(self.0.lock().unwrap().get(upstream).copied())
///     }
///     fn save(&self, upstream: &str, block: StoredBlock) -> Result<(), Box<dyn Error + Send + Sync>> {
///         self.0.lock().unwrap().insert(upstream.to_owned(), block);
///         Ok(())
///     }
/// }
///
/// let gate = Gate::with_store(GateConfig::default(), "anthropic", Arc::new(InMemory::default()))?;
/// assert!(!gate.state().ramping, "there was no block");
/// # Ok::<(), rota_gate::OpenError>(())
/// ```
pub trait BlockStore: Send + Sync {
    /// The block last saved for this upstream.
    ///
    /// # Errors
    /// The store failed. A gate is not built on a block it could not read.
    fn load(&self, upstream: &str) -> Result<Option<StoredBlock>, Box<dyn Error + Send + Sync>>;

    /// Keeps the block of this upstream, in place of the one before.
    ///
    /// # Errors
    /// The store failed. The gate goes on with the block it has, and saves again at the next report.
    fn save(&self, upstream: &str, block: StoredBlock) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// The clock the stored times are read by, in milliseconds since the Unix epoch. A store that hosts
    /// share answers with its own clock.
    #[allow(clippy::disallowed_methods, reason = "the gate stands alone and needs no store")]
    fn unix_millis(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }
}

impl<N: Default> PureGate<N> {
    /// The block in wall-clock terms, given the wall clock's reading at `now`.
    pub fn stored_block(&self, now: Moment, unix_ms: u64) -> StoredBlock {
        let wall = |end: End| match end {
            End::Unblock => BlockEnd::Unblock,
            // Rounded up: a restart must not open earlier than this process would.
            End::At(moment) => BlockEnd::UnixMillis(
                unix_ms
                    .saturating_add(moment.micros_since(now).div_ceil(1_000))
                    .saturating_sub(now.micros_since(moment) / 1_000),
            ),
        };
        StoredBlock {
            until: wall(self.block.until()),
            quota_until: wall(self.block.quota_until()),
            hits: self.block.hits(),
        }
    }

    /// Takes over a stored block, given the wall clock's reading at `now`. Only ever lengthens a block.
    ///
    /// A throttle never lasts longer than [`QUOTA_ABOVE`] or the longest backoff, so what a wall clock that
    /// jumped adds to it is cut off.
    pub fn adopt_block(&mut self, now: Moment, unix_ms: u64, stored: StoredBlock) {
        let moment = |end: BlockEnd, longest: Duration| match end {
            BlockEnd::Unblock => End::Unblock,
            BlockEnd::UnixMillis(millis) => {
                let left = Duration::from_millis(millis.saturating_sub(unix_ms));
                if left.is_zero() { End::At(Moment::ZERO) } else { End::At(now.plus(left.min(longest))) }
            }
        };
        let quota_until = moment(stored.quota_until, Duration::MAX);
        let throttle = self.longest_backoff().max(QUOTA_ABOVE);
        let longest = if quota_until.is_ahead(now) { Duration::MAX } else { throttle };
        self.adopt(now, moment(stored.until, longest), quota_until, stored.hits);
        self.advance(now);
    }
}
