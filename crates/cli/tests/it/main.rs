//! The real binary, driven from outside: every verb, message and exit code of the contract.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod agent;
mod attempts;
mod bad_input;
mod bad_store;
mod claim;
mod control_races;
mod create;
mod daemon;
mod daemon_hosts;
mod daemon_kill9;
mod delete;
mod edges;
mod fresh_folder;
mod help;
mod holders;
mod import;
mod init;
mod json;
mod json_tasks;
mod kill9;
mod leases;
mod list;
mod locate;
mod log;
mod loops;
mod mcp;
mod moves;
mod peek;
mod plan_status;
mod plan_sync;
mod policy;
mod postgres;
mod processes;
mod queue;
mod sched;
mod serve;
mod show;
mod support;
mod up;
mod update;
mod upkeep;
mod why;
mod why_policy;
mod work;
