//! The lock the handle uses. The interleaving tests put another one in its place.

pub(crate) use std::sync::{Mutex, MutexGuard};
