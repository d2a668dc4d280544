//! `rota sched`: leases by policy.

mod lease;
mod plan;
mod policy;
mod settle;

pub use lease::{LeasePayload, Leases, lease};
pub use plan::{Plan, SkippedEntry, plan};
pub use policy::{RULES, SchedPolicy, flat, policy_set, policy_show};
pub use settle::{Completed, Reclaimed, Released, Renewed, Reset, complete, reclaim, release, renew, reset};
