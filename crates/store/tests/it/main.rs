//! The store's tests, one binary.
//!
//! The conformance suite runs on memory and SQLite; beside it, what only a file and real processes can show.
#![allow(clippy::unwrap_used)]

mod children;
mod conformance;
mod crashes;
mod damage;
mod fixture;
mod plans;
mod processes;
mod random;
mod smoke;
mod subjects;
