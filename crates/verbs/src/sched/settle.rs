//! `sched renew|complete|release|reclaim|reset`: a lease by its id.

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

/// Extends a lease.
pub async fn renew(cx: &Context, lease: &str) -> Result<Renewed> {
    let task = settle(cx, lease, "renew", |caller| Command::Renew { caller, ttl_ms: None }).await?;
    Ok(Renewed { renewed: lease.to_owned(), lease_expires_at: task.lease_expires_at })
}

/// Settles a lease as done.
pub async fn complete(cx: &Context, lease: &str) -> Result<Completed> {
    settle(cx, lease, "complete", |caller| Command::Done { caller, result: None }).await?;
    Ok(Completed { completed: lease.to_owned() })
}

/// Gives a lease back, or settles it as failed.
pub async fn release(cx: &Context, lease: &str, failed: bool, reason: Option<String>) -> Result<Released> {
    let command = |caller| {
        if failed {
            Command::Fail { caller, reason, default_reason: FAILED_REASON }
        } else {
            Command::Release { caller }
        }
    };
    settle(cx, lease, "release", command).await?;
    Ok(Released { released: lease.to_owned(), failed })
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

/// Takes back every expired lease of a queue.
pub async fn reclaim(cx: &Context, queue: &str) -> Result<Reclaimed> {
    let now = cx.store.perform(&Now { call: cx.call() }).await?;
    // The clock was read a moment ago, and may have been set back since.
    let call = Call { now: Some(now), allow_future: cx.now.is_none() || cx.allow_future, ..cx.call() };
    let ids = cx.store.perform(&ReclaimExpired { call, queue: queue.to_owned() }).await?;
    Ok(Reclaimed { now, reclaimed: ids.into_iter().map(|id| id.to_string()).collect() })
}

/// Opens a parked entry with its attempts forgotten.
pub async fn reset(cx: &Context, id: &str) -> Result<Reset> {
    let parked = match TaskId::new(id) {
        Ok(id) => cx.store.perform(&ResetParked { call: cx.call(), id }).await?,
        Err(_) => None,
    };
    match parked {
        Some(_) => Ok(Reset { reset: id.to_owned() }),
        None => Err(not_found(format!("No parked entry to reset: {}", escaped(id))).into()),
    }
}

fn not_found(problem: String) -> Refusal {
    Refusal::EntryNotFound { problem }
}
