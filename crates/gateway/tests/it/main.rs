//! The gateway from the outside, against a provider that does what a script says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by panicking")]

mod answers;
mod budget;
mod fleet;
mod held;
mod identity;
mod lab;
mod long;
mod passing;
mod restart;
mod security;
