//! The store's tests, one binary.
#![allow(clippy::unwrap_used)]

mod smoke;
