//! `plan-sync`: makes the backlog agree with a plan, in one transaction.

use std::collections::BTreeSet;

use rota_core::glob::Globs;
use rota_store::Store;
use rota_store::intents::plan_sync::PlanSync as PlanSyncIntent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::create::checked_queue;

/// What to apply.
#[derive(Clone, Debug, Default)]
pub struct PlanSync {
    /// The plan's lines as they came in.
    pub input: Vec<u8>,
    /// Which queue.
    pub queue: String,
    /// Globs on the specs that may lose tasks.
    pub specs: Option<String>,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSynced {
    /// New and revived tasks.
    pub inserted: usize,
    /// Tasks whose fields or edges changed.
    pub updated: usize,
    /// Tasks the plan no longer has.
    pub deleted: usize,
    /// Done tasks, left alone.
    pub skipped_done: usize,
    /// Keys that mean nothing here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_keys: BTreeSet<String>,
}

/// Applies a plan: all of it, or nothing and the line that is wrong.
pub async fn plan_sync(cx: &Context, input: PlanSync) -> Result<PlanSynced> {
    let plan = rota_core::plan_sync::read(&input.input)?;
    let intent = PlanSyncIntent {
        call: cx.call(),
        queue: checked_queue(&input.queue)?,
        lines: plan.lines,
        specs: input.specs.as_deref().map(Globs::parse),
        dry_run: input.dry_run,
    };
    let counts = cx.store.perform(&intent).await?;
    Ok(PlanSynced {
        inserted: counts.inserted,
        updated: counts.updated,
        deleted: counts.deleted,
        skipped_done: counts.skipped_done,
        unknown_keys: plan.unknown_keys,
    })
}
