//! `rota sched`: leases by policy.

mod lease;
mod plan;
mod policy;
mod settle;

pub use lease::{GrantLeases, LeasePayload, Leases};
pub use plan::{Plan, PlanLeases, SkippedEntry};
pub use policy::{SchedPolicy, SetRules, ShowRules};
pub use settle::{
    CompleteLease, Completed, ReclaimLeases, Reclaimed, ReleaseLease, Released, RenewLease, Renewed, Reset,
    ResetEntry,
};
