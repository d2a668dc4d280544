//! `sched policy show|set`: the rules of queue `runs`, flat.

use std::sync::Arc;

use rota_core::policy::FlatPolicy;
use rota_store::intents::policy::{CurrentPolicy, EditRuns};
use rota_store::{Published, Store};
use serde::Serialize;

use crate::Result;
use crate::context::Context;

/// The rules and where they come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct SchedPolicy {
    pub policy: FlatPolicy,
    pub source: &'static str,
}

/// The rules in force: `file` once anything was published.
pub async fn policy_show<S: Store>(cx: &Context<S>) -> Result<SchedPolicy> {
    let (published, history) = cx.store.perform(&CurrentPolicy { call: cx.call() }).await?;
    let source = if history.is_empty() { "default" } else { "file" };
    Ok(SchedPolicy { policy: published.policy.flat_runs(), source })
}

/// Changes what a flat document names and publishes it in one step.
pub async fn policy_set<S: Store>(cx: &Context<S>, flat: String) -> Result<(SchedPolicy, Arc<Published>)> {
    let published = cx.store.perform(&EditRuns { call: cx.call(), flat }).await?;
    Ok((SchedPolicy { policy: published.policy.flat_runs(), source: "file" }, published))
}
