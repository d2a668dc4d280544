//! What Rota does: one function per verb, one file per function. CLI, HTTP and MCP call these and return what they
//! return; none of them decides anything by itself.
//!
//! A verb takes a [`Context`] (store, scope, who asks, which `now`) and its own input, carries out one intent on the
//! store, and gives back a payload that serialises to the one JSON of `CONTRACTS`. [`table`] lists the verbs as types, for
//! interfaces that serve or ask for all of them.

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
pub mod renew;
pub mod said;
pub mod sched;
pub mod settle;
pub mod show;
pub mod step;
pub mod table;
pub mod update;
pub mod verb;
pub mod why;

pub use context::{Context, checked_name, task_id};
pub use payload::{Payload, TaskPayload};
pub use rota_store::Error;
pub use said::Said;
pub use verb::{Verb, Word};

/// The result of a verb.
pub type Result<T> = std::result::Result<T, Error>;
