//! The store's tests, one binary.
//!
//! The conformance suite runs on memory and SQLite; beside it, what only a file and real processes can show, and what
//! PostgreSQL does when the world fails.
#![allow(clippy::unwrap_used)]

mod batch_order;
mod batches;
mod children;
mod conformance;
mod crashes;
mod damage;
mod follower;
mod large_plans;
mod long_reads;
mod pg;
mod plans;
mod postgres_bouncer;
mod postgres_chaos;
mod postgres_clock;
mod postgres_connect;
mod postgres_faults;
mod postgres_hosts;
mod postgres_plans;
mod postgres_tls;
mod processes;
mod proxy;
mod random;
mod roles;
mod round_trips;
mod same_story;
mod schemas;
mod smoke;
mod subjects;
mod upkeep;
