//! `rota sched renew`, `complete`, `release`, `reclaim` and `reset`

use async_trait::async_trait;
use rota_core::text::escaped;
use rota_core::transition::{Command, FAILED_REASON};
use rota_core::{Caller, LeaseId, Refusal, Task, TaskId, UnixMillis};
use rota_store::Store;
use rota_store::intents::Call;
use rota_store::intents::claim::ReclaimExpired;
use rota_store::intents::read::Now;
use rota_store::intents::sched::ResetParked;
use rota_store::intents::settle::Settle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::input::{EntryId, LeaseName, QueueName};
use crate::queue::runs;
use crate::verb::{ErrorStyle, LeaseChanges, Route, Tool, Verb};
use crate::{Error, Result};

/// A renewed lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Renewed {
    pub renewed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<UnixMillis>,
}

/// A completed lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Completed {
    pub completed: String,
}

/// A released lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Released {
    pub released: String,
    pub failed: bool,
}

/// Leases that were taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Reclaimed {
    pub now: UnixMillis,
    pub reclaimed: Vec<String>,
}

/// An entry that was reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Reset {
    pub reset: String,
}

/// Extend a lease
///
/// Example: rota sched renew lease-run-1-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewLease {
    /// The lease
    #[arg(id = "lease", value_name = "leaseId")]
    pub lease_id: LeaseName,
}

#[async_trait]
impl Verb for RenewLease {
    type Payload = Renewed;
    const ROUTE: Route = Route::post("sched renew", "/leases/{leaseId}/renew");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Extend a lease",
        "Extend a lease, counted from now. If it is refused, the entry is no longer yours: stop its run.",
    ));

    async fn run(self, cx: &Context) -> Result<Renewed> {
        let lease = self.lease_id.into_inner();
        let task = settle(cx, &lease, "renew", |caller| Command::Renew { caller, ttl_ms: None }).await?;
        Ok(Renewed { renewed: lease, lease_expires_at: task.lease_expires_at })
    }
}

/// Settle a lease as done
///
/// Example: rota sched complete lease-run-1-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteLease {
    /// The lease
    #[arg(id = "lease", value_name = "leaseId")]
    pub lease_id: LeaseName,
}

#[async_trait]
impl Verb for CompleteLease {
    type Payload = Completed;
    const ROUTE: Route = Route::post("sched complete", "/leases/{leaseId}/complete");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Complete a lease",
        "Say that the run under a lease succeeded. Only the current lease counts.",
    ));

    fn leases(settled: &Self::Payload) -> LeaseChanges {
        ended(settled.completed.as_str())
    }

    async fn run(self, cx: &Context) -> Result<Completed> {
        let lease = self.lease_id.into_inner();
        settle(cx, &lease, "complete", |caller| Command::Done { caller, result: None }).await?;
        Ok(Completed { completed: lease })
    }
}

/// Give a lease back, or settle it as failed
///
/// Example: rota sched release lease-run-1-1 --failed --reason "tests do not pass"
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseLease {
    /// The lease
    #[arg(id = "lease", value_name = "leaseId")]
    pub lease_id: LeaseName,
    /// Count a failed attempt
    #[arg(long)]
    #[serde(default)]
    pub failed: bool,
    /// Why
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub reason: Option<String>,
}

#[async_trait]
impl Verb for ReleaseLease {
    type Payload = Released;
    const ROUTE: Route = Route::post("sched release", "/leases/{leaseId}/release");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Release a lease",
        "Give a lease back without counting anything, or with failed count a failed attempt: the entry then \
         waits by the policy's backoff, or is parked at the limit.",
    ));

    fn leases(settled: &Self::Payload) -> LeaseChanges {
        ended(settled.released.as_str())
    }

    async fn run(self, cx: &Context) -> Result<Released> {
        let (lease, failed, reason) = (self.lease_id.into_inner(), self.failed, self.reason);
        let command = |caller| {
            if failed {
                Command::Fail { caller, reason, default_reason: FAILED_REASON }
            } else {
                Command::Release { caller }
            }
        };
        settle(cx, &lease, "release", command).await?;
        Ok(Released { released: lease, failed })
    }
}

fn ended(lease: &str) -> LeaseChanges {
    LeaseId::parse(lease).map_or_else(|_| LeaseChanges::default(), |lease| LeaseChanges::ending(&lease.task))
}

/// Any lease that is not the current one of an active entry is "no active lease".
async fn settle(
    cx: &Context,
    text: &str,
    verb: &str,
    command: impl FnOnce(Caller) -> Command,
) -> Result<Task> {
    let none = || Error::from(not_found(format!("No active lease to {verb}: {}", escaped(text))));
    let Ok(lease) = LeaseId::parse(text) else { return Err(none()) };
    let caller = Caller { agent: None, lease: Some(lease.clone()) };
    let settled = cx.store.perform(&Settle::one(cx.call(), lease.task, command(caller))).await?;
    match settled.steps.into_iter().next() {
        Some(Ok(task)) => Ok(task),
        Some(Err(
            Refusal::TaskNotFound { .. }
            | Refusal::NotActive { .. }
            | Refusal::LeaseLost { .. }
            | Refusal::StaleLease { .. },
        )) => Err(none()),
        Some(Err(other)) => Err(other.into()),
        None => unreachable!("one step was taken"),
    }
}

/// Take expired leases back: one attempt counted each
///
/// Example: rota sched reclaim
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReclaimLeases {
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "runs")]
    #[serde(default = "runs")]
    pub queue: QueueName,
}

#[async_trait]
impl Verb for ReclaimLeases {
    type Payload = Reclaimed;
    const ROUTE: Route = Route::post("sched reclaim", "/queues/{queue}/reclaim");
    const IS_IDEMPOTENT: bool = true;
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(
        Tool::extra(
            "Take expired leases back",
            "Take back every lease of a queue that ran out; each counts as one failed attempt. Only for the \
         program that runs the queue.",
        )
        .destructive(),
    );

    async fn run(self, cx: &Context) -> Result<Reclaimed> {
        let now = cx.store.perform(&Now { call: cx.call() }).await?;
        // The clock was read a moment ago, and may have been set back since.
        let call = Call { now: Some(now), allow_future: cx.now.is_none() || cx.allow_future, ..cx.call() };
        let ids = cx.store.perform(&ReclaimExpired { call, queue: self.queue.into_inner() }).await?;
        Ok(Reclaimed { now, reclaimed: ids.into_iter().map(|id| id.to_string()).collect() })
    }
}

/// Open a parked entry with its attempts forgotten
///
/// Example: rota sched reset run-1
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResetEntry {
    /// The entry
    #[arg(value_name = "id")]
    pub id: EntryId,
}

#[async_trait]
impl Verb for ResetEntry {
    type Payload = Reset;
    const ROUTE: Route = Route::post("sched reset", "/entries/{id}/reset");
    const ERRORS: ErrorStyle = ErrorStyle::OneLine;
    const TOOL: Option<Tool> = Some(Tool::extra(
        "Open a parked entry",
        "Open a parked entry again with its attempts forgotten. For after somebody looked into why it was \
         parked.",
    ));

    async fn run(self, cx: &Context) -> Result<Reset> {
        let id = self.id.into_inner();
        let parked = match TaskId::new(&id) {
            Ok(id) => cx.store.perform(&ResetParked { call: cx.call(), id }).await?,
            Err(_) => None,
        };
        match parked {
            Some(_) => Ok(Reset { reset: id }),
            None => Err(not_found(format!("No parked entry to reset: {}", escaped(&id))).into()),
        }
    }
}

fn not_found(problem: String) -> Refusal {
    Refusal::EntryNotFound { problem }
}
