//! The stored block: in wall-clock time, so that a restart or another host can use it.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::block::{End, QUOTA_ABOVE};
use crate::moment::Moment;
use crate::pure::PureGate;

/// The end of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockEnd {
    /// At this time, in milliseconds since the Unix epoch.
    UnixMillis(u64),
    /// When the gate is unblocked.
    Unblock,
}

/// The block of one upstream, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBlock {
    /// No request starts before this.
    pub until: BlockEnd,
    /// The quota is spent until then; in the past for a throttle.
    pub quota_until: BlockEnd,
    /// 429s in a row that counted.
    pub hits: u32,
}

impl StoredBlock {
    /// How long the block has been over at that wall-clock time; `None` if there was none, or it lasts.
    pub(crate) fn ended_ago(&self, unix_ms: u64) -> Option<Duration> {
        match self.until {
            BlockEnd::UnixMillis(0) | BlockEnd::Unblock => None,
            BlockEnd::UnixMillis(millis) => unix_ms.checked_sub(millis).map(Duration::from_millis),
        }
    }
}

/// The store could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the stored block could not be {action}")]
pub struct StoreFault {
    /// `read` or `written`.
    pub action: &'static str,
    /// The store's error.
    pub source: Box<dyn Error + Send + Sync>,
}

/// Stores the block of each upstream across restarts.
///
/// The methods are called by the task that reports an outcome, never under the gate's lock, one `save` at a time, and
/// only if the block changed. They should be quick: a slow store passes the value to its own task. After a crash
/// before `save` returns, either block may be found.
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

    /// Stores the block of this upstream, replacing the previous one.
    ///
    /// # Errors
    /// The store failed. The gate continues with its block, and saves again at the next report.
    fn save(&self, upstream: &str, block: StoredBlock) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// The clock of the stored times, in milliseconds since the Unix epoch. A store that several hosts share returns
    /// its own clock.
    #[allow(clippy::disallowed_methods, reason = "the gate stands alone and needs no store")]
    fn unix_millis(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }
}

impl<N: Default> PureGate<N> {
    /// The block in wall-clock terms, given the wall-clock time at `now`.
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

    /// Adopts a stored block, given the wall-clock time at `now`. It can only extend a block.
    ///
    /// A throttle never lasts longer than [`QUOTA_ABOVE`] or the longest backoff, which limits the effect of a wall
    /// clock that jumped.
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
