//! What Rota does. A verb is its input type: one struct per verb, with [`Verb`] implemented for it. CLI, HTTP and MCP derive
//! flags, fields and schemas from the struct, call its `run`, and print what it returns; none of them decides anything.
//!
//! A verb takes a [`Context`] (store, scope, caller, `now`), carries out one intent on the store, and returns a payload that
//! serialises to the one JSON of `CONTRACTS`. [`registry`] lists the verbs.

pub mod agent;
pub mod attempts;
pub mod block;
pub mod carry;
pub mod claim;
mod context;
pub mod create;
pub mod delete;
pub mod deps;
pub mod doctor;
pub mod error_report;
pub mod gate;
pub mod import;
pub mod indented;
pub mod input;
pub mod issues;
pub mod lease_token;
pub mod list;
pub mod log;
pub mod loops;
pub mod migrate;
pub mod mirror;
pub mod overview;
pub mod payload;
pub mod peek;
pub mod plan_status;
pub mod plan_sync;
pub mod policy;
pub mod prune;
pub mod queue;
pub mod registry;
pub mod renew;
pub mod sched;
pub mod settle;
pub mod show;
pub mod step;
pub mod update;
pub mod verb;
pub mod why;

pub use context::{Claimant, Context, checked_name, task_id};
pub use error_report::Said;
pub use payload::{Payload, TaskPayload};
pub use rota_store::Error;

pub use verb::{Verb, Word};

/// The result of a verb.
pub type Result<T> = std::result::Result<T, Error>;
