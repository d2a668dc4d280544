//! Saves the block after changes, one save at a time, the newest last.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::sync::Mutex;
use super::{BlockStore, Moment, StoreFault, StoredBlock};

pub(crate) struct Saver {
    store: Arc<dyn BlockStore>,
    upstream: Box<str>,
    /// The version last saved; written only while `fault` is locked.
    saved_version: AtomicU64,
    /// Held during a save.
    fault: Mutex<Option<Arc<StoreFault>>>,
}

impl Saver {
    pub fn new(store: Arc<dyn BlockStore>, upstream: &str) -> Self {
        Self { store, upstream: upstream.into(), saved_version: AtomicU64::new(0), fault: Mutex::new(None) }
    }

    pub fn load(&self) -> Result<Option<StoredBlock>, StoreFault> {
        self.store.load(&self.upstream).map_err(|source| StoreFault { action: "read", source })
    }

    pub fn unix_millis(&self) -> u64 {
        self.store.unix_millis()
    }

    /// False if the block has changed since it was last saved.
    pub fn is_saved(&self, version: u64) -> bool {
        self.saved_version.load(Ordering::Acquire) == version
    }

    /// Saves the current block, which `read` returns together with its version, unless it is already saved.
    ///
    /// It is read while no other save is in progress, so an older block never replaces a newer one. The wall clock,
    /// which may be slow, is read after `now`, so the stored end is never too early.
    pub fn save(&self, now: impl FnOnce() -> Moment, read: impl FnOnce(Moment, u64) -> (u64, StoredBlock)) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        let (version, block) = read(now, self.store.unix_millis());
        if self.is_saved(version) {
            return;
        }
        match self.store.save(&self.upstream, block) {
            Ok(()) => {
                self.saved_version.store(version, Ordering::Release);
                *fault = None;
            }
            Err(source) => *fault = Some(Arc::new(StoreFault { action: "written", source })),
        }
    }

    /// The error of the last save, until one succeeds.
    pub fn fault(&self) -> Option<Arc<StoreFault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Saver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Saver").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
