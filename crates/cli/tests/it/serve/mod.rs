//! `rota serve`: the verbs over HTTP, and the command line against it.

mod auth;
mod crowd;
mod described;
mod events;
pub mod half_open;
mod in_daemon;
mod leases;
mod same_bytes;
mod three_ways;
