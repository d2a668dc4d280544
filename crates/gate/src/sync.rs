//! The lock of the handle. The interleaving tests replace it.

pub(crate) use std::sync::{Mutex, MutexGuard};
