//! The rules by which Rota decides, and explains its decisions.
//!
//! Everything here is a function of its arguments: no clock, no I/O, no randomness, no floats, no hash maps. `now`
//! comes in once per decision. The same snapshot, policy and `now` give the same bytes on every host.
//!
//! | to find out | look at |
//! |---|---|
//! | why a task was not picked | [`obstacle`] |
//! | who goes first | [`rank`] |
//! | what is granted | [`select`] |
//! | who may end a lease, and what follows | [`transition`] |
//! | what a policy may say | [`policy`] |
//! | how a document is checked against its table of keys | [`shape`] |
//! | how a plan becomes changes | [`plan_sync`] |
//! | how the journal folds to the tables | [`event`] |

pub mod backoff;
pub mod event;
pub mod explain;
pub mod glob;
pub mod graph;
pub mod id;
pub mod json;
pub mod lease;
pub mod limits;
pub mod money;
pub mod notify;
pub mod obstacle;
pub mod plan_sync;
pub mod policy;
pub mod rank;
pub mod refusal;
pub mod select;
pub mod shape;
pub mod status;
pub mod supervisor;
pub mod task;
pub mod text;
pub mod time;
pub mod transition;

pub use id::TaskId;
pub use json::Json;
pub use lease::{Caller, Fence, LeaseId};
pub use money::Usd;
pub use policy::{Policy, QueuePolicy};
pub use refusal::Refusal;
pub use status::{Front, Outcome, Status};
pub use task::Task;
pub use time::UnixMillis;
