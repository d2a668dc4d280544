//! The supervisor in this process, against servers that behave as trackers do.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod answers;
mod bad_issues;
mod clients;
mod filters;
mod many;
mod parked;
mod people;
mod real_server;
mod rivals;
mod support;
mod tls;
