//! `rota task plan-sync`
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are the help text")]

use std::collections::BTreeSet;

use async_trait::async_trait;
use rota_core::glob::Globs;
use rota_store::Store;
use rota_store::intents::plan_sync::PlanSync;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::context::Context;
use crate::input::{QueueName, globs};
use crate::queue::tasks;
use crate::verb::{Route, Tool, Verb};

/// Make the backlog agree with a plan: JSONL on standard input, one transaction
///
/// Example: rota task plan-sync < plan.jsonl
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncPlan {
    /// One JSON object per line: {"id", "t" (title), "d" (description), "p" (priority, lower first), "cat", "spec", "ref",
    /// "deps": [ids], "steps": [texts]}; id and t are needed
    #[arg(skip)]
    #[schemars(title = "plan")]
    pub plan: String,
    /// Only specs that match one of these comma-separated globs
    #[arg(long, value_name = "GLOBS")]
    pub specs: Option<String>,
    /// Say what would happen, change nothing
    #[arg(long)]
    #[serde(default)]
    pub dry_run: bool,
    /// Which queue
    #[arg(long, value_name = "QUEUE", default_value = "tasks")]
    #[serde(default = "tasks")]
    pub queue: QueueName,
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

#[async_trait]
impl Verb for SyncPlan {
    type Payload = PlanSynced;
    const ROUTE: Route = Route::post("task plan-sync", "/plans");
    const IS_IDEMPOTENT: bool = true;
    const TOOL: Option<Tool> = Some(
        Tool::extra(
            "Bring in a plan",
            "Make the backlog agree with a plan, in one transaction: new tasks are added, changed ones updated, and open \
             tasks of the plan's specs that the plan no longer has are deleted. With specs, only those may lose tasks. \
             With dryRun it only says what would happen. Any bad line refuses the whole plan.",
        )
        .destructive(),
    );

    /// All of the plan is applied, or nothing and the line that is wrong is named.
    async fn run(self, cx: &Context) -> Result<PlanSynced> {
        let plan = rota_core::plan_sync::read(self.plan.as_bytes())?;
        let intent = PlanSync {
            call: cx.call(),
            queue: self.queue.into_inner(),
            lines: plan.lines,
            specs: globs(self.specs).as_deref().map(Globs::parse),
            dry_run: self.dry_run,
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
}
